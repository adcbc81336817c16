"""What `tokenmill prepare --node I/N` says."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenmill.cli.words import count, duration, plural, size
from tokenmill.errors import RecipeError

if TYPE_CHECKING:
    from tokenmill.sharing import ShareDone


def refuse_beside_node(*, report: bool, dry_run: bool) -> None:
    """Say which options make no sense for a share."""
    if report:
        raise RecipeError(
            "`--report` needs a finished output, and `--node` does not finish one",
            hint="pass it to the same command without `--node`, when all shares are done",
        )
    if dry_run:
        raise RecipeError(
            "`--dry-run` tells what the whole run would take, and `--node` is for a share of it", hint="leave one out"
        )


def show_share(done: ShareDone, out: Path | str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
    elif not quiet:
        click.echo(share_summary(done, out))


def share_summary(done: ShareDone, out: Path | str) -> str:
    """What was encoded, and what to do next."""
    if not done.n_units:
        lines = [f"Nothing to do for share {done.share}: the corpus has {plural(done.n_units_in_all, 'unit')}"]
    else:
        what = f"{plural(done.n_tokens, 'token')} of {plural(done.n_documents, 'document')}"
        lines = [
            f"Encoded share {done.share}: {what} in {duration(done.elapsed_seconds)}",
            f"  units      {done.n_units:,} of {done.n_units_in_all:,}, {size(done.n_text_bytes)} of text",
            pace_line(done),
        ]
    if done.n_excluded:
        lines.append(f"  excluded   {plural(done.n_excluded, 'document')}, kept in quarantine/")
    folder = shlex.quote(str(out))
    lines.append("When all shares are done, run the same command without `--node`: it finishes the output.")
    lines.append(f"How far they are: `tokenmill status {folder}`.")
    return "\n".join(lines)


def pace_line(done: ShareDone) -> str:
    if done.n_units_before:
        return f"  resumed    {done.n_units_before:,} of {plural(done.n_units, 'unit')} were done before"
    seconds = max(done.elapsed_seconds, 1e-9)
    speed = f"{size(done.n_text_bytes / seconds)}/s of text, {count(done.n_tokens / seconds)} tokens/s"
    return f"  speed      {speed} with {plural(done.workers, 'worker')}"
