"""`tokenmill formats` and `tokenmill tokenizers`: what there is."""

from __future__ import annotations

import shutil
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import msgspec

from tokenmill.cli import suggestions


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    columns = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and sum(widths.values()) + 2 * (len(widths) - 1) > columns:
        print_entries(rows, columns)
        return
    for row in [{key: key for key in rows[0]}, *rows]:
        click.echo("  ".join(str(row[key]).ljust(widths[key]) for key in row).rstrip())


def print_entries(rows: list[dict[str, Any]], columns: int) -> None:
    """Rows for a terminal that a table is too wide for: the first field, and below it the others by name."""
    for row in rows:
        first, *others = row.items()
        click.echo(click.style(str(first[1]), bold=True))
        text = "; ".join(f"{key} {value}" for key, value in others)
        click.echo(click.wrap_text(text, columns, initial_indent="  ", subsequent_indent="  "))


@click.command(short_help="The output formats, and who reads them.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def formats(as_json: bool) -> None:
    """List the output formats, the trainers that read them, and their defaults.

    \b
    Example:
        tokenmill formats
    """
    from tokenmill.shards import format_named, format_names

    rows = []
    for name in format_names():
        shard_format = format_named(name)
        eot, shard_tokens, val, shuffle, *_ = shard_format.defaults
        rows.append(
            {
                "format": name,
                "trainers": shard_format.trainers,
                "files": shard_format.files,
                "eot": eot,
                "val": val,
                "shuffle": shuffle,
                "shard tokens": f"{shard_tokens:,}" if shard_tokens else "one file a split",
            }
        )
    print_rows(rows, as_json)


@click.command(short_help="The tokenizers, and the engine that does the work.")
@click.option(
    "--tokenizer",
    "names",
    multiple=True,
    shell_complete=suggestions.tokenizers,
    help="Tell about this one: a name or a file, as for `prepare`.",
)
@click.option(
    "--pattern",
    shell_complete=suggestions.tokenizers,
    help="For a rank file: the tokenizer whose pattern splits the text.",
)
@click.option(
    "--compare", type=click.Path(path_type=Path), help="Encode this file with engine and reference, and compare."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def tokenizers(names: tuple[str, ...], pattern: str | None, compare: Path | None, as_json: bool) -> int:
    """List the tokenizers: their sizes, the engine that does the work, and why.

    \b
    Examples:
        tokenmill tokenizers
        tokenmill tokenizers --tokenizer llama3/tokenizer.json
        tokenmill tokenizers --tokenizer gpt2 --compare document.txt
    """
    from tokenmill.errors import RecipeError
    from tokenmill.tokenizers import Tokenizer, tokenizer_names

    if compare is not None:
        if len(names) != 1:
            raise click.UsageError("`--compare` needs one `--tokenizer`")
        return compared(Tokenizer(names[0], pattern), compare)
    rows = []
    for name in names or tokenizer_names():
        tokenizer = Tokenizer(name, pattern)
        try:
            eot: int | str = tokenizer.eot_token
        except RecipeError:
            eot = "to be named"
        rows.append(
            {
                "tokenizer": name,
                "ids": tokenizer.vocab_size,
                "end-of-text": eot,
                "dtype": "uint16" if tokenizer.vocab_size <= 2**16 else "uint32",
                "engine": tokenizer.engine.name,
                "why": tokenizer.engine_reason,
            }
        )
    print_rows(rows, as_json)
    return 0


def compared(tokenizer: Any, path: Path) -> int:
    """Print whether engine and reference agree on a file taken as one document; return 0 if they do."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"`{path}` is not UTF-8: {error}") from None
    ids, right = tokenizer.encode(text), tokenizer.reference.encode_one(text).tolist()
    if ids == right:
        click.echo(f"equal: {len(ids):,} ids by {tokenizer.engine.name} and by {tokenizer.reference.name}")
        return 0
    pairs = zip_longest(ids, right)
    first = next(i for i, (a, b) in enumerate(pairs) if a != b)
    click.echo(f"different from token {first:,} on, behind {tokenizer.decode(right[:first])[-60:]!r}")
    for engine, found in ((tokenizer.engine.name, ids), (tokenizer.reference.name, right)):
        click.echo(f"  {engine:<10}  {found[first : first + 8]}  {tokenizer.decode(found[first : first + 8])!r}")
    return 1
