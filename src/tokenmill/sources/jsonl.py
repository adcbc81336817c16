"""JSON Lines -> documents: one record a line, its text in one field; blank lines are passed over.

Decoded by msgspec into a type made for the field: other fields are skipped unparsed. This is the one source that
makes Python objects for a document: 0.5 us for a short one, 22 us for one of 5 KB (250 MB/s), about what gigatoken
takes to encode it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tokenmill.batches import INVALID_JSON, INVALID_UTF8, LONE_SURROGATE, WRONG_RECORD, Documents
from tokenmill.errors import DataError, RecipeError
from tokenmill.filters import Where, WrongTypeError
from tokenmill.sources.ranges import LINE, Block, opened, read_blocks
from tokenmill.sources.text import atom_bytes as atom_bytes

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input


@lru_cache
def record_decoder(field: str, others: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """A decoder for the text field, and for others of any type that may be missing."""
    names = {"text": field, **{f"other_{i}": name for i, name in enumerate(others)}}
    fields: list[Any] = [("text", str), *((name, Any, None) for name in list(names)[1:])]
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Record", fields, rename=names))
    except ValueError:
        raise RecipeError(
            f"`{field}` cannot be the name of a JSON field here: it holds a quote or a backslash"
        ) from None


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    where = Where(recipe.where) if recipe.where else None
    others = tuple(name for name in where.columns if name != recipe.text_column) if where else ()
    fields = [f"other_{others.index(name)}" if name in others else "text" for name in where.columns] if where else []
    decode = record_decoder(recipe.text_column, others).decode
    for block in read_blocks(entry, span, LINE, batch_bytes):
        # Line by line, not `decode_lines`, which does not mind two records on a line or one on two.
        lines = block.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        rows, texts, skipped = [], [], defaultdict[str, list[int]](list)
        for row, line in enumerate(lines):
            if not line or line.isspace():
                continue
            try:
                record = decode(line)
                # In Python, not in Arrow: what type a field has in a block must not matter.
                if where and not where.holds([getattr(record, field) for field in fields]):
                    skipped["where"].append(row)
                    continue
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, WrongTypeError) as error:
                if recipe.on_bad_document == "fail":
                    raise bad_record(error, line, block, entry, row, recipe.text_column) from None
                wrong = isinstance(error, msgspec.ValidationError | WrongTypeError)
                skipped[WRONG_RECORD if wrong else why_no_json(line)].append(row)
                continue
            texts.append(record.text)
            rows.append(row)
        arrays = {reason: np.array(left_out, dtype=np.uint32) for reason, left_out in skipped.items()}
        yield Documents(pa.array(texts, pa.large_string()), np.array(rows, dtype=np.uint32), len(lines), arrays)


def bad_record(error: Exception, line: bytes, block: Block, entry: Input, row: int, field: str) -> DataError:
    """Say which line does not decode, and why."""
    place = f"`{entry.path}`, line {lines_before(block, entry) + row + 1:,}"
    if isinstance(error, WrongTypeError):
        return DataError(f"{place}: {error}", hint="`--on-bad-document skip` leaves such lines out")
    if isinstance(error, msgspec.ValidationError):
        hint = f"pass `--text-column FIELD` if the text is not in `{field}`, or `--on-bad-document skip`"
        return DataError(f"{place}: {error}", hint=hint)
    if match := re.search(r"\(byte (\d+)\)", str(error)):
        place += f", column {int(match[1]) + 1:,}"
    what = str(error).removeprefix("JSON is malformed: ").partition(" (byte")[0]
    if has_lone_surrogate(line):
        what = "a lone surrogate in an escape is no Unicode text"
    return DataError(f"invalid JSON in {place}: {what}", hint="`--on-bad-document skip` leaves such lines out")


def why_no_json(line: bytes) -> str:
    """Return the reason under which a line that does not decode is listed."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return INVALID_UTF8
    return LONE_SURROGATE if has_lone_surrogate(line) else INVALID_JSON


def has_lone_surrogate(line: bytes) -> bool:
    """Whether a line is JSON but for escapes like \\ud800, which the standard library lets pass."""
    if not re.search(rb"\\u[dD][89a-fA-F]", line):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def lines_before(block: Block, entry: Input) -> int:
    """Count the lines before a block. Read again from the start: only a run that is about to fail needs it."""
    n_lines, left = 0, block.position
    with opened(entry) as file:
        while left:
            data = file.read(min(left, 1 << 20))
            n_lines += data.count(b"\n")
            left -= len(data)
    return n_lines
