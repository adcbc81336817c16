"""JSON Lines -> documents: one record a line, its text in one field; blank lines are passed over.

Decoded by msgspec into a type made for the field: other fields are skipped unparsed. This is the one source that
makes Python objects for a document, about 0.5 us each; encoding a document of 4 KB takes 40 times that.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tokenmill.batches import Documents
from tokenmill.errors import DataError, RecipeError
from tokenmill.sources.columns import documents_from_batch, wanted_columns
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
    others = tuple(name for name in wanted_columns(recipe) if name != recipe.text_column)
    decode = record_decoder(recipe.text_column, others).decode
    for block in read_blocks(entry, span, LINE, batch_bytes):
        # Line by line, not `decode_lines`, which does not mind two records on a line or one on two.
        lines = block.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        rows, records, bad = [], [], []
        for row, line in enumerate(lines):
            if not line or line.isspace():
                continue
            try:
                records.append(decode(line))
                rows.append(row)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if recipe.on_bad_document == "fail":
                    raise bad_record(error, line, block, entry, row, recipe.text_column) from None
                bad.append(
                    (row, "not the record expected" if isinstance(error, msgspec.ValidationError) else "invalid JSON")
                )
        documents = documents_of(records, rows, others, recipe, entry)
        skipped = documents.skipped | Counter(reason for _, reason in bad)
        yield replace(documents, n_rows=len(lines), skipped=skipped, bad_rows=tuple(bad))


def documents_of(
    records: list[Any], rows: list[int], others: tuple[str, ...], recipe: Recipe, entry: Input
) -> Documents:
    texts = pa.array([record.text for record in records], pa.large_string())
    numbers = np.array(rows, dtype=np.uint32)
    if recipe.where is None:
        return Documents(texts, numbers, len(rows))
    try:
        columns = [pa.array([getattr(record, f"other_{i}") for record in records]) for i in range(len(others))]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RecipeError(f"the filter does not fit the fields of `{entry.path}`: {error}") from None
    batch = pa.record_batch([texts, *columns], names=[recipe.text_column, *others])
    documents = documents_from_batch(batch, entry, recipe, lambda: 0)
    return replace(documents, rows=numbers[documents.rows])


def bad_record(error: Exception, line: bytes, block: Block, entry: Input, row: int, field: str) -> DataError:
    """Say which line does not decode, and why."""
    place = f"`{entry.path}`, line {lines_before(block, entry) + row + 1:,}"
    if isinstance(error, msgspec.ValidationError):
        hint = f"pass `--text-column FIELD` if the text is not in `{field}`, or `--on-bad-document skip`"
        return DataError(f"{place}: {error}", hint=hint)
    if match := re.search(r"\(byte (\d+)\)", str(error)):
        place += f", column {int(match[1]) + 1:,}"
    what = str(error).removeprefix("JSON is malformed: ").partition(" (byte")[0]
    if has_lone_surrogate(line):
        what = "a lone surrogate in an escape is no Unicode text"
    return DataError(f"invalid JSON in {place}: {what}", hint="`--on-bad-document skip` leaves such lines out")


def has_lone_surrogate(line: bytes) -> bool:
    """Whether a line is JSON but for escapes like \\ud800, which the standard library lets pass."""
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
