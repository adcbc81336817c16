"""`tokenmill inspect`."""

from __future__ import annotations

import re
import sys
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli import suggestions
from tokenmill.cli.options import Folder
from tokenmill.cli.overview import file_list, inside, our_facts, our_lists, told_facts
from tokenmill.cli.words import plural

if TYPE_CHECKING:
    from tokenmill.inspect import Document, Shards
    from tokenmill.reading import AnyShards
    from tokenmill.reading.files import Array

# Backgrounds that dark letters are read on, in this order, token by token.
COLORS = ("bright_cyan", "bright_green", "bright_yellow", "bright_magenta", "bright_blue")


@click.command(short_help="What is in shards of any format; one document, a text.")
@click.argument("path", type=Folder())
@click.option("--doc", "number", type=int, metavar="N", help="Decode document N, counted from 0; -1 is the last.")
@click.option("--tokens", "span", metavar="A:B", help="Decode the tokens A to B of all files, and show their ids.")
@click.option("--find", "text", metavar="TEXT", help="List the documents that contain this text; exits with 1 if none.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="With --find: list so many.")
@click.option("--colors", is_flag=True, help="Show where tokens begin: by colors in a terminal, else by `|`.")
@click.option(
    "--tokenizer",
    shell_complete=suggestions.tokenizers,
    help="The tokenizer, where nothing tells it: a name or a file, as for `prepare`.",
)
@click.option(
    "--format",
    "shard_format",
    metavar="NAME",
    shell_complete=suggestions.formats,
    help="The format, where names and first bytes mislead.",
)
@click.option("--dtype", metavar="TYPE", help="The type of the ids, where no header tells it: uint16, uint32, ...")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def inspect(
    path: Path,
    number: int | None,
    span: str | None,
    text: str | None,
    limit: int,
    colors: bool,
    tokenizer: str | None,
    shard_format: str | None,
    dtype: str | None,
    as_json: bool,
) -> int:
    """Show what is in shards of any format: a folder or a file, made by tokenmill or not.

    \b
    Examples:
        tokenmill inspect out
        tokenmill inspect out --doc 17
        tokenmill inspect fineweb_train_000001.bin --tokens 0:50 --colors
        tokenmill inspect data/train.bin --find 'Grace Hopper'
    """
    from tokenmill.reading import open_any

    if sum(choice is not None for choice in (number, span, text)) > 1:
        raise click.UsageError("choose one of --doc, --tokens and --find")
    if text == "":
        raise click.BadParameter("nothing to look for: every document contains it", param_hint="--find")
    shards = open_any(path, tokenizer, dtype, format=shard_format)
    if text is not None:
        return show_hits(shards, text, limit, as_json)
    if span is not None:
        show(*tokens_of(shards, span, colors), as_json)
    elif number is not None:
        show(*document_of(shards, number, colors), as_json)
    else:
        show(*overview_of(shards), as_json)
    return 0


def show(facts: dict[str, Any], text: str, as_json: bool) -> None:
    import msgspec

    if as_json:
        sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    else:
        click.echo(text)


def overview_of(shards: AnyShards) -> tuple[dict[str, Any], str]:
    import msgspec

    from tokenmill.reading.survey import survey

    found = survey(shards)
    facts: dict[str, Any] = {"survey": found}
    if shards.manifest is not None and shards.path.is_dir():
        facts = msgspec.to_builtins(shards.manifest) | facts
        lines = [*our_facts(shards), *inside(found), *our_lists(shards)]
    else:
        lines = [*told_facts(shards, found), *inside(found), *file_list(shards)]
    lines += [click.style("warning: ", fg="yellow") + warning for warning in found.warnings]
    return facts, "\n".join(lines)


def document_of(shards: AnyShards, number: int, colors: bool) -> tuple[dict[str, Any], str]:
    from tokenmill.errors import OutputError
    from tokenmill.inspect import Shards
    from tokenmill.reading.finding import decoded, needed_tokenizer

    wanted = number
    try:
        if shards.manifest is not None and shards.path.is_dir() and shards.told.how == "its manifest":
            ours = Shards(shards.path)
            document = ours[number]
            facts, head = document_facts(document, ours), document_head(document, ours)
            ids = document.tokens
        else:
            number += shards.count_documents() if number < 0 else 0
            split, ids = shards.document(number)
            text = decoded(needed_tokenizer(shards), shards.text_ids(ids))
            facts = {"number": number, "split": split, "n_tokens": len(ids), "tokens": ids.tolist(), "text": text}
            head = [f"document {number:,} ({split}): {plural(len(ids), 'token')}"]
    except IndexError:
        n_documents = shards.count_documents()
        message = f"there is no document {wanted} in `{shards.path}`: it has {plural(n_documents, 'document')}"
        raise OutputError(message) from None
    text = painted(shards, shards.text_ids(ids)) if colors else facts["text"]
    return facts, "\n".join([*head, "", text])


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


def document_head(document: Document, shards: Shards) -> list[str]:
    place = f"{document.shard}, tokens {document.start:,} to {document.start + len(document.tokens):,}"
    return [
        f"document {document.number:,} of {len(shards):,} ({document.split}): {plural(len(document.tokens), 'token')}",
        f"  shard   {place}",
        f"  source  {document.source}, row {document.row:,} (counted from 0)",
    ]


def tokens_of(shards: AnyShards, span: str, colors: bool) -> tuple[dict[str, Any], str]:
    from tokenmill.reading.finding import decoded

    match = re.fullmatch(r"(-?\d*):(-?\d*)", span.replace("_", "").replace(",", ""))
    if match is None:
        raise click.BadParameter(f"`{span}` is not of the form A:B, as in `--tokens 100:150`", param_hint="--tokens")
    start, stop, _ = slice(*(int(part) if part.strip("-") else None for part in match.groups())).indices(
        shards.n_tokens
    )
    ids = shards.tokens(start, stop)
    text = None if shards.tokenizer is None else decoded(shards.tokenizer, ids)
    facts = {"start": start, "stop": max(start, stop), "tokens": ids.tolist(), "text": text}
    shown = painted(shards, ids) if colors and shards.tokenizer is not None else text
    numbers = click.wrap_text(" ".join(map(str, ids.tolist())), width=100) if len(ids) else ""
    head = f"tokens {start:,} to {max(start, stop):,} of {shards.n_tokens:,}"
    return facts, "\n".join([head, numbers, "", shown or ("" if text is not None else "(the tokenizer is not known)")])


def painted(shards: AnyShards, ids: Array) -> str:
    """Text with its tokens told apart: by colors where these are seen, else by a line between them."""
    import os

    from tokenmill.reading.finding import needed_tokenizer, pieces

    texts = [text for text, _ in pieces(needed_tokenizer(shards), ids)]
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return "|".join(texts)
    # A color that runs over a line break paints the rest of the line.
    styled = []
    for text, color in zip(texts, cycle(COLORS), strict=False):
        parts = [click.style(part, fg="black", bg=color) if part else "" for part in text.split("\n")]
        styled.append("\n".join(parts))
    return "".join(styled)


def show_hits(shards: AnyShards, text: str, limit: int, as_json: bool) -> int:
    """List the documents with a text as they are found; 1 if there are none."""
    import msgspec

    from tokenmill.reading.finding import find

    n_hits = 0
    for hit in islice(find(shards, text), limit):
        n_hits += 1
        if as_json:
            sys.stdout.write(msgspec.json.encode(hit).decode() + "\n")
            continue
        source = f"  {shards.inputs[hit.input]}, row {hit.row:,}" if shards.manifest is not None else ""
        click.echo(f"document {hit.number:,} ({hit.split}), {plural(hit.n_tokens, 'token')}{source}\n    {hit.excerpt}")
    if n_hits == 0:
        click.echo(f"no document of `{shards.path}` contains {text!r}", err=True)
    elif n_hits == limit and not as_json:
        click.echo(f"(the first {limit}; there may be more: `--limit`)", err=True)
    return 0 if n_hits else 1
