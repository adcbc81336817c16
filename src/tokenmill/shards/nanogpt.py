"""nanoGPT: `train.bin` and `val.bin`.

    offset  type        content
    0       uint16[N]   token ids, little-endian; no header, so N = file size / 2

Each document is followed by end-of-text (50256 for gpt2). Documents are in the order of a permutation; the
validation documents are its first ones. OpenWebText makes a train.bin of about 17 GB and a val.bin of 8.5 MB.

nanoGPT's `train.py` reads uint16. Vocabularies above 65,536 ids are written as uint32[N].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenmill.errors import RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import FlatShard, mapped_ids, smallest_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Ids
    from tokenmill.shards.receipts import ShardReceipt


class NanoGPT:
    name = "nanogpt"
    trainers = "nanoGPT"
    files = "train.bin, val.bin"
    # train_test_split(test_size=0.0005, seed=2357, shuffle=True) in nanoGPT's data/openwebtext/prepare.py
    cut: Cut = "exact"
    defaults = Defaults(eot="last", shard_tokens=None, val=0.0005, shuffle="numpy:2357", name=None)

    def check(self, recipe: Recipe) -> None:
        if recipe.shard_tokens is not None:
            raise RecipeError(
                "the nanogpt format writes one file a split, so `--shard-tokens` has no meaning",
                hint="for shards of a fixed size pass `--format llmc` or `--format npy`",
            )
        if recipe.name is not None:
            raise RecipeError("the files of the nanogpt format are train.bin and val.bin, so `--name` has no meaning")
        if recipe.val == "shard":
            raise RecipeError(
                "the nanogpt format has no shards, so `--val shard` has no meaning",
                hint="pass a fraction like `--val 0.0005`, a number of documents, or `none`",
            )

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        if itemsize == 2:
            return []
        return [
            f"The ids of {recipe.tokenizer} need 32 bits, and nanoGPT's train.py reads 16. Change two lines of it to:\n"
            "    data = np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint32, mode='r')\n"
            "    data = np.memmap(os.path.join(data_dir, 'val.bin'), dtype=np.uint32, mode='r')"
        ]

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{place.split}.bin"

    def file_pattern(self, recipe: Recipe) -> str:
        return r"(train|val)\.bin"

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> FlatShard:
        return FlatShard(out, self.shard_name(recipe, place), dtype)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        return {}

    def read_header(self, path: Path, itemsize: int) -> Header:
        return Header(n_bytes=0, n_tokens=path.stat().st_size // itemsize, itemsize=itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype, self.read_header(path, dtype.itemsize).n_bytes)


FORMAT = NanoGPT()
