"""Segments, in order -> shards of the format.

Units are taken in their order, whoever finished first, and their tokens flow into shards of exact size; a document
may run across the edge of a shard. Without a shuffle this streams while later units are still being encoded, and a
segment is deleted as soon as its tokens are in a shard. What depends on the number of documents (a permutation, a
fraction as val) waits for the last unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from tokenmill.batches import TokenRun
from tokenmill.encode import Job, encode_unit
from tokenmill.plan import Plan
from tokenmill.recipe import Recipe, RunOptions, recipe_dtype, shuffle_kind_and_seed
from tokenmill.segments import UnitReceipt, read_segment, segment_path
from tokenmill.shards.writer import ShardReceipt, ShardSequence, SplitRule
from tokenmill.shuffle import permutation, shuffled_runs


class AssemblyProgress(Protocol):
    """Who wants to know how far the shards are."""

    def scattered(self, n_tokens: int) -> None: ...
    def written(self, n_tokens: int) -> None: ...
    def shard_sealed(self, shard: ShardReceipt) -> None: ...


def assemble(
    receipts: Iterable[UnitReceipt],
    plan: Plan,
    job: Job,
    options: RunOptions,
    out: Path,
    progress: AssemblyProgress,
) -> tuple[list[UnitReceipt], list[ShardReceipt]]:
    """Write the shards of a run; return the receipts of the units that went into them, and theirs."""
    recipe, work = job.recipe, Path(job.work)
    dtype = np.dtype(recipe_dtype(recipe))
    used: list[UnitReceipt] = []
    receipts = noted(limited(in_unit_order(receipts), plan, job, dtype), used)
    kind, seed = shuffle_kind_and_seed(str(recipe.shuffle))
    n_documents = None
    if kind != "none" or isinstance(recipe.val, float):
        receipts = list(receipts)
        n_documents = sum(receipt.n_documents for receipt in receipts)

    runs = corpus_runs(receipts, plan, work, dtype, options.bucket_bytes)
    if kind != "none":
        assert n_documents is not None
        n_bytes = sum(receipt.n_tokens for receipt in receipts) * dtype.itemsize
        n_buckets = max(1, -(-n_bytes // options.bucket_bytes))
        positions = permutation(kind, n_documents, seed)
        runs = shuffled_runs(runs, positions, n_documents, n_buckets, work, dtype, progress.scattered)

    with ShardSequence(recipe, dtype, out, progress.shard_sealed) as sequence:
        for split, run in split_runs(runs, recipe, n_documents):
            sequence.append(split, run)
            progress.written(len(run.ids))
        return used, sequence.finish()


def in_unit_order(receipts: Iterable[UnitReceipt]) -> Iterator[UnitReceipt]:
    """Yield receipts by unit, each as soon as all before it are there."""
    waiting: dict[int, UnitReceipt] = {}
    n_yielded = 0
    for receipt in receipts:
        waiting[receipt.unit] = receipt
        while n_yielded in waiting:
            yield waiting.pop(n_yielded)
            n_yielded += 1
    assert not waiting, f"units missing before {min(waiting)}"


def noted(receipts: Iterable[UnitReceipt], used: list[UnitReceipt]) -> Iterator[UnitReceipt]:
    for receipt in receipts:
        used.append(receipt)
        yield receipt


def limited(receipts: Iterable[UnitReceipt], plan: Plan, job: Job, dtype: np.dtype) -> Iterator[UnitReceipt]:
    """Stop at the recipe's limits; the unit that one of them falls into is encoded again, up to there."""
    recipe = job.recipe
    documents_left, tokens_left = recipe.limit_documents or 2**62, recipe.limit_tokens or 2**62
    for receipt in receipts:
        n_documents = min(receipt.n_documents, documents_left)
        if receipt.n_tokens > tokens_left:
            n_documents = min(n_documents, n_documents_within(tokens_left, receipt, plan, job, dtype))
        if n_documents < receipt.n_documents:
            yield encode_unit(job, plan.units[receipt.unit], limit_documents=n_documents)
            return
        yield receipt
        documents_left -= receipt.n_documents
        tokens_left -= receipt.n_tokens


def n_documents_within(n_tokens: int, receipt: UnitReceipt, plan: Plan, job: Job, dtype: np.dtype) -> int:
    """Return how many of the first documents of a unit have no more than `n_tokens` together."""
    path, unit = segment_path(Path(job.work), receipt.unit), plan.units[receipt.unit]
    runs = read_segment(path, receipt, unit, [0] * len(unit.spans), dtype, max_bytes=2**24)
    lengths = np.concatenate([run.doc_lengths for run in runs])
    return int(np.searchsorted(np.cumsum(lengths), n_tokens, side="right"))


def corpus_runs(
    receipts: Iterable[UnitReceipt], plan: Plan, work: Path, dtype: np.dtype, max_bytes: int
) -> Iterator[TokenRun]:
    """Yield the documents of the corpus in order; each segment is deleted when its last run has been used."""
    n_rows_before: Counter[int] = Counter()
    for receipt in receipts:
        unit = plan.units[receipt.unit]
        first_rows = []
        for span, span_receipt in zip(unit.spans, receipt.spans, strict=True):
            first_rows.append(n_rows_before[span.input])
            n_rows_before[span.input] += span_receipt.n_rows
        path = segment_path(work, receipt.unit)
        yield from read_segment(path, receipt, unit, first_rows, dtype, max_bytes)
        path.unlink()


def split_runs(
    runs: Iterable[TokenRun], recipe: Recipe, n_documents: int | None
) -> Iterator[tuple[SplitRule, TokenRun]]:
    """Yield each run with the split it belongs to: the first documents are val, the rest is train."""
    if recipe.val == "shard":
        for run in runs:
            yield "by shard", run
        return
    n_val_left = n_val_documents(recipe, n_documents)
    for run in runs:
        n_val = min(n_val_left, len(run))
        if n_val:
            yield "val", run.documents(0, n_val)
        if n_val < len(run):
            yield "train", run.documents(n_val, len(run))
        n_val_left -= n_val


def n_val_documents(recipe: Recipe, n_documents: int | None) -> int:
    """Return how many of the first documents are for validation. A fraction is rounded up, as nanoGPT's is."""
    match recipe.val:
        case "none":
            return 0
        case float(fraction):
            assert n_documents is not None
            return math.ceil(fraction * n_documents)
        case int(count):
            return count
    raise AssertionError(recipe.val)
