"""Files that hold items: litdata chunks, MDS shards, Parquet rows. An item is a document, or a sample packed full."""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.reading.dtypes import guessed_dtype
from tokenmill.reading.files import Array, ArrayPlaces, Beginning, LaterIds, ShardFile, damaged, mapped

# litdata's numbers: those of torch where ids were tensors, those of numpy where they were arrays.
TORCH_TYPES = {11: "<u1", 12: "<i1", 14: "<i2", 16: "<i4", 18: "<i8"}
NUMPY_TYPES = {1: "<i1", 2: "<i4", 3: "<i8", 4: "<u1", 5: "<u2", 6: "<u4", 7: "<u8"}
COLUMNS = ("input_ids", "tokens", "token_ids", "ids")


def folder_index(folder: Path, key: str) -> dict[str, Any] | None:
    """The index.json of a folder, if it is the one of a format: litdata's has `chunks`, that of MDS `shards`."""
    path = folder / "index.json"
    if not path.is_file():
        return None
    index = parsed(path, path.stat().st_mtime_ns)
    return index if isinstance(index, dict) and isinstance(index.get(key), list) else None


@lru_cache(maxsize=8)
def parsed(path: Path, mtime_ns: int) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise damaged(path, f"is no JSON: {error}") from None


def is_packed(path: Path) -> bool:
    return ".zstd" in path.name or path.name.endswith(".zst")


def ids_between(path: Path, data: Array, start: int, stop: int, dtype: np.dtype) -> Any:
    """The ids in a stretch of a file. Those of a compressed file are unpacked again when they are asked for."""
    if not is_packed(path):
        return as_ids(path, data[start:stop], dtype)
    n_tokens = len(as_ids(path, data[start:stop], dtype))
    return LaterIds(n_tokens, dtype, lambda: as_ids(path, unpacked(path)[start:stop], dtype))


def unpacked(path: Path) -> Array:
    """The bytes of a file, memory-mapped, or unpacked if its name says that it is compressed."""
    if not is_packed(path):
        return mapped(path, np.dtype("u1"))
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(str(path), "zstd") as stream:
            return np.frombuffer(stream.read(), np.uint8)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, f"cannot be unpacked: {error}") from None


def edges_of(path: Path, data: Array) -> npt.NDArray[np.int64]:
    """Where items begin, in bytes, and the end: the head that litdata and MDS have in common."""
    n_items = int(data[:4].view("<u4")[0]) if len(data) >= 4 else -1
    if n_items < 0 or len(data) < 4 + 4 * (n_items + 1):
        raise damaged(path, "is truncated, or no file of items")
    edges: npt.NDArray[np.int64] = data[4 : 4 + 4 * (n_items + 1)].view("<u4").astype(np.int64)
    if int(edges[0]) < 4 + 4 * (n_items + 1) or (np.diff(edges) < 0).any():
        raise damaged(path, "does not begin with the places of its items")
    if int(edges[-1]) > len(data):
        raise damaged(path, f"is truncated: its items end at {int(edges[-1]):,}, and it has {len(data):,} bytes")
    return edges


def litdata_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    index = folder_index(path.parent, "chunks") or {}
    config = index.get("config") or {}
    how = "you" if dtype is not None else "index.json"
    if dtype is None and config.get("data_format"):
        dtype = litdata_dtype(path, config["data_format"])
    data = unpacked(path)
    edges = edges_of(path, data)
    if dtype is None:
        dtype, how = guessed_dtype(path, int(edges[0])), "a look at the ids"
    if ((edges - edges[0]) % dtype.itemsize).any():
        raise damaged(path, f"has items that are no {dtype.name}")
    ids = ids_between(path, data, int(edges[0]), int(edges[-1]), dtype)
    places = ArrayPlaces((edges[:-1] - edges[0]) // dtype.itemsize)
    side = path.parent / "index.json"
    return ShardFile(path, split, ids, places, None, how, (), (side,) if side.is_file() else ())


def litdata_dtype(path: Path, data_format: list[str]) -> np.dtype:
    kind, _, code = data_format[0].partition(":")
    types = {"no_header_tensor": TORCH_TYPES, "no_header_numpy": NUMPY_TYPES}.get(kind, {})
    if len(data_format) > 1 or not code.isdecimal() or int(code) not in types:
        raise damaged(path, f"holds {', '.join(data_format)}, not items of token ids for TokensLoader")
    return np.dtype(types[int(code)])


def mds_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    side = path.parent / "index.json"
    sides = (side,) if side.is_file() else ()
    data = unpacked(path)
    edges = edges_of(path, data)
    n_head = 4 + 4 * len(edges)
    try:
        config = json.loads(data[n_head : int(edges[0])].tobytes())
        names, encodings, sizes = (config[f"column_{key}"] for key in ("names", "encodings", "sizes"))
    except (ValueError, KeyError, TypeError):
        raise damaged(path, "is no MDS shard: it does not tell its columns") from None
    column = token_column(path, names, encodings)
    try:
        found, length = encoded_type(encodings[column])
    except (TypeError, ValueError):
        raise damaged(path, f"holds {encodings[column]} in its column `{names[column]}`, not token ids") from None
    is_array = encodings[column].startswith("ndarray")
    if is_array and (found is None or found.kind not in "iu"):
        raise damaged(path, f"holds {encodings[column]} in its column `{names[column]}`, not token ids")
    how = "you" if dtype is not None else "the shard"
    if found is None and dtype is None:  # bytes, as llm-foundry once wrote: int64
        how = "a look at the ids"
        first = column_values(data, edges[:2], sizes, column, False)
        dtype = np.dtype("<i8") if first.size % 8 == 0 else np.dtype("<u2")
    dtype = dtype or found
    assert dtype is not None
    if length is not None and len(names) == 1:
        ids: Any = ids_between(path, data, int(edges[0]), int(edges[-1]), dtype)
        return ShardFile(path, split, ids, None, None, how, (), sides)

    def values(source: Array, of: npt.NDArray[np.int64]) -> Array:
        return as_ids(path, column_values(source, of, sizes, column, is_array), dtype)

    held = None if is_packed(path) else data  # the mapping is kept, what was unpacked is not

    def later() -> Array:
        return values(unpacked(path) if held is None else held, edges)

    lengths = np.diff(edges)
    if len(lengths) == 0:
        return ShardFile(path, split, np.empty(0, dtype), None, None, how, (), sides)
    if len(names) == 1 and (lengths == lengths[0]).all():
        n_tokens = len(values(data, edges[:2])) * len(lengths)
        ids = LaterIds(n_tokens, dtype, later)
        return ShardFile(path, split, ids, None, None, how, (), sides)
    each = [len(values(data, edges[i : i + 2])) for i in range(len(lengths))]  # 5 us a sample, 64 MB a shard
    ids = LaterIds(sum(each), dtype, later)
    places = None if len(set(each)) == 1 else ArrayPlaces(np.cumsum([0, *each[:-1]]))
    return ShardFile(path, split, ids, places, None, how, (), sides)


def as_ids(path: Path, data: Array, dtype: np.dtype) -> Array:
    if len(data) % dtype.itemsize:
        raise damaged(path, f"has samples that are no {dtype.name}")
    return data.view(dtype)


def token_column(path: Path, names: list[str], encodings: list[str]) -> int:
    for name in ("tokens", *COLUMNS):
        if name in names and re.match(r"ndarray|bytes", encodings[names.index(name)]):
            return names.index(name)
    columns = ", ".join(f"`{name}` ({encoding})" for name, encoding in zip(names, encodings, strict=True))
    raise damaged(path, f"has no column of token ids\n  columns: {columns}")


def encoded_type(encoding: str) -> tuple[np.dtype | None, int | None]:
    """The type and, where it is fixed, the length of `ndarray:int32:2048`, `ndarray:int32` or `bytes`."""
    _, dtype, shape = (*encoding.split(":"), "", "")[:3]
    length = int(np.prod([int(n) for n in shape.split(",")])) if shape else None
    return (np.dtype(dtype).newbyteorder("<") if dtype else None), length


def column_values(
    data: Array,
    edges: npt.NDArray[np.int64],
    sizes: list[int | None],
    column: int,
    is_array: bool,
) -> Array:
    """The bytes of one column of some samples, end to end."""
    parts = []
    variable = [i for i, size in enumerate(sizes) if size is None]
    for start in edges[:-1].tolist():  # 3 us a sample, and a sample has thousands of tokens
        told = data[start : start + 4 * len(variable)].view("<u4").tolist()
        each = [size if size is not None else told[variable.index(i)] for i, size in enumerate(sizes)]
        begin = start + 4 * len(variable) + sum(each[:column])
        end = begin + each[column]
        if is_array and sizes[column] is None:  # its shape comes first
            head = int(data[begin])
            begin += 1 + (head >> 2) * (1 << (head & 3))
        parts.append(data[begin:end])
    return np.concatenate([np.empty(0, np.uint8), *parts])


def parquet_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    groups = RowGroups(path)
    return ShardFile(path, split, groups, groups.places, dtype_told_by="the schema")


class RowGroups:
    """Ids and beginnings of a Parquet file of lists, a row group at a time."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        try:
            self.file = pq.ParquetFile(path, memory_map=True)
            metadata = self.file.metadata
            self.columns = [metadata.schema.column(j).path.partition(".")[0] for j in range(metadata.num_columns)]
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged(path, f"is no Parquet file, or damaged: {error}") from None
        lists = {
            field.name: field.type.value_type
            for field in self.file.schema_arrow
            if (pa.types.is_list(field.type) or pa.types.is_large_list(field.type))
            and pa.types.is_integer(field.type.value_type)
        }
        chosen = [name for name in COLUMNS if name in lists] or (list(lists) if len(lists) == 1 else [])
        if not chosen:
            columns = ", ".join(f"`{name}`" for name in self.file.schema_arrow.names)
            raise damaged(path, f"has no column `input_ids` with lists of ids\n  columns: {columns}")
        self.column = chosen[0]
        self.dtype = np.dtype(lists[self.column].to_pandas_dtype()).newbyteorder("<")
        self.group = lru_cache(maxsize=2)(self.read_group)
        counts = [self.n_ids(i) for i in range(self.file.num_row_groups)]
        self.edges = np.cumsum([0, *counts])

    def n_ids(self, i: int) -> int:
        """The ids of a row group, by its statistics: values without the empty lists and nulls, which count as one."""
        column = self.file.metadata.row_group(i).column(self.columns.index(self.column))
        statistics = column.statistics
        if statistics is not None and statistics.has_null_count:
            return int(column.num_values - statistics.null_count)
        return len(self.group(i)[0])

    def read_group(self, i: int) -> tuple[Array, npt.NDArray[np.int64]]:
        """Ids of a row group, and where its documents begin in it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            lists = self.file.read_row_group(i, columns=[self.column]).column(self.column).combine_chunks()
        except (pa.ArrowException, OSError) as error:
            raise damaged(self.path, f"cannot be read: {error}") from None
        chunks = lists.chunks if isinstance(lists, pa.ChunkedArray) else [lists]
        ids = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in chunks]
        each = [pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False) for chunk in chunks]
        lengths = np.concatenate([np.empty(0, np.int64), *each]).astype(np.int64)
        return np.concatenate([np.empty(0, self.dtype), *ids]), np.cumsum(lengths) - lengths

    def __len__(self) -> int:
        return int(self.edges[-1])

    def __getitem__(self, of: slice, /) -> Array:
        start, stop, _ = of.indices(len(self))
        parts = [
            self.group(i)[0][max(0, start - int(self.edges[i])) : stop - int(self.edges[i])]
            for i in self.groups(start, stop)
        ]
        return np.concatenate([np.empty(0, self.dtype), *parts])

    def groups(self, start: int, stop: int) -> range:
        """The row groups that a stretch of ids touches; rows without ids may stand at the very edge of one."""
        return range(int(np.searchsorted(self.edges[1:], start)), int(np.searchsorted(self.edges[:-1], stop, "right")))

    @property
    def places(self) -> RowPlaces:
        return RowPlaces(self)


class RowPlaces:
    """Beginnings of the rows of a Parquet file."""

    def __init__(self, groups: RowGroups) -> None:
        self.groups = groups

    def __len__(self) -> int:
        return int(self.groups.file.metadata.num_rows)

    def between(self, start: int, stop: int) -> Beginning:
        found = [self.groups.group(i)[1] + self.groups.edges[i] for i in self.groups.groups(start, stop)]
        starts = np.concatenate([np.empty(0, np.int64), *found])
        return Beginning(starts[(starts >= start) & (starts < stop)])

    @cached_property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The first row of each row group, and the end."""
        metadata = self.groups.file.metadata
        return np.cumsum([0, *(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))])

    def start_of(self, i: int) -> int:
        group = int(np.searchsorted(self.firsts, i, side="right")) - 1
        return int(self.groups.edges[group] + self.groups.group(group)[1][i - self.firsts[group]])

    def n_until(self, place: int) -> int:
        # The last row group that begins there or before: rows of those in front of it begin no later.
        group = int(np.searchsorted(self.groups.edges[:-1], place, side="right")) - 1
        if group < 0:
            return 0
        starts = self.groups.group(group)[1] + self.groups.edges[group]
        return int(self.firsts[group] + np.searchsorted(starts, place, side="right"))
