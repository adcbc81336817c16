"""Arrow IPC -> documents: the file format, and the stream format that Hugging Face's cache is made of.

A span is a run of record batches, or the whole of a file that is elsewhere. Files are memory-mapped: skipping a batch
reads its header only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokenmill.batches import Documents
from tokenmill.errors import DataError, cannot_read
from tokenmill.sources.columns import check_column, check_filter_columns, documents_from_batch, wanted_columns

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input

FILE_MAGIC = b"ARROW1"
STREAM_OFFSET = 8


@contextmanager
def opened(entry: Input) -> Iterator[Any]:
    try:
        here = not entry.is_remote or entry.local is not None
        with pa.memory_map(entry.local or entry.path) if here else entry.opened() as file:
            yield file
    except MemoryError:  # pyarrow's is an ArrowException too, and no fault of the file's
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise cannot_read(entry.path, error, " as an Arrow file or stream") from None


def is_file_format(file: Any) -> bool:
    file.seek(0)
    return bool(file.read(len(FILE_MAGIC)) == FILE_MAGIC)


def atom_bytes(entry: Input, recipe: Recipe) -> list[int]:
    """The size of each record batch, all columns, as it lies in the file: no data is read."""
    if entry.is_remote:
        return [entry.size] if entry.size else []
    with opened(entry) as file:
        # The file format is the stream format between a magic word and a footer.
        file.seek(STREAM_OFFSET if is_file_format(file) else 0)
        reader = pa.ipc.MessageReader.open_stream(file)
        schema = pa.ipc.read_schema(reader.read_next_message())
        check_column(schema, recipe.text_column, entry.path)
        check_filter_columns(schema, recipe, entry.path)
        return [message.body.size for message in reader if message.type == "record batch"]


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    with opened(entry) as file:
        batches = file_batches if is_file_format(file) else stream_batches
        wanted = None if entry.is_remote else (span.start, span.stop)
        for i, batch in batches(file, recipe, entry.path, wanted):
            yield documents_from_batch(batch, entry, recipe, lambda i=i: n_rows_before(entry, i))  # type: ignore[misc]


def wanted_columns_alone(schema: Any, recipe: Recipe, path: str) -> Any:
    """Options to read nothing but the columns we need: others may be large, or compressed."""
    check_column(schema, recipe.text_column, path)
    check_filter_columns(schema, recipe, path)
    fields = [schema.names.index(name) for name in wanted_columns(recipe)]
    return pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)


def file_batches(file: Any, recipe: Recipe, path: str, wanted: tuple[int, int] | None) -> Iterator[tuple[int, Any]]:
    """Yield each record batch of a span, by number: the footer knows where they are."""
    reader = pa.ipc.open_file(file, options=wanted_columns_alone(pa.ipc.open_file(file).schema, recipe, path))
    start, stop = wanted or (0, reader.num_record_batches)
    if stop > reader.num_record_batches:
        raise DataError(
            f"`{path}` is damaged: its footer knows {reader.num_record_batches} record batches, and it has more"
        )
    for i in range(start, stop):
        yield i, reader.get_batch(i)


def stream_batches(file: Any, recipe: Recipe, path: str, wanted: tuple[int, int] | None) -> Iterator[tuple[int, Any]]:
    """Yield each record batch of a span; those before it are passed over, by their headers.

    (Not so if they are compressed: pyarrow unpacks the columns we need. Hugging Face's streams are not.)
    """
    file.seek(0)
    options = wanted_columns_alone(pa.ipc.open_stream(file).schema, recipe, path)
    file.seek(0)
    for i, batch in enumerate(pa.ipc.open_stream(file, options=options)):
        if wanted is None or wanted[0] <= i < wanted[1]:
            yield i, batch
        elif i >= wanted[1]:
            return


def n_rows_before(entry: Input, batch: int) -> int:
    """Count the rows before a record batch, for an error message."""
    with opened(entry) as file:
        if is_file_format(file):
            reader = pa.ipc.open_file(file)
            return sum(reader.get_batch(i).num_rows for i in range(batch))
        file.seek(0)
        return sum(one.num_rows for _, one in zip(range(batch), pa.ipc.open_stream(file), strict=False))
