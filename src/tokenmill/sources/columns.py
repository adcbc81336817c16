"""A text column of Parquet or Arrow -> documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.batches import Documents
from tokenmill.errors import DataError, RecipeError, did_you_mean

if TYPE_CHECKING:
    from tokenmill.sources import Input


def check_column(schema: Any, name: str, path: str) -> None:
    """Refuse a schema without the text column, or with one that does not hold text."""
    if name not in schema.names:
        columns = ", ".join(f"`{column}`" for column in schema.names)
        text_columns = [field.name for field in schema if is_text(field.type)]
        close = did_you_mean(name, text_columns) if text_columns else None
        if close and len(text_columns) == 1:
            close = f"pass `--text-column {text_columns[0]}`"
        raise RecipeError(f"column `{name}` not found in `{path}`\n  columns: {columns}", hint=close)
    if schema.names.count(name) > 1:
        raise RecipeError(f"`{path}` has {schema.names.count(name)} columns named `{name}`")
    kind = schema.field(name).type
    if not is_text(kind):
        raise RecipeError(f"column `{name}` of `{path}` is of type {kind}, not text")


def is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    raw = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in (*text, *raw))


def documents_from_column(column: Any, entry: Input, first_row: Callable[[], int]) -> Documents:
    """Check the column and drop nulls (counted). The text of a string or large_string column is not copied.

    Everything is validated before it is used: offsets of a damaged file may point anywhere. `first_row` is asked
    only for an error message.
    """
    try:
        column.validate(full=True)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        texts = column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        row = bad_row(column)
        if row is None:
            raise DataError(f"`{entry.path}` is damaged near row {first_row():,}: {error}") from None
        hint = "the text column must hold UTF-8"
        raise DataError(f"invalid UTF-8 in `{entry.path}`, row {first_row() + row:,}", hint=hint) from None
    rows = np.arange(len(texts), dtype=np.uint32)
    if texts.null_count == 0:
        return Documents(texts, rows, len(texts))
    rows = rows[texts.is_valid().to_numpy(zero_copy_only=False)]
    return Documents(pc.drop_null(texts), rows, len(texts), {"null": len(texts) - len(rows)})


def bad_row(column: Any) -> int | None:
    """Return the row of the first value that is not UTF-8; None where it is the column itself that is broken."""
    if pa.types.is_dictionary(column.type):
        return None
    raw = column.cast(pa.binary_view() if pa.types.is_string_view(column.type) else pa.large_binary())
    try:
        raw.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError):
        return None
    for row, value in enumerate(raw.to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return row
    return None
