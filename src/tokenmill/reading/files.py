"""What every shard file comes down to, whoever wrote it: ids by place, and where documents begin if that is told.

`Ids` is sliced, never read as a whole: a memory map, or a row group at a time. `Places` are the beginnings of documents
by an index, the format's own or ours; a file without one is scanned for end-of-text (documents.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.errors import OutputError
from tokenmill.shards.index import BATCH_ROWS, Index

Array = npt.NDArray[np.integer]


class Ids(Protocol):
    """The token ids of a file."""

    @property
    def dtype(self) -> np.dtype: ...

    def __len__(self) -> int: ...

    def __getitem__(self, of: slice, /) -> Array: ...


class Beginning(NamedTuple):
    """Documents that begin in a stretch of a file: where, and from which input and row, if that is known."""

    starts: npt.NDArray[np.int64]
    inputs: npt.NDArray[np.uint32] | None = None
    rows: npt.NDArray[np.uint64] | None = None


class Places(Protocol):
    """Where the documents of a file begin, in order."""

    def __len__(self) -> int: ...

    def between(self, start: int, stop: int) -> Beginning:
        """The documents that begin at `start` or later, and before `stop`."""

    def start_of(self, i: int) -> int:
        """Where document `i` of the file begins."""

    def n_until(self, place: int) -> int:
        """How many documents begin at a place or before it."""


@dataclass(frozen=True, eq=False)
class ShardFile:
    """One file of tokens. `tokenizer` is what the file itself says of it, in its own words."""

    path: Path
    split: str
    ids: Ids
    places: Places | None = None
    tokenizer: str | None = None
    dtype_told_by: str = "the format"
    warnings: tuple[str, ...] = ()
    side_files: tuple[Path, ...] = ()

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.path, *self.side_files))


class ArrayPlaces:
    """Beginnings in an array; those of files that tell them."""

    def __init__(self, starts: npt.NDArray[np.int64]) -> None:
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)

    def between(self, start: int, stop: int) -> Beginning:
        first, last = np.searchsorted(self.starts, [start, stop])
        return Beginning(self.starts[first:last].astype(np.int64))

    def start_of(self, i: int) -> int:
        return int(self.starts[i])

    def n_until(self, place: int) -> int:
        return int(np.searchsorted(self.starts, place, side="right"))


class LaterPlaces:
    """Beginnings that are read when they are asked for; their number is known before."""

    def __init__(self, n_documents: int, load: Callable[[], npt.NDArray[np.int64]]) -> None:
        self.n_documents, self.load = n_documents, load

    def __len__(self) -> int:
        return self.n_documents

    @cached_property
    def loaded(self) -> ArrayPlaces:
        return ArrayPlaces(self.load())

    def between(self, start: int, stop: int) -> Beginning:
        return self.loaded.between(start, stop)

    def start_of(self, i: int) -> int:
        return self.loaded.start_of(i)

    def n_until(self, place: int) -> int:
        return self.loaded.n_until(place)


class IndexPlaces:
    """Beginnings in the index of a manifest: memory-mapped, a batch of it at a time."""

    def __init__(self, path: Path, n_documents: int) -> None:
        self.path, self.n_documents = path, n_documents

    @cached_property
    def index(self) -> Index:
        return Index(self.path)

    @cached_property
    def firsts(self) -> npt.NDArray[np.int64]:
        """Where each batch begins."""
        index = self.index
        firsts = [index.batch(i).column("start")[0].as_py() for i in range(index.n_batches)]
        return np.array(firsts, dtype=np.int64)

    def __len__(self) -> int:
        return self.n_documents

    def between(self, start: int, stop: int) -> Beginning:
        # Batches may begin at the same place, where documents are empty: one before the first that begins there.
        first = max(0, int(np.searchsorted(self.firsts, start)) - 1)
        last = int(np.searchsorted(self.firsts, stop))
        found = [self.columns(i, start, stop) for i in range(first, last)]
        if not found:
            empty = np.empty(0, np.int64)
            return Beginning(empty, empty.astype(np.uint32), empty.astype(np.uint64))
        starts, inputs, rows = (np.concatenate(column) for column in zip(*found, strict=True))
        return Beginning(starts, inputs, rows)

    def columns(self, i: int, start: int, stop: int) -> tuple[Array, Array, Array]:
        batch = self.index.batch(i)
        starts = batch.column("start").to_numpy().astype(np.int64)
        first, last = np.searchsorted(starts, [start, stop])
        inputs, rows = (batch.column(name).to_numpy()[first:last] for name in ("input", "row"))
        return starts[first:last], inputs, rows

    def start_of(self, i: int) -> int:
        return self.index.row(i)["start"]

    def n_until(self, place: int) -> int:
        batch = int(np.searchsorted(self.firsts, place, side="right")) - 1
        if batch < 0:
            return 0
        starts = self.index.batch(batch).column("start").to_numpy()
        return batch * BATCH_ROWS + int(np.searchsorted(starts, place, side="right"))

    def last(self) -> tuple[int, int] | None:
        """Input and row of the last document."""
        if not self.n_documents:
            return None
        entry = self.index.row(self.n_documents - 1)
        return entry["input"], entry["row"]

    def lengths(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the tokens of the documents, a batch of the index at a time."""
        for i in range(self.index.n_batches):
            yield self.index.batch(i).column("length").to_numpy().astype(np.int64)


class LaterIds:
    """Ids that must be unpacked: done once, when they are asked for."""

    def __init__(self, n_tokens: int, dtype: np.dtype, load: Callable[[], Array]) -> None:
        self.n_tokens, self.dtype, self.load = n_tokens, dtype, load
        self.loaded: Array | None = None

    def __len__(self) -> int:
        return self.n_tokens

    def __getitem__(self, of: slice, /) -> Array:
        if self.loaded is None:
            self.loaded = self.load()
        ids = self.loaded[of]
        if of.stop is None or of.stop >= self.n_tokens:
            self.loaded = None  # read to its end: the next file follows
        return ids


def damaged(path: Path, what: str, hint: str | None = None) -> OutputError:
    """The error for a file that cannot be what it looks like."""
    return OutputError(f"`{path}` {what}", hint=hint)


def checked_starts(path: Path, starts: npt.NDArray[np.int64], n_tokens: int) -> npt.NDArray[np.int64]:
    """Beginnings that are in order and inside the tokens, or an error."""
    if len(starts) and (int(starts[0]) < 0 or int(starts[-1]) > n_tokens or (starts[1:] < starts[:-1]).any()):
        raise damaged(path, "lists documents that are not in order, or not in the file of tokens")
    return starts


def mapped(path: Path, dtype: np.dtype, n_header_bytes: int = 0, n_tokens: int | None = None) -> Array:
    """Ids behind a header, memory-mapped; all that are there, if their number is not given."""
    room = path.stat().st_size - n_header_bytes
    n_there = max(0, room) // dtype.itemsize
    n_tokens = n_there if n_tokens is None else n_tokens
    if n_tokens > n_there:
        raise damaged(path, f"is truncated: {n_tokens:,} tokens by its header, and room for {n_there:,}")
    if n_tokens == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=n_header_bytes, shape=(n_tokens,))
