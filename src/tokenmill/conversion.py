"""Outputs -> another output of the same tokens: `convert` to another format, `merge` of several.

Nothing is tokenized again. Splits and documents are kept, and end-of-text moves where the formats differ. The work
goes through the same shards, journal and work folder as `prepare`, so it is bounded in memory, and goes on after a
kill. The manifest names the outputs it was made from.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill import __version__
from tokenmill.batches import TokenRun
from tokenmill.errors import OutputError, RecipeError
from tokenmill.home import LocalHome
from tokenmill.journal import ShardSealed
from tokenmill.manifest import (
    DTYPES,
    MANIFEST,
    SKIPPED,
    ExcludedRecord,
    InputRecord,
    Manifest,
    ParentRecord,
    RunRecord,
    Totals,
    closing_receipts,
    now,
    write_manifest,
)
from tokenmill.parents import SPLITS, Parent, our_parent, with_eot, with_whole_documents, without_eot
from tokenmill.plan import Plan
from tokenmill.reading.ours import output_of
from tokenmill.recipe import Eot, Recipe, check_name, shard_dtype
from tokenmill.removal import discard_work, sweep
from tokenmill.segments import QUARANTINE
from tokenmill.shards import Split, format_named
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.shards.writer import ShardSequence
from tokenmill.sources import Input, edges_of
from tokenmill.storage.local import write_whole
from tokenmill.tokenizers import Tokenizer
from tokenmill.workspace import Workspace, finished_manifest, workspace

RUN_BYTES = 16_000_000
OnTokens = Callable[[int, int], None]  # how many of how many


class Changes(NamedTuple):
    """What is to be different in the new output; None takes the format's own way."""

    format: str
    name: str | None = None
    shard_tokens: int | None = None
    sequence_length: int | None = None
    eot: Eot | None = None


def convert(
    parent: str | Path,
    out: str | Path,
    changes: Changes,
    on_tokens: OnTokens | None = None,
    *,
    tokenizer: str | None = None,
    dtype: str | None = None,
) -> Manifest:
    """Write the tokens of an output, ours or not, in another format, and return the manifest.

    `tokenizer` and `dtype` are for shards without a manifest that do not tell them.
    """
    if tokenizer and (found := output_of(Path(parent))) is not None:
        refuse_another_tokenizer(*found, tokenizer)
    if (Path(parent) / MANIFEST).exists() and not dtype:
        return rewritten([our_parent(parent)], Path(out), changes, on_tokens)
    from tokenmill.foreign import foreign_parent

    return rewritten([foreign_parent(Path(parent), tokenizer, dtype)], Path(out), changes, on_tokens)


def refuse_another_tokenizer(out: Path, manifest: Manifest, tokenizer: str) -> None:
    """Ids that our manifest tells the tokenizer of are not of another one."""
    if Tokenizer(tokenizer).identity != manifest.tokenizer.identity:
        raise RecipeError(
            f"the ids of `{out}` are of {manifest.tokenizer.name} by its manifest, not of {tokenizer}",
            hint="leave out `--tokenizer`",
        )


def merge(
    parents: Sequence[str | Path], out: str | Path, changes: Changes | None = None, on_tokens: OnTokens | None = None
) -> Manifest:
    """Write several outputs of one tokenizer as one, in the format of the first unless another is asked for."""
    opened = [our_parent(parent) for parent in parents]
    if len(opened) < 2:
        raise RecipeError("merge takes at least two outputs")
    first = opened[0].manifest
    for other in opened[1:]:
        refuse_to_mix(opened[0], other)
    opened = [with_whole_documents(parent, is_last=parent is opened[-1]) for parent in opened]
    recipe = first.recipe
    changes = changes or Changes(recipe.format, recipe.name, recipe.shard_tokens, recipe.sequence_length, recipe.eot)
    return rewritten(opened, Path(out), changes, on_tokens)


def refuse_to_mix(a: Parent, b: Parent) -> None:
    """Outputs go together if the same id means the same, and documents end alike."""
    ours, theirs = a.manifest, b.manifest
    pairs = {
        "tokenizer": (ours.tokenizer.name, theirs.tokenizer.name),
        "tokenizer identity": (ours.tokenizer.identity, theirs.tokenizer.identity),
        "dtype": (ours.tokenizer.dtype, theirs.tokenizer.dtype),
        "end-of-text": (ours.tokenizer.eot_token, theirs.tokenizer.eot_token),
        "place of end-of-text": (ours.recipe.eot, theirs.recipe.eot),
    }
    differences = [f"  {name}: `{x}` in `{a.out}`, `{y}` in `{b.out}`" for name, (x, y) in pairs.items() if x != y]
    if differences:
        raise OutputError("\n".join(["these outputs cannot be merged", *differences]))


def rewritten(parents: list[Parent], out: Path, changes: Changes, on_tokens: OnTokens | None) -> Manifest:
    recipe = new_recipe(parents, changes)
    inputs = tuple(input_of(path) for parent in parents for path in parent.files)
    if any(out.resolve() == parent.out.resolve() for parent in parents):
        raise OutputError(f"`{out}` is also what is read", hint="pass another folder with `-o`")
    if (manifest := finished_manifest(out, recipe, inputs, of_parents=True)) is not None:
        sweep(out)
        return manifest
    with workspace(LocalHome(out), recipe, Plan(inputs, (), 0)) as space:
        began = perf_counter()
        shards = with_dropped(parents, written(space, parents, on_tokens or (lambda done, total: None)))
        manifest = sealed(space, parents, shards, perf_counter() - began)
        discard_work(space.work)
    return manifest


def new_recipe(parents: list[Parent], changes: Changes) -> Recipe:
    """The recipe of the first parent with what the new format wants, and the parents' fingerprints."""
    first, shard_format = parents[0].manifest, format_named(changes.format)
    defaults = shard_format.defaults
    n_val = sum(len(piece.run) for parent in parents for piece in parent.pieces("val", RUN_BYTES))
    eot = changes.eot or (first.recipe.eot if first.recipe.eot == "none" else defaults.eot)
    if eot != "none" and first.tokenizer.eot_token is None:
        raise RecipeError("the output has no end-of-text, so it cannot be put anywhere", hint="pass `--eot none`")
    recipe = msgspec.structs.replace(
        first.recipe,
        format=changes.format,
        name=changes.name or defaults.name,
        shard_tokens=changes.shard_tokens or defaults.shard_tokens,
        sequence_length=changes.sequence_length or defaults.sequence_length,
        eot=eot,
        val=n_val or "none",
        parents=tuple(parent.manifest.fingerprint for parent in parents),
    )
    check_name(recipe)
    shard_format.check(recipe)
    return recipe


def input_of(path: Path) -> Input:
    try:
        status = path.stat()
        return Input(str(path.absolute()), status.st_size, status.st_mtime_ns, edges_of(path), "shard")
    except FileNotFoundError:
        raise OutputError(
            f"shard `{path}` is missing", hint=f"`tokenmill verify {path.parent}` lists all damage"
        ) from None


def written(space: Workspace, parents: list[Parent], on_tokens: OnTokens) -> list[ShardReceipt]:
    """Write all shards that are not sealed yet."""
    recipe, journal = space.recipe, space.journal
    n_tokens_sealed = sum(shard.n_tokens + shard.n_dropped_tokens for shard in journal.state.shards)
    n_documents_sealed = sum(shard.n_documents + shard.n_dropped_documents for shard in journal.state.shards)
    n_total = sum(parent.manifest.totals.n_tokens for parent in parents)
    paths = [entry.path for parent in parents for entry in parent.manifest.inputs]
    n_tokens = n_documents = 0

    def on_shard(shard: ShardReceipt) -> None:
        journal.record(ShardSealed(shard))

    dtype = np.dtype(shard_dtype(recipe))
    with ShardSequence(recipe, dtype, space.out, paths, journal.state.shards, on_shard) as sequence:
        for split in SPLITS:
            for run, unfinished in runs_of(parents, split, recipe):
                ends = n_tokens + len(run.ids), n_documents + len(run)
                if ends[0] > n_tokens_sealed or ends[1] > n_documents_sealed:
                    n_done = min(max(n_tokens_sealed - n_tokens, 0), len(run.ids))
                    sequence.append(split, run, n_done, unfinished=unfinished)
                n_tokens, n_documents = ends
                on_tokens(min(n_tokens, n_total), n_total)
                space.lock.check()
        return sequence.finish()


def runs_of(parents: list[Parent], split: Split, recipe: Recipe) -> Iterator[tuple[TokenRun, bool]]:
    """The documents of a split of all parents, with end-of-text as the recipe wants it; and if the last is cut."""
    n_inputs = 0
    for parent in parents:
        have, want = str(parent.manifest.recipe.eot), str(recipe.eot)
        for piece in parent.pieces(split, RUN_BYTES):
            run = piece.run
            if have != want:
                bare = without_eot(piece, have)
                run = with_eot(bare, want, int(recipe.eot_token or 0), unfinished=piece.unfinished)
            yield counted_through(run, n_inputs), piece.unfinished
        n_inputs += len(parent.manifest.inputs)


def counted_through(run: TokenRun, n_inputs: int) -> TokenRun:
    """Count inputs through all parents."""
    if not n_inputs:
        return run
    inputs = run.doc_inputs + np.uint32(n_inputs)
    return TokenRun(run.ids, run.doc_lengths, inputs, run.doc_rows, run.doc_continued)


def with_dropped(parents: list[Parent], shards: list[ShardReceipt]) -> list[ShardReceipt]:
    """Count documents that a parent had dropped whole behind the last shard of their split, as it did."""
    for split in SPLITS:
        own = [shard for parent in parents for shard in parent.manifest.shards if shard.split == split]
        numbers = [i for i, shard in enumerate(shards) if shard.split == split]
        n_dropped = sum(shard.n_dropped_documents for shard in own)
        if n_dropped and numbers:
            last = shards[numbers[-1]]
            n_dropped += last.n_dropped_documents
            shards[numbers[-1]] = msgspec.structs.replace(last, n_dropped_documents=n_dropped)
    return shards


def sealed(space: Workspace, parents: list[Parent], shards: list[ShardReceipt], seconds: float) -> Manifest:
    """Write the manifest: what the parents' say, with the new shards."""
    manifests, recipe = [parent.manifest for parent in parents], space.recipe
    first = manifests[0]
    skipped: dict[str, int] = {}
    for manifest in manifests:
        for reason, n in manifest.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + n
    lines = b"".join(
        (parent.out / SKIPPED).read_bytes() for parent in parents if parent.manifest.skipped_list is not None
    )
    new = msgspec.structs.replace(
        first,
        tokenmill=__version__,
        fingerprint=recipe.fingerprint,
        recipe=recipe,
        tokenizer=msgspec.structs.replace(first.tokenizer, dtype=DTYPES[shard_dtype(recipe)]),
        totals=Totals(
            n_tokens=sum(shard.n_tokens for shard in shards),
            n_documents=sum(shard.n_documents for shard in shards),
            n_text_bytes=sum(manifest.totals.n_text_bytes for manifest in manifests),
            n_shards=len(shards),
            n_bytes=sum(file.n_bytes for shard in shards for file in shard.files[:-1]),
            n_dropped_tokens=sum(shard.n_dropped_tokens for shard in shards),
        ),
        shards=tuple(shards),
        closing_files=closing_receipts(recipe, shards),
        inputs=tuple(entry for parent in parents for entry in inputs_of(parent, shards)),
        skipped=skipped,
        skipped_list=FileReceipt(SKIPPED, len(lines), hashlib.sha256(lines).hexdigest()) if lines else None,
        excluded=tuple(entry for i, parent in enumerate(parents) for entry in copied_quarantine(parent, space.out, i)),
        n_special_text_documents=sum(manifest.n_special_text_documents for manifest in manifests),
        parents=tuple(parent_record(parent) for parent in parents),
        run=RunRecord(
            finished=now(),
            elapsed_seconds=round(seconds, 3),
            workers=1,
            n_units=0,
            n_units_resumed=0,
            mishaps=(),
            seconds={"assemble": round(seconds, 3)},
        ),
    )
    if lines:
        write_whole(space.out / SKIPPED, lines, "skipped")
    write_manifest(space.out, new)
    return new


def inputs_of(parent: Parent, shards: list[ShardReceipt]) -> tuple[InputRecord, ...]:
    """The sources of a parent; of one without a manifest, the documents that were found in it."""
    if parent.is_ours:
        return parent.manifest.inputs
    n_documents = sum(shard.n_documents + shard.n_dropped_documents - shard.n_continued for shard in shards)
    return tuple(msgspec.structs.replace(entry, n_documents=n_documents) for entry in parent.manifest.inputs)


def copied_quarantine(parent: Parent, out: Path, number: int) -> Iterator[ExcludedRecord]:
    """Take the excluded documents of a parent along."""
    for entry in parent.manifest.excluded:
        name = f"{QUARANTINE}/{number}-{Path(entry.text).name}"
        (out / QUARANTINE).mkdir(exist_ok=True)
        shutil.copyfile(parent.out / entry.text, out / name)
        yield msgspec.structs.replace(entry, text=name)


def parent_record(parent: Parent) -> ParentRecord:
    digest = hashlib.sha256((parent.out / MANIFEST).read_bytes()).hexdigest() if parent.is_ours else ""
    return ParentRecord(str(parent.out.absolute()), parent.manifest.fingerprint, digest)
