"""Shards that somebody else wrote, as a parent of `convert`: what a manifest would say of them, and their documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tokenmill import __version__
from tokenmill.batches import TokenRun
from tokenmill.errors import RecipeError, SourceError
from tokenmill.manifest import SCHEMA, InputRecord, Manifest, RunRecord, TokenizerRecord, Totals, now
from tokenmill.parents import SPLITS, Parent, Piece
from tokenmill.reading import AnyShards, open_any
from tokenmill.recipe import Recipe
from tokenmill.shards import Split


def foreign_parent(path: Path, tokenizer: str | None = None, dtype: str | None = None) -> Parent:
    """Open shards without a manifest; which tokenizer made them must be known."""
    shards = open_any(path, tokenizer=tokenizer, dtype=dtype)
    if shards.tokenizer is None:
        raise RecipeError(
            f"which tokenizer made the ids of `{path}`? {shards.told.how}", hint="pass `--tokenizer NAME`"
        )
    if odd := set(shards.splits) - set(SPLITS):
        raise SourceError(f"`{path}` has a split `{min(odd)}`, and an output has train and val", hint="take the others")
    files = tuple(file.path for file in shards.files)
    return Parent(path, made_up_manifest(shards, files), files, partial(foreign_pieces, shards), is_ours=False)


def foreign_pieces(shards: AnyShards, split: Split, max_bytes: int) -> Iterator[Piece]:
    """Yield the documents of a split; the first may be the rest of one of the split before."""
    if split not in shards.splits:
        return
    later = shards.splits[shards.splits.index(split) + 1 :]
    goes_on = bool(later) and shards.continues(later[0])
    is_rest = shards.continues(split) and shards.splits.index(split) > 0
    before = None
    for run in shards.runs(split, max_bytes):
        refuse_unknown_ids(shards, run)
        if before is not None:
            yield Piece(before, unfinished=False)
        before, is_rest = (run.beginning_with_rest() if is_rest else run), False
    if before is not None:
        # Packed samples end anywhere.
        has_end = shards.eot_place != "last" or (len(before.ids) > 0 and int(before.ids[-1]) == shards.eot)
        yield Piece(before, unfinished=goes_on or not has_end)


def refuse_unknown_ids(shards: AnyShards, run: TokenRun) -> None:
    """Ids that the tokenizer does not have would be cut to its type, and mean something else."""
    assert shards.tokenizer is not None
    n_ids = max(shards.tokenizer.vocab_size, (shards.eot or 0) + 1)
    if len(run.ids) and not (0 <= (low := int(run.ids.min())) <= (high := int(run.ids.max())) < n_ids):
        raise RecipeError(
            f"`{shards.path}` has an id {low if low < 0 else high:,}, and {shards.tokenizer.name} has {n_ids:,} ids",
            hint="name the tokenizer that made it with `--tokenizer`, or its type of ids with `--dtype`",
        )


def made_up_manifest(shards: AnyShards, files: tuple[Path, ...]) -> Manifest:
    """What can be told of shards without a manifest. Documents are counted when they have been written."""
    tokenizer = shards.tokenizer
    assert tokenizer is not None
    known = "\n".join(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
    n_bytes = sum(file.n_bytes for file in shards.files)
    source = str(shards.path.absolute())
    recipe = Recipe(
        sources=(source,),
        tokenizer=tokenizer.name,
        pattern=tokenizer.pattern,
        tokenizer_identity=tokenizer.identity,
        eot=shards.eot_place,
        eot_token=shards.eot,
        format=shards.format,
        val="none",
        shuffle="none",
    )
    return Manifest(
        schema=SCHEMA,
        tokenmill=__version__,
        fingerprint=hashlib.sha256(known.encode()).hexdigest(),
        recipe=recipe,
        tokenizer=TokenizerRecord(
            name=tokenizer.name,
            identity=tokenizer.identity,
            vocab_size=tokenizer.vocab_size,
            eot_token=shards.eot,
            dtype="uint32",
            engine="elsewhere",
            reason="the ids were made elsewhere",
            n_checked_documents=0,
            versions={"elsewhere": ""},
        ),
        totals=Totals(shards.n_tokens, 0, 0, len(files), n_bytes, 0),
        shards=(),
        closing_files=(),
        inputs=(InputRecord(source, n_bytes, 0, "", "", 0, 0, shards.n_tokens, 0),),
        skipped={},
        skipped_list=None,
        excluded=(),
        n_special_text_documents=0,
        run=RunRecord(now(), 0.0, 0, 0, 0, (), {}),
    )
