"""HTML with everything escaped: strings are text, and only what `tag` made is markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tokenmill.cli.words import plural

VOID = ("meta", "br", "line", "polyline", "circle")


class Markup(str):
    """HTML that is safe to put in as it is."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | int | float | None) -> Markup:
    """An element. `class_` and `aria_label` lose the underscore, or get a hyphen for it; None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(shown, children))
    return Markup(f"<{name}{written}/>" if name in VOID else f"<{name}{written}>{inner}</{name}>")


def shown(child: str) -> str:
    return child if isinstance(child, Markup) else escape(child)


def joined(children: Iterable[str]) -> Markup:
    return Markup("".join(map(shown, children)))


def table(head: Iterable[str], rows: Iterable[Iterable[str]], caption: str, n_words: int = 1) -> Markup:
    """A table whose first `n_words` columns are words, and the others numbers."""
    top = [tag("th", name, scope="col", class_=None if i < n_words else "number") for i, name in enumerate(head)]
    body = []
    for row in rows:
        first, *rest = row
        cells = [
            tag("td", cell, dir="auto" if i < n_words else None, class_=None if i < n_words else "number")
            for i, cell in enumerate(rest, 1)
        ]
        body.append(tag("tr", tag("th", first, scope="row", dir="auto"), *cells))
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", tag("tr", *top)), tag("tbody", *body)),
        class_="wide",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def details(summary: str, *children: str) -> Markup:
    return tag("details", tag("summary", summary), *children)


def cut_rows(rows: list[list[str]], most: int, what: str) -> tuple[list[list[str]], str]:
    """The first rows, and a remark on those that are left out."""
    if len(rows) <= most:
        return rows, ""
    return rows[:most], f" (the first {most:,}; {plural(len(rows) - most, what)} more)"
