"""Charts without a script: shapes in an SVG that stretches with the page, and their labels beside it as plain text.

Coordinates are shares of the width and the height, from 0 to 1, the origin below on the left. Labels are HTML, so that
they keep their size on a narrow screen; colors come from the style sheet, light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenmill.cli.words import count
from tokenmill.report.markup import Markup, joined, tag

UNITS = 1000  # the side of the SVG's own square


class Tick(NamedTuple):
    place: float
    text: str


class Row(NamedTuple):
    """A bar with a name; `note` stands behind the value."""

    name: str
    value: float
    text: str
    note: str = ""


def plot(
    label: str,
    shapes: Iterable[Markup],
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    x_title: str,
    y_title: str,
    overlay: Iterable[Markup] = (),
) -> Markup:
    """A chart with axes. `label` says in words what is to be seen."""
    grid = [
        tag("line", x1=0, x2=UNITS, y1=flipped(tick.place), y2=flipped(tick.place), class_="grid") for tick in y_ticks
    ]
    svg = tag(
        "svg",
        *grid,
        *shapes,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return tag(
        "div",
        tag("div", y_title, class_="y-title"),
        tag(
            "div",
            *(tag("span", t.text, style=f"bottom:{t.place:.2%}") for t in y_ticks),
            class_="y",
            aria_hidden="true",
        ),
        tag("div", svg, *overlay, class_="area"),
        tag("div", *map(x_label, x_ticks), class_="x", aria_hidden="true"),
        tag("div", x_title, class_="x-title"),
        class_="plot",
    )


def x_label(tick: Tick) -> Markup:
    return tag("span", tick.text, style=f"left:{tick.place:.2%}", class_="end" if tick.place > 0.97 else None)


def flipped(y: float) -> float:
    return round(UNITS * (1 - y), 1)


def column(left: float, right: float, height: float, title: str, class_: str = "bar") -> Markup:
    """An upright bar; one of something is never nothing."""
    height = max(height, 0.004) if height > 0 else 0.0
    return tag(
        "rect",
        tag("title", title),
        x=round(left * UNITS, 1),
        y=flipped(height),
        width=round(max((right - left) * UNITS, 0.5), 1),
        height=round(height * UNITS, 1),
        class_=class_,
    )


def path(points: Iterable[tuple[float, float]]) -> Markup:
    """A line through points."""
    return tag("polyline", points=" ".join(f"{x * UNITS:.1f},{flipped(y)}" for x, y in points), class_="path")


def upright(x: float, class_: str) -> Markup:
    return tag("line", x1=round(x * UNITS, 1), x2=round(x * UNITS, 1), y1=0, y2=UNITS, class_=class_)


def bars(rows: Sequence[Row], caption: str, head: tuple[str, str], *, quiet: bool = False) -> Markup:
    """Lying bars: a table that says the same as its picture. A quiet caption is only heard: the title says it."""
    most = max((row.value for row in rows), default=0) or 1
    body = [
        tag(
            "tr",
            tag("th", row.name, scope="row", dir="auto"),
            tag("td", row.text, class_="number"),
            tag(
                "td",
                tag("div", style=f"width:{row.value / most:.2%}", class_="odd-bar" if row.note else "lying"),
                row.note,
            ),
        )
        for row in rows
    ]
    names = [tag("th", head[0], scope="col"), tag("th", head[1], scope="col", class_="number"), tag("td")]
    said = tag("caption", caption, class_="heard" if quiet else None)
    return tag("table", said, tag("thead", tag("tr", *names)), tag("tbody", *body), class_="bars")


def round_ticks(most: float, n: int = 4) -> list[float]:
    """A few round numbers from 0 up to `most`."""
    if most <= 0:
        return [0.0]
    raw = most / n
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    return [step * i for i in range(int(most / step + 1e-9) + 1)]


def y_axis(most: float, text: str = "") -> list[Tick]:
    return [Tick(value / most, count_or_decimals(value) + text) for value in round_ticks(most)] if most > 0 else []


def count_or_decimals(value: float) -> str:
    return count(value) if value >= 10 or value == int(value) else f"{value:.2g}"


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times them where there are few."""
    factors = (1, 2, 5) if high / low < 1000 else (1,)
    return [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in factors
        if low <= factor * 10.0**power <= high
    ]


def legend(names: Iterable[tuple[str, str]]) -> Markup:
    return tag("p", joined(joined([tag("i", class_=class_), f" {name}  "]) for class_, name in names), class_="legend")


def dot(x: float, y: float, class_: str) -> Markup:
    """A point: a line without length, whose round end keeps its shape when the picture is stretched."""
    return tag("line", x1=round(x * UNITS, 1), x2=round(x * UNITS, 1), y1=flipped(y), y2=flipped(y), class_=class_)
