"""`tokenmill inspect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli.words import eot_place, order_of, plural, size

if TYPE_CHECKING:
    from tokenmill.inspect import Document, Shards


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--doc", "number", type=int, metavar="N", help="Decode document N, counted from 0; -1 is the last.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def inspect(out: Path, number: int | None, as_json: bool) -> None:
    """Show what is in an output, or one document of it with its source file and row.

    \b
    Examples:
        tokenmill inspect out
        tokenmill inspect out --doc 17
    """
    import msgspec

    from tokenmill.errors import OutputError
    from tokenmill.inspect import open_shards

    shards = open_shards(out)
    if number is None:
        facts: Any = shards.manifest
        text = overview(shards)
    else:
        try:
            document = shards[number]
        except IndexError:
            message = f"there is no document {number} in `{out}`: it has {plural(len(shards), 'document')}"
            raise OutputError(message) from None
        facts = document_facts(document, shards)
        text = document_text(document, shards)
    if as_json:
        sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    else:
        click.echo(text)


def overview(shards: Shards) -> str:
    manifest = shards.manifest
    totals, tokenizer, recipe = manifest.totals, manifest.tokenizer, manifest.recipe
    per_token = totals.n_text_bytes / max(1, totals.n_tokens)
    lines = [
        f"{plural(totals.n_tokens, 'token')} of {plural(totals.n_documents, 'document')} in `{shards.out}`",
        f"  format     {recipe.format}, {tokenizer.dtype}, {size(totals.n_bytes)}",
        f"  tokenizer  {tokenizer.name}, {tokenizer.vocab_size:,} ids;"
        f" end-of-text {tokenizer.eot_token}, {eot_place(str(recipe.eot))}",
        f"  order      {order_of(str(recipe.shuffle))}",
        f"  text       {size(totals.n_text_bytes)}, {per_token:.2f} bytes a token,"
        f" {totals.n_tokens / max(1, totals.n_documents):,.0f} tokens a document",
        f"  made       {manifest.run.finished} by tokenmill {manifest.tokenmill}",
        "shards",
    ]
    shown = manifest.shards if len(manifest.shards) <= 12 else (*manifest.shards[:6], None, *manifest.shards[-5:])
    width = max(len(shard.file) for shard in manifest.shards)
    for shard in shown:
        if shard is None:
            lines.append(f"  ... {len(manifest.shards) - 11} more")
        else:
            lines.append(f"  {shard.file:<{width}}  {shard.n_tokens:>15,} tokens  {shard.n_documents:>12,} documents")
    lines.append("inputs")
    lines += [
        f"  {entry.path}  {plural(entry.n_rows, 'row')}, {plural(entry.n_tokens, 'token')}"
        for entry in manifest.inputs[:8]
    ]
    if len(manifest.inputs) > 8:
        lines.append(f"  ... {len(manifest.inputs) - 8} more")
    lines += [f"skipped  {plural(n, 'row')}: {reason}" for reason, n in manifest.skipped.items()]
    return "\n".join(lines)


def document_facts(document: Document, shards: Shards) -> dict[str, Any]:
    return {
        "number": document.number,
        "split": document.split,
        "shard": document.shard,
        "start": document.start,
        "n_tokens": len(document.tokens),
        "source": document.source,
        "row": document.row,
        "tokens": document.tokens.tolist(),
        "text": shards.text(document),
    }


def document_text(document: Document, shards: Shards) -> str:
    place = f"{document.shard}, tokens {document.start:,} to {document.start + len(document.tokens):,}"
    head = [
        f"document {document.number:,} of {len(shards):,} ({document.split}): {plural(len(document.tokens), 'token')}",
        f"  shard   {place}",
        f"  source  {document.source}, row {document.row:,} (counted from 0)",
    ]
    return "\n".join([*head, "", shards.text(document)])
