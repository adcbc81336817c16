"""Documents that an engine cannot take: found one by one, tried with the reference, and put aside.

An engine may fail on a document in two ways. It raises (a panic in a Rust library too): the batch is halved here, in
the worker, until the document is found. Or it takes the process with it: the parent knows from the worker's notes
which batch that was, and sends the unit again with `Care`: cut there, so that the next note is more exact. Either way
a single document goes to the reference engine before it is given up, and only that document is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill.batches import Documents, Tokens
from tokenmill.errors import DataError, TokenmillError
from tokenmill.segments import QUARANTINE, Exclusion, quarantine_name
from tokenmill.storage.local import write_whole
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.definitions import Engine


class Place(NamedTuple):
    """A document of a unit: its span, and its row there."""

    span: int
    row: int


class Note(NamedTuple):
    """What an engine is about to be given: the documents of a span from one row to another."""

    unit: int
    span: int
    first_row: int
    last_row: int
    n_documents: int  # 0: none at the moment, a batch is being read or written


class Care(msgspec.Struct, frozen=True):
    """What is known of a unit that killed a worker."""

    cut_before: tuple[Place, ...] = ()
    by_reference: tuple[Place, ...] = ()
    excluded: tuple[tuple[Place, str], ...] = ()  # with the reason


NO_CARE = Care()
# What has nothing to do with the document: an interrupt, an error that is already explained, a lack of memory.
NOT_THE_DOCUMENT = (KeyboardInterrupt, SystemExit, TokenmillError, MemoryError)


class CarefulEngine:
    """The engine of one unit, with what is known of its documents."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        engine: Engine,
        unit: int,
        care: Care,
        on_note: Callable[[Note], None],
        out: Path,
    ) -> None:
        self.tokenizer, self.unit, self.on_note, self.out = tokenizer, unit, on_note, out
        self.engine = engine
        self.reference_rows = set(care.by_reference)
        self.excluded_rows = dict(care.excluded)
        alone = self.reference_rows | set(self.excluded_rows)
        self.cuts = sorted({*care.cut_before, *alone, *(Place(span, row + 1) for span, row in alone)})

    def encode(self, span: int, documents: Documents) -> tuple[Documents, Tokens, list[Exclusion]]:
        """Return the documents that could be encoded, their tokens, and those that could not."""
        runs = list(self.runs(span, documents))
        self.on_note(Note(self.unit, span, 0, 0, 0))
        if len(runs) == 1 and not isinstance(runs[0], Exclusion):
            return documents, runs[0], []
        excluded = [run for run in runs if isinstance(run, Exclusion)]
        tokens = [run for run in runs if isinstance(run, Tokens)]
        if len(excluded) == len(documents) > 1 and not self.takes_anything():
            raise DataError(
                f"the tokenizer `{self.tokenizer.name}` fails on every document: {excluded[0].reason}",
                hint="is it the right one?",
            )
        rows = {exclusion.row for exclusion in excluded}
        kept = [i for i, row in enumerate(documents.rows.tolist()) if row not in rows]
        for exclusion in excluded:
            self.quarantine(documents, exclusion)
        ids = np.concatenate([np.empty(0, np.uint32), *(run.ids for run in tokens)])
        doc_lengths = np.concatenate([np.empty(0, np.int64), *(run.doc_lengths for run in tokens)])
        return documents.taken(kept), Tokens(ids, doc_lengths), excluded

    def runs(self, span: int, documents: Documents) -> Iterator[Tokens | Exclusion]:
        """Encode a batch, cut where care says so."""
        rows = documents.rows.tolist()
        cuts = [cut.row for cut in self.cuts if cut.span == span and rows[0] < cut.row <= rows[-1]]
        edges = sorted({0, *(bisect_left(rows, row) for row in cuts), len(rows)})
        for start, stop in pairwise(edges):
            place = Place(span, rows[start])
            if place in self.excluded_rows:
                yield self.exclusion(documents, start, span, self.excluded_rows[place])
            elif place in self.reference_rows:
                yield self.by_reference(span, documents.slice(start, stop), "its worker died")
            else:
                yield from self.tried(span, documents.slice(start, stop) if len(edges) > 2 else documents)

    def tried(self, span: int, documents: Documents) -> Iterator[Tokens | Exclusion]:
        """Encode documents; where the engine raises, halve them until the one is found."""
        self.note(span, documents)
        try:
            yield self.engine.encode(documents)
            return
        except NOT_THE_DOCUMENT:
            raise
        except BaseException as error:  # a panic in a Rust library is no Exception
            reason = in_words(error)
        if len(documents) == 1:
            yield self.by_reference(span, documents, reason)
            return
        middle = len(documents) // 2
        yield from self.tried(span, documents.slice(0, middle))
        yield from self.tried(span, documents.slice(middle, len(documents)))

    def by_reference(self, span: int, documents: Documents, reason: str) -> Tokens | Exclusion:
        """Encode one document with the reference, which decides whether it can be encoded at all."""
        if self.engine is self.tokenizer.reference:
            return self.exclusion(documents, 0, span, reason)
        self.note(span, documents)
        try:
            return self.tokenizer.reference.encode(documents)
        except NOT_THE_DOCUMENT:
            raise
        except BaseException as error:
            return self.exclusion(documents, 0, span, in_words(error))

    def takes_anything(self) -> bool:
        """Whether the tokenizer works at all: a whole batch may well be of documents that it cannot take."""
        try:
            self.tokenizer.reference.encode_one("a")
        except NOT_THE_DOCUMENT:
            raise
        except BaseException:  # it does not even take this: the caller says so, with the reason for the batch
            return False
        return True

    def note(self, span: int, documents: Documents) -> None:
        first, last = int(documents.rows[0]), int(documents.rows[-1])
        self.on_note(Note(self.unit, span, first, last, len(documents)))

    def exclusion(self, documents: Documents, index: int, span: int, reason: str) -> Exclusion:
        offsets = documents.text_offsets
        return Exclusion(span, int(documents.rows[index]), int(offsets[index + 1] - offsets[index]), reason)

    def quarantine(self, documents: Documents, exclusion: Exclusion) -> None:
        """Keep the text of a document that is left out."""
        folder = self.out / QUARANTINE
        folder.mkdir(exist_ok=True)
        text = documents.texts[documents.rows.tolist().index(exclusion.row)].as_buffer()
        write_whole(folder / quarantine_name(self.unit, exclusion), text, "quarantine", shared=True)


def in_words(error: BaseException) -> str:
    """An exception on one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
