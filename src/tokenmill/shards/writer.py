"""Runs of tokens -> shard files and their indexes, cut to exact size.

A shard is opened when its first token comes and committed when it is full and another token comes, or at the end.
Which shard a document's entry goes to depends on the position of its first token alone, never on how the tokens
arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
import numpy as np

from tokenmill.batches import TokenRun, joined
from tokenmill.errors import RecipeError
from tokenmill.recipe import Recipe
from tokenmill.shards import Split, format_named
from tokenmill.shards.index import IndexWriter, index_name
from tokenmill.storage.local import PartialFile

# "by shard": shard 0 is val, the others train.
SplitRule = Literal["train", "val", "by shard"]


class FileReceipt(msgspec.Struct, frozen=True):
    file: str  # relative to the output folder
    n_bytes: int
    sha256: str


class ShardReceipt(msgspec.Struct, frozen=True):
    """The record that a shard is sealed. `n_documents` counts those that begin in it."""

    file: str
    split: Split
    n_tokens: int
    n_documents: int
    n_bytes: int
    sha256: str
    index: FileReceipt


class _OpenShard:
    """A shard and its index, being written."""

    def __init__(self, recipe: Recipe, dtype: np.dtype, out: Path, split: Split, number: int) -> None:
        self.split, self.number, self.dtype = split, number, dtype
        self.format = format_named(recipe.format)
        self.name = self.format.shard_name(str(recipe.name), split, number)
        self.n_tokens = 0
        self.n_expected = recipe.shard_tokens or 0
        self.file = PartialFile(out / self.name, "shard")
        self.index = IndexWriter(out / index_name(number))
        self.file.write(self.format.header(self.n_expected, dtype))

    def append(self, run: TokenRun, start: int, stop: int) -> None:
        """Write the tokens `start` to `stop` of a run, and enter the documents that begin there."""
        self.file.write(run.ids[start:stop])
        starts = run.doc_offsets[:-1]
        of = slice(int(np.searchsorted(starts, start)), int(np.searchsorted(starts, stop)))
        self.enter(run, of, first=self.n_tokens - start)
        self.n_tokens += stop - start

    def enter(self, run: TokenRun, of: slice, first: int) -> None:
        """Enter documents into the index; `first` is where the run's first token would be in this shard."""
        self.index.append(run.doc_offsets[:-1][of] + first, run.doc_lengths[of], run.doc_inputs[of], run.doc_rows[of])

    def commit(self) -> ShardReceipt:
        if self.n_tokens != self.n_expected and self.file.n_bytes > self.n_tokens * self.dtype.itemsize:
            self.file.replace_head(self.format.header(self.n_tokens, self.dtype))
        index_sha256 = self.index.commit()
        self.file.commit()
        return ShardReceipt(
            file=self.name,
            split=self.split,
            n_tokens=self.n_tokens,
            n_documents=self.index.n_documents,
            n_bytes=self.file.n_bytes,
            sha256=self.file.sha256,
            index=FileReceipt(index_name(self.number), self.index.file.n_bytes, index_sha256),
        )

    def abandon(self) -> None:
        self.file.abandon()
        self.index.file.abandon()


class ShardSequence:
    """All shards of a run, one after another, numbered through; val comes first."""

    def __init__(
        self,
        recipe: Recipe,
        dtype: np.dtype,
        out: Path,
        sealed: Iterable[ShardReceipt],
        on_shard: Callable[[ShardReceipt], None],
    ) -> None:
        self.recipe, self.dtype, self.out, self.on_shard = recipe, dtype, out, on_shard
        self.receipts = list(sealed)  # those of the run that this one goes on with come first
        self.shard: _OpenShard | None = None
        self.rule: SplitRule | None = None
        # Documents without a token behind the last one written: they begin where the next token will be.
        self.waiting: TokenRun | None = None

    def append(self, rule: SplitRule, run: TokenRun, n_tokens_done: int = 0) -> None:
        """Write a run; another rule than the last one's begins a new shard.

        The first `n_tokens_done` tokens of the run are in a sealed shard, and the documents that begin there.
        """
        if self.rule not in (None, rule):
            self.end_shard()
        self.rule = rule
        if self.waiting is not None:
            run = joined([self.waiting, run])
        position, n_ids = n_tokens_done, len(run.ids)
        while position < n_ids:
            if self.shard is None or self.room() == 0:
                self.next_shard()
            assert self.shard is not None
            n_tokens = min(n_ids - position, self.room())
            self.shard.append(run, position, position + n_tokens)
            position += n_tokens
        n_entered = int(np.searchsorted(run.doc_offsets[:-1], n_ids))
        self.waiting = run.documents(n_entered, len(run)) if n_entered < len(run) else None

    def room(self) -> int:
        assert self.shard is not None
        return 2**62 if self.recipe.shard_tokens is None else self.recipe.shard_tokens - self.shard.n_tokens

    def next_shard(self) -> None:
        self.seal()
        number = len(self.receipts)
        split: Split = ("val" if number == 0 else "train") if self.rule == "by shard" else self.rule or "train"
        self.shard = _OpenShard(self.recipe, self.dtype, self.out, split, number)

    def seal(self) -> None:
        if self.shard is not None:
            self.receipts.append(self.shard.commit())
            self.shard = None
            self.on_shard(self.receipts[-1])

    def end_shard(self) -> None:
        """Seal the open shard for good: nothing of this split comes any more."""
        if self.waiting is not None and self.shard is not None:
            self.shard.enter(self.waiting, slice(None), first=self.shard.n_tokens)
            self.waiting = None
        self.seal()

    def finish(self) -> list[ShardReceipt]:
        """Seal the last shard, and refuse an output without anything to train on."""
        if self.rule == "by shard" and not self.receipts:
            n_tokens = self.shard.n_tokens if self.shard else 0
            raise RecipeError(
                f"`val shard` needs two shards, and {n_tokens:,} tokens fill only one of {self.recipe.shard_tokens:,}",
                hint="pass fewer `--shard-tokens`, or `--val 0.01`, or `--val none`",
            )
        self.end_shard()
        if not any(receipt.split == "train" for receipt in self.receipts):
            n_documents = sum(receipt.n_documents for receipt in self.receipts)
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
        return self.receipts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shard is not None:
            self.shard.abandon()
