"""Parquet -> documents. A span is a run of row groups, streamed: a row group of any size is never in memory whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.batches import Documents
from tokenmill.errors import cannot_read
from tokenmill.filters import Where
from tokenmill.sources import share_of
from tokenmill.sources.columns import check_column, check_filter_columns, documents_from_batch, wanted_columns

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input


# What text shrinks by in FineWeb's files, about; only progress and unit sizes depend on it.
GUESSED_RATIO = 1.6


@contextmanager
def opened(entry: Input) -> Iterator[Any]:
    # pre_buffer would read whole row groups ahead; page checksums are checked where the file has them.
    try:
        with entry.opened() as raw, pq.ParquetFile(raw, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except MemoryError:  # pyarrow's is an ArrowException too, and no fault of the file's
        raise
    except (pa.ArrowException, OSError) as error:
        raise cannot_read(entry.path, error, " as Parquet") from None


def text_sizes(file: Any, column: str) -> list[int]:
    """The uncompressed size of the text column in each row group, from the footer."""
    # The position among the leaves, which differs from the field's where nested columns come before.
    index = [file.schema.column(i).path for i in range(len(file.schema))].index(column)
    groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
    return [group.column(index).total_uncompressed_size for group in groups]


def atom_bytes(entry: Input, recipe: Recipe) -> list[int]:
    if entry.is_remote:
        return guessed_bytes(entry)
    with opened(entry) as file:
        check_columns(file, entry, recipe)
        return text_sizes(file, recipe.text_column) if file.metadata.num_rows else []


def guessed_bytes(entry: Input) -> list[int]:
    """The text in a file that is elsewhere, about: its footer is not fetched for that."""
    return [round(GUESSED_RATIO * entry.size)] if entry.size else []


def check_columns(file: Any, entry: Input, recipe: Recipe) -> None:
    check_column(file.schema_arrow, recipe.text_column, entry.path)
    check_filter_columns(file.schema_arrow, recipe, entry.path)


def row_counts(entry: Input) -> list[int]:
    """The rows of each row group."""
    with opened(entry) as file:
        return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    with opened(entry) as file:
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        wanted = range(span.start, span.stop)
        if entry.is_remote:
            check_columns(file, entry, recipe)
            wanted = share_of(span, guessed_bytes(entry)[0], len(counts))
        row = sum(counts[: wanted.start])
        batch_rows = max(1, sum(counts[i] for i in wanted) * batch_bytes // max(1, span.n_bytes))
        for groups, may_match in runs_of_groups(entry, wanted, recipe):
            if not may_match:
                n_rows = sum(counts[i] for i in groups)
                yield no_documents(n_rows)
                row += n_rows
                continue
            for batch in file.iter_batches(
                batch_size=batch_rows, row_groups=groups, columns=wanted_columns(recipe), use_threads=False
            ):
                yield documents_from_batch(batch, entry, recipe, lambda row=row: row)  # type: ignore[misc]
                row += batch.num_rows


def runs_of_groups(entry: Input, wanted: range, recipe: Recipe) -> list[tuple[list[int], bool]]:
    """Cut a span where the statistics of row groups rule the filter out: those need not be read."""
    every = list(wanted)
    if recipe.where is None:
        return [(every, True)]
    import pyarrow.dataset as ds

    if entry.is_remote and entry.local is None:
        return [(every, True)]
    path = entry.local or entry.path
    schema = pq.read_schema(path)
    if any(pa.types.is_floating(schema.field(name).type) for name in Where(recipe.where).columns):
        return [(every, True)]  # statistics leave NaN out, and a filter does not
    (fragment,) = ds.dataset(path, format="parquet").get_fragments()
    possible = fragment.subset(Where(recipe.where).expression())
    may_match = {group.id for group in possible.row_groups}
    return [(list(groups), possible) for possible, groups in groupby(every, may_match.__contains__)]


def no_documents(n_rows: int) -> Documents:
    texts = pa.array([], pa.large_string())
    return Documents(texts, np.empty(0, dtype=np.uint32), n_rows, {"where": np.arange(n_rows, dtype=np.uint32)})
