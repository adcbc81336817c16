"""Segments, in order -> shards of the format.

The output is one stream of tokens, cut into shards. It comes in stretches: the segments of the units in their order,
or the buckets of a shuffle. The counts of every stretch are known before it is read, so a run that goes on after a
kill knows which stretches lie wholly in sealed shards: nobody needs them. A segment is deleted when the last shard
that uses it is sealed; buckets lie across the files of all groups, which stay until the run is done.

Without a shuffle this streams while later units are still being encoded. What depends on the number of documents (a
permutation, a fraction as val) waits for the last unit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from tokenmill import faults
from tokenmill.batches import TokenRun
from tokenmill.care import Care, Place
from tokenmill.encode import Job, encode_unit
from tokenmill.errors import DataError, OutputError
from tokenmill.fetching import Supply
from tokenmill.home import Home
from tokenmill.journal import Journal, Scattered, ShardSealed, UnitDone
from tokenmill.plan import Plan
from tokenmill.recipe import Recipe, RunOptions, recipe_dtype, shard_dtype, shuffle_kind_and_seed
from tokenmill.scatter import (
    GroupReceipt,
    ScatterTask,
    bucket_count,
    bucket_stretches,
    pieces_path,
    scatter_tasks,
    scattered_here,
)
from tokenmill.segments import (
    FirstReceipts,
    Segment,
    Stretch,
    UnitReceipt,
    placed_segments,
    read_segment,
    segment_path,
    segment_stretches,
)
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.shards.writer import ShardSequence, SplitRule


class AssemblyProgress(Protocol):
    """Who wants to know how far the shards are. Each call may raise, which ends the run."""

    def scattered(self, n_tokens: int) -> None: ...
    def written(self, n_tokens: int) -> None: ...
    def shard_sealed(self, shard: ShardReceipt) -> None: ...


def assemble(
    receipts: Iterable[UnitReceipt],
    plan: Plan,
    job: Job,
    options: RunOptions,
    home: Home,
    journal: Journal,
    progress: AssemblyProgress,
    supply: Supply,
) -> tuple[FirstReceipts, list[ShardReceipt]]:
    """Write the shards of a run; return the receipts of the units that went into them, and theirs."""
    recipe = job.recipe
    dtype = np.dtype(recipe_dtype(recipe))
    used = Used()
    work = Path(job.work)

    def bring(receipt: UnitReceipt) -> None:
        home.bring(segment_path(work, receipt.unit, cut=receipt.cut), receipt.n_segment_bytes)

    receipts = used.counted(limited(in_unit_order(receipts), plan, job, dtype, journal, supply, bring))
    kind, seed = shuffle_kind_and_seed(str(recipe.shuffle))
    n_documents = None
    if recipe.waits_for_all:
        receipts = list(receipts)
        n_documents = sum(receipt.n_documents for receipt in receipts)

    segments = placed_segments(receipts, plan)
    if kind == "none":
        stretches = segment_stretches(segments, work, dtype, options.bucket_bytes, bring)
    else:
        n_tokens = sum(receipt.n_tokens for receipt in receipts)
        n_buckets = len(journal.state.bucket_tokens) or bucket_count(n_tokens, dtype, options.bucket_bytes)
        tasks = scatter_tasks(segments, kind, seed, n_buckets, dtype)
        scatter = partial(scattered_here, work, dtype, options.bucket_bytes, progress.scattered, bring)
        scatter_groups(tasks, work, journal, scatter)

        def open_group(group: int) -> BinaryIO:
            path = pieces_path(work, group)
            home.bring(path, journal.state.groups[group].n_bytes)
            return path.open("rb")

        counts = journal.state.bucket_documents, journal.state.bucket_tokens
        stretches = bucket_stretches(open_group, len(tasks), *counts, dtype)

    sealed = Sealed(journal)

    def on_shard(shard: ShardReceipt) -> None:
        sealed.add(shard)
        home.shard_sealed(shard)
        home.settle(journal)
        progress.shard_sealed(shard)

    paths = [entry.path for entry in plan.inputs]
    dtype, done = np.dtype(shard_dtype(recipe)), journal.state.shards
    with ShardSequence(recipe, dtype, home.folder, paths, done, on_shard) as sequence:
        for split, run, n_tokens_done in split_runs(sealed.rest_of(stretches), recipe, n_documents, sealed):
            sequence.append(split, run, n_tokens_done)
            progress.written(len(run.ids) - n_tokens_done)
        went_in = journal.state.units.first(used.n_units)
        refuse_a_broken_tokenizer(went_in, recipe)
        return went_in, sequence.finish()


def refuse_a_broken_tokenizer(receipts: Iterable[UnitReceipt], recipe: Recipe) -> None:
    """Documents that no engine can take are put aside one by one. When that were all of them, they are not to blame."""
    reasons: list[str] = []
    for receipt in receipts:
        if receipt.n_documents:
            return
        reasons += [exclusion.reason for exclusion in receipt.excluded]
    if reasons:
        raise DataError(
            f"the tokenizer `{recipe.tokenizer}` fails on every document: {reasons[0]}", hint="is it the right one?"
        )


class Placed(NamedTuple):
    """A run, and how much of the stream comes before it."""

    run: TokenRun
    n_tokens_before: int
    n_documents_before: int


class Sealed:
    """How much of the stream is in sealed shards, and which stretches are still needed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.n_tokens = self.n_documents = 0
        for shard in journal.state.shards:
            self._count(shard)
        self._needed: deque[tuple[int, int, Stretch]] = deque()  # where in the stream each stretch ends

    def add(self, shard: ShardReceipt) -> None:
        """Record a sealed shard, and delete the stretches that lie wholly before its end."""
        self._journal.record(ShardSealed(shard))
        self._count(shard)
        while self._needed and self.covers(*self._needed[0][:2]):
            delete_files(self._needed.popleft()[2].own_files, "stretch.deleted")

    def _count(self, shard: ShardReceipt) -> None:
        self.n_tokens += shard.n_tokens + shard.n_dropped_tokens
        self.n_documents += shard.n_documents + shard.n_dropped_documents

    def covers(self, n_tokens: int, n_documents: int) -> bool:
        """Whether the stream up to there is in sealed shards."""
        return n_tokens <= self.n_tokens and n_documents <= self.n_documents

    def rest_of(self, stretches: Iterable[Stretch]) -> Iterator[Placed]:
        """Yield the runs of the stretches that are not wholly in sealed shards."""
        n_tokens = n_documents = 0
        for stretch in stretches:
            ends = n_tokens + stretch.n_tokens, n_documents + stretch.n_documents
            if self.covers(*ends):
                delete_files(stretch.own_files, "stretch.deleted")  # sealed, and killed before they were deleted
            else:
                self._needed.append((*ends, stretch))
                for run in stretch.runs():
                    yield Placed(run, n_tokens, n_documents)
                    n_tokens += len(run.ids)
                    n_documents += len(run)
                assert (n_tokens, n_documents) == ends, f"{stretch} does not hold what its receipt says"
            n_tokens, n_documents = ends


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


class Used:
    """How many units, from the first on, went into shards: a limit may end the run before the last one."""

    def __init__(self) -> None:
        self.n_units = 0

    def counted(self, receipts: Iterable[UnitReceipt]) -> Iterator[UnitReceipt]:
        for receipt in receipts:
            self.n_units += 1
            yield receipt


def limited(
    receipts: Iterable[UnitReceipt],
    plan: Plan,
    job: Job,
    dtype: np.dtype,
    journal: Journal,
    supply: Supply,
    bring: Callable[[UnitReceipt], None],
) -> Iterator[UnitReceipt]:
    """Stop at the recipe's limits; the unit that one of them falls into is encoded again, up to there.

    So the inputs of a unit are needed until it has passed here. `bring` has its segment on this machine.
    """
    recipe = job.recipe
    documents_left, tokens_left = recipe.limit_documents or 2**62, recipe.limit_tokens or 2**62
    for receipt in receipts:
        if receipt.cut:  # by the run that was killed
            yield receipt
            return
        n_documents = min(receipt.n_documents, documents_left)
        if receipt.n_tokens > tokens_left:
            bring(receipt)
            n_documents = min(n_documents, n_documents_within(tokens_left, receipt, plan, job, dtype))
        if n_documents < receipt.n_documents:
            care = Care(
                by_reference=tuple(Place(*place) for place in receipt.by_reference),
                excluded=tuple((Place(entry.span, entry.row), entry.reason) for entry in receipt.excluded),
            )
            unit = plan.units[receipt.unit]
            cut = encode_unit(job, unit, care=care, limit_documents=n_documents, paths=supply.last_paths(unit))
            journal.record(UnitDone(cut))
            yield cut
            return
        supply.release(plan.units[receipt.unit])
        yield receipt
        documents_left -= receipt.n_documents
        tokens_left -= receipt.n_tokens


def n_documents_within(n_tokens: int, receipt: UnitReceipt, plan: Plan, job: Job, dtype: np.dtype) -> int:
    """Return how many of the first documents of a unit have no more than `n_tokens` together."""
    segment = Segment(plan.units[receipt.unit], receipt, (0,) * len(receipt.spans))
    lengths = np.concatenate([run.doc_lengths for run in read_segment(segment, Path(job.work), dtype)])
    return int(np.searchsorted(np.cumsum(lengths), n_tokens, side="right"))


def delete_files(paths: Iterable[Path], point: str = "segment.deleted") -> None:
    for path in paths:
        path.unlink(missing_ok=True)
        faults.point(point)


def scatter_groups(
    tasks: list[ScatterTask],
    work: Path,
    journal: Journal,
    run: Callable[[list[ScatterTask]], Iterable[GroupReceipt]],
    delete: Callable[[Iterable[Path]], None] = delete_files,
) -> None:
    """Have the groups scattered that are not yet. `run` may do them in any order, and one of them twice.

    The segments of a group are deleted when it is recorded.
    """
    done = journal.state.groups
    if any(number >= len(tasks) or group.units != tasks[number].units for number, group in done.items()):
        raise OutputError(
            f"`{work.parent}` was begun by another version of tokenmill, which puts units into other groups",
            hint="finish it with that version, or delete it",
        )
    to_do = [task for task in tasks if task.group not in done]
    for number in done:
        delete(tasks[number].paths(work))  # recorded and not deleted: killed in between
    n_documents = tasks[0].n_documents if tasks else 0
    if any(group.n_documents_in_all not in (0, n_documents) for group in done.values()):
        raise OutputError(
            f"`{work.parent}` was shuffled in part with other documents than it has now, so their places do not fit",
            hint="delete it, and run again",
        )
    for receipt in run(to_do):
        if receipt.group not in done:
            journal.record(Scattered(receipt))
            delete(tasks[receipt.group].paths(work))


def split_runs(
    placed: Iterable[Placed], recipe: Recipe, n_documents: int | None, sealed: Sealed
) -> Iterator[tuple[SplitRule, TokenRun, int]]:
    """Yield each run with its split and the number of its first tokens that sealed shards hold already.

    The first documents are val, the rest is train.
    """
    n_tokens_sealed, n_documents_sealed = sealed.n_tokens, sealed.n_documents  # before this run began to write
    n_val = None if recipe.val == "shard" else n_val_documents(recipe, n_documents)
    for run, n_tokens, n_before in placed:
        for rule, start, stop in splits_of(run, n_before, n_val):
            documents = run.documents(start, stop)
            ends = n_tokens + len(documents.ids), n_before + stop
            if not (ends[0] <= n_tokens_sealed and ends[1] <= n_documents_sealed):
                yield rule, documents, min(max(n_tokens_sealed - n_tokens, 0), len(documents.ids))
            n_tokens = ends[0]


def splits_of(run: TokenRun, n_before: int, n_val: int | None) -> list[tuple[SplitRule, int, int]]:
    """Which documents of a run go where, from one to another; none of it is empty.

    `n_before` documents come before the run, and the first `n_val` of all are val; None: the first shard is.
    """
    edge = 0 if n_val is None else min(max(n_val - n_before, 0), len(run))
    rest: SplitRule = "by shard" if n_val is None else "train"
    splits: list[tuple[SplitRule, int, int]] = [("val", 0, edge), (rest, edge, len(run))]
    return [(rule, start, stop) for rule, start, stop in splits if start < stop]


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
