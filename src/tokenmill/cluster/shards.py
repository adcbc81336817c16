"""A shard task -> the shard, on whatever node has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from tokenmill.assemble import splits_of
from tokenmill.batches import TokenRun
from tokenmill.cluster.tasks import ShardTask
from tokenmill.recipe import Recipe, recipe_dtype, shard_dtype
from tokenmill.scatter import OpenGroup, bucket_runs
from tokenmill.segments import segment_runs
from tokenmill.shards import Split
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.shards.writer import ShardSequence, SplitRule

RUN_BYTES = 64_000_000  # of tokens in memory at a time


class _Full(Exception):  # noqa: N818 - nobody sees it
    """The shard is sealed, and the next one is somebody else's."""


def written_shard(
    task: ShardTask, recipe: Recipe, inputs: Sequence[str], out: Path, work: Path, open_group: OpenGroup
) -> ShardReceipt:
    """Write one shard and its index into `out`, from the segments in `work` or the files of groups."""
    sealed: list[ShardReceipt] = []

    def on_shard(shard: ShardReceipt) -> None:
        sealed.append(shard)
        raise _Full

    dtype = np.dtype(shard_dtype(recipe))
    before: dict[Split, int] = {"val": task.n_val, "train": task.number - task.n_val}
    with suppress(_Full), ShardSequence(recipe, dtype, out, inputs, [], on_shard, before) as sequence:
        for rule, run, n_tokens_done in runs_of(task, recipe, work, open_group):
            sequence.append(rule, run, n_tokens_done)
        assert task.last, f"shard {task.number} ends before it is full"
        sequence.end_shard()
    return sealed[0]


def runs_of(
    task: ShardTask, recipe: Recipe, work: Path, open_group: OpenGroup
) -> Iterator[tuple[SplitRule, TokenRun, int]]:
    """Yield the runs of a shard with their split, and how many of their first tokens are in the shard before it."""
    for run, n_tokens, n_documents in placed_runs(task, recipe, work, open_group):
        for rule, start, stop in splits_of(run, n_documents, task.n_val_documents):
            documents = run.documents(start, stop)
            first_token = n_tokens + int(run.doc_offsets[start])
            if task.rule == "val" and rule == "train":
                return
            # What val holds is not train's, but for documents without a token, where val has nothing else.
            foreign = task.rule == "train" and rule == "val" and task.start > 0
            if not foreign and reaches(documents, first_token, task.start):
                yield rule, documents, min(max(task.start - first_token, 0), len(documents.ids))


def reaches(documents: TokenRun, first_token: int, start: int) -> bool:
    """Whether something of a run belongs to a shard that starts there: a token, or a document that begins there."""
    last_begins = first_token + int(documents.doc_offsets[-2])
    return first_token + len(documents.ids) > start or last_begins >= start


def placed_runs(
    task: ShardTask, recipe: Recipe, work: Path, open_group: OpenGroup
) -> Iterator[tuple[TokenRun, int, int]]:
    """Yield all runs of the stretches, each with the tokens and documents of the stream before it."""
    n_tokens, n_documents = task.n_tokens_before, task.n_documents_before
    dtype = np.dtype(recipe_dtype(recipe))
    in_order = (segment_runs(segment, work, dtype, RUN_BYTES) for segment in task.segments)
    shuffled = (bucket_runs(open_group, len(task.group_bytes), bucket, dtype) for bucket in task.buckets)
    for runs in (*in_order, *shuffled):
        for run in runs:
            yield run, n_tokens, n_documents
            n_tokens += len(run.ids)
            n_documents += len(run)
