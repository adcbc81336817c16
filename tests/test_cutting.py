"""Shards that are cut by counts and written one by one equal those that one process writes in one go."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tokenmill.batches import Tokens
from tokenmill.cluster.cutting import shard_tasks
from tokenmill.cluster.shards import written_shard
from tokenmill.cluster.tasks import ShardTask
from tokenmill.errors import RecipeError
from tokenmill.plan import Span, Unit
from tokenmill.recipe import Recipe
from tokenmill.segments import (
    Segment,
    SpanReceipt,
    StageSeconds,
    UnitReceipt,
    segment_path,
    segment_runs,
    write_batch,
)
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.shards.writer import ShardSequence


def recipe_of(format_name: str, shard_tokens: int | None, val: float | int | str) -> Recipe:
    samples = {"sequence_length": 4} if format_name == "mds" else {}
    recipe = Recipe(sources=("x",), format=format_name, shard_tokens=shard_tokens, val=val, shuffle="none", **samples)
    return recipe.resolve()


def corpus(work: Path, seed: int) -> list[Segment]:
    """Segments with documents of all lengths, none at all too, and what a run knows of them."""
    rng = random.Random(seed)  # noqa: S311 - nothing to guess
    (work / "units").mkdir(parents=True)
    stretches = []
    n_rows = 0
    for i in range(rng.randint(1, 7)):
        lengths = [rng.choice([0, 0, 1, 2, 3, 5, 8, 40]) for _ in range(rng.randint(0, 9))]
        ids = np.array([rng.randint(0, 50256) for _ in range(sum(lengths))], dtype="<u2")
        path = segment_path(work, i)
        with path.open("wb") as file:
            if lengths:
                rows = np.arange(len(lengths), dtype=np.uint32)
                write_batch(file, Tokens(ids, np.array(lengths, dtype=np.int64)), rows)
        span = SpanReceipt(len(lengths), len(lengths), sum(lengths), 10 * sum(lengths))
        receipt = UnitReceipt(i, (span,), {}, 0, StageSeconds(0, 0, 0), path.stat().st_size)
        stretches.append(Segment(Unit(i, (Span(0, i, i + 1, 10),)), receipt, (n_rows,)))
        n_rows += len(lengths)
    return stretches


def runs_in(segment: Segment, work: Path):
    return segment_runs(segment, work, np.dtype("<u2"), 2**20)


def no_group(group: int):
    raise AssertionError("there are no groups")


def lengths_in(work: Path):
    def lengths(stretch: Segment) -> np.ndarray:
        runs = [run.doc_lengths for run in runs_in(stretch, work)]
        return np.concatenate([np.empty(0, np.int64), *runs])

    return lengths


def in_one_go(recipe: Recipe, stretches: list[Segment], n_val: int | None, work: Path, out: Path):
    """What one process writes, going through all tokens."""
    dtype = np.dtype("<u2" if recipe.format != "mds" else "<u4")
    with ShardSequence(recipe, dtype, out, ["x"], [], lambda shard: None) as sequence:
        n_documents = 0
        for stretch in stretches:
            for run in runs_in(stretch, work):
                edge = 0 if n_val is None else min(max(n_val - n_documents, 0), len(run))
                if edge:
                    sequence.append("val", run.documents(0, edge))
                if edge < len(run):
                    sequence.append("by shard" if n_val is None else "train", run.documents(edge, len(run)))
                n_documents += len(run)
        return sequence.finish()


def one_by_one(recipe: Recipe, stretches: list[Segment], n_val: int | None, work: Path, out: Path):
    """The same shards, each from its own task, the last one first."""
    tasks = list(shard_tasks(stretches, recipe, n_val, lengths_in(work)))
    crossed = [msgspec.json.decode(msgspec.json.encode(task), type=ShardTask) for task in tasks]
    return [written_shard(task, recipe, ["x"], out, work, no_group) for task in reversed(crossed)][::-1]


# Megatron has one shard a split, and `val shard` needs shards of a size and no folder for each split.
CASES = [
    (name, val, shard_tokens)
    for name in ("llmc", "npy", "datatrove", "megatron", "mds")
    for val in ("none", "shard", 3)
    for shard_tokens in (None, 8, 20, 64)
    if not (name == "megatron" and shard_tokens) and not (val == "shard" and (shard_tokens is None or name == "mds"))
]


@pytest.mark.parametrize(("format_name", "val", "shard_tokens"), CASES)
def test_one_by_one_equals_in_one_go(tmp_path: Path, format_name: str, val: str | int, shard_tokens: int | None):
    recipe = recipe_of(format_name, shard_tokens, val)
    n_val = None if val == "shard" else 0 if val == "none" else int(val)
    n_compared = 0
    for seed in range(25):
        folder = tmp_path / str(seed)
        for name in ("a/index", "b/index"):
            (folder / name).mkdir(parents=True)
        stretches = corpus(folder, seed)
        try:
            expected: list[ShardReceipt] | str = in_one_go(recipe, stretches, n_val, folder, folder / "a")
        except RecipeError as error:
            expected = str(error)
        try:
            found: list[ShardReceipt] | str = one_by_one(recipe, stretches, n_val, folder, folder / "b")
        except RecipeError as error:
            found = str(error)
        if isinstance(expected, str):  # "nothing to train on" is for the whole run to say
            assert isinstance(found, str) or not any(one.split == "train" for one in found)
            continue
        assert found == expected
        n_compared += 1
    assert n_compared > 3
