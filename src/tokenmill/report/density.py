"""Bytes of text a token, by source file and along the stream: what is unlike the rest stands out."""

from __future__ import annotations

from statistics import median

from tokenmill.cli.words import count
from tokenmill.report import charts
from tokenmill.report.charts import Row, Tick
from tokenmill.report.facts import Facts
from tokenmill.report.markup import Markup, details, joined, table, tag
from tokenmill.report.sections import MAX_BARS, short_names

MAX_DOTS = 2000
ODD_LOW, ODD_HIGH = 0.75, 1.33  # times the median: what is beyond is worth a look


def density_section(facts: Facts) -> Markup | None:
    """Bytes of text a token, by source file and along the stream."""
    by_file = {
        name: part.n_text_bytes / part.n_tokens
        for name, part in facts.statistics.sources.items()
        if part.n_tokens and part.n_text_bytes
    }
    parts: list[Markup] = []
    if by_file:
        parts.append(density_by_file(by_file))
    if facts.tokens.points:
        parts.append(density_over_stream(facts))
    if not parts:
        return None
    said = "Text of another language or script than the rest, code, or broken text has fewer bytes a token."
    return joined([tag("p", said), *parts])


def density_by_file(by_file: dict[str, float]) -> Markup:
    middle, names = median(by_file.values()), short_names(by_file)

    def note(value: float) -> str:
        return "" if middle * ODD_LOW <= value <= middle * ODD_HIGH else " unlike the others"

    if len(by_file) <= MAX_BARS:
        rows = [Row(names[name], value, f"{value:.2f}", note(value)) for name, value in by_file.items()]
        return charts.bars(rows, "Bytes a token by source file, in their order", ("file", "bytes a token"))
    ordered = sorted(by_file.items(), key=lambda item: item[1])
    ends = [*ordered[: MAX_BARS // 2], *ordered[-(MAX_BARS // 2) :]]
    rows = [Row(names[name], value, f"{value:.2f}", note(value)) for name, value in ends]
    caption = (
        f"Bytes a token: the {MAX_BARS // 2} lowest and the {MAX_BARS // 2} highest of {len(by_file):,} source files"
    )
    n, most = len(by_file), max(by_file.values()) * 1.05
    step = -(-n // MAX_DOTS)
    dots = [
        charts.dot(i / max(1, n - 1), value / most, "odd" if note(value) else "dot")
        for i, value in enumerate(by_file.values())
        if i % step == 0 or note(value)
    ]
    ticks = [Tick(i / 4, f"{round(i * (n - 1) / 4):,}") for i in range(5)]
    span = f"from {ordered[0][1]:.2f} to {ordered[-1][1]:.2f}"
    label = f"Bytes a token of {n:,} source files: the median is {middle:.2f}, {span}."
    return joined(
        [
            charts.plot(label, dots, ticks, charts.y_axis(most), "source file, in their order", "bytes a token"),
            charts.bars(rows, caption, ("file", "bytes a token")),
        ]
    )


def density_over_stream(facts: Facts) -> Markup:
    points, n_tokens = facts.tokens.points, facts.shards.n_tokens
    values = [point.n_bytes / max(1, point.n_tokens) for point in points]
    most = max(max(values) * 1.05, 1.0)
    line = charts.path(
        ((point.start + point.n_tokens / 2) / n_tokens, value / most)
        for point, value in zip(points, values, strict=True)
    )
    ticks = [Tick(i / 4, count(i * n_tokens / 4)) for i in range(5)]
    rows = [
        [f"{point.start:,}", f"{point.n_tokens:,}", f"{value:.2f}"] for point, value in zip(points, values, strict=True)
    ]
    label = f"Bytes a token along all shards: from {min(values):.2f} to {max(values):.2f}."
    return joined(
        [
            tag("h3", "Along the shards"),
            charts.plot(
                label, [line], ticks, charts.y_axis(most), "position in all shards, in tokens", "bytes a token"
            ),
            details(
                "As a table",
                table(["from token", "tokens", "bytes a token"], rows, "Bytes a token along the shards", 1),
            ),
        ]
    )
