"""Compare an output with its sources: documents are read again and encoded by the reference.

A seeded sample, or everything. The reference is the engine that defines what is right, whichever engine did the work.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill import __version__
from tokenmill.assemble import in_unit_order
from tokenmill.batches import Documents, Tokens, text_array
from tokenmill.encode import Beat, Job, import_paths, wanted_documents
from tokenmill.errors import NetworkError, OutputError, SourceError, TokenmillError
from tokenmill.executors import Mishap, executor_named
from tokenmill.fetching import DOWNLOADS, Fetcher
from tokenmill.inspect import Document, Shards
from tokenmill.manifest import InputRecord, Manifest
from tokenmill.plan import Span, cut_spans, plan_units
from tokenmill.recipe import Recipe, RunOptions, recipe_dtype, shuffle_kind_and_seed
from tokenmill.segments import placed_segments, segment_runs
from tokenmill.shuffle import permutation
from tokenmill.sources import Input, input_at, remote_input, source_for
from tokenmill.sources.parquet import row_counts
from tokenmill.storage.addresses import is_address, parsed
from tokenmill.storage.local import file_sha256
from tokenmill.storage.remote import RemoteFile, list_files
from tokenmill.tokenizers.delimiters import delimited

SAMPLE_DOCUMENTS = 64
# Files of lines must be read from their beginning to the row wanted: not too many of them.
SAMPLE_FILES = 8
SPAN_BYTES = 48_000_000
BATCH_BYTES = 4_000_000
RUN_BYTES = 16_000_000

OnDone = Callable[[int, int], None]  # how many of how many


def input_problems(manifest: Manifest, on_done: OnDone) -> Iterator[tuple[str, str, bool]]:
    """Yield the sources that are not what they were: path, what is wrong, and whether it is only not there."""
    n_bytes, n_read = sum(entry.n_bytes for entry in manifest.inputs), 0
    for entry in manifest.inputs:
        n_read += entry.n_bytes
        on_done(n_read, n_bytes)
        if is_address(entry.path):
            yield from remote_problems(entry)
            continue
        path = Path(entry.path)
        try:
            size = path.stat().st_size
            if size != entry.n_bytes:
                what = f"source `{path}` changed since the run: {size:,} bytes, expected {entry.n_bytes:,}"
                yield entry.path, what, False
            elif (found := file_sha256(path)) != entry.sha256:
                what = f"source `{path}` changed since the run: SHA-256 {found}, expected {entry.sha256}"
                yield entry.path, what, False
        except FileNotFoundError:
            yield entry.path, f"source `{path}` is not here, so nothing of it was compared", True
        except OSError as error:
            yield entry.path, f"source `{path}` cannot be read: {error.strerror}", False


def remote_problems(entry: InputRecord) -> Iterator[tuple[str, str, bool]]:
    """What became of a source elsewhere, by its listing. A commit of the Hub cannot change, so nobody is asked."""
    address = parsed(entry.path)
    if address.scheme == "hf":
        return
    try:
        now = next((file for file in list_files(address) if file.address == entry.path), None)
    except (SourceError, NetworkError) as error:
        yield entry.path, not_compared(entry.path, error), True
        return
    if now is None:
        yield entry.path, f"source `{address}` is not there any more, so nothing of it was compared", True
    elif (now.size, now.digest) != (entry.n_bytes, entry.edges):
        then = f"{entry.n_bytes:,} bytes, {entry.edges}"
        what = f"source `{address}` changed since the run: {now.size:,} bytes, {now.digest}, expected {then}"
        yield entry.path, what, False


def not_compared(path: str, error: TokenmillError) -> str:
    return f"source `{path}` cannot be read, so nothing of it was compared: {error.message}"


def sample_problems(shards: Shards, changed: set[str], on_done: OnDone) -> tuple[int, list[str], list[str]]:
    """Encode a seeded sample of the documents again; return how many, what differs, and what could not be read."""
    manifest = shards.manifest
    rng = np.random.default_rng(int(manifest.fingerprint[:8], 16))
    numbers = rng.choice(len(shards), min(SAMPLE_DOCUMENTS, len(shards)), replace=False, shuffle=False)
    by_file: defaultdict[str, list[Document]] = defaultdict(list)
    for number in sorted(set(numbers.tolist())):
        document = shards[number]
        if document.source not in changed and (document.source in by_file or len(by_file) < SAMPLE_FILES):
            by_file[document.source].append(document)
    n_all, n_compared, problems, notes = sum(map(len, by_file.values())), 0, list[str](), list[str]()
    records = {entry.path: entry for entry in manifest.inputs}
    for path, documents in by_file.items():
        try:
            entry = input_of(records[path], manifest.recipe)
            texts = texts_at(entry, {document.row for document in documents}, manifest.recipe)
        except (SourceError, NetworkError) as error:
            notes.append(not_compared(path, error))
            continue
        except TokenmillError as error:
            problems.append(f"source `{path}`: {error.message}")
            continue
        for document in documents:
            if document.row not in texts:
                problems.append(f"{place_of(document)}: the source has no such document")
                continue
            expected = expected_ids(shards, texts[document.row])
            problems += [difference] if (difference := first_difference(document, expected)) else []
            n_compared += 1
            on_done(n_compared, n_all)
    return n_compared, problems, notes


def full_problems(shards: Shards, workers: int | None, on_done: OnDone) -> Iterator[str]:
    """Encode everything again with the reference, in workers, and yield the first difference of each document."""
    manifest, recipe = shards.manifest, shards.manifest.recipe
    kind, seed = shuffle_kind_and_seed(str(recipe.shuffle))
    n_documents = sum(shard.n_documents + shard.n_dropped_documents - shard.n_continued for shard in manifest.shards)
    places = permutation(kind, n_documents, seed) if kind != "none" else lambda numbers: numbers
    excluded = {(entry.file, entry.row) for entry in manifest.excluded}
    number = 0
    with closing(encoded_again(manifest, workers, lambda: on_done(number, n_documents))) as documents:
        for source, row, ids in documents:
            if (source, row) in excluded:
                continue
            if number == n_documents:  # a limit ended the corpus here
                return
            place = shards.number_at(int(places(np.array([number], dtype=np.uint64))[0]))
            number += 1
            if place is None:  # it fell into a tail that was dropped
                continue
            document = shards[place]
            if (document.source, document.row) != (source, row):
                yield f"{place_of(document)} stands where `{source}` row {row:,} belongs"
            elif difference := first_difference(document, ids):
                yield difference
    if number != n_documents:
        yield f"the sources have {number:,} documents, the output {n_documents:,}"


def encoded_again(
    manifest: Manifest, workers: int | None, on_unit: Callable[[], None]
) -> Generator[tuple[str, int, npt.NDArray[np.unsignedinteger]]]:
    """Yield source, row and ids of every document of the corpus, by the reference; tell when a unit is done."""
    recipe, plan = manifest.recipe, plan_units(manifest.recipe)
    paths = [entry.path for entry in plan.inputs]
    if paths != [entry.path for entry in manifest.inputs]:
        raise OutputError("the sources are not those of the run any more", hint="leave `--full` away")
    dtype = np.dtype(recipe_dtype(recipe))
    with tempfile.TemporaryDirectory(prefix="tokenmill-verify-") as folder:
        work = Path(folder) / "work"
        (work / "units").mkdir(parents=True)
        job = Job(
            tokenmill=__version__,
            recipe=recipe,
            inputs=plan.inputs,
            work=str(work),
            desk=str(work),
            batch_bytes=BATCH_BYTES,
            n_units=len(plan.units),
            import_paths=import_paths(),
            use_reference=True,
        )
        fetcher = Fetcher(plan, plan.units, work / DOWNLOADS, None, keep=False)
        encode = executor_named("processes")(job, plan.units, RunOptions(workers=workers), _Silent(), fetcher)
        with closing(fetcher), closing(encode):
            for segment in placed_segments(in_unit_order(encode), plan):
                fetcher.release(segment.unit)
                for run in segment_runs(segment, work, dtype, RUN_BYTES):
                    ends = run.doc_offsets[1:].tolist()
                    for index, row, end, length in zip(
                        run.doc_inputs.tolist(), run.doc_rows.tolist(), ends, run.doc_lengths.tolist(), strict=True
                    ):
                        yield paths[index], row, run.ids[end - length : end]
                segment.path(work).unlink()
                on_unit()


class _Silent:
    """Nobody watches the workers of a check."""

    def beat(self, beat: Beat) -> None: ...
    def mishap(self, mishap: Mishap) -> None: ...
    def tick(self) -> None: ...


def input_of(record: InputRecord, recipe: Recipe) -> Input:
    if is_address(record.path):
        return remote_input(RemoteFile(record.path, record.n_bytes, record.edges), recipe)
    return input_at(Path(record.path), recipe)


def texts_at(entry: Input, rows: set[int], recipe: Recipe) -> dict[int, str]:
    """Return the documents of a file at these rows. Row groups without one are passed over."""
    counts = row_counts(entry) if entry.kind == "parquet" else None
    atoms = source_for(entry).atom_bytes(entry, recipe)
    if counts is None:
        spans = cut_spans(0, atoms, SPAN_BYTES, divisible=entry.divisible)
    else:
        spans = row_group_spans(entry, sum(atoms), len(counts))
    texts: dict[int, str] = {}
    n_before = 0
    for i, span in enumerate(spans):
        if n_before > max(rows):
            break
        if counts is not None:
            n_rows = counts[i]
            if not any(n_before <= row < n_before + n_rows for row in rows):
                n_before += n_rows
                continue
        for documents in wanted_documents(entry, span, recipe, BATCH_BYTES):
            for at in np.flatnonzero(np.isin(documents.rows.astype(np.int64) + n_before, list(rows))).tolist():
                texts[n_before + int(documents.rows[at])] = documents.texts[at].as_py()
            n_before += documents.n_rows
    return texts


def row_group_spans(entry: Input, n_bytes: int, n_groups: int) -> list[Span]:
    """A span for each row group; a file elsewhere is cut by shares of its bytes."""
    if not entry.is_remote:
        return [Span(0, i, i + 1, n_bytes // n_groups) for i in range(n_groups)]
    return [Span(0, n_bytes * i // n_groups, n_bytes * (i + 1) // n_groups, 1) for i in range(n_groups)]


def expected_ids(shards: Shards, text: str) -> npt.NDArray[np.unsignedinteger]:
    """What the reference makes of a text, with end-of-text where the recipe puts it."""
    recipe = shards.manifest.recipe
    documents = Documents(text_array([text]), np.zeros(1, np.uint32), 1)
    tokens: Tokens = shards.tokenizer.reference.encode(documents)
    assert recipe.eot is not None
    return delimited(tokens, np.dtype(recipe_dtype(recipe)), recipe.eot, int(recipe.eot_token or 0)).ids


def first_difference(document: Document, expected: npt.NDArray[np.unsignedinteger]) -> str | None:
    """Name the first token of a document that is not what it should be."""
    found = document.tokens
    if np.array_equal(found, expected):
        return None
    n_both = min(len(found), len(expected))
    if document.is_cut and np.array_equal(found, expected[:n_both]):
        return None
    if document.is_rest and np.array_equal(found, expected[len(expected) - n_both :]):
        return None
    differs = np.flatnonzero(found[:n_both] != expected[:n_both])
    if not len(differs):
        return f"{place_of(document)} has {len(found):,} tokens, expected {len(expected):,}"
    i = int(differs[0])
    return (
        f"{place_of(document)}: its token {i:,} (token {document.start + i:,} from the beginning of that shard) is"
        f" {int(found[i])}, expected {int(expected[i])}"
    )


def place_of(document: Document) -> str:
    return f"{document.shard}: document {document.number:,} (`{document.source}` row {document.row:,})"
