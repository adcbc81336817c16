"""Show how far a run is, on stderr: two live lines on a terminal, plain lines or JSON events elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokenmill.cli.words import count, duration, plural, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tokenmill.mill import OnProgress
    from tokenmill.progress import Progress

PLAIN_SECONDS = 5.0
JSONL_SECONDS = 1.0


@contextmanager
def progress_display(how: str) -> Iterator[OnProgress | None]:
    """Give the callback that shows progress as asked: auto, plain, jsonl or off."""
    if how == "auto":
        how = "live" if sys.stderr and sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    match how:
        case "live":
            with live_display() as show:
                yield show
        case "plain":
            yield LineDisplay(PLAIN_SECONDS, plain_line)
        case "jsonl":
            yield LineDisplay(JSONL_SECONDS, json_line)
        case _:
            yield None


@contextmanager
def live_display() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.live import Live

    latest: list[Progress] = []
    console, n_mishaps = Console(stderr=True), 0
    with Live(
        console=console,
        get_renderable=lambda: two_lines(latest[0], console.width) if latest else "planning: looking at the inputs",
        refresh_per_second=4,
        transient=True,
    ):

        def show(progress: Progress) -> None:
            nonlocal n_mishaps
            latest[:] = [progress]
            for _, mishap in progress.mishaps[n_mishaps:]:
                console.print(f"{mishap.what}", style="yellow", highlight=False, markup=False)
                n_mishaps += 1

        yield show


def two_lines(progress: Progress, width: int) -> RenderableType:
    """What is left to do, and how it goes."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    top = Table.grid(expand=True, padding=(0, 1))
    for ratio in (None, 1, None):
        top.add_column(ratio=ratio, no_wrap=True)
    if progress.encoded and progress.assembles:
        doing = "shuffling" if progress.n_scattered_tokens else "writing"
        done, fraction = f"{count(progress.n_written_tokens)} tokens in shards", progress.written_fraction
        left = f"{rough(progress.elapsed_seconds)} so far"
    else:
        doing, done, fraction = "encoding", f"{progress.n_units_done}/{progress.n_units} units", progress.fraction
        eta = progress.eta_seconds
        left = "" if eta is None else f"{rough(eta)} left"
    facts = " · ".join(part for part in (f"{fraction:4.0%}", done, left) if part)
    top.add_row(doing, ProgressBar(total=1, completed=fraction), facts)
    return Group(top, Text(fitting(pace(progress), width), style="dim", no_wrap=True, overflow="ellipsis"))


def pace(progress: Progress) -> list[str]:
    """How it goes, what matters most first; the speed is that of this run, whatever an earlier one had done."""
    fetched, elapsed = progress.fetched(), max(progress.elapsed_seconds, 1e-9)
    new_bytes, new_tokens = (
        progress.n_text_bytes - progress.n_bytes_resumed,
        progress.n_tokens - progress.n_tokens_resumed,
    )
    downloads = []
    if fetched.n_bytes_wanted and not progress.encoded:
        downloads = [f"fetched {size(fetched.n_bytes)} of {size(fetched.n_bytes_wanted)}"]
    if not new_tokens and not progress.encoded:
        return [*downloads, f"starting {plural(progress.n_workers, 'worker')}"]
    return [
        f"{count(progress.n_tokens)} tokens",
        f"{size(new_bytes / elapsed)}/s",
        *downloads,
        *([nodes_line(progress)] if progress.nodes else []),
        *([f"{progress.binding} binds"] if progress.binding else []),
        f"{count(new_tokens / elapsed)} tokens/s",
        f"{size(progress.n_text_bytes)} of text",
    ]


def nodes_line(progress: Progress) -> str:
    """The nodes of a cluster, and how many units the busiest and the idlest have done."""
    done = [node.n_units for node in list(progress.nodes.values())]
    return f"{plural(len(done), 'node')}, {min(done):,} to {max(done):,} units each"


def fitting(parts: list[str], width: int) -> str:
    """As many of the parts as fit on a line, from the first on: none is cut in the middle."""
    line = parts[0]
    for part in parts[1:]:
        if len(line) + 3 + len(part) <= width:
            line += f" · {part}"
    return line


def rough(seconds: float) -> str:
    """A time that does not flicker: whole seconds, and above an hour whole minutes."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return duration(seconds) if seconds < 3600 else f"{minutes // 60} h {minutes % 60} min"


class LineDisplay:
    """Prints a line when something happened and enough time has passed, and one for every sealed shard."""

    def __init__(self, seconds: float, line: Any) -> None:
        self.seconds, self.line = seconds, line
        self.last = float("-inf")
        self.n_shards = self.n_mishaps = 0
        self.was_encoded = False

    def __call__(self, progress: Progress) -> None:
        for _, mishap in progress.mishaps[self.n_mishaps :]:
            click.echo(self.line("mishap", {"kind": mishap.kind, "what": mishap.what}), err=True)
            self.n_mishaps += 1
        if len(progress.shards) > self.n_shards:
            self.n_shards = len(progress.shards)
            click.echo(self.line("shard", shard_facts(progress)), err=True)
        elif monotonic() - self.last >= self.seconds or progress.encoded != self.was_encoded:
            event = "planned" if self.last == float("-inf") else "encoded" if progress.encoded else "progress"
            self.last, self.was_encoded = monotonic(), progress.encoded
            click.echo(self.line(event, progress.facts()), err=True)


def shard_facts(progress: Progress) -> dict[str, Any]:
    shard = progress.shards[-1]
    return {
        "file": shard.file,
        "split": shard.split,
        "tokens": shard.n_tokens,
        "documents": shard.n_documents,
        "sha256": shard.sha256,
    }


def plain_line(event: str, facts: dict[str, Any]) -> str:
    """Facts in a line; those that are tables are for JSON."""
    plain = ((key, value) for key, value in facts.items() if value is not None and not isinstance(value, dict))
    return " ".join([event, *(f"{key}={value}" for key, value in plain)])


def json_line(event: str, facts: dict[str, Any]) -> str:
    return msgspec.json.encode({"event": event, **facts}).decode()
