"""Arrow IPC -> documents: the file format, and the stream format that Hugging Face's cache is made of.

A span is a run of record batches. Files are memory-mapped: skipping a batch reads its header only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokenmill.batches import Documents
from tokenmill.errors import DataError
from tokenmill.sources.columns import check_column, documents_from_column

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input

FILE_MAGIC = b"ARROW1"


@contextmanager
def columns_of(entry: Input, recipe: Recipe) -> Iterator[Iterator[Any]]:
    """Give the text column of each record batch, in order."""
    if entry.size == 0:
        raise DataError(f"`{entry.path}` is empty: not an Arrow file")
    try:
        with pa.memory_map(entry.path) as file:
            if file.read(len(FILE_MAGIC)) == FILE_MAGIC:
                schema, batches = file_batches(file, recipe.text_column, entry.path)
            else:
                schema, batches = stream_batches(file, recipe.text_column, entry.path)
            yield (batch.column(schema.names.index(recipe.text_column)) for batch in batches)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read `{entry.path}` as an Arrow file or stream: {error}") from None


def read_options(schema: Any, column: str, path: str) -> Any:
    """Read the text column alone: other columns may be large, or compressed."""
    check_column(schema, column, path)
    return pa.ipc.IpcReadOptions(included_fields=[schema.names.index(column)], use_threads=False)


def file_batches(file: Any, column: str, path: str) -> tuple[Any, Iterator[Any]]:
    options = read_options(pa.ipc.open_file(file).schema, column, path)
    reader = pa.ipc.open_file(file, options=options)
    return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))


def stream_batches(file: Any, column: str, path: str) -> tuple[Any, Iterator[Any]]:
    file.seek(0)
    options = read_options(pa.ipc.open_stream(file).schema, column, path)
    file.seek(0)
    reader = pa.ipc.open_stream(file, options=options)
    return reader.schema, iter(reader)


def atom_bytes(entry: Input, recipe: Recipe) -> list[int]:
    with columns_of(entry, recipe) as columns:
        return [column.nbytes for column in columns]


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    with columns_of(entry, recipe) as columns:
        first_row = 0
        for i, column in enumerate(columns):
            if i >= span.stop:
                break
            if i >= span.start:
                yield documents_from_column(column, entry, first_row)
            first_row += len(column)
