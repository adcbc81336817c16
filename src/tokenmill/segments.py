"""Segments: the tokens of one unit on disk, until they are in a shard.

A file of frames, one for each batch that was encoded; a frame never holds documents of two spans. The receipt says
how many documents each span has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun, Tokens, joined_runs
from tokenmill.errors import DataError
from tokenmill.frames import Writable, read_frames, write_frame
from tokenmill.plan import Plan, Unit
from tokenmill.storage.local import is_whole

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


def is_segment_whole(work: Path, receipt: UnitReceipt) -> bool:
    """Whether the segment is there, as long as its receipt says."""
    return is_whole(segment_path(work, receipt.unit, cut=receipt.cut), receipt.n_segment_bytes)


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


class Segment(msgspec.Struct, frozen=True):
    """The segment of a unit, and where its documents come from: all that is needed to read it."""

    unit: Unit
    receipt: UnitReceipt
    first_rows: tuple[int, ...]  # for each span, how many rows of its input come before it

    @property
    def n_tokens(self) -> int:
        return self.receipt.n_tokens

    @property
    def n_documents(self) -> int:
        return self.receipt.n_documents

    def path(self, work: Path) -> Path:
        return segment_path(work, self.unit.index, cut=self.receipt.cut)


def read_segment(segment: Segment, work: Path, dtype: np.dtype) -> Iterator[TokenRun]:
    """Yield the documents of a segment in small runs, a frame each."""
    with segment.path(work).open("rb") as file:
        frames = read_frames(file, DOCUMENT, dtype)
        for span, receipt, first_row in zip(segment.unit.spans, segment.receipt.spans, segment.first_rows, strict=True):
            n_left = receipt.n_documents
            while n_left:
                documents, ids = next(frames)
                n_left -= len(documents)
                lengths = documents["length"].astype(np.int64)
                inputs = np.full(len(documents), span.input, dtype=np.uint32)
                yield TokenRun(ids, lengths, inputs, documents["row"].astype(np.uint64) + np.uint64(first_row))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a stream of tokens, with its counts, known before it is read."""

    own_files: tuple[Path, ...]  # those that hold it and nothing else
    n_tokens: int
    n_documents: int
    runs: Callable[[], Iterator[TokenRun]]


def placed_segments(receipts: Iterable[UnitReceipt], plan: Plan) -> Iterator[Segment]:
    """A segment for each unit, with the rows of its inputs that come before it."""
    n_rows_before: Counter[int] = Counter()
    for receipt in receipts:
        unit = plan.units[receipt.unit]
        first_rows = []
        for span, span_receipt in zip(unit.spans, receipt.spans, strict=True):
            first_rows.append(n_rows_before[span.input])
            n_rows_before[span.input] += span_receipt.n_rows
        yield Segment(unit, receipt, tuple(first_rows))


def segment_stretches(
    segments: Iterable[Segment],
    work: Path,
    dtype: np.dtype,
    max_bytes: int,
    bring: Callable[[UnitReceipt], None] = lambda receipt: None,
) -> Iterator[Stretch]:
    """The corpus in its own order: a stretch for each segment. `bring` has it on this machine."""

    def runs_of(segment: Segment) -> Iterator[TokenRun]:
        bring(segment.receipt)
        return segment_runs(segment, work, dtype, max_bytes)

    for segment in segments:
        runs = partial(runs_of, segment)
        yield Stretch((segment.path(work),), segment.receipt.n_tokens, segment.receipt.n_documents, runs)


def segment_runs(segment: Segment, work: Path, dtype: np.dtype, max_bytes: int) -> Iterator[TokenRun]:
    return joined_runs(read_segment(segment, work, dtype), max_bytes)
