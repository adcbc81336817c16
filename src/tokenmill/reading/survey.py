"""A look at shards of any format: lengths, share of the vocabulary, end-of-text, texts, and what will hurt.

What a scan alone tells is told by a scan of at most 32 million tokens, spread over all files: an output of any size is
surveyed in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.reading import AnyShards
from tokenmill.reading.documents import scanned
from tokenmill.reading.dtypes import dtype_warning
from tokenmill.reading.files import Array, ShardFile

MAX_SCAN_TOKENS = 32_000_000
STRETCH_TOKENS = 1_000_000
MAX_BATCHES = 256  # of the index, 65,536 documents each
PERCENTILES = (1, 25, 50, 75, 99)
EDGE_TOKENS = 60
# llm.c wants processes x batch x sequence + 1 tokens in each shard: 8 x 4 x 1,024 in its own scripts.
TINY_TOKENS = 32_769


class SplitFacts(msgspec.Struct, frozen=True):
    n_files: int
    n_tokens: int
    n_documents: int | None  # None: not counted


class Survey(msgspec.Struct, frozen=True):
    path: str
    format: str
    dtype: str
    dtype_told_by: str
    tokenizer: str | None
    tokenizer_told_by: str
    vocab_size: int | None
    eot_token: int | None
    eot: str  # first, last or none
    eot_share: float | None  # of the documents looked at, that have it there
    n_files: int
    n_bytes: int
    n_tokens: int
    n_documents: int | None
    documents_told_by: str
    documents_are_estimated: bool
    splits: dict[str, SplitFacts]
    lengths: dict[str, int]  # p1 ... p99 and max, in tokens, end-of-text included
    n_scanned_tokens: int
    n_ids_used: int  # different ids among the tokens scanned
    largest_id: int
    first_text: str | None
    last_text: str | None
    warnings: tuple[str, ...]


class Scan:
    """What a walk over some stretches of tokens adds up."""

    def __init__(self, shards: AnyShards) -> None:
        self.shards = shards
        self.used = np.zeros(0, bool)
        self.lengths: list[npt.NDArray[np.int64]] = []
        self.n_tokens = self.n_starts = self.n_with_eot = self.n_looked_at = self.n_out_of_range = 0
        self.largest, self.smallest = -1, 0
        self.n_out_of_range_at: tuple[str, int] | None = None
        self.without_eot: list[str] = []

    def add(self, file: ShardFile, start: int, stop: int) -> None:
        """Look at a stretch of a file."""
        ids = np.asarray(file.ids[start:stop])
        if not len(ids):
            return
        self.add_ids(file, ids, start)
        starts = self.starts(file, ids, start, stop)
        self.n_starts += len(starts)
        self.lengths.append(np.diff(starts))
        if stop >= file.n_tokens and len(starts):
            self.lengths.append(np.array([len(ids) - starts[-1]]))
        if self.shards.eot is not None:
            self.add_ends(ids, starts, stop >= file.n_tokens)

    def add_ids(self, file: ShardFile, ids: Array, start: int) -> None:
        self.n_tokens += len(ids)
        largest, smallest = int(ids.max()), int(ids.min())
        if largest < 2**22 and smallest >= 0:  # counts need memory for the largest id
            found = np.bincount(ids.astype(np.int64, copy=False)) > 0
            longer, shorter = (found, self.used) if len(found) > len(self.used) else (self.used, found)
            self.used = longer.copy()
            self.used[: len(shorter)] |= shorter
        self.largest, self.smallest = max(self.largest, largest), min(self.smallest, smallest)
        vocab_size = self.vocab_size
        if vocab_size is not None and (largest >= vocab_size or smallest < 0):
            wrong = (ids >= vocab_size) | (ids < 0)
            self.n_out_of_range += int(wrong.sum())
            self.n_out_of_range_at = self.n_out_of_range_at or (file.path.name, start + int(np.argmax(wrong)))
        if self.shards.eot is not None and len(ids) >= 100_000 and not (ids == self.shards.eot).any():
            self.without_eot.append(file.path.name)

    @property
    def vocab_size(self) -> int | None:
        tokenizer = self.shards.tokenizer
        return None if tokenizer is None else max(tokenizer.vocab_size, (self.shards.eot or 0) + 1)

    def starts(self, file: ShardFile, ids: Array, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Where documents begin in a stretch."""
        if file.places is not None:
            return file.places.between(start, stop).starts - start
        previous = self.shards.eot if start == 0 else int(file.ids[start - 1 : start][0])
        return scanned(ids, self.shards.eot, self.shards.eot_place, previous)

    def add_ends(self, ids: Array, starts: npt.NDArray[np.int64], is_end: bool) -> None:
        """Count documents with end-of-text where it belongs."""
        if self.shards.eot_place == "first":
            places = starts[starts < len(ids)]
        else:
            places = starts[1:] - 1
            if is_end and len(starts):
                places = np.append(places, len(ids) - 1)
        self.n_looked_at += len(places)
        self.n_with_eot += int((ids[places] == self.shards.eot).sum())


def stretches(files: tuple[ShardFile, ...]) -> Iterator[tuple[ShardFile, int, int]]:
    """All of the files, or where that is too much stretches evenly over them."""
    n_tokens = sum(file.n_tokens for file in files)
    share = min(1.0, MAX_SCAN_TOKENS / max(1, n_tokens))
    owed = 0.0
    for file in files:
        for start in range(0, file.n_tokens, STRETCH_TOKENS):
            owed += share
            if owed >= 1 or share == 1:
                owed -= 1
                yield file, start, min(file.n_tokens, start + STRETCH_TOKENS)


def survey(shards: AnyShards) -> Survey:
    """Look at shards, and say what is there."""
    scan = Scan(shards)
    for file, start, stop in stretches(shards.files):
        scan.add(file, start, stop)
    lengths = lengths_of(shards, scan)
    n_documents, is_estimate = counted(shards, scan)
    first, last = edge_texts(shards)
    return Survey(
        path=str(shards.path),
        format=shards.format,
        dtype=shards.dtype.name,
        dtype_told_by=shards.files[0].dtype_told_by,
        tokenizer=shards.told.name,
        tokenizer_told_by=shards.told.how,
        vocab_size=scan.vocab_size,
        eot_token=shards.eot,
        eot=shards.eot_place,
        eot_share=scan.n_with_eot / scan.n_looked_at if scan.n_looked_at else None,
        n_files=len(shards.files),
        n_bytes=n_bytes(shards),
        n_tokens=shards.n_tokens,
        n_documents=n_documents,
        documents_told_by=shards.documents_told_by,
        documents_are_estimated=is_estimate,
        splits={split: split_facts(shards, split) for split in shards.splits},
        lengths=percentiles(lengths),
        n_scanned_tokens=scan.n_tokens,
        n_ids_used=int(scan.used.sum()),
        largest_id=scan.largest,
        first_text=first,
        last_text=last,
        warnings=tuple(warnings_of(shards, scan, lengths)),
    )


def n_bytes(shards: AnyShards) -> int:
    """Bytes of all files; an index.json that several have in common counts once."""
    paths = {path for file in shards.files for path in (file.path, *file.side_files)}
    return sum(path.stat().st_size for path in paths)


def split_facts(shards: AnyShards, split: str) -> SplitFacts:
    files = shards.files_of(split)
    known = [len(file.places) for file in files if file.places is not None]
    n_documents = sum(known) if len(known) == len(files) else None
    return SplitFacts(len(files), sum(file.n_tokens for file in files), n_documents)


def counted(shards: AnyShards, scan: Scan) -> tuple[int | None, bool]:
    """How many documents there are, and whether that is an estimate."""
    if shards.n_documents is not None:
        return shards.n_documents, False
    if shards.eot is None:
        return None, False
    if scan.n_tokens == shards.n_tokens:
        return shards.count_documents(), False
    return round(scan.n_starts * shards.n_tokens / max(1, scan.n_tokens)), True


def lengths_of(shards: AnyShards, scan: Scan) -> npt.NDArray[np.int64]:
    """Tokens of documents: by our index, of all that were scanned, or of those whole in a stretch."""
    found = scan.lengths
    if shards.manifest is not None or scan.n_tokens == shards.n_tokens:
        found = [lengths for _, lengths in islice(shards.lengths(), MAX_BATCHES)]
    return np.concatenate([np.empty(0, np.int64), *found])


def percentiles(lengths: npt.NDArray[np.int64]) -> dict[str, int]:
    if not len(lengths):
        return {}
    values = np.percentile(lengths, PERCENTILES, method="inverted_cdf").astype(int).tolist()
    return dict(zip((f"p{p}" for p in PERCENTILES), values, strict=True)) | {"max": int(lengths.max())}


def edge_texts(shards: AnyShards) -> tuple[str | None, str | None]:
    """The first and the last text, a few words of each."""
    if shards.tokenizer is None or not shards.n_tokens:
        return None, None
    ids = shards.tokens(0, EDGE_TOKENS), shards.tokens(shards.n_tokens - EDGE_TOKENS, shards.n_tokens)
    vocab_size = shards.tokenizer.vocab_size
    first, last = (part[(part >= 0) & (part < vocab_size) & (part != shards.eot)] for part in cut(ids, shards.eot))
    return shards.tokenizer.decode(first.tolist()), shards.tokenizer.decode(last.tolist())


def cut(ids: tuple[Array, Array], eot: int | None) -> tuple[Array, Array]:
    """The beginning of the first document, the end of the last one."""
    first, last = ids
    if eot is None:
        return ids
    first_hits, last_hits = np.flatnonzero(first[1:] == eot), np.flatnonzero(last[:-1] == eot)
    first = first[: int(first_hits[0]) + 1] if len(first_hits) else first
    return first, last[int(last_hits[-1]) + 1 :] if len(last_hits) else last


def warnings_of(shards: AnyShards, scan: Scan, lengths: npt.NDArray[np.int64]) -> Iterator[str]:
    """Yield what will hurt whoever trains on these."""
    yield from shards.warnings
    if not shards.n_tokens:
        yield "there is not one token"
        return
    if shape := dtype_warning(shards.tokens(0, STRETCH_TOKENS)):
        yield shape
    if scan.n_out_of_range and scan.n_out_of_range_at:
        name, place = scan.n_out_of_range_at
        yield (
            f"{scan.n_out_of_range:,} ids are out of range: {shards.told.name} has {scan.vocab_size:,}, and token"
            f" {place:,} of `{name}` is the first beyond"
        )
    if shards.eot_place == "none" and shards.manifest is None:
        yield "no end-of-text was found: nothing tells a model where documents end"
    elif shards.eot is not None:
        if scan.without_eot:
            names = sorted(set(scan.without_eot))
            yield f"no end-of-text ({shards.eot}) in 100,000 tokens and more of `{names[0]}`" + more(len(names) - 1)
        elif scan.n_looked_at and scan.n_with_eot < scan.n_looked_at:
            n = scan.n_looked_at - scan.n_with_eot
            yield f"{n:,} of {scan.n_looked_at:,} documents have no end-of-text ({shards.eot}) where the others have it"
    limit = int(shards.eot_place != "none")
    if (n := longest_run(lengths, limit)) >= 2:
        yield f"{int((lengths <= limit).sum()):,} documents are empty, {n:,} of them in a row"
    if shards.format in ("llmc", "npy"):
        for split in shards.splits:
            last = shards.files_of(split)[-1]
            if last.n_tokens < TINY_TOKENS:
                yield (
                    f"`{last.path.name}` has {last.n_tokens:,} tokens: a loader wants processes x batch x sequence + 1"
                    " in every shard"
                )


def more(n: int) -> str:
    return f" and {n} more" if n else ""


def longest_run(lengths: npt.NDArray[np.int64], limit: int) -> int:
    """The most documents in a row that are no longer than that."""
    longer = np.flatnonzero(lengths > limit)
    return int((np.diff(np.concatenate([[-1], longer, [len(lengths)]])) - 1).max())
