"""Segments: the tokens of one unit on disk, until they are in a shard.

    offset         type        content
    0              dtype[T]    token ids, end-of-text included
    T * itemsize   uint32[D]   tokens of each document
    ... + 4 * D    uint32[D]   row of each document, counted from the beginning of its span

T and D are in the unit's receipt, and so are the documents of each span. Committed by rename.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun, Tokens
from tokenmill.errors import DataError
from tokenmill.plan import Unit
from tokenmill.storage.local import TEMP_SUFFIX


class SpanReceipt(msgspec.Struct, frozen=True, array_like=True):
    """What one span of a source came to."""

    n_rows: int
    n_documents: int
    n_tokens: int
    n_text_bytes: int


class StageSeconds(msgspec.Struct, frozen=True, array_like=True):
    """Where the time of a unit went."""

    read: float
    encode: float
    write: float


class UnitReceipt(msgspec.Struct, frozen=True):
    """The record that a unit is encoded: its segment is on disk, and this is what is in it."""

    unit: int
    spans: tuple[SpanReceipt, ...]
    skipped: dict[str, int]
    n_special_text_documents: int
    seconds: StageSeconds

    @property
    def n_tokens(self) -> int:
        return sum(span.n_tokens for span in self.spans)

    @property
    def n_documents(self) -> int:
        return sum(span.n_documents for span in self.spans)

    @property
    def n_text_bytes(self) -> int:
        return sum(span.n_text_bytes for span in self.spans)


class SegmentWriter:
    """Appends batches to a segment; ids go to disk at once, lengths and rows (8 bytes a document) at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temp_path = path.with_name(path.name + TEMP_SUFFIX)
        self._file: BinaryIO = self._temp_path.open("wb", buffering=0)
        self._lengths: list[npt.NDArray[np.uint32]] = []
        self._rows: list[npt.NDArray[np.uint32]] = []

    def append(self, tokens: Tokens, rows: npt.NDArray[np.uint32]) -> None:
        if len(tokens.doc_lengths) and int(tokens.doc_lengths.max()) >= 2**32:
            raise DataError("a document has more than 2^32 tokens")
        write_all(self._file, tokens.ids)
        self._lengths.append(tokens.doc_lengths.astype(np.uint32))
        self._rows.append(rows)

    def commit(self) -> None:
        for arrays in (self._lengths, self._rows):
            write_all(self._file, np.concatenate([np.empty(0, np.uint32), *arrays]))
        self._file.close()
        self._temp_path.replace(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._temp_path.unlink(missing_ok=True)


def write_all(file: BinaryIO, array: npt.NDArray[np.unsignedinteger]) -> None:
    view = np.ascontiguousarray(array).view(np.uint8).data
    while view.nbytes:
        view = view[file.write(view) :]


def segment_path(work: Path, unit: int) -> Path:
    return work / "units" / f"{unit:07d}.segment"


def read_segment(
    path: Path, receipt: UnitReceipt, unit: Unit, first_rows: list[int], dtype: np.dtype, max_bytes: int
) -> Iterator[TokenRun]:
    """Yield the documents of a segment in runs of about `max_bytes`, however large it is.

    `first_rows` says for each span how many rows of its input came before.
    """
    counts = [span.n_documents for span in receipt.spans]
    inputs = np.repeat(np.array([span.input for span in unit.spans], dtype=np.uint32), counts)
    firsts = np.repeat(np.array(first_rows, dtype=np.uint64), counts)
    with path.open("rb") as file:
        file.seek(receipt.n_tokens * dtype.itemsize)
        lengths = np.fromfile(file, dtype=np.uint32, count=receipt.n_documents).astype(np.int64)
        rows = np.fromfile(file, dtype=np.uint32, count=receipt.n_documents).astype(np.uint64) + firsts
        file.seek(0)
        ends = np.cumsum(lengths * dtype.itemsize)
        start = 0
        while start < len(lengths):
            base = ends[start] - lengths[start] * dtype.itemsize
            stop = max(start + 1, int(np.searchsorted(ends, base + max_bytes, side="right")))
            of = slice(start, stop)
            ids = np.fromfile(file, dtype=dtype, count=int(lengths[of].sum()))
            yield TokenRun(ids, lengths[of], inputs[of], rows[of])
            start = stop
