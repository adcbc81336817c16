"""`tokenmill download`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tokenmill.cli import suggestions
from tokenmill.cli.words import duration, plural, size
from tokenmill.errors import RecipeError


@click.command(short_help="A data set or an output to this machine.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=suggestions.sources)
@click.option("--to", "folder", required=True, type=click.Path(path_type=Path), help="The folder that files go to.")
@click.option(
    "--version",
    metavar="V",
    shell_complete=suggestions.versions,
    help="Which version of a corpus that is known by name, such as 10B.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, no summary.")
def download(sources: tuple[str, ...], folder: Path, version: str | None, quiet: bool) -> None:
    """Fetch a data set or an output to this machine, and nothing else.

    SOURCE is the name of a corpus (`tokenmill datasets` lists them) or an address: hf://datasets/OWNER/NAME/path,
    s3://, gs://, az:// or https://. Files keep their paths below it. Each is checked by its digest before it has its
    name; files that are there already are left alone, and a download that was stopped goes on where it was.

    \b
    Examples:
        tokenmill download fineweb-edu --version 10B --to fineweb-edu
        tokenmill download s3://bucket/tokens --to tokens
    """
    from time import perf_counter

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from tokenmill.downloading import download as fetch
    from tokenmill.sources.catalog import with_addresses

    if version is not None and len(sources) > 1:
        raise RecipeError("`--version` is for one corpus")
    addresses, _ = with_addresses(list(sources), version, any_column=True)
    columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    shown = not quiet and bool(sys.stderr and sys.stderr.isatty())
    began = perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as progress:
        bar = progress.add_task("fetching", total=None)
        result = fetch(addresses, folder, lambda done, total: progress.update(bar, completed=done, total=total))
    if not quiet:
        there = f", {plural(result.n_there, 'file')} of them there already" if result.n_there else ""
        took = duration(perf_counter() - began)
        click.echo(f"Fetched {plural(result.n_files, 'file')}, {size(result.n_bytes)}{there}, in {took}: {folder}")
