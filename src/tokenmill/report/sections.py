"""The parts of a report that say what is in the shards; each is None, with a reason given elsewhere, without data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from tokenmill.cli.words import count, plural, size
from tokenmill.reading.files import ShardFile
from tokenmill.reading.lengths import QUARTERS
from tokenmill.reading.statistics import Counts
from tokenmill.report import charts
from tokenmill.report.charts import Row, Tick
from tokenmill.report.facts import Facts
from tokenmill.report.markup import Markup, cut_rows, details, joined, table, tag

MAX_BARS = 24
MAX_ROWS = 300
MAX_COLUMNS = 200
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


def lengths_section(facts: Facts) -> Markup | None:
    """How long documents are."""
    lengths = facts.lengths
    bins = [part for part in lengths.histogram(QUARTERS) if part.low > 0]
    if not bins:
        return None
    low, high = math.log(bins[0].low), math.log(max(bins[-1].high, 2))
    most = max(part.n_documents for part in bins)

    def x(value: float) -> float:
        return (math.log(value) - low) / (high - low)

    columns = [
        charts.column(
            x(part.low),
            x(part.high),
            part.n_documents / most,
            f"{part.low:,} to {part.high - 1:,} tokens: {plural(part.n_documents, 'document')}",
        )
        for part in bins
    ]
    values = lengths.percentiles(PERCENTILES)
    middle = values[PERCENTILES.index(50)]
    marks = [charts.upright(x(middle), "mark")] if middle > 0 else []
    ticks = [Tick(x(value), count(value)) for value in charts.log_ticks(bins[0].low, bins[-1].high)]
    chart = charts.plot(
        f"Histogram of document lengths: most have between {values[2]:,} and {values[4]:,} tokens, the median is"
        f" {middle:,}, the longest has {lengths.longest:,}.",
        [*columns, *marks],
        ticks,
        charts.y_axis(most),
        "tokens in a document (log scale)",
        "documents",
    )
    names = [*(f"p{p}" if p != 50 else "median" for p in PERCENTILES), "longest"]
    shown = tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", f"{value:,}"))
            for name, value in zip(names, [*values, lengths.longest], strict=True)
        ),
        class_="strip",
    )
    rows = [
        [
            f"{part.low:,} to {part.high - 1:,}" if part.high - part.low > 1 else f"{part.low:,}",
            f"{part.n_documents:,}",
            f"{part.n_tokens:,}",
        ]
        for part in lengths.histogram()
    ]
    note = "" if not facts.lengths_are_sampled else " By documents that lie whole in stretches of a million tokens."
    return joined(
        [
            tag("p", f"Tokens of a document, end-of-text included.{note} The line marks the median."),
            chart,
            shown,
            details("As a table", table(["tokens", "documents", "tokens in them"], rows, "Documents by length")),
        ]
    )


def sources_section(facts: Facts) -> Markup | None:
    sources = facts.statistics.sources
    if not sources:
        return None
    ordered, names = sorted(sources.items(), key=lambda item: -item[1].n_tokens), short_names(sources)
    rows = [Row(names[name], part.n_tokens, f"{part.n_tokens:,}") for name, part in ordered[:MAX_BARS]]
    if len(ordered) > MAX_BARS:
        rest = sum(part.n_tokens for _, part in ordered[MAX_BARS:])
        rows.append(Row(f"{len(ordered) - MAX_BARS:,} others", rest, f"{rest:,}"))
    listed, more = cut_rows(
        [[name, f"{part.n_documents:,}", f"{part.n_tokens:,}", rate(part)] for name, part in ordered], MAX_ROWS, "file"
    )
    head = ["source file", "documents", "tokens", "bytes a token"]
    return joined(
        [
            charts.bars(rows, "Tokens by source file, the largest first", ("file", "tokens")),
            details("With documents and whole paths", table(head, listed, f"Source files{more}")),
        ]
    )


def splits_section(facts: Facts) -> Markup:
    splits = facts.statistics.splits
    about = "about " if facts.lengths_are_sampled else ""
    rows = [Row(name, part.n_tokens, f"{part.n_tokens:,}", "") for name, part in splits.items()]
    listed = [
        [
            name,
            about + f"{part.n_documents:,}",
            f"{part.n_tokens:,}",
            f"{part.n_tokens / max(1, facts.shards.n_tokens):.2%}",
        ]
        for name, part in splits.items()
    ]
    return joined(
        [
            charts.bars(rows, "Tokens by split", ("split", "tokens"), quiet=True),
            details("With documents", table(["split", "documents", "tokens", "share"], listed, "Splits")),
        ]
    )


def shards_section(facts: Facts) -> Markup:
    files = facts.shards.files
    step = -(-len(files) // MAX_COLUMNS)
    groups = [files[i : i + step] for i in range(0, len(files), step)]
    n, most = len(groups), max(file.n_tokens for file in files) or 1
    columns = [
        charts.column(
            (i + 0.08) / n,
            (i + 0.92) / n,
            sum(file.n_tokens for file in some) / len(some) / most,
            f"{some[0].path.name}: {plural(some[0].n_tokens, 'token')}"
            if step == 1
            else f"shards {i * step:,} to {i * step + len(some) - 1:,}: {sum(file.n_tokens for file in some):,} tokens",
            class_of(some[0]),
        )
        for i, some in enumerate(groups)
    ]
    ticks = [Tick((i + 0.5) / n, f"{i * step:,}") for i in range(0, n, -(-n // 12))]
    splits = list(dict.fromkeys((class_of(file), file.split) for file in files))
    rows, more = cut_rows(
        [
            [
                file.path.name,
                file.split,
                f"{file.n_tokens:,}",
                "" if file.places is None else f"{len(file.places):,}",
            ]
            for file in files
        ],
        MAX_ROWS,
        "shard",
    )
    chart = charts.plot(
        f"Tokens in each of {plural(len(files), 'shard')}: from {min(f.n_tokens for f in files):,} to {most:,}.",
        columns,
        ticks,
        charts.y_axis(most),
        "shard" if step == 1 else f"shard, {step} to a column",
        "tokens" if step == 1 else "tokens in a shard, on average",
    )
    listed = table(["file", "split", "tokens", "documents that begin in it"], rows, f"Shards{more}", 2)
    return joined([charts.legend(splits) if len(splits) > 1 else "", chart, details("As a table", listed)])


def class_of(file: ShardFile) -> str:
    return "bar" if file.split == "train" else "bar-2"


def totals(facts: Facts) -> Sequence[tuple[str, str]]:
    found, shards, manifest = facts.statistics, facts.shards, facts.manifest
    about = "about " if facts.lengths_are_sampled else ""
    n_bytes = manifest.totals.n_bytes if manifest else sum(file.n_bytes for file in shards.files)
    tiles = [
        ("tokens", f"{found.total.n_tokens:,}"),
        ("documents", about + f"{found.total.n_documents:,}"),
        ("tokens a document", f"{found.total.n_tokens / max(1, found.total.n_documents):,.0f}"),
        ("shards", f"{len(shards.files):,}"),
        ("on disk", size(n_bytes)),
    ]
    if found.total.n_text_bytes is not None:
        tiles.append(("of text", size(found.total.n_text_bytes)))
    if found.bytes_per_token is not None:
        tiles.append(("bytes a token", f"{'about ' if found.text_is_sampled else ''}{found.bytes_per_token:.2f}"))
    return tiles


def rate(part: Counts) -> str:
    return "" if part.n_text_bytes is None or not part.n_tokens else f"{part.n_text_bytes / part.n_tokens:.2f}"


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Paths without the folders that all of them lie in."""
    paths = list(paths)
    common = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""  # noqa: PTH120
    return {path: os.path.relpath(path, common) if common else path for path in paths}
