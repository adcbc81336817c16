"""Outputs as input: the documents of a finished output again, split by split, for `convert` and `merge`.

Documents come without end-of-text, in runs of bounded size. A document that the edge of a split cuts (llmc and npy cut
exactly) comes as two: the first `unfinished`, the second `continued`. What a document came from is told as in the
output's own index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun
from tokenmill.inspect import Shards
from tokenmill.manifest import Manifest
from tokenmill.shards import Split
from tokenmill.shards.index import Index

SPLITS: tuple[Split, ...] = ("val", "train")
FIELDS = ("start", "length", "input", "row", "continued")


class Entries(NamedTuple):
    """The index of a shard as arrays."""

    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    input: npt.NDArray[np.uint32]
    row: npt.NDArray[np.uint64]
    continued: npt.NDArray[np.bool_]


def read_entries(path: Path) -> Entries:
    index = Index(path)
    batches = [index.batch(i) for i in range(index.n_batches)]
    columns = [
        np.concatenate([batch.column(name).to_numpy(zero_copy_only=False) for batch in batches] or [np.empty(0)])
        for name in FIELDS
    ]
    kinds = (np.int64, np.int64, np.uint32, np.uint64, np.bool_)
    return Entries(*(column.astype(kind) for column, kind in zip(columns, kinds, strict=True)))


@dataclass(frozen=True)
class Parent:
    """An output that another is made of."""

    out: Path
    manifest: Manifest  # made up from what the files say, where there is none
    files: tuple[Path, ...]  # with tokens
    pieces: Callable[[Split, int], Iterator[Piece]]
    is_ours: bool = True


def our_parent(out: str | Path) -> Parent:
    shards = Shards(out)
    files = tuple(shards.out / shard.file for shard in shards.manifest.shards)
    return Parent(shards.out, shards.manifest, files, partial(pieces_of, shards))


class Piece(NamedTuple):
    """A run of documents with end-of-text as the output has it, and whether the end of the last one is not here."""

    run: TokenRun
    unfinished: bool


def pieces_of(shards: Shards, split: Split, max_bytes: int) -> Iterator[Piece]:
    """Yield the documents of a split, whole though they may lie in several shards."""
    numbers = [i for i, shard in enumerate(shards.manifest.shards) if shard.split == split]
    ends_cut = bool(numbers) and shards.manifest.shards[numbers[-1]].ends_cut
    began: TokenRun | None = None  # a document that a shard ended in
    n_missing = 0  # its tokens that are still to come
    for number in numbers:
        ids = shards.ids(number)
        entries = read_entries(shards.out / shards.manifest.shards[number].index.file)
        first = int(entries.start[0]) if len(entries.start) else len(ids)
        if first:  # the rest of a document from before
            if began is None:
                began, n_missing = start_of_rest(shards, number), first
            began = longer(began, ids[:first])
            n_missing -= first
            if n_missing > 0 and first == len(ids):
                continue
            yield Piece(began, unfinished=False)
            began = None
        n_whole = len(entries.start)
        if n_whole and int(entries.start[-1] + entries.length[-1]) > len(ids):
            n_whole -= 1
        for run, is_last in whole_documents(ids, entries, n_whole, max_bytes):
            yield Piece(run, unfinished=ends_cut and is_last and number == numbers[-1])
        if n_whole < len(entries.start):
            began = document_at(ids, entries, n_whole)
            n_missing = int(entries.length[n_whole]) - len(began.ids)
    if began is not None:
        yield Piece(began, unfinished=True)


def whole_documents(
    ids: npt.NDArray[np.integer], entries: Entries, n_documents: int, max_bytes: int
) -> Iterator[tuple[TokenRun, bool]]:
    """Cut the whole documents of a shard into runs; the last is told."""
    ends = entries.start + entries.length
    start = 0
    while start < n_documents:
        limit = int(entries.start[start]) + max_bytes // ids.dtype.itemsize
        stop = min(max(int(np.searchsorted(ends[:n_documents], limit, side="right")), start + 1), n_documents)
        of = slice(start, stop)
        tokens = np.asarray(ids[int(entries.start[start]) : int(ends[stop - 1])])
        run = TokenRun(tokens, entries.length[of], entries.input[of], entries.row[of], entries.continued[of])
        yield run, stop == n_documents
        start = stop


def document_at(ids: npt.NDArray[np.integer], entries: Entries, i: int) -> TokenRun:
    """A document that goes on behind the shard: what of it is here."""
    tokens, of = np.asarray(ids[int(entries.start[i]) :]), slice(i, i + 1)
    return TokenRun(tokens, np.array([len(tokens)]), entries.input[of], entries.row[of], entries.continued[of])


def start_of_rest(shards: Shards, number: int) -> TokenRun:
    """The rest of the document in which the shard before, of another split, ended: nothing of it yet."""
    before = number - 1
    while True:
        entries = read_entries(shards.out / shards.manifest.shards[before].index.file)
        if len(entries.start):
            break
        before -= 1  # it is so long that it fills the shard before, too
    return TokenRun(
        np.empty(0, shards.ids(number).dtype),
        np.zeros(1, np.int64),
        entries.input[-1:],
        entries.row[-1:],
        np.array([True]),
    )


def longer(run: TokenRun, ids: npt.NDArray[np.integer]) -> TokenRun:
    tokens = np.concatenate([run.ids, ids])
    return TokenRun(tokens, np.array([len(tokens)]), run.doc_inputs, run.doc_rows, run.doc_continued)


def without_eot(piece: Piece, eot: str) -> TokenRun:
    """Take end-of-text away from the documents that have it: the first of a document cut in two, or the last."""
    run = piece.run
    has = eot_mask(run, eot, unfinished=piece.unfinished)
    offsets = run.doc_offsets
    places = offsets[:-1][has] if eot == "first" else offsets[1:][has] - 1
    lengths = run.doc_lengths - has
    return TokenRun(np.delete(run.ids, places), lengths, run.doc_inputs, run.doc_rows, run.doc_continued)


def with_eot(run: TokenRun, eot: str, eot_token: int, *, unfinished: bool) -> TokenRun:
    """Give documents their end-of-text."""
    has = eot_mask(run, eot, unfinished=unfinished)
    offsets = run.doc_offsets
    places = offsets[:-1][has] if eot == "first" else offsets[1:][has]
    ids = np.insert(run.ids, places, eot_token)
    return TokenRun(ids, run.doc_lengths + has, run.doc_inputs, run.doc_rows, run.doc_continued)


def eot_mask(run: TokenRun, eot: str, *, unfinished: bool) -> npt.NDArray[np.bool_]:
    """Which documents have end-of-text: not the rest of a cut one that has it first, nor its beginning if last."""
    if eot == "none":
        return np.zeros(len(run), np.bool_)
    has = ~run.continued if eot == "first" else np.ones(len(run), np.bool_)
    if eot == "last" and unfinished and len(has):
        has[-1] = False
    return has
