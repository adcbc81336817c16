"""MosaicML streaming and llm-foundry: `train/shard.00000.mds` ... and `train/index.json`.

    offset      type           content
    0           uint32         n, the samples of the shard
    4           uint32[n+1]    where each begins in the file, in bytes, and the end
    4+4(n+1)    JSON           columns, encodings and sizes, keys sorted
    ...         int32[n*L]     the samples, each of L = `--sequence-length` tokens, in the column `tokens`

Documents follow one another, with end-of-text behind each, and are cut wherever a sample ends: where they begin is in
our own index alone. What does not fill a sample at the end of a split is dropped, and told. A shard stays below 64 MB.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.errors import DamageError, RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import mapped_ids
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import PartialFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Beginnings, Ids

SIZE_LIMIT = 67_108_864
SEQUENCE_LENGTH = 2048
ITEMSIZE = 4


class Mds:
    name = "mds"
    trainers = "llm-foundry, mosaicml-streaming"
    files = "SPLIT/shard.00000.mds ..., SPLIT/index.json"
    cut: Cut = "samples"
    # 8,000 samples of 2,048 tokens are 65.6 MB with their offsets: below the limit of a shard.
    defaults = Defaults("last", 8000 * SEQUENCE_LENGTH, "none", "none", None, SEQUENCE_LENGTH)

    def check(self, recipe: Recipe) -> None:
        if recipe.name is not None:
            raise RecipeError("the files of the mds format are called shard.00000.mds, so `--name` has no meaning")
        if recipe.val == "shard":
            raise RecipeError("the mds format has a folder a split: `--val` takes a fraction or a number of documents")
        n_tokens, n_samples = recipe.shard_tokens or 0, (recipe.shard_tokens or 0) // int(recipe.sequence_length or 1)
        if (n_tokens + n_samples) * ITEMSIZE >= 2**32 - 2**20:  # the rest is for the columns
            raise RecipeError(f"a shard of {recipe.shard_tokens:,} tokens exceeds 4 GiB, which its offsets cannot tell")

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return []

    def dtype(self, largest_id: int) -> str:
        return "<i4"

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{place.split}/shard.{place.number_in_split:05d}.mds"

    def file_pattern(self, recipe: Recipe) -> str:
        return r"(train|val)/(shard\.\d{5,}\.mds|index\.json)"

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> MdsShard:
        return MdsShard(out, self.shard_name(recipe, place), dtype, int(recipe.sequence_length or 0))

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        length, splits = int(recipe.sequence_length or 0), dict.fromkeys(shard.split for shard in shards)
        return {
            f"{split}/index.json": index_json([shard for shard in shards if shard.split == split], length)
            for split in splits
        }

    def read_header(self, path: Path, itemsize: int) -> Header:
        with path.open("rb") as file:
            n_samples, first = (*np.frombuffer(file.read(8), dtype="<u4").tolist(), 0, 0)[:2]
        n_bytes = path.stat().st_size - first
        if n_samples == 0 or n_bytes < 0 or n_bytes % (n_samples * itemsize):
            raise DamageError(f"`{path}` is no MDS shard of samples of one length")
        return Header(first, n_bytes // itemsize, itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype, self.read_header(path, dtype.itemsize).n_bytes)


class MdsShard:
    """A shard in memory: its head depends on the number of samples. 66 MB by default."""

    def __init__(self, out: Path, name: str, dtype: np.dtype, sequence_length: int) -> None:
        self.out, self.name, self.dtype, self.sequence_length = out, name, dtype, sequence_length
        self.ids: list[Ids] = []

    def append(self, ids: Ids, documents: Beginnings) -> None:
        self.ids.append(ids.astype(self.dtype))

    def commit(self) -> list[FileReceipt]:
        n_samples = sum(map(len, self.ids)) // self.sequence_length
        config = json.dumps(columns(self.sequence_length), sort_keys=True).encode()
        first = 4 + 4 * (n_samples + 1) + len(config)
        offsets = first + np.arange(n_samples + 1, dtype=np.int64) * self.sequence_length * ITEMSIZE
        (self.out / self.name).parent.mkdir(exist_ok=True)
        file = PartialFile(self.out / self.name, "shard")
        file.write(np.array([n_samples], dtype="<u4"))
        file.write(offsets.astype("<u4"))
        file.write(config)
        for ids in self.ids:
            file.write(ids)
        file.commit()
        return [FileReceipt(self.name, file.n_bytes, file.sha256)]

    def abandon(self) -> None:
        pass


def columns(sequence_length: int) -> dict[str, Any]:
    """What is in a sample, as a shard and the index say it. A fixed shape: values alone, no size before each."""
    return {
        "column_encodings": [f"ndarray:int32:{sequence_length}"],
        "column_names": ["tokens"],
        "column_sizes": [sequence_length * ITEMSIZE],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": SIZE_LIMIT,
        "version": 2,
    }


def index_json(shards: list[ShardReceipt], sequence_length: int) -> bytes:
    entries = [
        {
            **columns(sequence_length),
            "raw_data": {"basename": Path(shard.file).name, "bytes": shard.n_bytes, "hashes": {}},
            "samples": shard.n_tokens // sequence_length,
            "zip_data": None,
        }
        for shard in shards
    ]
    return json.dumps({"shards": entries, "version": 2}, sort_keys=True).encode()


FORMAT = Mds()
