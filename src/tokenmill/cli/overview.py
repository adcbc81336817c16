"""What `tokenmill inspect` says of shards: the manifest's words or the files' own, and what is in the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenmill.cli.words import eot_place, order_of, plural, size

if TYPE_CHECKING:
    from tokenmill.reading import AnyShards
    from tokenmill.reading.survey import Survey

TEXT_CHARS = 100


def our_facts(shards: AnyShards) -> list[str]:
    """What the manifest says."""
    manifest = shards.manifest
    assert manifest is not None
    totals, tokenizer, recipe = manifest.totals, manifest.tokenizer, manifest.recipe
    per_token = totals.n_text_bytes / max(1, totals.n_tokens)
    return [
        f"{plural(totals.n_tokens, 'token')} of {plural(totals.n_documents, 'document')} in `{shards.path}`",
        f"  format     {recipe.format}, {tokenizer.dtype}, {size(totals.n_bytes)}",
        f"  tokenizer  {tokenizer.name}, {tokenizer.vocab_size:,} ids;"
        f" end-of-text {tokenizer.eot_token}, {eot_place(str(recipe.eot))}",
        f"  order      {order_of(str(recipe.shuffle))}",
        f"  text       {size(totals.n_text_bytes)}, {per_token:.2f} bytes a token,"
        f" {totals.n_tokens / max(1, totals.n_documents):,.0f} tokens a document",
        f"  made       {manifest.run.finished} by tokenmill {manifest.tokenmill}",
    ]


def our_lists(shards: AnyShards) -> list[str]:
    """Shards and inputs, a line each."""
    manifest = shards.manifest
    assert manifest is not None
    rows = [(shard.file, shard.n_tokens, shard.n_documents) for shard in manifest.shards]
    lines = ["shards", *file_lines(rows), "inputs"]
    lines += [
        f"  {entry.path}  {plural(entry.n_rows, 'row')}, {plural(entry.n_tokens, 'token')}"
        for entry in manifest.inputs[:8]
    ]
    if len(manifest.inputs) > 8:
        lines.append(f"  ... {len(manifest.inputs) - 8} more")
    lines += [f"skipped  {plural(n, 'row')}: {reason}" for reason, n in manifest.skipped.items()]
    return lines


def file_lines(rows: Sequence[tuple[str, int, int | None]]) -> list[str]:
    """A line a file, the middle left out where there are many."""
    width = max(len(name) for name, *_ in rows)
    lines = [
        f"  {name:<{width}}  {n_tokens:>15,} tokens" + ("" if n is None else f"  {n:>12,} documents")
        for name, n_tokens, n in rows
    ]
    return lines if len(lines) <= 12 else [*lines[:6], f"  ... {len(lines) - 11} more", *lines[-5:]]


def told_facts(shards: AnyShards, found: Survey) -> list[str]:
    """What the files themselves say, and who says so."""
    documents = "documents that nothing tells apart"
    if found.n_documents is not None:
        about = "about " if found.documents_are_estimated else ""
        documents = f"{about}{plural(found.n_documents, 'document')}"
    tokenizer = "not known" if found.tokenizer is None else found.tokenizer
    vocabulary = "" if found.vocab_size is None else f", {found.vocab_size:,} ids"
    place = eot_place(found.eot) if found.eot != "none" else "not found"
    end = "" if found.eot_token is None else f"; end-of-text {found.eot_token}, {place}"
    return [
        f"{plural(found.n_tokens, 'token')} of {documents} in `{shards.path}`",
        f"  format     {found.format}, {found.dtype} (told by {found.dtype_told_by}), {size(found.n_bytes)}",
        f"  tokenizer  {tokenizer}{vocabulary}{end}",
        f"             told by: {found.tokenizer_told_by}",
        f"  documents  told by: {found.documents_told_by}",
        f"  splits     {', '.join(f'{name} {part.n_tokens:,} tokens' for name, part in found.splits.items())}",
    ]


def file_list(shards: AnyShards) -> list[str]:
    root = shards.path if shards.path.is_dir() else shards.files[0].path.parent
    rows = [
        (str(file.path.relative_to(root)), file.n_tokens, None if file.places is None else len(file.places))
        for file in shards.files
    ]
    return ["files", *file_lines(rows)]


def inside(found: Survey) -> list[str]:
    """What the tokens say."""
    lines = []
    if found.lengths:
        lines.append("  lengths    " + ", ".join(f"{name} {n:,}" for name, n in found.lengths.items()) + " tokens")
    if found.vocab_size is not None:
        share = found.n_ids_used / found.vocab_size
        lines.append(f"  used       {share:.1%} of the vocabulary, {found.n_ids_used:,} ids up to {found.largest_id:,}")
    else:
        lines.append(f"  used       {found.n_ids_used:,} ids up to {found.largest_id:,}")
    if found.eot_share is not None and found.eot != "none":
        where = {"first": "before", "last": "behind"}[found.eot]
        lines.append(
            f"  ends       end-of-text {where} {found.eot_share:.4g} of the documents".replace(" 1 of", " all of")
        )
    if found.first_text is not None:
        lines.append(f"  first      {shortened(found.first_text)}")
    if found.last_text is not None:
        lines.append(f"  last       {shortened(found.last_text, at_end=True)}")
    if found.n_scanned_tokens < found.n_tokens:
        lines.append(f"             (a look at {found.n_scanned_tokens:,} tokens from all over the files)")
    return lines


def shortened(text: str, at_end: bool = False) -> str:
    """The beginning or the end of a text on one line, its line breaks spelled."""
    spelled = repr(text)[1:-1]
    if len(spelled) <= TEXT_CHARS:
        return spelled
    return "..." + spelled[-TEXT_CHARS:] if at_end else spelled[:TEXT_CHARS] + "..."
