"""`tokenmill verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenmill.cli.options import Place
from tokenmill.cli.words import plural, size

if TYPE_CHECKING:
    from tokenmill.verification import Level


@click.command(short_help="Is an output what its manifest says?")
@click.argument("out", type=Place())
@click.option("--full", is_flag=True, help="Encode all of the sources again with the reference tokenizer, and compare.")
@click.option("--checksums-only", is_flag=True, help="Sizes and checksums, as fast as the disk; no look inside.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes for `--full`.  [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(out: Path | str, full: bool, checksums_only: bool, workers: int | None, as_json: bool) -> int:
    """Check a finished output, wherever it was moved to.

    Every checksum, size, header and count against the manifest; ids below the vocabulary size; end-of-text where the
    recipe puts it; the document index against the shards; the sources against their digests; and a seeded sample of
    documents, encoded again from the sources by the reference tokenizer and compared id by id. Exits with 1 when
    anything differs, after listing it. Sources that are not there are told, and are no failure.

    \b
    Examples:
        tokenmill prepare sample -o out && tokenmill verify out
        tokenmill verify out --full
        tokenmill verify out --checksums-only
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from tokenmill.verification import verify as run

    if full and checksums_only:
        raise click.UsageError("`--full` and `--checksums-only` exclude each other")
    level: Level = "full" if full else "checksums" if checksums_only else "sample"
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not (sys.stderr and sys.stderr.isatty())
    ) as progress:
        bar = progress.add_task("hashing", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total)

        result = run(out, level, show, workers)
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode({"ok": result.ok, **msgspec.structs.asdict(result)}).decode() + "\n")
        return 0 if result.ok else 1
    for problem in result.problems:
        click.echo(problem)
    for note in result.notes:
        click.echo(f"note: {note}")
    if result.ok:
        tokens, documents = plural(result.n_tokens, "token"), plural(result.n_documents, "document")
        again = f"; {plural(result.n_compared, 'document')} encoded again: equal" if result.n_compared else ""
        click.echo(f"OK: {result.n_files} files, {size(result.n_bytes)}, {tokens} of {documents}{again}")
    else:
        click.echo(f"FAILED: {plural(len(result.problems), 'problem')} in `{out}`")
    return 0 if result.ok else 1
