"""Outputs as input: the documents of a finished output again, split by split, for `convert` and `merge`.

Documents come without end-of-text, in runs of bounded size. A document that the edge of a split cuts (llmc and npy cut
exactly) comes as two: the first `unfinished`, the second `continued`. What a document came from is told as in the
output's own index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun
from tokenmill.errors import DamageError, OutputError
from tokenmill.inspect import Shards
from tokenmill.manifest import Manifest
from tokenmill.shards import Split
from tokenmill.shards.index import Index
from tokenmill.storage.local import file_sha256

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
    """Open a finished output; a shard of another size than its manifest says is refused before anything is written."""
    shards = Shards(out)
    for shard in shards.manifest.shards:
        path = shards.out / shard.file
        if path.exists() and (n_bytes := path.stat().st_size) != shard.n_bytes:
            raise OutputError(
                f"shard `{path}` is damaged: {n_bytes:,} bytes, expected {shard.n_bytes:,}",
                hint=f"`tokenmill verify {shards.out}` lists all damage",
            )
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
        refuse_damaged(shards, number)
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


def with_whole_documents(parent: Parent, *, is_last: bool) -> Parent:
    """The parent with a document that the edge of val cuts put whole into val, for others are to follow it there.

    Only the last document of a split can be marked as cut. One whose end is nowhere (mds drops it) is refused, but in
    the last parent, where nothing follows.
    """
    dropping = [shard.split for shard in parent.manifest.shards if shard.n_dropped_tokens]
    if dropping and not is_last:
        raise without_end(parent, dropping[-1])
    return replace(parent, pieces=partial(whole_pieces, parent, is_last))


def without_end(parent: Parent, split: Split) -> OutputError:
    return OutputError(
        f"the last document of {split} in `{parent.out}` has lost its end, so that no other can follow it",
        hint="merge the outputs that it was made of, and convert that",
    )


def whole_pieces(parent: Parent, is_last: bool, split: Split, max_bytes: int) -> Iterator[Piece]:
    for i, (run, unfinished) in enumerate(parent.pieces(split, max_bytes)):
        rest = rest_in_train(parent, max_bytes) if split == "val" and unfinished else None
        if rest is not None:
            if len(run) > 1:
                yield Piece(run.documents(0, len(run) - 1), unfinished=False)
            yield Piece(longer(run.documents(len(run) - 1, len(run)), rest.run.ids), rest.unfinished)
            continue
        if unfinished and not is_last:
            raise without_end(parent, split)
        begins_with_rest = split == "train" and i == 0 and bool(run.continued[:1].any())
        # Where val does not end in its beginning (mds dropped that), the rest stays.
        n_in_val = int(begins_with_rest and any(piece.unfinished for piece in parent.pieces("val", max_bytes)))
        if n_in_val < len(run):
            yield Piece(run.documents(n_in_val, len(run)), unfinished)


def rest_in_train(parent: Parent, max_bytes: int) -> Piece | None:
    """The rest of the document that val ends in, if train begins with it."""
    first = next(parent.pieces("train", max_bytes), None)
    if first is None or not len(first.run) or not first.run.continued[0]:
        return None
    return Piece(first.run.documents(0, 1), first.unfinished and len(first.run) == 1)


def refuse_damaged(shards: Shards, number: int) -> None:
    """A wrong token must not get a right checksum by being copied: each file is hashed before it is read."""
    shard = shards.manifest.shards[number]
    for file in (shard.files[0], shard.index):
        path = shards.out / file.file
        what = "is missing" if not path.is_file() else "is not what its manifest says: its checksum differs"
        if not path.is_file() or file_sha256(path) != file.sha256:
            raise DamageError(f"`{path}` {what}", hint=f"`tokenmill verify {shards.out}` lists all damage")


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
