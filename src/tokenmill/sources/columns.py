"""A text column of Parquet or Arrow -> documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.batches import INVALID_UTF8, Documents, arrow_array
from tokenmill.errors import DataError, RecipeError, did_you_mean
from tokenmill.filters import Where

if TYPE_CHECKING:
    from tokenmill.recipe import Recipe
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
    column = plain_column(batch.column(batch.schema.names.index(recipe.text_column)), entry, first_row)
    skipped: dict[str, Any] = {}
    if recipe.where is not None:
        taken = matching_rows(batch, recipe.where, entry, first_row)
        skipped["where"] = np.setdiff1d(rows, taken, assume_unique=True)
        rows, column = taken, column.take(arrow_array(taken))
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        skipped["null"] = rows[~valid]
        rows, column = rows[valid], pc.drop_null(column)
    try:
        column.validate(full=True)
        texts = column.cast(pa.large_string())
    except pa.ArrowInvalid:
        good = valid_utf8(column)
        bad = rows[~good]
        if recipe.on_bad_document == "fail":
            hint = "the text column must hold UTF-8; `--on-bad-document skip` leaves such rows out"
            raise DataError(f"invalid UTF-8 in `{entry.path}`, row {first_row() + int(bad[0]):,}", hint=hint) from None
        skipped[INVALID_UTF8] = bad
        rows, texts = rows[good], column.filter(arrow_array(good)).cast(pa.large_string())
    return Documents(texts, rows, batch.num_rows, skipped)


def plain_column(column: Any, entry: Input, first_row: Callable[[], int]) -> Any:
    """A column as string or binary values whose offsets are sound; what they hold may still be no UTF-8."""
    raw = pa.large_binary()
    try:
        if pa.types.is_dictionary(column.type):
            values = column.dictionary.cast(raw)
            values.validate(full=True)
            column = pa.DictionaryArray.from_arrays(column.indices, values)
            column.validate(full=True)
            return column.dictionary_decode()
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            column.cast(pa.binary_view()).validate(full=True)
            return column.cast(pa.binary_view()).cast(raw)
        column.cast(raw if pa.types.is_large_string(column.type) else pa.binary()).validate(full=True)
        return column
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise DataError(f"`{entry.path}` is damaged near row {first_row():,}: {error}") from None


def matching_rows(batch: Any, where: str, entry: Input, first_row: Callable[[], int]) -> Any:
    """Return the rows for which the condition is true."""
    columns = batch.select(Where(where).columns)
    try:
        columns.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise DataError(f"`{entry.path}` is damaged near row {first_row():,}: {error}") from None
    rows = arrow_array(np.arange(batch.num_rows, dtype=np.uint32))
    name = max([*columns.schema.names, ""], key=len) + "_row"  # a name that no column has
    table = pa.Table.from_batches([columns]).append_column(name, rows)
    return filtered(table, where, entry.path).column(name).to_numpy()


def filtered(table: Any, where: str, path: str) -> Any:
    try:
        return table.filter(Where(where).expression())
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise RecipeError(f"the filter does not fit the columns of `{path}`: {error}") from None


def valid_utf8(column: Any) -> Any:
    """Which values are UTF-8. A loop over values: only for a batch in which one is not."""

    def is_valid(value: bytes) -> bool:
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
        return True

    raw = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    return np.array([is_valid(value) for value in raw.to_pylist()], dtype=bool)
