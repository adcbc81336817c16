"""Parquet with token ids, for Hugging Face `datasets`: `train-00000.parquet` ...

    input_ids   list<uint16> or list<uint32>   a row a document, end-of-text included

Documents are whole in a shard, in row groups of about a million tokens, zstd. `load_dataset("parquet", ...)` or
`load_dataset(OUT)` takes the splits from the names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.batches import arrow_array
from tokenmill.errors import DamageError, RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import smallest_unsigned
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import PartialFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Beginnings, Ids

COLUMN = "input_ids"
GROUP_TOKENS = 1_000_000


class Parquet:
    name = "parquet"
    trainers = "Hugging Face datasets, torchtitan"
    files = "train-00000.parquet, val-00000.parquet"
    cut: Cut = "documents"
    defaults = Defaults(eot="last", shard_tokens=100_000_000, val="none", shuffle="none", name=None)

    def check(self, recipe: Recipe) -> None:
        if recipe.name is not None:
            raise RecipeError("`datasets` tells splits by the names train-... and val-..., so `--name` has no meaning")

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return []

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{place.split}-{place.number_in_split:05d}.parquet"

    def file_pattern(self, recipe: Recipe) -> str:
        return r"(train|val)-\d{5,}\.parquet"

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> ParquetShard:
        return ParquetShard(out, self.shard_name(recipe, place), dtype)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        return {}

    def read_header(self, path: Path, itemsize: int) -> Header:
        column = read_column(path)
        return Header(0, sum(len(chunk.flatten()) for chunk in column.chunks), itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        arrays = [chunk.flatten().to_numpy() for chunk in read_column(path).chunks]
        return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)


class ParquetShard:
    """Row groups as they fill: each ends with the document that fills it, however the documents arrive."""

    def __init__(self, out: Path, name: str, dtype: np.dtype) -> None:
        self.name, self.dtype = name, dtype
        self.file = PartialFile(out / name, "shard")
        self.column = pa.list_(pa.from_numpy_dtype(dtype))
        self.writer = pq.ParquetWriter(
            pa.PythonFile(self.file, mode="w"), pa.schema([(COLUMN, self.column)]), compression="zstd"
        )
        self.ids: Ids = np.empty(0, dtype)  # of documents that are not in a row group yet
        self.lengths = np.empty(0, np.int64)

    def append(self, ids: Ids, documents: Beginnings) -> None:
        if not len(documents.starts):
            return
        edges = np.append(documents.starts, documents.starts[0] + len(ids))
        self.ids = np.concatenate([self.ids, ids.astype(self.dtype)])
        self.lengths = np.concatenate([self.lengths, np.diff(edges)])
        while len(self.ids) >= GROUP_TOKENS:
            self.write_group(int(np.searchsorted(np.cumsum(self.lengths), GROUP_TOKENS)) + 1)

    def write_group(self, n_documents: int) -> None:
        offsets = np.zeros(n_documents + 1, np.int64)
        np.cumsum(self.lengths[:n_documents], out=offsets[1:])
        n_ids = int(offsets[-1])
        lists = pa.ListArray.from_arrays(arrow_array(offsets.astype(np.int32)), arrow_array(self.ids[:n_ids]))
        self.writer.write_table(pa.table({COLUMN: lists.cast(self.column)}), row_group_size=n_documents)
        self.ids, self.lengths = self.ids[n_ids:], self.lengths[n_documents:]

    def commit(self) -> list[FileReceipt]:
        if len(self.lengths):
            self.write_group(len(self.lengths))
        self.writer.close()
        self.file.commit()
        return [FileReceipt(self.name, self.file.n_bytes, self.file.sha256)]

    def abandon(self) -> None:
        self.file.abandon()


def read_column(path: Path) -> Any:
    try:
        return pq.read_table(path, columns=[COLUMN]).column(COLUMN)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DamageError(f"cannot read `{path}` as Parquet with a column `{COLUMN}`: {error}") from None


FORMAT = Parquet()
