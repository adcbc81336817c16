"""`tokenmill report`."""

from __future__ import annotations

from pathlib import Path

import click

from tokenmill.cli.options import Folder
from tokenmill.cli.words import size

REPORT = "report.html"


@click.command(short_help="One HTML file about shards: what is in them.")
@click.argument("out", type=Folder())
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write.  [default: OUT/report.html in an output of tokenmill, else report.html here]",
)
@click.option("--tokenizer", help="The tokenizer, where nothing tells it: a name or a file, as for `prepare`.")
@click.option("--format", "shard_format", metavar="NAME", help="The format, where names and first bytes mislead.")
@click.option("--dtype", metavar="TYPE", help="The type of the ids, where no header tells it: uint16, uint32, ...")
def report(out: Path, target: Path | None, tokenizer: str | None, shard_format: str | None, dtype: str | None) -> None:
    """Write one HTML file that shows what is in shards: totals, lengths, sources, tokens, the run, some documents.

    OUT is an output of tokenmill, or a folder or file of shards of any format. The file needs no network and has no
    script in it.

    \b
    Examples:
        tokenmill report out
        tokenmill report out -o report.html
    """
    from tokenmill.reading import open_any
    from tokenmill.report.page import write_report

    shards = open_any(out, tokenizer, dtype, format=shard_format)
    if target is None:
        is_ours = shards.manifest is not None and out.is_dir()
        target = out / REPORT if is_ours else Path(REPORT)
    write_report(shards, target)
    click.echo(f"Wrote {target} ({size(target.stat().st_size)})")
