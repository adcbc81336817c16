"""Runs of tokens -> shards of a format, and their indexes, cut as the format wants it.

A shard is opened when its first token comes and committed when it is full and another token comes, or at the end.
Which shard a document's entry goes to depends on the position of its first token alone, never on how the tokens
arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np

from tokenmill.batches import TokenRun, joined
from tokenmill.errors import RecipeError
from tokenmill.recipe import Recipe
from tokenmill.shards import Beginnings, Place, Split, format_named
from tokenmill.shards.index import IndexWriter, index_name
from tokenmill.shards.receipts import FileReceipt, ShardReceipt

# "by shard": shard 0 is val, the others train.
SplitRule = Literal["train", "val", "by shard"]


class _OpenShard:
    """A shard and its index, being written."""

    def __init__(self, recipe: Recipe, dtype: np.dtype, out: Path, place: Place, inputs: Sequence[str]) -> None:
        self.place = place
        self.shard = format_named(recipe.format).open(out, recipe, dtype, place, inputs)
        self.index = IndexWriter(out / index_name(place.number))
        self.n_tokens = self.n_continued = 0

    def append(self, run: TokenRun, start: int, stop: int) -> None:
        """Write the tokens `start` to `stop` of a run, and enter the documents that begin there."""
        starts = run.doc_offsets[:-1]
        of = slice(int(np.searchsorted(starts, start)), int(np.searchsorted(starts, stop)))
        documents = Beginnings(starts[of] + (self.n_tokens - start), run.doc_inputs[of], run.doc_rows[of])
        self.shard.append(run.ids[start:stop], documents)
        self.index.append(documents.starts, run.doc_lengths[of], documents.inputs, documents.rows, run.continued[of])
        self.n_tokens += stop - start
        self.n_continued += int(run.continued[of].sum())

    def append_empty(self, run: TokenRun, of: slice) -> None:
        """Enter documents without a token, behind the last one that has some."""
        n_documents = len(run.doc_lengths[of])
        starts = np.full(n_documents, self.n_tokens, dtype=np.int64)
        self.shard.append(run.ids[:0], Beginnings(starts, run.doc_inputs[of], run.doc_rows[of]))
        self.index.append(starts, run.doc_lengths[of], run.doc_inputs[of], run.doc_rows[of], run.continued[of])

    def commit(self, n_dropped_tokens: int, n_dropped_documents: int, *, ends_cut: bool) -> ShardReceipt:
        index_sha256 = self.index.commit()
        first, *others = self.shard.commit()
        return ShardReceipt(
            file=first.file,
            split=self.place.split,
            n_tokens=self.n_tokens,
            n_documents=self.index.n_documents,
            n_bytes=first.n_bytes,
            sha256=first.sha256,
            index=FileReceipt(index_name(self.place.number), self.index.file.n_bytes, index_sha256),
            side_files=tuple(others),
            n_dropped_tokens=n_dropped_tokens,
            n_dropped_documents=n_dropped_documents,
            n_continued=self.n_continued,
            ends_cut=ends_cut,
        )

    def abandon(self) -> None:
        self.shard.abandon()
        self.index.file.abandon()


class ShardSequence:
    """All shards of a run, one after another, numbered through; val comes first."""

    def __init__(
        self,
        recipe: Recipe,
        dtype: np.dtype,
        out: Path,
        inputs: Sequence[str],
        sealed: Iterable[ShardReceipt],
        on_shard: Callable[[ShardReceipt], None],
        n_elsewhere: Mapping[Split, int] | None = None,
    ) -> None:
        self.recipe, self.dtype, self.out, self.inputs, self.on_shard = recipe, dtype, out, inputs, on_shard
        self.cut = format_named(recipe.format).cut
        self.sample_tokens = recipe.sequence_length or 1
        self.receipts = list(sealed)  # those of the run that this one goes on with come first
        self.n_elsewhere = Counter(n_elsewhere)  # shards before these that others write, by split
        self.shard: _OpenShard | None = None
        self.rule: SplitRule | None = None
        # What is not written yet: documents without a token, which begin where the next token will be, or tokens that
        # do not fill a sample. The first `n_waiting_done` tokens of it are written.
        self.waiting: TokenRun | None = None
        self.n_waiting_done = 0
        self.unfinished = False  # the last document that was written

    def append(self, rule: SplitRule, run: TokenRun, n_tokens_done: int = 0, *, unfinished: bool = False) -> None:
        """Write a run; another rule than the last one's begins a new shard.

        The first `n_tokens_done` tokens of the run are in a sealed shard, and the documents that begin there.
        `unfinished`: the end of its last document is not there, and nothing of this split follows.
        """
        if self.rule not in (None, rule):
            self.end_shard()
        self.rule = rule
        position = n_tokens_done + self.n_waiting_done
        if self.waiting is not None:
            run = joined([self.waiting, run])
        while len(run.ids) - position >= self.sample_tokens:
            n_tokens = self.n_fitting(run, position) if self.shard else 0
            if n_tokens == 0:
                self.next_shard()
                continue
            assert self.shard is not None
            self.shard.append(run, position, position + n_tokens)
            position += n_tokens
        self.wait_with(run, position)
        self.unfinished = unfinished

    def n_fitting(self, run: TokenRun, position: int) -> int:
        """How many tokens of a run, from a position on, go into the open shard."""
        assert self.shard is not None
        n_left = len(run.ids) - position
        if self.recipe.shard_tokens is None:
            return n_left // self.sample_tokens * self.sample_tokens
        room = self.recipe.shard_tokens - self.shard.n_tokens
        if self.cut == "documents":
            ends = run.doc_offsets[1:]
            n_whole = int(np.searchsorted(ends, position + room, side="right"))
            end = int(ends[n_whole - 1]) if n_whole else 0
            if end <= position and self.shard.n_tokens == 0:  # longer than a shard: alone in one
                end = int(ends[np.searchsorted(ends, position, side="right")])
            return max(0, end - position)
        return min(n_left, room) // self.sample_tokens * self.sample_tokens

    def wait_with(self, run: TokenRun, position: int) -> None:
        """Keep what is not written of a run."""
        offsets = run.doc_offsets
        if position < len(run.ids):
            first = int(np.searchsorted(offsets[1:], position, side="right"))
        else:
            first = int(np.searchsorted(offsets[:-1], len(run.ids)))
        self.waiting = run.documents(first, len(run)) if first < len(run) else None
        self.n_waiting_done = position - int(offsets[first]) if self.waiting is not None else 0

    def next_shard(self) -> None:
        self.seal()
        number = len(self.receipts) + self.n_elsewhere.total()
        split: Split = ("val" if number == 0 else "train") if self.rule == "by shard" else self.rule or "train"
        n_before = self.n_elsewhere[split] + sum(receipt.split == split for receipt in self.receipts)
        self.shard = _OpenShard(self.recipe, self.dtype, self.out, Place(split, number, n_before), self.inputs)

    def seal(self, n_dropped_tokens: int = 0, n_dropped_documents: int = 0, *, ends_cut: bool = False) -> None:
        if self.shard is not None:
            self.receipts.append(self.shard.commit(n_dropped_tokens, n_dropped_documents, ends_cut=ends_cut))
            self.shard = None
            self.on_shard(self.receipts[-1])

    def end_shard(self) -> None:
        """Seal the open shard for good: nothing of this split comes any more."""
        waiting, self.waiting, n_done, self.n_waiting_done = self.waiting, None, self.n_waiting_done, 0
        ends_cut, self.unfinished = self.unfinished, False
        if waiting is None:
            self.seal(ends_cut=ends_cut)
        elif len(waiting.ids) > n_done:
            if self.shard is None:
                raise RecipeError(
                    f"the {self.rule} split has {len(waiting.ids):,} tokens, fewer than one sample of"
                    f" {self.sample_tokens:,}",
                    hint="pass a smaller `--sequence-length`, or another `--val`",
                )
            self.seal(len(waiting.ids) - n_done, len(waiting) - (n_done > 0))
        elif self.shard is not None:
            self.shard.append_empty(waiting, slice(int(n_done > 0), None))
            self.seal()
        else:
            self.waiting = waiting  # no shard of this split has a token: they go with the next

    def finish(self) -> list[ShardReceipt]:
        """Seal the last shard, and refuse an output without anything to train on."""
        if self.rule == "by shard" and not self.receipts:
            raise only_one_shard(self.shard.n_tokens if self.shard else 0, self.recipe)
        self.end_shard()
        refuse_nothing_to_train_on(self.receipts)
        return self.receipts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shard is not None:
            self.shard.abandon()


def only_one_shard(n_tokens: int, recipe: Recipe) -> RecipeError:
    return RecipeError(
        f"`val shard` needs two shards, and {n_tokens:,} tokens fill only one of {recipe.shard_tokens:,}",
        hint="pass fewer `--shard-tokens`, or `--val 0.01`, or `--val none`",
    )


def refuse_nothing_to_train_on(shards: Sequence[ShardReceipt]) -> None:
    if any(shard.split == "train" for shard in shards):
        return
    n_documents = sum(shard.n_documents for shard in shards)
    if n_documents == 0:
        hint = "do filters or limits leave anything? `tokenmill plan` tells how many documents there are"
        raise RecipeError("nothing to train on: no document with a token is left", hint=hint)
    if n_documents == 1:
        hint = "plain text without a separator is one document: pass `--separator` or `--documents line`"
        raise RecipeError("nothing to train on: the corpus is one document, and val takes it", hint=hint)
    raise RecipeError(
        f"nothing to train on: the corpus has {n_documents:,} documents with tokens, and val takes all of them",
        hint="pass a smaller `--val`, or `--val none`",
    )
