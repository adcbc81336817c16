"""Receipts -> manifest and SHA256SUMS: what was made, from what, with checksums.

The manifest is the last file of a run to get its name. It is plain JSON; `schema` says which version of this
module's classes it follows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

import tokenmill
from tokenmill import faults
from tokenmill.calibrate import EngineChoice
from tokenmill.errors import DamageError, OutputError
from tokenmill.journal import State
from tokenmill.plan import Plan
from tokenmill.recipe import Recipe, shard_dtype
from tokenmill.segments import QUARANTINE, UnitReceipt, quarantine_name
from tokenmill.shards import format_named
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import write_whole
from tokenmill.tokenizers import Tokenizer

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
SKIPPED = "skipped.jsonl"
SCHEMA = 2
IdType = Literal["uint16", "uint32", "int32", "int64"]
DTYPES: dict[str, IdType] = {"<u2": "uint16", "<u4": "uint32", "<i4": "int32", "<i8": "int64"}
COUNTED = ("n_rows", "n_documents", "n_tokens", "n_text_bytes")


class TokenizerRecord(msgspec.Struct, frozen=True):
    name: str
    identity: str  # a digest of the tokenizer's behavior
    vocab_size: int
    eot_token: int | None
    dtype: IdType  # of the ids in the shards
    engine: str
    reason: str  # why this engine
    n_checked_documents: int  # encoded again by the reference, and found equal
    versions: dict[str, str]


class InputRecord(msgspec.Struct, frozen=True):
    path: str
    n_bytes: int
    mtime_ns: int
    edges: str  # a digest of its first and last bytes
    sha256: str
    n_rows: int
    n_documents: int
    n_tokens: int
    n_text_bytes: int


class ExcludedRecord(msgspec.Struct, frozen=True):
    """A document that no engine could take; its text is in the quarantine."""

    file: str
    row: int  # counted from 0
    n_bytes: int
    reason: str
    text: str  # the file with its text, relative to the output folder


class ParentRecord(msgspec.Struct, frozen=True):
    """An output that this one was made from."""

    path: str
    fingerprint: str
    sha256: str  # of its manifest; empty where it had none: shards that were made elsewhere


class Totals(msgspec.Struct, frozen=True):
    n_tokens: int
    n_documents: int
    n_text_bytes: int
    n_shards: int
    n_bytes: int  # of the files of the format, without our indexes
    n_dropped_tokens: int  # at the end of splits, where the format has samples and they did not fill one


class RunSample(msgspec.Struct, frozen=True, array_like=True):
    """A moment of a run: what was encoded until then, and the stage that held it up."""

    seconds: float  # into the run
    n_text_bytes: int
    n_tokens: int
    binding: str | None  # reading, encoding or writing; None before the first unit is done


class RunRecord(msgspec.Struct, frozen=True):
    """How the run went. Nothing in it concerns the bytes of the shards."""

    finished: str
    elapsed_seconds: float
    workers: int
    n_units: int
    n_units_resumed: int  # done by earlier runs that were stopped
    mishaps: tuple[tuple[float, str], ...]  # seconds into the run, and what happened; the first 1,000
    seconds: dict[str, float]  # of all workers together, by stage; `assemble` and `check` in the parent
    samples: tuple[RunSample, ...] = ()  # evenly over the run, at most 200


class Manifest(msgspec.Struct, frozen=True):
    """What was made, from what, with checksums."""

    schema: int  # the version of this layout
    tokenmill: str  # the version that made it
    fingerprint: str  # the SHA-256 of the recipe
    recipe: Recipe  # resolved: every default filled in
    tokenizer: TokenizerRecord
    totals: Totals
    shards: tuple[ShardReceipt, ...]
    closing_files: tuple[FileReceipt, ...]  # of the format, about all shards
    inputs: tuple[InputRecord, ...]
    skipped: dict[str, int]  # documents left out, by reason
    skipped_list: FileReceipt | None  # the broken ones among them, one by one
    excluded: tuple[ExcludedRecord, ...]  # documents that no engine could take
    n_special_text_documents: int  # documents whose text spells a special token; it stayed text
    run: RunRecord
    parents: tuple[ParentRecord, ...] = ()  # the outputs this one was converted or merged from

    def split_totals(self) -> dict[str, tuple[int, int, int]]:
        """Return shards, documents and tokens of each split."""
        totals: dict[str, tuple[int, int, int]] = {}
        for shard in self.shards:
            n_shards, n_documents, n_tokens = totals.get(shard.split, (0, 0, 0))
            totals[shard.split] = (n_shards + 1, n_documents + shard.n_documents, n_tokens + shard.n_tokens)
        return totals


def seal(
    out: Path,
    recipe: Recipe,
    plan: Plan,
    engine: EngineChoice,
    state: State,
    receipts: Iterable[UnitReceipt],
    shards: list[ShardReceipt],
    run: RunRecord,
) -> Manifest:
    """Write SHA256SUMS and, last of all, the manifest."""
    manifest = manifest_of(recipe, plan, engine, state, receipts, shards, run)
    if manifest.skipped_list is not None:
        write_whole(out / SKIPPED, skipped_lines(plan, receipts), "skipped")
    sweep_quarantine(out, manifest)
    write_manifest(out, manifest)
    return manifest


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Write what the format says of all shards, SHA256SUMS and, last of all, the manifest."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    for name, content in closing_contents(manifest.recipe, manifest.shards).items():
        write_whole(out / name, content, "closing")
    write_whole(out / SUMS, sums_text(manifest, data).encode(), "sums")
    write_whole(out / MANIFEST, data, "manifest")


def sweep_quarantine(out: Path, manifest: Manifest) -> None:
    """Remove documents that were put aside by a run that was killed, and went in after all."""
    folder, listed = out / QUARANTINE, {out / entry.text for entry in manifest.excluded}
    for path in set(folder.glob("*")) - listed:
        path.unlink()
    faults.point("quarantine.swept")
    if folder.exists() and not listed:
        folder.rmdir()


def skipped_lines(plan: Plan, receipts: Iterable[UnitReceipt]) -> bytes:
    """One JSON line for each broken record that was left out: file, row (counted from 0) and reason."""
    lines, n_rows_before = [], Counter[int]()
    for receipt in receipts:
        for span, done in zip(plan.units[receipt.unit].spans, receipt.spans, strict=True):
            for row, reason in done.bad_rows:
                entry = {"file": plan.inputs[span.input].path, "row": n_rows_before[span.input] + row, "reason": reason}
                lines.append(msgspec.json.encode(entry) + b"\n")
            n_rows_before[span.input] += done.n_rows
    return b"".join(lines)


def closing_contents(recipe: Recipe, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
    return format_named(recipe.format).closing_files(recipe, np.dtype(shard_dtype(recipe)), shards)


def closing_receipts(recipe: Recipe, shards: Sequence[ShardReceipt]) -> tuple[FileReceipt, ...]:
    return tuple(
        FileReceipt(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in closing_contents(recipe, shards).items()
    )


def excluded_records(plan: Plan, receipts: Iterable[UnitReceipt]) -> tuple[ExcludedRecord, ...]:
    records, n_rows_before = [], Counter[int]()
    for receipt in receipts:
        spans = plan.units[receipt.unit].spans
        for entry in receipt.excluded:
            index = spans[entry.span].input
            before = sum(
                done.n_rows
                for done, span in zip(receipt.spans[: entry.span], spans, strict=False)
                if span.input == index
            )
            row = n_rows_before[index] + before + entry.row
            text = f"{QUARANTINE}/{quarantine_name(receipt.unit, entry)}"
            records.append(ExcludedRecord(plan.inputs[index].path, row, entry.n_bytes, entry.reason, text))
        for span, done in zip(spans, receipt.spans, strict=True):
            n_rows_before[span.input] += done.n_rows
    return tuple(records)


def sums_text(manifest: Manifest, manifest_data: bytes) -> str:
    """The lines of SHA256SUMS, which `sha256sum -c` reads."""
    sums = {file.file: file.sha256 for shard in manifest.shards for file in shard.files}
    sums |= {file.file: file.sha256 for file in manifest.closing_files}
    if manifest.skipped_list is not None:
        sums[SKIPPED] = manifest.skipped_list.sha256
    sums[MANIFEST] = hashlib.sha256(manifest_data).hexdigest()
    return "".join(f"{digest}  {file}\n" for file, digest in sums.items())


def manifest_of(
    recipe: Recipe,
    plan: Plan,
    choice: EngineChoice,
    state: State,
    receipts: Iterable[UnitReceipt],
    shards: list[ShardReceipt],
    run: RunRecord,
) -> Manifest:
    """Add up the receipts, which are gone through several times."""
    tokenizer = Tokenizer(recipe.tokenizer, recipe.pattern)
    counts: dict[int, Counter[str]] = {i: Counter() for i in range(len(plan.inputs))}
    skipped: Counter[str] = Counter()
    for receipt in receipts:
        skipped.update(receipt.skipped)
        for span, done in zip(plan.units[receipt.unit].spans, receipt.spans, strict=True):
            counts[span.input].update({field: getattr(done, field) for field in COUNTED})
    lines = skipped_lines(plan, receipts)
    n_tokens, n_documents = sum(shard.n_tokens for shard in shards), sum(shard.n_documents for shard in shards)
    n_dropped = sum(shard.n_dropped_tokens for shard in shards)
    assert n_tokens + n_dropped == sum(receipt.n_tokens for receipt in receipts), (
        "the shards hold other tokens than the segments did"
    )
    n_dropped_documents = sum(shard.n_dropped_documents for shard in shards)
    assert n_documents + n_dropped_documents == sum(receipt.n_documents for receipt in receipts)
    inputs = tuple(
        InputRecord(
            path=entry.path,
            n_bytes=entry.size,
            mtime_ns=entry.mtime_ns,
            edges=entry.edges,
            sha256=state.input_sha256[i],
            **{field: counts[i][field] for field in COUNTED},
        )
        for i, entry in enumerate(plan.inputs)
    )
    return Manifest(
        schema=SCHEMA,
        tokenmill=tokenmill.__version__,
        fingerprint=recipe.fingerprint,
        recipe=recipe,
        tokenizer=TokenizerRecord(
            name=tokenizer.name,
            identity=tokenizer.identity,
            vocab_size=tokenizer.vocab_size,
            eot_token=None if recipe.eot_token is None else int(recipe.eot_token),
            dtype=DTYPES[shard_dtype(recipe)],
            engine=choice.name,
            reason=choice.reason,
            n_checked_documents=sum(state.n_checked.values()),
            versions={choice.name: choice.version, tokenizer.reference.name: tokenizer.reference.version},
        ),
        totals=Totals(
            n_tokens=n_tokens,
            n_documents=n_documents,
            n_text_bytes=sum(entry.n_text_bytes for entry in inputs),
            n_shards=len(shards),
            n_bytes=sum(file.n_bytes for shard in shards for file in shard.files[:-1]),
            n_dropped_tokens=n_dropped,
        ),
        shards=tuple(shards),
        closing_files=closing_receipts(recipe, shards),
        inputs=inputs,
        skipped=dict(sorted(skipped.items())),
        skipped_list=None if not lines else FileReceipt(SKIPPED, len(lines), hashlib.sha256(lines).hexdigest()),
        excluded=excluded_records(plan, receipts),
        n_special_text_documents=sum(receipt.n_special_text_documents for receipt in receipts),
        run=run,
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def load_manifest(out: Path) -> Manifest:
    """Read the manifest of a finished output."""
    path = out / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if (out / ".work").exists():
            raise OutputError(
                f"`{out}` is not finished: it has no {MANIFEST}", hint="run the same `tokenmill prepare` command again"
            ) from None
        raise OutputError(f"`{out}` is no output of tokenmill: it has no {MANIFEST}") from None
    return decoded_manifest(data, str(path))


def decoded_manifest(data: bytes, path: str) -> Manifest:
    try:
        schema = msgspec.json.decode(data, type=dict[str, Any]).get("schema")
        if schema != SCHEMA:
            raise OutputError(f"`{path}` has schema {schema}, and this tokenmill reads {SCHEMA}")
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamageError(f"`{path}` is damaged: {error}") from None
