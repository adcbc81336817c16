"""Check that an output is what its manifest says, and what its sources make of it.

Checksums and sizes of all files; headers, counts and the document index; every id below the vocabulary size, and
end-of-text where the recipe puts it; the sources against their digests; and documents encoded again by the reference
(comparison.py): a seeded sample, or all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.errors import DamageError, RecipeError
from tokenmill.manifest import MANIFEST, SUMS, Manifest, load_manifest, sums_text
from tokenmill.shards import format_named
from tokenmill.shards.index import Index
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.mirror import output_here

READ_BYTES = 1 << 22
# At most so many differences are listed: where one token is wrong, a million may be.
MAX_DIFFERENCES = 20

Level = Literal["checksums", "sample", "full"]
OnDone = Callable[[str, int, int], None]  # which check, how much of how much


class Verification(msgspec.Struct, frozen=True):
    """What was checked, and everything that is wrong."""

    n_files: int
    n_bytes: int
    n_tokens: int
    n_documents: int
    n_compared: int  # documents encoded again by the reference
    problems: tuple[str, ...]
    notes: tuple[str, ...]  # what could not be checked, and why

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(
    out: str | Path, level: Level = "sample", on_done: OnDone | None = None, workers: int | None = None
) -> Verification:
    """Check a finished output.

    "checksums" reads the output and nothing else; "sample" looks inside, and compares a sample with the sources;
    "full" encodes all of the sources again with the reference.
    """
    if level not in (levels := ("checksums", "sample", "full")):
        raise RecipeError(f"unknown level `{level}`", hint=f"choose one of {', '.join(levels)}")
    on_done = on_done or (lambda what, done, total: None)
    with output_here(out, lambda done, total: on_done("fetching", done, total)) as folder:
        return verified(folder, level, on_done, workers)


def verified(out: Path, level: Level, on_done: OnDone, workers: int | None) -> Verification:
    manifest = load_manifest(out)
    files = [file for shard in manifest.shards for file in shard.files]
    others = [*manifest.closing_files, *([manifest.skipped_list] if manifest.skipped_list else [])]
    n_bytes = sum(file.n_bytes for file in files)
    n_read = 0

    def read(n: int) -> None:
        nonlocal n_read
        n_read += n
        on_done("hashing", n_read, n_bytes)

    problems = [*sum_problems(out, manifest), *total_problems(manifest)]
    for file in others:
        problems += file_problems(out, file, lambda n: None)
    for i, shard in enumerate(manifest.shards):
        found = [problem for file in shard.files for problem in file_problems(out, file, read)]
        if not found and level != "checksums":
            found += [*shard_problems(out, manifest, shard), *index_problems(out, manifest, i)]
            found = found or [*id_problems(out, manifest, i), *eot_problems(out, manifest, i)]
        problems += found
    n_compared = 0
    notes: list[str] = []
    if level != "checksums" and not problems:
        n_compared, problems, notes = source_problems(out, manifest, level, on_done, workers)
    return Verification(
        n_files=len(files) + len(others) + 2,
        n_bytes=n_bytes,
        n_tokens=manifest.totals.n_tokens,
        n_documents=manifest.totals.n_documents,
        n_compared=n_compared,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def source_problems(
    out: Path, manifest: Manifest, level: Level, on_done: OnDone, workers: int | None
) -> tuple[int, list[str], list[str]]:
    """Compare with the sources; return how many documents, what differs, and what could not be compared."""
    if any(not parent.sha256 for parent in manifest.parents):
        return 0, [], ["it was made of shards from elsewhere, so there is no text to compare with"]
    from tokenmill.comparison import full_problems, input_problems, sample_problems
    from tokenmill.inspect import Shards

    problems: list[str] = []
    notes: list[str] = []
    changed: set[str] = set()
    for path, what, is_absent in input_problems(manifest, lambda done, total: on_done("hashing sources", done, total)):
        (notes if is_absent else problems).append(what)
        changed.add(path)
    try:
        shards = Shards(out)
        if shards.tokenizer.identity != manifest.tokenizer.identity:
            raise RecipeError("it is another one than that of the run")
    except RecipeError as error:
        name = manifest.tokenizer.name
        return 0, problems, [*notes, f"nothing was encoded again, for want of the tokenizer `{name}`: {error.message}"]
    if level == "sample":
        n_compared, found, unread = sample_problems(shards, changed, lambda *n: on_done("comparing", *n))
        return n_compared, [*problems, *found], [*notes, *unread]
    if len(manifest.parents) > 1:
        return 0, problems, [*notes, "it was merged of several outputs: `--full` is for each of them"]
    if changed:
        problems += ["not everything could be encoded again: see the sources above"] if notes else []
        return 0, problems, notes
    found = list(islice(full_problems(shards, workers, lambda *n: on_done("comparing", *n)), MAX_DIFFERENCES))
    return len(shards), found, notes


def sum_problems(out: Path, manifest: Manifest) -> Iterator[str]:
    """SHA256SUMS must be what the manifest makes it, and so name the manifest's own digest."""
    expected = sums_text(manifest, (out / MANIFEST).read_bytes()).splitlines(keepends=True)
    try:
        found = (out / SUMS).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        yield f"{SUMS}: missing"
        return
    if found != expected:
        lines = zip_longest(found, expected, fillvalue="nothing")
        first = next(i for i, (a, b) in enumerate(lines, 1) if a != b)
        yield f"{SUMS}: differs from {MANIFEST} in line {first}, or {MANIFEST} was changed"


def total_problems(manifest: Manifest) -> Iterator[str]:
    """The totals must be the sums of the shards and of the inputs."""
    totals = manifest.totals
    if manifest.recipe.fingerprint != manifest.fingerprint:
        yield f"{MANIFEST}: the fingerprint is not that of the recipe"
    for name in ("n_tokens", "n_documents", "n_dropped_tokens"):
        total = sum(getattr(shard, name) for shard in manifest.shards)
        if total != getattr(totals, name):
            yield f"{MANIFEST}: {name} is {getattr(totals, name):,} in all, and {total:,} over the shards"
    n_elsewhere = sum(shard.n_dropped_documents - shard.n_continued for shard in manifest.shards)
    in_all = {
        "n_tokens": totals.n_tokens + totals.n_dropped_tokens,
        "n_documents": totals.n_documents + n_elsewhere,
        "n_text_bytes": totals.n_text_bytes,
    }
    if manifest.parents:  # end-of-text may have come or gone with the conversion
        del in_all["n_tokens"]
    for name, expected in in_all.items():
        total = sum(getattr(entry, name) for entry in manifest.inputs)
        if total != expected:
            yield f"{MANIFEST}: {name} is {expected:,} in all, and {total:,} over the inputs"


def file_problems(out: Path, file: FileReceipt, on_read: Callable[[int], None]) -> Iterator[str]:
    """Size and SHA-256 of one file."""
    path = out / file.file
    digest = hashlib.sha256()
    try:
        if (size := path.stat().st_size) != file.n_bytes:
            yield f"{file.file}: {size:,} bytes, expected {file.n_bytes:,}"
            return
        with path.open("rb", buffering=0) as stream:
            buffer = memoryview(bytearray(READ_BYTES))
            while n := stream.readinto(buffer):
                digest.update(buffer[:n])
                on_read(n)
    except FileNotFoundError:
        yield f"{file.file}: missing"
        return
    except OSError as error:
        yield f"{file.file}: cannot be read: {error.strerror}"
        return
    if digest.hexdigest() != file.sha256:
        yield f"{file.file}: SHA-256 {digest.hexdigest()}, expected {file.sha256}"


def shard_problems(out: Path, manifest: Manifest, shard: ShardReceipt) -> Iterator[str]:
    """The header must say what the manifest says, and the tokens must fill the file to its end."""
    itemsize = np.dtype(manifest.tokenizer.dtype).itemsize
    try:
        header = format_named(manifest.recipe.format).read_header(out / shard.file, itemsize)
    except DamageError as error:
        yield f"{shard.file}: {error.message}"
        return
    if (header.n_tokens, header.itemsize) != (shard.n_tokens, itemsize):
        yield (
            f"{shard.file}: {header.n_tokens:,} tokens of {header.itemsize} bytes by its header, "
            f"expected {shard.n_tokens:,} of {itemsize}"
        )
    elif len(shard_ids(out, manifest, shard)) != shard.n_tokens:
        yield f"{shard.file}: {shard.n_tokens:,} tokens do not fill {shard.n_bytes:,} bytes"


def index_problems(out: Path, manifest: Manifest, shard_index: int) -> Iterator[str]:
    """The index must have a row for each document, and the documents must follow one another without a gap."""
    shard = manifest.shards[shard_index]
    from_here = manifest.shards[shard_index:]
    n_tokens_from_here = sum(later.n_tokens + later.n_dropped_tokens for later in from_here)
    name = shard.index.file
    index = Index(out / name)
    n_rows, end = 0, None
    for i in range(index.n_batches):
        batch = index.batch(i)
        starts, lengths = batch.column("start").to_numpy(), batch.column("length").to_numpy()
        ends = starts + lengths
        n_rows += len(starts)
        if (end is not None and end != starts[0]) or not np.array_equal(ends[:-1], starts[1:]):
            yield f"{name}: documents overlap or leave a gap"
        if int(starts[-1]) > shard.n_tokens or int(ends[-1]) > n_tokens_from_here:
            yield f"{name}: a document ends at {int(ends[-1]):,}, behind the last token"
        if int(batch.column("input").to_numpy().max()) >= len(manifest.inputs):
            yield f"{name}: a document names an input that is not in the manifest"
        end = ends[-1]
    if n_rows != shard.n_documents:
        yield f"{name}: {n_rows:,} documents, expected {shard.n_documents:,}"


def shard_ids(out: Path, manifest: Manifest, shard: ShardReceipt) -> npt.NDArray[np.integer]:
    dtype = np.dtype(manifest.tokenizer.dtype).newbyteorder("<")
    return format_named(manifest.recipe.format).read_ids(out / shard.file, dtype)


def id_problems(out: Path, manifest: Manifest, shard_index: int) -> Iterator[str]:
    """No id may be above the vocabulary, or end-of-text."""
    shard = manifest.shards[shard_index]
    largest = max(manifest.tokenizer.vocab_size - 1, manifest.tokenizer.eot_token or 0)
    ids = shard_ids(out, manifest, shard)
    for start in range(0, len(ids), READ_BYTES):
        stretch = ids[start : start + READ_BYTES]
        if int(stretch.max()) > largest:
            place = start + int(np.argmax(stretch > largest))
            yield f"{shard.file}: token {place:,} is {int(ids[place])}, and the vocabulary ends at {largest}"
            return


def eot_problems(out: Path, manifest: Manifest, shard_index: int) -> Iterator[str]:
    """Each document must have end-of-text where the recipe puts it; one that runs on ends in another shard."""
    shard, eot = manifest.shards[shard_index], manifest.recipe.eot
    if eot == "none":
        return
    ids = shard_ids(out, manifest, shard)
    index = Index(out / shard.index.file)
    for i in range(index.n_batches):
        starts, lengths = (index.batch(i).column(name).to_numpy() for name in ("start", "length"))
        ends = (starts + lengths)[starts + lengths <= shard.n_tokens]
        if eot == "first":
            places = starts[~index.batch(i).column("continued").to_numpy(zero_copy_only=False)]
        else:
            is_cut = shard.ends_cut and i == index.n_batches - 1
            places = (ends[:-1] if is_cut else ends) - np.uint64(1)
        wrong = np.flatnonzero(ids[places] != manifest.tokenizer.eot_token)
        if len(wrong):
            yield f"{shard.file}: no end-of-text at token {int(places[wrong[0]]):,}, where a document has it ({eot})"
            return
