"""Show how far a run is, on stderr: two live lines on a terminal, plain lines or JSON events elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokenmill.cli.words import count, duration, size

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
        how = "live" if sys.stderr and sys.stderr.isatty() else "plain"
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
        get_renderable=lambda: two_lines(latest[0]) if latest else "",
        refresh_per_second=5,
        transient=True,
    ):

        def show(progress: Progress) -> None:
            nonlocal n_mishaps
            latest[:] = [progress]
            for _, mishap in progress.mishaps[n_mishaps:]:
                console.print(f"{mishap.what}", style="yellow", highlight=False, markup=False)
                n_mishaps += 1

        yield show


def two_lines(progress: Progress) -> RenderableType:
    """What is left to do, and how it goes."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    top = Table.grid(expand=True, padding=(0, 1))
    for ratio in (None, 1, None, None):
        top.add_column(ratio=ratio, no_wrap=True)
    if progress.encoded:
        doing = "shuffling" if progress.n_scattered_tokens else "writing"
        done = f"{count(progress.n_written_tokens)} tokens in shards"
        left = f"{duration(progress.elapsed_seconds)} so far"
        top.add_row(doing, ProgressBar(total=1, completed=progress.written_fraction), done, left)
    else:
        eta = progress.eta_seconds
        left = f"{duration(eta)} left" if eta is not None else "starting"
        done = f"{len(progress.receipts)}/{progress.n_units} units"
        top.add_row("encoding", ProgressBar(total=1, completed=progress.fraction), done, left)
    elapsed = max(progress.elapsed_seconds, 1e-9)
    parts = [
        f"{count(progress.n_tokens)} tokens",
        f"{size(progress.n_text_bytes)} of text",
        f"{size(progress.n_text_bytes / elapsed)}/s",
        f"{count(progress.n_tokens / elapsed)} tokens/s",
        f"{progress.binding or 'nothing'} binds",
        *fetched_parts(progress),
    ]
    return Group(top, Text(" · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis"))


def fetched_parts(progress: Progress) -> list[str]:
    fetched = progress.fetched()
    if not fetched.n_bytes_wanted or progress.encoded:
        return []
    return [f"fetched {size(fetched.n_bytes)} of {size(fetched.n_bytes_wanted)}"]


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
    return " ".join([event, *(f"{key}={value}" for key, value in facts.items() if value is not None)])


def json_line(event: str, facts: dict[str, Any]) -> str:
    return msgspec.json.encode({"event": event, **facts}).decode()
