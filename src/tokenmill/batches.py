"""The two things that flow: documents (Arrow text) and tokens (flat ids and lengths).

Neither holds a Python object per document: a batch is a few large buffers, however many documents are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

# Why a row may be left out because it is broken; such rows are listed, not only counted.
INVALID_UTF8 = "invalid UTF-8"
INVALID_JSON = "invalid JSON"
LONE_SURROGATE = "lone surrogate"
WRONG_RECORD = "not the record expected"
BAD_REASONS = (INVALID_UTF8, INVALID_JSON, LONE_SURROGATE, WRONG_RECORD)


@dataclass(frozen=True, slots=True)
class Documents:
    """A run of documents from one span of a source.

    `texts` is an Arrow large_string array without nulls, every value valid UTF-8. `rows` holds each document's
    row, counted from the first row of the run; `n_rows` counts all rows passed, the skipped ones too.
    """

    texts: Any  # pyarrow.LargeStringArray
    rows: npt.NDArray[np.uint32]
    n_rows: int
    skipped: dict[str, npt.NDArray[np.uint32]] = field(default_factory=dict)  # rows left out, by reason

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def text_offsets(self) -> npt.NDArray[np.int64]:
        """n + 1 positions in `text_bytes`; the first is not always 0."""
        offsets: npt.NDArray[np.int64] = np.frombuffer(self.texts.buffers()[1], dtype=np.int64)
        return offsets[self.texts.offset : self.texts.offset + len(self.texts) + 1]

    @property
    def text_bytes(self) -> npt.NDArray[np.uint8]:
        """The UTF-8 bytes that `text_offsets` points into."""
        return np.frombuffer(self.texts.buffers()[2] or b"", dtype=np.uint8)

    @property
    def n_text_bytes(self) -> int:
        offsets = self.text_offsets
        return int(offsets[-1] - offsets[0]) if len(offsets) else 0

    def first(self, n_documents: int) -> Documents:
        """The first documents, if there are more, and all rows before the next one."""
        if len(self) <= n_documents:
            return self
        n_rows = int(self.rows[n_documents])
        skipped = {reason: rows[rows < n_rows] for reason, rows in self.skipped.items()}
        return Documents(self.texts.slice(0, n_documents), self.rows[:n_documents], n_rows, skipped)

    def slice(self, start: int, stop: int) -> Documents:
        """The documents `start` to `stop`, without the rows around them."""
        return Documents(self.texts.slice(start, stop - start), self.rows[start:stop], 0)

    def taken(self, kept: list[int]) -> Documents:
        """The documents at these positions."""
        positions = np.array(kept, dtype=np.int64)
        return replace(self, texts=self.texts.take(arrow_array(positions)), rows=self.rows[positions])

    def shifted(self, n_rows: int) -> Documents:
        """The same, with all rows counted from so many rows before."""
        skipped = {reason: rows + np.uint32(n_rows) for reason, rows in self.skipped.items()}
        return replace(self, rows=self.rows + np.uint32(n_rows), skipped=skipped)

    def batches(self, max_bytes: int) -> Iterator[Documents]:
        """Cut into runs of at most `max_bytes` of text, or of one document where that alone is more."""
        if self.n_text_bytes <= max_bytes:
            yield self
            return
        offsets, start = self.text_offsets, 0
        while start < len(self):
            stop = int(np.searchsorted(offsets, offsets[start] + max_bytes, side="right")) - 1
            stop = min(max(stop, start + 1), len(self))
            whole = start == 0  # rows and skips are counted once, with the first run
            yield Documents(
                self.texts.slice(start, stop - start),
                self.rows[start:stop],
                self.n_rows if whole else 0,
                self.skipped if whole else {},
            )
            start = stop


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of consecutive documents: `ids` is flat, `doc_lengths` has one entry a document."""

    ids: npt.NDArray[np.unsignedinteger]
    doc_lengths: npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenRun:
    """Consecutive documents of the output: flat ids, and for each document its tokens, its input and its row there."""

    ids: npt.NDArray[np.unsignedinteger]
    doc_lengths: npt.NDArray[np.int64]
    doc_inputs: npt.NDArray[np.uint32]
    doc_rows: npt.NDArray[np.uint64]
    # Which documents are the rest of the one before them, cut off by the edge of a split; None: none of them.
    doc_continued: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.doc_lengths)

    @cached_property
    def doc_offsets(self) -> npt.NDArray[np.int64]:
        """n + 1 positions in `ids`: where each document begins, and the end."""
        offsets = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.doc_lengths, out=offsets[1:])
        return offsets

    def documents(self, start: int, stop: int) -> TokenRun:
        """The run of the documents `start` to `stop`."""
        offsets = self.doc_offsets
        of = slice(start, stop)
        ids = self.ids[offsets[start] : offsets[stop]]
        continued = None if self.doc_continued is None else self.doc_continued[of]
        return TokenRun(ids, self.doc_lengths[of], self.doc_inputs[of], self.doc_rows[of], continued)

    @property
    def continued(self) -> npt.NDArray[np.bool_]:
        """`doc_continued`, spelled out."""
        return np.zeros(len(self), np.bool_) if self.doc_continued is None else self.doc_continued

    def beginning_with_rest(self) -> TokenRun:
        """The same, its first document marked as the rest of one that began elsewhere."""
        continued = self.continued.copy()
        continued[:1] = True
        return replace(self, doc_continued=continued)

    def reordered(self, order: npt.NDArray[np.int64]) -> TokenRun:
        """The same documents in another order: one take over Arrow binary values, 25 ms for 26 million tokens."""
        import pyarrow as pa

        itemsize = self.ids.dtype.itemsize
        buffers = [None, pa.py_buffer(self.doc_offsets * itemsize), pa.py_buffer(np.ascontiguousarray(self.ids))]
        documents = pa.Array.from_buffers(pa.large_binary(), len(self), buffers)
        taken = documents.take(arrow_array(order)).buffers()[2]
        ids = np.frombuffer(taken or b"", dtype=self.ids.dtype, count=len(self.ids))
        return TokenRun(ids, self.doc_lengths[order], self.doc_inputs[order], self.doc_rows[order])


def arrow_array(values: npt.NDArray[Any]) -> Any:
    """An Arrow array over numpy's own memory; `pa.array` would import pandas where there is one, 0.3 s a process."""
    import pyarrow as pa

    if values.dtype == np.bool_:
        return pa.Array.from_buffers(
            pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))]
        )
    contiguous = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(contiguous.dtype), len(values), [None, pa.py_buffer(contiguous)])


def text_array(texts: Sequence[str]) -> Any:
    """An Arrow array of a few texts, without pandas too."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def joined(runs: list[TokenRun]) -> TokenRun:
    """One run of all these, in order."""
    if len(runs) == 1:
        return runs[0]
    return TokenRun(
        np.concatenate([run.ids for run in runs]),
        np.concatenate([run.doc_lengths for run in runs]),
        np.concatenate([run.doc_inputs for run in runs]),
        np.concatenate([run.doc_rows for run in runs]),
        np.concatenate([run.continued for run in runs]) if any(run.doc_continued is not None for run in runs) else None,
    )


def joined_runs(runs: Iterable[TokenRun], max_bytes: int) -> Iterator[TokenRun]:
    """The same documents in runs of about `max_bytes` of ids, however many there are."""
    waiting: list[TokenRun] = []
    n_bytes = 0
    for run in runs:
        waiting.append(run)
        n_bytes += run.ids.nbytes
        if n_bytes >= max_bytes:
            yield taken(waiting)
            n_bytes = 0
    if waiting:
        yield taken(waiting)


def taken(runs: list[TokenRun]) -> TokenRun:
    """One run of all these, which are let go: nobody holds the same documents twice."""
    run = joined(runs)
    runs.clear()
    return run
