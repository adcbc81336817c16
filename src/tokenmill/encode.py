"""One unit -> one segment and its receipt.

In: a unit's description. Out: a segment in the work folder, committed by rename, and a receipt. Doing it twice
gives the same bytes; nothing here knows who else is working. No Python object is made per document.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

from tokenmill import faults
from tokenmill.batches import BAD_REASONS, Documents, arrow_array
from tokenmill.care import NO_CARE, Care, CarefulEngine, Note
from tokenmill.errors import RecipeError
from tokenmill.plan import Span, Unit
from tokenmill.recipe import Recipe, recipe_dtype
from tokenmill.segments import Exclusion, SpanReceipt, StageSeconds, UnitReceipt, segment_path, write_batch
from tokenmill.sources import Input, source_for
from tokenmill.storage.local import PartialFile, partial_file
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.definitions import Engine
from tokenmill.tokenizers.delimiters import delimited
from tokenmill.tokenizers.sampling import SampleWriter, sample_path
from tokenmill.tokenizers.special import SpelledWords

BEAT_SECONDS = 0.5
EXCLUDED = "excluded"  # among the reasons for which a document is skipped
NO_ROWS = np.empty(0, dtype=np.uint32)


class Job(msgspec.Struct, frozen=True):
    """What a worker needs to know once: the resolved recipe, the inputs, and where segments go."""

    tokenmill: str  # the version of whoever asks
    recipe: Recipe
    inputs: tuple[Input, ...]
    work: str
    desk: str  # the folder for what workers note, which is nobody else's
    batch_bytes: int
    n_units: int
    import_paths: tuple[str, ...]  # where the parent finds modules: a tokenizer of the user's may be there
    use_reference: bool  # the fast engine was seen to differ on the corpus, or there is none
    check_samples: bool = False  # in the worker itself, and not by the parent


def import_paths() -> tuple[str, ...]:
    """Where this process finds modules, for a Job."""
    return tuple(os.path.abspath(path) for path in sys.path)  # noqa: PTH100 - "" is the working folder


class Beat(msgspec.Struct, frozen=True, tag=True):
    """How far a unit is, from time to time."""

    unit: int
    n_text_bytes: int
    n_tokens: int


def encode_unit(
    job: Job,
    unit: Unit,
    *,
    care: Care = NO_CARE,
    on_beat: Callable[[Beat], None] = lambda beat: None,
    on_note: Callable[[Note], None] = lambda note: None,
    limit_documents: int | None = None,
    engine: Engine | None = None,
    paths: dict[int, str] | None = None,
) -> UnitReceipt:
    """Read, tokenize and delimit the documents of a unit, or its first ones, and commit its segment.

    `care` says which documents killed a worker before; `on_note` is told which documents the engine is given next.
    `engine` is given where the ids are there already and are only to be fetched. `paths` are the copies on this
    machine of inputs that are elsewhere.
    """
    return _UnitEncoder(job, unit, care, on_beat, on_note, limit_documents, engine, paths or {}).encode()


class _UnitEncoder:
    """The counts and clocks of one unit while it is encoded."""

    def __init__(
        self,
        job: Job,
        unit: Unit,
        care: Care,
        on_beat: Callable[[Beat], None],
        on_note: Callable[[Note], None],
        limit_documents: int | None,
        engine: Engine | None,
        paths: dict[int, str],
    ) -> None:
        self.job, self.unit, self.care, self.on_beat, self.paths = job, unit, care, on_beat, paths
        self.cut = limit_documents is not None
        self.n_documents_left = 2**62 if limit_documents is None else limit_documents
        self.limit_reached = False
        self.tokenizer = Tokenizer(job.recipe.tokenizer, job.recipe.pattern)
        if self.tokenizer.identity != job.recipe.tokenizer_identity:
            raise RecipeError(f"the tokenizer `{job.recipe.tokenizer}` changed while it was in use")
        self.dtype = np.dtype(recipe_dtype(job.recipe))
        engine = engine or (self.tokenizer.reference if job.use_reference else self.tokenizer.engine)
        self.engine = CarefulEngine(self.tokenizer, engine, unit.index, care, on_note, Path(job.work).parent)
        # A unit that is encoded again, up to a limit, was in the sample the first time.
        self.sampled = not job.use_reference and not self.cut
        self.sample = SampleWriter(
            self.tokenizer.definition.sample_share, job.recipe.fingerprint, unit.index, job.n_units
        )
        self.special_text = SpelledWords(self.tokenizer.special_tokens)
        self.skipped: Counter[str] = Counter()
        self.excluded: list[Exclusion] = []
        self.n_special_text_documents = 0
        self.seconds = {"read": 0.0, "encode": 0.0, "write": 0.0}
        self.clock = self.last_beat = perf_counter()
        self.n_text_bytes = self.n_tokens = 0

    def encode(self) -> UnitReceipt:
        path = segment_path(Path(self.job.work), self.unit.index, cut=self.cut)
        with partial_file(path, "segment", hashed=False, shared=True) as segment:
            spans = tuple(self.encode_span(i, span, segment) for i, span in enumerate(self.unit.spans))
            if self.sampled and not self.job.check_samples:
                self.sample.write(sample_path(Path(self.job.work), self.unit.index))
                faults.point("sample.written")
            segment.commit()
        self.took("write")
        checks_here = self.sampled and self.job.check_samples
        return UnitReceipt(
            unit=self.unit.index,
            spans=spans,
            skipped=dict(self.skipped),
            n_special_text_documents=self.n_special_text_documents,
            seconds=StageSeconds(**self.seconds),
            n_segment_bytes=segment.n_bytes,
            cut=self.cut,
            excluded=tuple(self.excluded),
            by_reference=self.care.by_reference,
            n_checked=self.sample.n_equal(self.tokenizer, Path(self.job.work).parent) if checks_here else None,
        )

    def encode_span(self, index: int, span: Span, segment: PartialFile) -> SpanReceipt:
        n_rows = n_documents = n_tokens = n_text_bytes = 0
        bad_rows: list[tuple[int, str]] = []
        for batch in self.batches(span):
            self.took("read")
            n_rows += batch.n_rows
            self.skipped.update({reason: len(rows) for reason, rows in batch.skipped.items() if len(rows)})
            bad_rows += [(row, why) for why in BAD_REASONS for row in batch.skipped.get(why, NO_ROWS).tolist()]
            if len(batch) == 0:
                continue
            documents, tokens, excluded = self.engine.encode(index, batch)
            self.excluded += excluded
            self.skipped.update({EXCLUDED: len(excluded)} if excluded else {})
            self.n_special_text_documents += len(self.special_text.documents(documents))
            if self.sampled:
                self.sample.choose(documents, tokens)
            assert self.job.recipe.eot is not None
            tokens = delimited(tokens, self.dtype, self.job.recipe.eot, int(self.job.recipe.eot_token or 0))
            self.took("encode")
            write_batch(segment, tokens, documents.rows)
            self.took("write")
            n_documents += len(documents)
            n_tokens += len(tokens.ids)
            n_text_bytes += documents.n_text_bytes
            self.beat(documents.n_text_bytes, len(tokens.ids))
        return SpanReceipt(n_rows, n_documents, n_tokens, n_text_bytes, tuple(sorted(bad_rows)))

    def batches(self, span: Span) -> Iterator[Documents]:
        """Yield batches of bounded size, their rows counted from the beginning of the span, up to the limit.

        A limit ends the unit at the first document that is not taken, so that what is counted and listed up to there
        does not depend on the size of batches.
        """
        entry, first_row = self.job.inputs[span.input], 0
        entry = msgspec.structs.replace(entry, local=self.paths.get(span.input))
        if self.limit_reached:
            return
        for documents in wanted_documents(entry, span, self.job.recipe, self.job.batch_bytes):
            self.limit_reached = len(documents) > self.n_documents_left
            documents = documents.first(self.n_documents_left)
            self.n_documents_left -= len(documents)
            yield from documents.shifted(first_row).batches(self.job.batch_bytes)
            if self.limit_reached:
                return
            first_row += documents.n_rows

    def took(self, stage: str) -> None:
        now = perf_counter()
        self.seconds[stage] += now - self.clock
        self.clock = now

    def beat(self, n_text_bytes: int, n_tokens: int) -> None:
        self.n_text_bytes += n_text_bytes
        self.n_tokens += n_tokens
        if self.clock - self.last_beat >= BEAT_SECONDS:
            self.last_beat = self.clock
            self.on_beat(Beat(self.unit.index, self.n_text_bytes, self.n_tokens))


def wanted_documents(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    """Read the documents of a span that the recipe wants, in runs whose rows count from the first one of each."""
    for documents in source_for(entry).read(entry, span, recipe, batch_bytes):
        yield of_wanted_length(documents, recipe.min_chars, recipe.max_chars)


def of_wanted_length(documents: Documents, min_chars: int | None, max_chars: int | None) -> Documents:
    """Leave out documents that are too short or too long, counted in characters."""
    if min_chars is None and max_chars is None:
        return documents
    import pyarrow.compute as pc

    lengths = pc.utf8_length(documents.texts).to_numpy()
    short, long = lengths < (min_chars or 0), lengths > (max_chars or 2**62)
    skipped = documents.skipped | {"min_chars": documents.rows[short], "max_chars": documents.rows[long]}
    kept = np.flatnonzero(~(short | long))
    texts = documents.texts.take(arrow_array(kept)) if len(kept) < len(documents) else documents.texts
    return replace(documents, texts=texts, rows=documents.rows[kept], skipped=skipped)
