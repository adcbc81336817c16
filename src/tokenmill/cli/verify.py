"""`tokenmill verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tokenmill.cli.words import plural, size


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(out: Path, as_json: bool) -> int:
    """Check an output against its manifest: checksums, sizes, headers, counts and the document index.

    Exits with 1 when anything differs, after listing all of it.

    \b
    Example:
        tokenmill prepare sample -o out && tokenmill verify out
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from tokenmill.verification import verify as run

    columns = ("hashing", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not (sys.stderr and sys.stderr.isatty())
    ) as progress:
        bar = progress.add_task("hashing", total=None)
        result = run(out, lambda done, total: progress.update(bar, completed=done, total=total))
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode({"ok": result.ok, **msgspec.structs.asdict(result)}).decode() + "\n")
    elif result.ok:
        tokens, documents = plural(result.n_tokens, "token"), plural(result.n_documents, "document")
        click.echo(f"OK: {result.n_files} files, {size(result.n_bytes)}, {tokens} of {documents}")
    else:
        for problem in result.problems:
            click.echo(problem)
        click.echo(f"FAILED: {plural(len(result.problems), 'problem')} in `{out}`")
    return 0 if result.ok else 1
