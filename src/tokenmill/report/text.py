"""Tokens of a document as colored text, without a script; what one cannot see is shown by a sign."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenmill.reading.shown import Piece
from tokenmill.report.markup import Markup, joined, tag

COLORS = 5
# Controls, and what is invisible or turns the direction of text. Joiners stay: scripts and emoji need them.
HIDDEN = re.compile(
    "([\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff])"
)
NAMES = {
    "\0": "NUL",
    "\a": "BEL",
    "\b": "BS",
    "\t": "TAB",
    "\v": "VT",
    "\f": "FF",
    "\r": "CR",
    "\x1b": "ESC",
    "\x7f": "DEL",
}


def visible(text: str) -> Markup:
    parts = HIDDEN.split(text)
    return joined(sign(part) if i % 2 else part for i, part in enumerate(parts))


def sign(character: str) -> Markup:
    return tag("span", NAMES.get(character, f"U+{ord(character):04X}"), class_="sign", dir="ltr")


def on_one_line(text: str) -> Markup:
    """A token by itself: spaces and line breaks are to be seen."""
    return visible(text.replace(" ", "␣").replace("\n", "↵"))


def colored(pieces: Iterable[Piece]) -> Markup:
    """Lines of text, each token in a color of its own."""
    lines: list[list[Markup]] = [[]]
    for i, piece in enumerate(pieces):
        of_text = piece.kind == "text"
        class_ = {"text": f"t{i % COLORS}", "special": "special", "unknown": f"t{i % COLORS} unknown"}[piece.kind]
        several = " several" if len(piece.ids) > 1 else ""
        parts = piece.text.split("\n")
        for n, part in enumerate(parts):
            if n:
                lines.append([])
            if part or n < len(parts) - 1:
                end = [tag("span", "↵", class_="sign-quiet", aria_hidden="true")] if n < len(parts) - 1 else []
                lines[-1].append(
                    tag(
                        "span",
                        visible(part),
                        *end,
                        class_=class_ + several,
                        title=ids_and_bytes(piece),
                        dir=None if of_text else "ltr",
                    )
                )
    return tag("div", *(tag("div", *line, dir="auto", class_="line") for line in lines), class_="text")


def ids_and_bytes(piece: Piece) -> str:
    if piece.bytes is None:
        return ", ".join(f"id {token}" for token in piece.ids)
    return ", ".join(f"id {token}: {spelled}" for token, spelled in zip(piece.ids, piece.bytes, strict=True))
