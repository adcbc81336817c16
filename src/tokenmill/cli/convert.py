"""`tokenmill convert` and `tokenmill merge`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli import suggestions
from tokenmill.cli.options import Folder
from tokenmill.cli.words import plural, size
from tokenmill.recipe import parse_count

if TYPE_CHECKING:
    from tokenmill.manifest import Manifest

TARGET = [
    click.option("-o", "--out", required=True, type=Folder(), help="The folder that shards go to."),
    click.option("--name", help="What shard files are called, where the format lets you choose."),
    click.option("--shard-tokens", metavar="N", help="Tokens in a shard, such as 100M.  [default: the format's]"),
    click.option("--sequence-length", metavar="N", help="Tokens in a sample, for mds.  [default: 2048]"),
    click.option(
        "--eot",
        type=click.Choice(["first", "last", "none"]),
        help="Where each document gets its end-of-text token.  [default: the format's; none stays none]",
    ),
    click.option(
        "--json", "as_json", is_flag=True, help="Print the manifest as JSON on stdout, and nothing else there."
    ),
]


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(TARGET):
        command = option(command)
    return command


@click.command(short_help="The same tokens in another trainer's format.")
@click.argument("source", metavar="IN", type=Folder())
@click.option(
    "--format",
    "shard_format",
    required=True,
    shell_complete=suggestions.formats,
    help="The format to write: see `tokenmill formats`.",
)
@click.option(
    "--tokenizer",
    shell_complete=suggestions.tokenizers,
    help="For shards without a manifest: who made the ids, if it cannot be told.",
)
@click.option("--dtype", help="For shards without a manifest: uint16 or uint32, if it cannot be told.")
@target_options
def convert(
    source: Path,
    shard_format: str,
    tokenizer: str | None,
    dtype: str | None,
    out: Path,
    as_json: bool,
    **fields: Any,
) -> None:
    """Write the tokens of an output in another format, without tokenizing again.

    IN is an output of tokenmill, or shards of any of its formats that somebody else wrote.
    Splits and document boundaries are kept, and end-of-text moves between first and last where the formats differ.
    Converting there and back gives the same shards; only mds is one-way, since it drops what fills no sample. A run
    that was stopped or killed goes on when the same command is given again.

    \b
    Example:
        tokenmill prepare sample -o out && tokenmill convert out -o out_megatron --format megatron
    """
    from tokenmill.conversion import convert as run

    already_done = (out / "manifest.json").exists()
    with bar("converting") as on_tokens:
        manifest = run(source, out, changes_of(shard_format, fields), on_tokens, tokenizer=tokenizer, dtype=dtype)
    report(manifest, out, "Already done" if already_done else "Converted", as_json)


@click.command(short_help="Several outputs as one.")
@click.argument("sources", metavar="OUT1 OUT2 ...", nargs=-1, required=True, type=Folder())
@click.option(
    "--format",
    "shard_format",
    shell_complete=suggestions.formats,
    help="The format to write.  [default: that of the first, with its shard size]",
)
@target_options
def merge(sources: tuple[Path, ...], shard_format: str | None, out: Path, as_json: bool, **fields: Any) -> None:
    """Write several outputs of one tokenizer as one, without tokenizing again.

    The documents of the first come first; the val splits are put together, and the train splits. Outputs of other
    tokenizers, dtypes or delimiters are refused.

    \b
    Example:
        tokenmill merge crawl_2023 crawl_2024 -o both
    """
    from tokenmill.conversion import merge as run
    from tokenmill.inspect import Shards

    if shard_format is None:
        recipe = Shards(sources[0]).manifest.recipe
        shard_format = recipe.format
        kept = {"name": recipe.name, "shard_tokens": recipe.shard_tokens, "sequence_length": recipe.sequence_length}
        fields = {**kept, "eot": recipe.eot} | {name: value for name, value in fields.items() if value is not None}
    already_done = (out / "manifest.json").exists()
    with bar("merging") as on_tokens:
        manifest = run(sources, out, changes_of(shard_format, fields), on_tokens)
    report(manifest, out, "Already done" if already_done else "Merged", as_json)


def changes_of(shard_format: str, fields: dict[str, Any]) -> Any:
    from tokenmill.conversion import Changes

    for name in ("shard_tokens", "sequence_length"):
        if isinstance(fields[name], str):
            fields[name] = parse_count(fields[name])
            if not fields[name]:
                raise click.BadParameter("it takes at least 1", param_hint=f"--{name.replace('_', '-')}")
    return Changes(shard_format, **fields)


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many tokens are done, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (what, BarColumn(), TaskProgressColumn(show_speed=True), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not (sys.stderr and sys.stderr.isatty())
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def report(manifest: Manifest, out: Path, done: str, as_json: bool) -> None:
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(manifest).decode() + "\n")
        return
    totals, recipe = manifest.totals, manifest.recipe
    what = f"{plural(totals.n_tokens, 'token')} of {plural(totals.n_documents, 'document')}"
    click.echo(f"{done}: {what} in {plural(totals.n_shards, 'shard')} of {recipe.format}, {size(totals.n_bytes)}")
    for parent in manifest.parents:
        click.echo(f"  from       {parent.path}")
    for split, (n_shards, n_documents, n_tokens) in manifest.split_totals().items():
        files = [shard.file for shard in manifest.shards if shard.split == split]
        names = files[0] if n_shards == 1 else f"{files[0]} ... {files[-1]}"
        click.echo(f"  {split:<9}  {plural(n_tokens, 'token')}, {plural(n_documents, 'document')} in {out / names}")
    if totals.n_dropped_tokens:
        click.echo(f"  dropped    {plural(totals.n_dropped_tokens, 'token')} behind the last whole sample")
    click.echo(f"Check it with `tokenmill verify {out}`.")
