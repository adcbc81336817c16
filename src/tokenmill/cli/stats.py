"""`tokenmill stats`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenmill.cli import suggestions
from tokenmill.cli.options import Folder
from tokenmill.cli.words import plural, size

if TYPE_CHECKING:
    from tokenmill.reading.statistics import Counts, Statistics

BAR_CELLS = 36
EIGHTHS = " ▏▎▍▌▋▊▉█"
MAX_SOURCES = 12


@click.command(short_help="Tokens by split and source; how long documents are.")
@click.argument("out", type=Folder())
@click.option(
    "--tokenizer",
    shell_complete=suggestions.tokenizers,
    help="The tokenizer, where nothing tells it: a name or a file, as for `prepare`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def stats(out: Path, tokenizer: str | None, as_json: bool) -> None:
    """Count tokens and documents, by split and by source file, and show how long documents are.

    Shards of other tools are counted too: a folder or a file, as for `inspect`.

    \b
    Examples:
        tokenmill stats out
        tokenmill stats out --json
    """
    from tokenmill.reading.statistics import statistics

    found = statistics(out, tokenizer)
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        click.echo("\n".join([*totals(found), *table("splits", found.splits), *sources(found), *bars(found)]))


def totals(found: Statistics) -> list[str]:
    total = found.total
    mean = total.n_tokens / max(1, total.n_documents)
    lines = [
        f"{plural(total.n_tokens, 'token')} of {plural(total.n_documents, 'document')} in `{found.path}`",
        f"  format     {found.format}; tokenizer {found.tokenizer or 'not known'}",
        f"  documents  {mean:,.0f} tokens on average, {found.longest:,} in the longest",
    ]
    if found.bytes_per_token is not None:
        about = "about " if found.text_is_sampled else ""
        text = "" if total.n_text_bytes is None else f", {size(total.n_text_bytes)} in all"
        lines.append(f"  text       {about}{found.bytes_per_token:.2f} bytes a token{text}")
    return lines


def table(title: str, rows: dict[str, Counts]) -> list[str]:
    """A line a row; names that are too long lose their beginning."""
    lines = [f"{title:<32} {'documents':>12} {'tokens':>16} {'bytes a token':>14}".rstrip()]
    if all(row.n_text_bytes is None for row in rows.values()):
        lines = [f"{title:<32} {'documents':>12} {'tokens':>16}"]
    for name, row in rows.items():
        short = name if len(name) <= 30 else "..." + name[-27:]
        text = "" if row.n_text_bytes is None else f" {row.n_text_bytes / max(1, row.n_tokens):>14.2f}"
        lines.append(f"  {short:<30} {row.n_documents:>12,} {row.n_tokens:>16,}{text}")
    return lines


def sources(found: Statistics) -> list[str]:
    """The source files with the most tokens."""
    if not found.sources:
        return []
    ordered = sorted(found.sources.items(), key=lambda item: -item[1].n_tokens)
    lines = table("sources", dict(ordered[:MAX_SOURCES]))
    return lines if len(ordered) <= MAX_SOURCES else [*lines, f"  ... {len(ordered) - MAX_SOURCES} more"]


def bars(found: Statistics) -> list[str]:
    """Documents by their length, by powers of two."""
    if not found.histogram:
        return []
    most = max(part.n_documents for part in found.histogram)
    lines = [f"{'tokens a document':<25}{'documents':>12}"]
    for part in found.histogram:
        label = f"{part.low:,} to {part.high - 1:,}" if part.high - part.low > 1 else str(part.low)
        lines.append(f"  {label:<22} {part.n_documents:>12,}  {bar(part.n_documents / most)}".rstrip())
    return lines


def bar(share: float) -> str:
    """A bar of so much of the width; never nothing for something."""
    eighths = max(1 if share > 0 else 0, round(share * BAR_CELLS * 8))
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
