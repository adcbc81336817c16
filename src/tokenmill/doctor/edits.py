"""Changes to the text of a script, guided by its syntax tree: what is not changed stays to the byte.

An edit replaces the characters from `start` to `end` by a text. Edits of one pass do not overlap; a patch makes
several passes, and reads the script anew in between.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tokenmill.doctor.names import Script
from tokenmill.errors import RecipeError


class Edit(NamedTuple):
    start: int
    end: int
    text: str


def edited(source: str, edits: Iterable[Edit]) -> str:
    """Return the text with all edits made."""
    parts, at = [], 0
    # At one place, in the order in which they were made.
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end)):
        assert edit.start >= at, f"edits overlap at {edit.start}"
        parts += [source[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, source[at:]])


def line_starts(source: str) -> list[int]:
    """Where each line begins; lines end as Python's do, which is not as `splitlines` has it."""
    return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", source))]


def offset(source: str, line: int, column: int) -> int:
    """Return the position of a line and column of the tree, whose columns count bytes."""
    start = line_starts(source)[line - 1]
    return start + len(source[start : start + column].encode()[:column].decode(errors="ignore"))


def span(source: str, node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offset(source, node.lineno, node.col_offset), offset(source, node.end_lineno, node.end_col_offset)


def replaced(source: str, node: ast.expr | ast.stmt, text: str) -> Edit:
    return Edit(*span(source, node), text)


def line_of(source: str, number: int) -> str:
    starts = [*line_starts(source), len(source)]
    return source[starts[number - 1] : starts[number]] if number < len(starts) else ""


def first_line(node: ast.stmt) -> int:
    """The line where a statement begins, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def with_comments(source: str, line: int, after: int = 0) -> int:
    """The first of the comment lines that stand right above a line, or the line itself.

    `#!` and the declaration of the encoding are no comments: they mean something only where they are.
    """
    while line - 1 > after and line_of(source, line - 1).lstrip().startswith("#"):
        if line - 1 <= 2 and re.match(r"#!|[ \t\f]*#.*?coding[:=]", line_of(source, line - 1)):
            break
        line -= 1
    return line


def lines_edit(source: str, first: int, last: int, text: str) -> Edit:
    """Replace whole lines, the last one's line break included."""
    starts = [*line_starts(source), len(source)]
    return Edit(starts[first - 1], starts[min(last, len(starts) - 1)], text)


def statement_removed(script: Script, node: ast.stmt) -> Edit:
    """Take out a statement with its lines; the only one of a block becomes `pass`."""
    body = next(
        block for _, block in ast.iter_fields(script.parents[node]) if isinstance(block, list) and node in block
    )
    shares_line = any(
        other is not node and (other.lineno == node.end_lineno or other.end_lineno == node.lineno) for other in body
    )
    if len(body) == 1 or shares_line or script.parents[node].__dict__.get("lineno") == node.lineno:
        return replaced(script.source, node, "pass")
    assert node.end_lineno is not None
    return lines_edit(script.source, first_line(node), node.end_lineno, "")


def inside_strings(source: str) -> set[int]:
    """The lines that begin inside a string: to indent them would change what it says."""
    found: set[int] = set()
    begins: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "STRING":
            found.update(range(token.start[0] + 1, token.end[0] + 1))
        elif kind in ("FSTRING_START", "TSTRING_START"):
            begins.append(token.start[0])
        elif kind in ("FSTRING_END", "TSTRING_END"):
            found.update(range(begins.pop() + 1, token.end[0] + 1))
    return found


def shifted(source: str, first: int, last: int, spaces: int) -> list[Edit]:
    """Indent the lines by so many spaces, or, below zero, take that much from their beginning."""
    starts, strings, edits = line_starts(source), inside_strings(source), []
    for number in range(first, last + 1):
        line = line_of(source, number)
        if not line.strip() or number in strings:
            continue
        blank = len(line) - len(line.lstrip(" \t"))
        start = starts[number - 1]
        edits.append(Edit(start, start, " " * spaces) if spaces > 0 else Edit(start, start + min(blank, -spaces), ""))
    return edits


def unified_diff(before: str, after: str, filename: str) -> str:
    """Return the change as `patch -p1` and `git apply` take it, in the folder that the file's name starts from."""
    path = Path(filename)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    # patch refuses names that lead out of its folder.
    name = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    ending = "\t" if " " in name else ""  # a name ends at a space, unless a tab says otherwise
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name}{ending}", f"b/{name}{ending}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def untellable(script: Script, node: ast.AST, what: str, hint: str | None = None) -> RecipeError:
    """The error for a script that cannot be patched without guessing."""
    return RecipeError(f"`{script.filename}`, line {getattr(node, 'lineno', '?')}: {what}", hint=hint)
