"""Segments: the tokens of one unit on disk, until they are in a shard.

A file of frames, one for each batch that was encoded; a frame never holds documents of two spans. The receipt says
how many documents each span has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun, Tokens, joined
from tokenmill.errors import DataError
from tokenmill.frames import Writable, read_frames, write_frame
from tokenmill.plan import Unit

QUARANTINE = "quarantine"  # the folder of the output with the documents that were left out
# Rows count from the beginning of the span: where it begins in the file is not known while it is encoded.
DOCUMENT = np.dtype([("length", "<u4"), ("row", "<u4")])


class SpanReceipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one span of a source came to."""

    n_rows: int
    n_documents: int
    n_tokens: int
    n_text_bytes: int
    bad_rows: tuple[tuple[int, str], ...] = ()  # left out because they are broken: row in the span, and why


class StageSeconds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where the time of a unit went."""

    read: float
    encode: float
    write: float


class Exclusion(msgspec.Struct, frozen=True, array_like=True):
    """A document that neither engine could take. Its text is kept in the quarantine."""

    span: int  # of the unit
    row: int  # in the span
    n_bytes: int
    reason: str


class UnitReceipt(msgspec.Struct, frozen=True, gc=False):
    """The record that a unit is encoded: its segment is on disk, and this is what is in it."""

    unit: int
    spans: tuple[SpanReceipt, ...]
    skipped: dict[str, int]
    n_special_text_documents: int
    seconds: StageSeconds
    n_segment_bytes: int
    cut: bool = False  # encoded a second time, up to where a limit of the recipe falls
    excluded: tuple[Exclusion, ...] = ()
    by_reference: tuple[tuple[int, int], ...] = ()  # span and row of documents that killed the fast engine
    n_checked: int | None = None  # documents that the reference encoded too, where the worker had them checked itself

    @property
    def n_tokens(self) -> int:
        return sum(span.n_tokens for span in self.spans)

    @property
    def n_documents(self) -> int:
        return sum(span.n_documents for span in self.spans)

    @property
    def n_text_bytes(self) -> int:
        return sum(span.n_text_bytes for span in self.spans)


class Receipts(MutableMapping[int, UnitReceipt]):
    """Receipts by unit, kept as MessagePack: 100 bytes each, where the objects take 700.

    All of a run stay in memory until the seal, and FineWeb has 1.4 million units. Each look makes a new object.
    """

    _encoder = msgspec.msgpack.Encoder()
    # Without the names of the fields.
    _decoder = msgspec.msgpack.Decoder(tuple[*(field.type for field in msgspec.structs.fields(UnitReceipt))])  # type: ignore[misc]

    def __init__(self) -> None:
        self._data: dict[int, bytes] = {}

    def __setitem__(self, unit: int, receipt: UnitReceipt) -> None:
        self._data[unit] = self._encoder.encode(msgspec.structs.astuple(receipt))

    def __getitem__(self, unit: int) -> UnitReceipt:
        return UnitReceipt(*self._decoder.decode(self._data[unit]))

    def __delitem__(self, unit: int) -> None:
        del self._data[unit]

    def __contains__(self, unit: object) -> bool:
        return unit in self._data

    def __iter__(self) -> Iterator[int]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def first(self, n_units: int) -> FirstReceipts:
        """Those of the first units, in their order."""
        return FirstReceipts(self, n_units)


@dataclass(frozen=True, slots=True)
class FirstReceipts:
    """To go through, as often as one likes."""

    receipts: Receipts
    n_units: int

    def __iter__(self) -> Iterator[UnitReceipt]:
        return (self.receipts[unit] for unit in range(self.n_units))


def segment_path(work: Path, unit: int, *, cut: bool = False) -> Path:
    return work / "units" / f"{unit:07d}.{'cut' if cut else 'segment'}"


def quarantine_name(unit: int, exclusion: Exclusion) -> str:
    """The file with the text of an excluded document. Nothing of the source's name is in it."""
    return f"{unit:07d}-{exclusion.span}-{exclusion.row}.txt"


def write_batch(file: Writable, tokens: Tokens, rows: npt.NDArray[np.uint32]) -> None:
    """Append the documents of one batch to a segment."""
    if len(tokens.doc_lengths) and int(tokens.doc_lengths.max()) >= 2**32:
        raise DataError("a document has more than 2^32 tokens")
    documents = np.empty(len(rows), dtype=DOCUMENT)
    documents["length"], documents["row"] = tokens.doc_lengths, rows
    write_frame(file, documents, tokens.ids)


def read_segment(
    path: Path, receipt: UnitReceipt, unit: Unit, first_rows: list[int], dtype: np.dtype, max_bytes: int
) -> Iterator[TokenRun]:
    """Yield the documents of a segment in runs of about `max_bytes`, however large it is.

    `first_rows` says for each span how many rows of its input came before.
    """
    runs: list[TokenRun] = []
    n_bytes = 0
    with path.open("rb") as file:
        frames = read_frames(file, DOCUMENT, dtype)
        for span, span_receipt, first_row in zip(unit.spans, receipt.spans, first_rows, strict=True):
            n_left = span_receipt.n_documents
            while n_left:
                documents, ids = next(frames)
                n_left -= len(documents)
                lengths = documents["length"].astype(np.int64)
                inputs = np.full(len(documents), span.input, dtype=np.uint32)
                runs.append(TokenRun(ids, lengths, inputs, documents["row"].astype(np.uint64) + np.uint64(first_row)))
                n_bytes += ids.nbytes
                if n_bytes >= max_bytes:
                    yield joined(runs)
                    runs, n_bytes = [], 0
    if runs:
        yield joined(runs)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a stream of tokens that lies in one file, with its counts, known before it is read."""

    path: Path
    n_tokens: int
    n_documents: int
    runs: Callable[[], Iterator[TokenRun]]
