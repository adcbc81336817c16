"""JSON Lines -> documents: one record a line, its text in one field; blank lines are passed over.

Decoded by msgspec into a type made for the field: other fields are skipped unparsed. This is the one source that
makes Python objects for a document, about 0.5 us each; encoding a document of 4 KB takes 40 times that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tokenmill.batches import Documents
from tokenmill.errors import DataError, RecipeError
from tokenmill.sources.ranges import LINE, Block, opened, read_blocks
from tokenmill.sources.text import atom_bytes as atom_bytes

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input


@lru_cache
def record_decoder(field: str) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Record", [("text", str)], rename={"text": field}))
    except ValueError:
        raise RecipeError(
            f"`{field}` cannot be the name of a JSON field here: it holds a quote or a backslash"
        ) from None


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    decode = record_decoder(recipe.text_column).decode
    for block in read_blocks(entry, span, LINE, batch_bytes):
        # Line by line, not `decode_lines`, which does not mind two records on a line or one on two.
        lines = block.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        rows, texts = [], []
        for row, line in enumerate(lines):
            if not line or line.isspace():
                continue
            try:
                texts.append(decode(line).text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise bad_record(error, block, entry, row) from None
            rows.append(row)
        yield Documents(pa.array(texts, pa.large_string()), np.array(rows, dtype=np.uint32), len(lines))


def bad_record(error: Exception, block: Block, entry: Input, row: int) -> DataError:
    """Say which line does not decode, and why."""
    place = f"`{entry.path}`, line {lines_before(block, entry) + row + 1:,}"
    if isinstance(error, msgspec.ValidationError):
        return DataError(f"{place}: {error}", hint="pass `--text-column FIELD` if the text is in another field")
    return DataError(f"invalid JSON in {place}: {error}")


def lines_before(block: Block, entry: Input) -> int:
    """Count the lines before a block. Read again from the start: only a run that is about to fail needs it."""
    n_lines, left = 0, block.position
    with opened(entry) as file:
        while left:
            data = file.read(min(left, 1 << 20))
            n_lines += data.count(b"\n")
            left -= len(data)
    return n_lines
