"""Parquet -> documents. A span is a run of row groups, streamed: a row group of any size is never in memory whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.batches import Documents
from tokenmill.errors import DataError
from tokenmill.sources.columns import check_column, documents_from_column

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input


@contextmanager
def opened(entry: Input) -> Iterator[Any]:
    # pre_buffer would read whole row groups ahead; page checksums are checked where the file has them.
    try:
        with pq.ParquetFile(entry.path, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read `{entry.path}` as Parquet: {error}") from None


def text_sizes(file: Any, column: str) -> list[int]:
    """The uncompressed size of the text column in each row group, from the footer."""
    # The position among the leaves, which differs from the field's where nested columns come before.
    index = [file.schema.column(i).path for i in range(len(file.schema))].index(column)
    groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
    return [group.column(index).total_uncompressed_size for group in groups]


def atom_bytes(entry: Input, recipe: Recipe) -> list[int]:
    with opened(entry) as file:
        check_column(file.schema_arrow, recipe.text_column, entry.path)
        return text_sizes(file, recipe.text_column) if file.metadata.num_rows else []


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    with opened(entry) as file:
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        first_row = sum(counts[: span.start])
        n_rows = sum(counts[span.start : span.stop])
        batch_rows = max(1, n_rows * batch_bytes // max(1, span.n_bytes))
        for batch in file.iter_batches(
            batch_size=batch_rows,
            row_groups=range(span.start, span.stop),
            columns=[recipe.text_column],
            use_threads=False,
        ):
            # By name: asking for `a.b` also brings the field b of a struct a.
            column = batch.column(batch.schema.names.index(recipe.text_column))
            yield documents_from_column(column, entry, lambda row=first_row: row)  # type: ignore[misc]
            first_row += len(column)
