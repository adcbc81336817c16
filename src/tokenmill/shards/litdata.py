"""litdata and litgpt: `train/chunk-0-0.bin` ... and `train/index.json`, for StreamingDataset with TokensLoader.

    offset       type           content
    0            uint32         n, the documents of the chunk
    4            uint32[n+1]    where each begins in the file, in bytes, and the end
    4+4(n+1)     uint16[N]      token ids, little-endian (uint32 for vocabularies above 65,536 ids)

The reader ignores where documents begin, and serves blocks of consecutive tokens. Documents end with end-of-text and
are whole in a chunk; a chunk stays below 4 GiB. `index.json` lists the chunks of a split: bytes, documents, tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.errors import DamageError, DataError, RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import Starts, mapped_ids, smallest_unsigned
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import PartialFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Beginnings, Ids

# litdata's numbers for numpy types.
CODES = {"<u2": 5, "<u4": 6}
MAX_BYTES = 2**32 - 1
# What litgpt's own preparation scripts ask for: 8,192 blocks of 2,048 tokens and one more.
CHUNK_TOKENS = 2049 * 8192


class LitData:
    name = "litdata"
    trainers = "litgpt, litdata"
    files = "SPLIT/chunk-0-0.bin ..., SPLIT/index.json"
    cut: Cut = "documents"
    defaults = Defaults(eot="last", shard_tokens=CHUNK_TOKENS, val="none", shuffle="none", name=None)

    def check(self, recipe: Recipe) -> None:
        if recipe.name is not None:
            raise RecipeError("the files of the litdata format are called chunk-0-0.bin, so `--name` has no meaning")
        if recipe.shard_tokens is not None and recipe.shard_tokens > MAX_BYTES // 8:
            raise RecipeError(
                f"a chunk of {recipe.shard_tokens:,} tokens may exceed 4 GiB, which its offsets cannot tell",
                hint="pass `--shard-tokens 500M` or fewer",
            )

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return []

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{place.split}/chunk-0-{place.number_in_split}.bin"

    def file_pattern(self, recipe: Recipe) -> str:
        return r"(train|val)/(chunk-0-\d+\.bin|index\.json)"

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> Chunk:
        return Chunk(out, self.shard_name(recipe, place), dtype)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        splits = dict.fromkeys(shard.split for shard in shards)
        return {
            f"{split}/index.json": index_json([shard for shard in shards if shard.split == split], recipe, dtype)
            for split in splits
        }

    def read_header(self, path: Path, itemsize: int) -> Header:
        with path.open("rb") as file:
            head = np.frombuffer(file.read(4), dtype="<u4")
        n_header = 4 + 4 * (int(head[0]) + 1) if len(head) else 2**62
        n_bytes = path.stat().st_size - n_header
        if n_bytes < 0 or n_bytes % itemsize:
            raise DamageError(f"`{path}` is no chunk of litdata")
        return Header(n_header, n_bytes // itemsize, itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype, self.read_header(path, dtype.itemsize).n_bytes)


class Chunk:
    """A chunk in memory: its head depends on the number of documents. 34 MB by default."""

    def __init__(self, out: Path, name: str, dtype: np.dtype) -> None:
        self.out, self.name, self.dtype = out, name, dtype
        self.starts = Starts()
        self.ids: list[Ids] = []

    def append(self, ids: Ids, documents: Beginnings) -> None:
        self.ids.append(ids.astype(self.dtype))
        self.starts.append(documents)

    def commit(self) -> list[FileReceipt]:
        edges = self.starts.edges(sum(map(len, self.ids)))
        offsets = edges * self.dtype.itemsize + 4 * (len(edges) + 1)
        if int(offsets[-1]) > MAX_BYTES:
            raise DataError(f"a document makes `{self.name}` larger than 4 GiB, which its offsets cannot tell")
        (self.out / self.name).parent.mkdir(exist_ok=True)
        file = PartialFile(self.out / self.name, "shard")
        file.write(np.array([len(edges) - 1], dtype="<u4"))
        file.write(offsets.astype("<u4"))
        for ids in self.ids:
            file.write(ids)
        file.commit()
        return [FileReceipt(self.name, file.n_bytes, file.sha256)]

    def abandon(self) -> None:
        pass


def index_json(chunks: list[ShardReceipt], recipe: Recipe, dtype: np.dtype) -> bytes:
    """As litdata 0.2 writes it. `updated_at` is fixed: the same chunks give the same bytes."""
    entries = [
        {
            "chunk_bytes": chunk.n_bytes,
            "chunk_size": chunk.n_documents,
            "dim": chunk.n_tokens,
            "filename": Path(chunk.file).name,
        }
        for chunk in chunks
    ]
    config = {
        "chunk_bytes": None,
        "chunk_size": recipe.shard_tokens,
        "compression": None,
        "compression_batch_size": None,
        "compression_level": None,
        "data_format": [f"no_header_numpy:{CODES[dtype.str]}"],
        "data_spec": json.dumps([1, {"type": None, "context": None, "children_spec": []}]),
        "encryption": None,
        "ipc_compression": None,
        "item_loader": "TokensLoader",
        "types": "json",
    }
    return json.dumps({"chunks": entries, "config": config, "updated_at": "0"}, sort_keys=True).encode()


FORMAT = LitData()
