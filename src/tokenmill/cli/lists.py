"""`tokenmill formats` and `tokenmill tokenizers`: what there is."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    for row in [{key: key for key in rows[0]}, *rows]:
        click.echo("  ".join(str(row[key]).ljust(widths[key]) for key in row).rstrip())


@click.command()
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
        eot, shard_tokens, val, shuffle, _ = shard_format.defaults
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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def tokenizers(as_json: bool) -> None:
    """List the tokenizers, their sizes, and the engine that does the work.

    \b
    Example:
        tokenmill tokenizers
    """
    from tokenmill.tokenizers import Tokenizer, tokenizer_names

    rows = []
    for name in tokenizer_names():
        tokenizer = Tokenizer(name)
        rows.append(
            {
                "tokenizer": name,
                "ids": tokenizer.vocab_size,
                "end-of-text": tokenizer.eot_token,
                "dtype": "uint16" if tokenizer.vocab_size <= 2**16 else "uint32",
                "engine": tokenizer.engine_name,
                "why": tokenizer.engine_reason,
            }
        )
    print_rows(rows, as_json)
