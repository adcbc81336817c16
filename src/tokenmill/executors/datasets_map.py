"""Encode by `datasets.map`: the way of nanoGPT's prepare.py, with the same plan, shards and manifest as every other.

    units ──► datasets.Dataset of documents ──map(num_proc)──► ids, in datasets' cache ──► segments, receipts

Both steps are kept in the cache of `datasets` and served from it by a rerun; they are named by what decides their
content: the files with size and time, the recipe's fields for reading, the tokenizer. Segments are written by
`encode_unit` as always, only that the ids come from the mapped dataset in the place of an engine.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tokenmill.batches import Documents, Tokens
from tokenmill.encode import Job, encode_unit, wanted_documents
from tokenmill.errors import DataError, RecipeError, TokenmillError, WorkerError
from tokenmill.executors import EncodeProgress, inline
from tokenmill.executors.culprit import Suspects, deadly_document
from tokenmill.executors.deaths import exit_in_words
from tokenmill.executors.encode_rows import EncodeRows
from tokenmill.executors.map_watch import MapWatch
from tokenmill.fetching import Supply
from tokenmill.plan import Unit
from tokenmill.recipe import RunOptions, recipe_dtype
from tokenmill.segments import UnitReceipt
from tokenmill.tokenizers import Tokenizer

ROWS_AT_A_TIME = 1000
# Documents that datasets gathers as Python objects before it writes them: 100 of 50 MB still fit.
ROWS_WRITTEN_AT_A_TIME = 100
READING_FIELDS = ("text_column", "where", "min_chars", "max_chars", "on_bad_document")


def encode_units(
    job: Job, units: Sequence[Unit], options: RunOptions, progress: EncodeProgress, supply: Supply
) -> Generator[UnitReceipt]:
    if any(entry.is_remote for entry in job.inputs):
        raise RecipeError(
            "this way of working goes through `datasets`, and reads files of this machine",
            hint="fetch them before with `tokenmill download`; or `tokenmill prepare`, which fetches them as it goes",
        )
    if next(document_rows(job, tuple(units)), None) is None:  # datasets refuses to make a dataset without rows
        yield from inline.encode_units(job, units, options, progress, supply)
        return
    with quiet_datasets():
        documents = documents_dataset(job, units)
        notes = Path(job.work) / "units"
        watch = MapWatch(notes, job.n_units, progress.beat)
        try:
            with watch:
                mapped = mapped_dataset(documents, job, options, notes)
        except TokenmillError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if interrupted(error) and not watch.was_stuck:
                raise KeyboardInterrupt from None
            if not watch.saw_death and "abruptly died" not in str(error):
                raise
            raise death(job, documents, watch) from None
    ids = MappedIds(documents, mapped)
    for unit in units:
        receipt = encode_unit(job, unit, on_beat=progress.beat, engine=ids)
        seconds = receipt.seconds
        encode_seconds = seconds.encode + watch.encode_seconds(unit.index)
        yield msgspec.structs.replace(receipt, seconds=msgspec.structs.replace(seconds, encode=encode_seconds))
    ids.check_finished()


def interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt is behind an error: datasets raises a timeout of its own while it cleans up after one."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Import `datasets`, and keep its progress bars off the screen: the run shows its own."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        if error.name != "datasets":
            raise
        raise RecipeError(
            "`datasets` is not installed, and this way of working goes through it",
            hint="`pip install 'tokenmill[datasets]'`; or `tokenmill prepare`, which does without",
        ) from None
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()


def documents_dataset(job: Job, units: Sequence[Unit]) -> Any:
    """Return the documents of all units as a dataset, read now or taken from the cache."""
    from datasets import Dataset, Features, Value
    from datasets.exceptions import DatasetGenerationError

    decides = {
        "tokenmill": job.tokenmill,
        "inputs": job.inputs,
        "units": units,
        "recipe": {name: getattr(job.recipe, name) for name in READING_FIELDS},
    }
    features = {
        "text": Value("large_string"),
        "input": Value("uint32"),
        "row": Value("uint64"),
        "unit": Value("uint32"),
    }
    try:
        return Dataset.from_generator(
            document_rows,
            features=Features(features),
            gen_kwargs={"job": job, "units": tuple(units)},
            fingerprint=digest(decides),
            writer_batch_size=ROWS_WRITTEN_AT_A_TIME,
        ).with_format("arrow")
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


def document_rows(job: Job, units: tuple[Unit, ...]) -> Iterator[dict[str, Any]]:
    """Yield every document with the place it has: a Python object for each, which is what datasets asks for."""
    n_rows_before: Counter[int] = Counter()
    for unit in units:
        for span in unit.spans:
            first_row, n_rows = n_rows_before[span.input], 0
            for documents in wanted_documents(job.inputs[span.input], span, job.recipe, job.batch_bytes):
                for text, row in zip(documents.texts, documents.rows.tolist(), strict=True):
                    place = first_row + n_rows + row
                    yield {"text": text.as_py(), "input": span.input, "row": place, "unit": unit.index}
                n_rows += documents.n_rows
            n_rows_before[span.input] += n_rows


def mapped_dataset(documents: Any, job: Job, options: RunOptions, notes: Path) -> Any:
    """Return the ids of all documents as a dataset, encoded now or taken from the cache."""
    tokenizer = Tokenizer(job.recipe.tokenizer, job.recipe.pattern)
    engine = tokenizer.reference if job.use_reference else tokenizer.engine
    dtype = recipe_dtype(job.recipe)
    function = EncodeRows(
        tokenizer=tokenizer,
        use_reference=job.use_reference,
        dtype=dtype,
        batch_bytes=job.batch_bytes,
        n_units=job.n_units,
        paths=tuple(entry.path for entry in job.inputs),
        notes=str(notes),
        parent=os.getpid(),
    )
    decides = [documents._fingerprint, job.tokenmill, tokenizer.identity, engine.name, engine.version, dtype]
    n_workers = min(options.n_workers, len(documents))
    return documents.map(
        function,
        with_indices=True,
        batched=True,
        batch_size=ROWS_AT_A_TIME,
        remove_columns=documents.column_names,
        # datasets starts a worker for 1 too; None is this process.
        num_proc=n_workers if n_workers > 1 else None,
        new_fingerprint=digest(decides),
    ).with_format("arrow")


def death(job: Job, documents: Any, watch: MapWatch) -> WorkerError:
    """Say how a worker of datasets died, and on which document."""
    deaths = watch.deaths()
    pid = next((pid for pid in deaths if watch.documents_at(pid)), next(iter(deaths), None))
    if pid is None:
        return WorkerError("a worker of `datasets` died; how is not known", hint="run the same command again")
    who, how = f"worker process {pid} of `datasets`", exit_in_words(deaths[pid])
    at = watch.documents_at(pid)
    if at is None:
        return WorkerError(f"{who} ended between documents: {how}", hint="run the same command again")
    rows = documents[at[0] : at[1]]
    suspects = Suspects(
        tokenizer=job.recipe.tokenizer,
        pattern=job.recipe.pattern,
        use_reference=job.use_reference,
        import_paths=job.import_paths,
        texts=rows["text"].to_pylist(),
    )
    found = deadly_document(suspects)
    places = [
        (job.inputs[i].path, row) for i, row in zip(rows["input"].to_pylist(), rows["row"].to_pylist(), strict=True)
    ]
    if found is not None:
        path, row = places[found]
        return WorkerError(
            f"{who} died of the document in row {row:,} of `{path}`: {how}",
            hint="alone it kills a process too: take it out of the input (rows are counted from 0)",
        )
    (path, row), (last_path, last_row) = places[0], places[-1]
    upto = f"`{path}`" if path == last_path else f"`{path}` and later files"
    return WorkerError(
        f"{who} died at rows {row:,} to {last_row:,} of {upto}: {how}",
        hint="none of these documents kills by itself: run the same command again,"
        " with a smaller `--num_proc` if memory is short",
    )


class MappedIds:
    """In the place of an engine: the ids of documents as the mapped dataset has them, in the order of the corpus."""

    name, version = "datasets", ""

    def __init__(self, documents: Any, mapped: Any) -> None:
        self._documents, self._mapped = documents, mapped
        self._n_taken = 0

    def encode(self, documents: Documents) -> Tokens:
        """Return the ids of the next documents, which must be these."""
        rows = slice(self._n_taken, self._n_taken + len(documents))
        self._n_taken = rows.stop
        if not self._documents[rows]["text"].equals(pa.chunked_array([documents.texts])):
            raise self._stale()
        lists = pa.concat_arrays(self._mapped[rows]["ids"].chunks)
        return Tokens(lists.flatten().to_numpy(), lists.value_lengths().to_numpy().astype(np.int64))

    def check_finished(self) -> None:
        if self._n_taken != len(self._documents):
            raise self._stale()

    def _stale(self) -> DataError:
        files = self._documents.cache_files
        folder = Path(files[0]["filename"]).parent if files else "the cache of datasets"
        return DataError(
            "the cache of `datasets` does not hold the documents of these files: they changed, and not their time",
            hint=f"delete `{folder}` and run the same command again",
        )


def digest(value: Any) -> str:
    """A fingerprint for datasets: short enough for it to add the rank of a worker."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]
