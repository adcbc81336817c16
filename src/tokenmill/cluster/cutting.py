"""Receipts -> which stretches of tokens make up each shard. No token is read here.

Shards are cut where shards/writer.py would cut them, going through all tokens one after another. Where a shard ends
after so many tokens, the counts in the receipts say where that is. Where it ends with a document, and where val ends,
the lengths of documents are asked for, of one stretch at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.cluster.tasks import ShardTask
from tokenmill.recipe import Recipe
from tokenmill.scatter import Bucket
from tokenmill.segments import Segment
from tokenmill.shards import format_named
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.shards.writer import SplitRule, only_one_shard

Held = Segment | Bucket  # what holds a stretch of the tokens
# The tokens of each document of it, in order.
Lengths = Callable[[Held], npt.NDArray[np.integer]]


def shard_tasks(
    stretches: Iterable[Held],
    recipe: Recipe,
    n_val_documents: int | None,
    lengths: Lengths,
    sealed: Sequence[ShardReceipt] = (),
    group_bytes: tuple[int, ...] = (),
) -> Iterator[ShardTask]:
    """Yield the shards of a run behind those that are sealed, each as soon as the stretches that hold it have come.

    `n_val_documents` of the stream are val; None: the first shard is.
    """
    cutter = _Cutter(recipe, n_val_documents, lengths, sealed, group_bytes)
    for stretch in stretches:
        cutter.add(stretch)
        yield from cutter.full_shards()
    yield from cutter.rest()


@dataclass(slots=True)
class _Placed:
    """A stretch, how much of the stream comes before it, and where each of its documents ends, once that was asked."""

    stretch: Held
    n_tokens: int
    n_documents: int
    ends: npt.NDArray[np.int64] | None = None

    @property
    def end(self) -> int:
        return self.n_tokens + self.stretch.n_tokens


class _Cutter:
    """The stretches that are not in a shard yet, and where the next shard begins."""

    def __init__(
        self,
        recipe: Recipe,
        n_val_documents: int | None,
        lengths: Lengths,
        sealed: Sequence[ShardReceipt],
        group_bytes: tuple[int, ...],
    ) -> None:
        self.recipe, self.n_val_documents, self.lengths = recipe, n_val_documents, lengths
        self.group_bytes = group_bytes
        self.by_documents = format_named(recipe.format).cut == "documents"
        self.sample_tokens = recipe.sequence_length or 1
        self.placed: deque[_Placed] = deque()
        self.n_tokens = self.n_documents = 0  # of all stretches so far
        self.start = sum(shard.n_tokens + shard.n_dropped_tokens for shard in sealed)  # of the next shard
        self.number, self.n_val_shards = len(sealed), sum(shard.split == "val" for shard in sealed)
        n_documents = sum(shard.n_documents + shard.n_dropped_documents for shard in sealed)
        rest: SplitRule = "val" if n_documents < (n_val_documents or 0) else "train"
        self.rule = "by shard" if n_val_documents is None else rest
        self.n_documents_sealed = n_documents

    def add(self, stretch: Held) -> None:
        placed = _Placed(stretch, self.n_tokens, self.n_documents)
        unsealed = self.n_documents + stretch.n_documents > self.n_documents_sealed  # if only ones without a token
        if placed.end > self.start or (placed.end == self.start and unsealed):
            self.placed.append(placed)
        self.n_tokens += stretch.n_tokens
        self.n_documents += stretch.n_documents

    def full_shards(self) -> Iterator[ShardTask]:
        """The shards behind which something of the same split has come already, and val when it is complete."""
        if self.rule == "val" and self.n_documents >= (self.n_val_documents or 0):
            yield from self.val()
        while self.rule != "val" and (end := self.end_of_shard(self.n_tokens)) is not None:
            yield self.task(end, last=False)

    def val(self) -> Iterator[ShardTask]:
        """The shards of val, now that its last document is here."""
        val_end = self.end_of_val()
        while (end := self.end_of_shard(val_end)) is not None:
            yield self.task(end, last=False)
        if self.start < val_end:
            yield self.task(val_end, last=True)
        self.rule = "train"

    def rest(self) -> Iterator[ShardTask]:
        """The last shard, now that there are no more stretches."""
        if self.rule == "val":  # it takes all documents
            yield from self.val()
        if self.rule == "by shard" and self.number == 0:
            raise only_one_shard(self.n_tokens, self.recipe)
        if self.start < self.n_tokens:
            yield self.task(self.n_tokens, last=True)

    def end_of_shard(self, limit: int) -> int | None:
        """Where the next shard ends; None if nothing of its split, which goes to `limit`, is sure to follow it."""
        if self.recipe.shard_tokens is None:
            return None
        end = self.start + self.recipe.shard_tokens
        if self.by_documents and limit > end:
            end = self.end_of_documents(end)
        return end if limit >= end + self.sample_tokens else None

    def end_of_documents(self, most: int) -> int:
        """The end of the last document that fits, or of the first one if it fits no shard."""
        fitting = self.start
        for placed in self.placed:
            ends = self.ends_in(placed)
            fits = int(np.searchsorted(ends, most, side="right"))
            if fits:
                fitting = max(fitting, int(ends[fits - 1]))
            if fits < len(ends):
                return fitting if fitting > self.start else int(ends[fits])
        raise AssertionError("no document ends behind the shard")

    def end_of_val(self) -> int:
        """Where in the stream the last document of val ends."""
        n_val = self.n_val_documents or 0
        for placed in self.placed:
            if placed.n_documents < n_val <= placed.n_documents + placed.stretch.n_documents:
                return int(self.ends_in(placed)[n_val - placed.n_documents - 1])
        return self.n_tokens

    def ends_in(self, placed: _Placed) -> npt.NDArray[np.int64]:
        if placed.ends is None:
            placed.ends = placed.n_tokens + np.cumsum(self.lengths(placed.stretch), dtype=np.int64)
        return placed.ends

    def task(self, end: int, *, last: bool) -> ShardTask:
        """The next shard, which ends there; forget the stretches that lie wholly before its end."""
        needed = end if last else end + self.sample_tokens
        first = self.placed[0]
        stretches = [placed.stretch for placed in self.placed if last or placed.n_tokens < needed]
        task = ShardTask(
            number=self.number,
            n_val=self.n_val_shards,
            rule=self.rule,
            last=last,
            start=self.start,
            n_tokens_before=first.n_tokens,
            n_documents_before=first.n_documents,
            n_val_documents=self.n_val_documents,
            segments=tuple(one for one in stretches if isinstance(one, Segment)),
            buckets=tuple(one for one in stretches if isinstance(one, Bucket)),
            group_bytes=self.group_bytes,
        )
        self.start = end
        self.number += 1
        self.n_val_shards += self.rule == "val" or (self.rule == "by shard" and task.number == 0)
        # One that ends right there may hold documents without a token, which belong to what follows.
        while self.placed and self.placed[0].end < end:
            self.placed.popleft()
        return task
