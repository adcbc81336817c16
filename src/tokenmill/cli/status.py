"""`tokenmill status`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli.options import Place
from tokenmill.cli.words import count, duration, plural, size

if TYPE_CHECKING:
    from tokenmill.status import ShareStatus, Status

MAX_NODES = 16
WATCH_SECONDS = 2.0


@click.command(short_help="How far a run is, told from outside.")
@click.argument("out", type=Place())
@click.option("--watch", is_flag=True, help="Tell again every 2 seconds, until the run is finished or stopped.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line each time.")
def status(out: Path | str, watch: bool, as_json: bool) -> int:
    """Tell from outside how far a run is: finished, running or stopped, and what is done.

    Exits with 0 when the output is finished or being made, and with 3 when the run was stopped.

    \b
    Example:
        tokenmill prepare sample -o out && tokenmill status out
    """
    from tokenmill.status import read_status

    while True:
        found = read_status(out)
        if as_json:
            import msgspec

            sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
            sys.stdout.flush()
        else:
            click.echo(in_words(found, out))
        if not watch or found.state != "running":
            return 3 if found.state == "stopped" else 0
        time.sleep(WATCH_SECONDS)


def in_words(found: Status, out: Path | str) -> str:
    """The state in a sentence, and then the counts."""
    done = f"{plural(found.n_tokens, 'token')} of {plural(found.n_documents, 'document')}, {size(found.n_text_bytes)}"
    shards = f"{plural(found.n_shards, 'shard')} sealed with {plural(found.n_tokens_in_shards, 'token')}"
    if found.state == "finished":
        lines = [f"Finished: {done} of text in {plural(found.n_shards, 'shard')}"]
    else:
        n_running = sum(share.state == "running" for share in found.shares)
        who = f"Running: {found.owner or plural(n_running, 'share')}" if found.state == "running" else "Stopped"
        lines = [
            f"{who}; {found.n_units_done:,} of {plural(found.n_units, 'unit')} done",
            f"  {done} of text",
            f"  {shards}",
        ]
    if progress := found.progress:
        eta = progress.get("eta_seconds")
        left = f", {duration(eta)} left to encode" if eta else ""
        lines.append(
            f"  {progress.get('percent')}% encoded at {progress.get('text_mb_per_second')} MB/s,"
            f" {count(progress.get('tokens_per_second') or 0)} tokens/s with"
            f" {plural(progress.get('workers') or 0, 'worker')}{left}"
        )
        lines += node_lines(progress.get("nodes") or {})
    lines += [share_line(share) for share in found.shares]
    if found.n_excluded:
        lines.append(f"  {plural(found.n_excluded, 'document')} in quarantine")
    if found.shares:
        when = "When all shares are done, run" if found.n_units_done < found.n_units else "All units are done: run"
        lines.append(f"{when} the same `tokenmill prepare ... -o {out}` command without `--node`.")
    elif found.state == "stopped":
        lines.append(f"To go on, run the same `tokenmill prepare ... -o {out}` command again.")
    return "\n".join(lines)


def node_lines(nodes: dict[str, dict[str, Any]]) -> list[str]:
    """What each node of a cluster has done; of many, the first."""
    lines = [
        f"  node {name} ({node['host']}): {plural(node['units'], 'unit')}, {plural(node['shards'], 'shard')}"
        for name, node in list(nodes.items())[:MAX_NODES]
    ]
    return [*lines, f"  and {len(nodes) - MAX_NODES:,} more nodes"] if len(nodes) > MAX_NODES else lines


def share_line(share: ShareStatus) -> str:
    """Whose a share is, and how far."""
    rate = (share.progress or {}).get("text_mb_per_second")
    pace = f" at {rate} MB/s" if rate else ""
    where = f" on {share.host}" if share.host else ""
    units = f"{share.n_units_done:,} of {plural(share.n_units, 'unit')} done"
    return f"  share {share.share}: {share.state}{where}; {units}{pace}"
