"""Text of others -> Markdown and YAML that it cannot break out of: cells, code, blocks and strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Text as it is, in a line or in a cell of a table: nothing in it is taken for Markdown or HTML.

    Readers do not agree on pipes and backslashes inside backticks, so names with these are spelled with entities.
    """
    text = one_line(text).strip()
    if text and not re.search(r"[|`\\]", text):
        return f"`{text}`"
    return "".join(
        character if character.isalnum() or character in " /" else f"&#{ord(character)};" for character in text
    )


def fenced(language: str, text: str) -> str:
    fence = "`" * max(3, longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def plain(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", one_line(text))


def one_line(text: str) -> str:
    """Without line breaks and other characters that do not print."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
