"""What `datasets.map` calls in its workers: a table of documents in, their ids out.

Each process keeps notes in a small mapped file, which outlives it however it ends: the documents it is at, and what
it has done of each unit. From them the parent shows progress, and knows where to look after a death.

    NAME.notes   int64   0    index of the first document being encoded, counted through the dataset
                         1    how many documents are being encoded; 0: none
                         2..  for each unit: bytes of text, tokens, microseconds
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.batches import Documents, Tokens, arrow_array
from tokenmill.errors import DataError, TokenmillError
from tokenmill.tokenizers import Tokenizer

if TYPE_CHECKING:
    from tokenmill.tokenizers.definitions import Engine

FIRST, COUNT, UNITS = 0, 1, 2
PER_UNIT = 3  # bytes, tokens, microseconds


@dataclass(frozen=True)
class EncodeRows:
    """The function: small, picklable, without an engine; that is loaded where it is called."""

    tokenizer: Tokenizer
    use_reference: bool
    dtype: str
    batch_bytes: int
    n_units: int
    paths: tuple[str, ...]  # of the input files, for messages
    notes: str  # the folder for notes
    parent: int  # who must go on hearing interrupts

    def __call__(self, table: Any, indices: list[int]) -> Any:
        if os.getpid() != self.parent:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
        notes = notes_of(self.notes, self.n_units, os.getpid())
        done = [self.encoded(table.slice(0, 0))]  # for the type, where there is no row
        units = table["unit"].to_numpy()
        for first, stop in self.cuts(table, units):
            notes[FIRST], notes[COUNT] = indices[first], stop - first
            began = perf_counter()
            rows = table.slice(first, stop - first)
            done.append(self.encoded_or_named(rows))
            place = UNITS + PER_UNIT * int(units[first])
            notes[place] += documents_of(rows).n_text_bytes
            notes[place + 1] += len(done[-1].flatten())
            notes[place + 2] += int((perf_counter() - began) * 1e6)
            notes[COUNT] = 0
        ids = pa.concat_arrays(done)
        return pa.table({"ids": ids, "len": ids.value_lengths().cast(pa.uint32())})

    def cuts(self, table: Any, units: npt.NDArray[np.uint32]) -> list[tuple[int, int]]:
        """Cut into runs of one unit and of bounded size."""
        ends = [*(np.flatnonzero(np.diff(units)) + 1).tolist(), len(units)]
        cuts, first = [], 0
        for end in ends:
            for batch in documents_of(table.slice(first, end - first)).batches(self.batch_bytes):
                if len(batch):
                    cuts.append((first, first + len(batch)))
                    first += len(batch)
        return cuts

    def encoded_or_named(self, rows: Any) -> Any:
        """Encode; and if that fails, find the document that it fails on and name it."""
        try:
            return self.encoded(rows)
        except (KeyboardInterrupt, OSError, MemoryError):
            raise
        except BaseException as error:  # a panic in a Rust library is no Exception, and would end the worker unsaid
            for i in range(len(rows)):
                try:
                    self.encoded(rows.slice(i, 1))
                except KeyboardInterrupt:
                    raise
                except BaseException as again:
                    row = rows.slice(i, 1).select(["input", "row"]).to_pylist()[0]
                    raise self.named(again, row) from None
            raise DataError(f"the tokenizer `{self.tokenizer.name}` failed: {in_words(error)}") from None

    def named(self, error: BaseException, row: dict[str, int]) -> TokenmillError:
        place = f"row {row['row']:,} of `{self.paths[row['input']]}`"
        return DataError(
            f"the tokenizer `{self.tokenizer.name}` failed on the document in {place}: {in_words(error)}",
            hint="take that document out of the input; rows are counted from 0",
        )

    def encoded(self, rows: Any) -> Any:
        """Return the ids as an Arrow list for each row, without end-of-text."""
        documents = documents_of(rows)
        engine: Engine = self.tokenizer.reference if self.use_reference else self.tokenizer.engine
        tokens = engine.encode(documents) if len(documents) else Tokens(np.empty(0, np.uint32), np.empty(0, np.int64))
        offsets = np.zeros(len(documents) + 1, dtype=np.int64)
        np.cumsum(tokens.doc_lengths, out=offsets[1:])
        ids = tokens.ids.astype(np.dtype(self.dtype), casting="unsafe")
        if len(ids) and int(tokens.ids.max()) > np.iinfo(ids.dtype).max:
            raise DataError(f"the tokenizer gave the id {int(tokens.ids.max()):,}, which does not fit {ids.dtype.name}")
        return pa.LargeListArray.from_arrays(arrow_array(offsets), arrow_array(ids))


def documents_of(rows: Any) -> Documents:
    """The documents of a table of the dataset; their rows are counted within it."""
    column = rows["text"]
    texts = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in column.chunks]) if column.chunks else None
    texts = pa.array([], pa.large_string()) if texts is None else texts
    return Documents(texts, np.arange(len(texts), dtype=np.uint32), len(texts))


@lru_cache(maxsize=4)
def notes_of(folder: str, n_units: int, pid: int) -> npt.NDArray[np.int64]:
    """The notes of one process, mapped to be written."""
    size = UNITS + PER_UNIT * n_units
    return np.memmap(Path(folder) / f"{pid}.notes", dtype=np.int64, mode="w+", shape=(size,))


def in_words(error: BaseException) -> str:
    """One line for whatever was raised."""
    if isinstance(error, TokenmillError):
        return error.message
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
