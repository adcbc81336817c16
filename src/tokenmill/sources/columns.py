"""A text column of Parquet or Arrow -> documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.batches import Documents
from tokenmill.errors import DataError, RecipeError, did_you_mean
from tokenmill.filters import Where

if TYPE_CHECKING:
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input

INVALID_UTF8 = "invalid UTF-8"


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


def wanted_columns(recipe: Recipe) -> list[str]:
    """The text column, and those that the filter asks for."""
    others = Where(recipe.where).columns if recipe.where else []
    return list(dict.fromkeys([recipe.text_column, *others]))


def check_filter_columns(schema: Any, recipe: Recipe, path: str) -> None:
    for name in wanted_columns(recipe)[1:]:
        if schema.names.count(name) != 1:
            columns = ", ".join(f"`{column}`" for column in schema.names)
            message = f"column `{name}` of the filter not found in `{path}`\n  columns: {columns}"
            raise RecipeError(message, hint=did_you_mean(name, schema.names))
    if recipe.where is not None:
        names = Where(recipe.where).columns
        filtered(pa.schema([schema.field(name) for name in names]).empty_table(), recipe.where, path)


def documents_from_batch(batch: Any, entry: Input, recipe: Recipe, first_row: Callable[[], int]) -> Documents:
    """Apply the filter to a record batch, check its text column, and drop nulls; all that is left out is counted.

    The text of a string or large_string column is not copied unless rows are left out. Everything is validated before
    it is used: offsets of a damaged file may point anywhere. `first_row` is asked only for an error message.
    """
    rows = np.arange(batch.num_rows, dtype=np.uint32)
    column = batch.column(batch.schema.names.index(recipe.text_column))
    skipped: dict[str, int] = {}
    if recipe.where is not None:
        rows = matching_rows(batch, recipe.where, entry)
        column = column.take(pa.array(rows)) if len(rows) < batch.num_rows else column
        skipped["where"] = batch.num_rows - len(rows)
    try:
        column.validate(full=True)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        texts = column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        row = bad_row(column)
        if row is None:
            raise DataError(f"`{entry.path}` is damaged near row {first_row():,}: {error}") from None
        if recipe.on_bad_document == "fail":
            hint = "the text column must hold UTF-8; `--on-bad-document skip` leaves such rows out"
            place = f"`{entry.path}`, row {first_row() + int(rows[row]):,}"
            raise DataError(f"invalid UTF-8 in {place}", hint=hint) from None
        return without_bad_rows(column, rows, batch.num_rows, skipped)
    if texts.null_count:
        rows = rows[texts.is_valid().to_numpy(zero_copy_only=False)]
        skipped["null"] = texts.null_count
        texts = pc.drop_null(texts)
    return Documents(texts, rows, batch.num_rows, {reason: n for reason, n in skipped.items() if n})


def matching_rows(batch: Any, where: str, entry: Input) -> Any:
    """Return the rows for which the condition is true."""
    rows = pa.array(np.arange(batch.num_rows, dtype=np.uint32))
    table = pa.Table.from_batches([batch.select(Where(where).columns)]).append_column("__row__", rows)
    return filtered(table, where, entry.path).column("__row__").to_numpy()


def filtered(table: Any, where: str, path: str) -> Any:
    try:
        return table.filter(Where(where).expression())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecipeError(f"the filter does not fit the columns of `{path}`: {error}") from None


def without_bad_rows(column: Any, rows: Any, n_rows: int, skipped: dict[str, int]) -> Documents:
    """Leave out values that are not UTF-8, and list them. A loop over rows: only for a batch that has such values."""
    texts, kept, bad = [], [], []
    for row, value in zip(rows.tolist(), column.cast(pa.large_binary()).to_pylist(), strict=True):
        if value is None:
            skipped["null"] = skipped.get("null", 0) + 1
            continue
        try:
            texts.append(value.decode())
            kept.append(row)
        except UnicodeDecodeError:
            bad.append((row, INVALID_UTF8))
    skipped |= {INVALID_UTF8: len(bad)}
    array = pa.array(texts, pa.large_string())
    skipped = {reason: n for reason, n in skipped.items() if n}
    return Documents(array, np.array(kept, dtype=np.uint32), n_rows, skipped, tuple(bad))


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
