"""llm.c and modded-nanogpt: `NAME_val_000000.bin`, `NAME_train_000001.bin`, ...

    offset  type         16-bit vocabulary     32-bit vocabulary (llama-3)
    0       int32        magic 20240520        magic 20240801
    4       int32        version 1             version 7
    8       int32        N, the token count    the same
    12      int32[253]   zero                  zero
    1024    uint16[N]    token ids             uint32[N] token ids

Little-endian throughout. Each document begins with end-of-text and runs on into the next shard where one is
full. Shard 0 is val. A full shard of 100,000,000 tokens is 200,001,024 bytes.
"""

from __future__ import annotations

import re
import struct
from functools import partial
from typing import TYPE_CHECKING

from tokenmill.errors import DamageError, RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import FlatShard, mapped_ids, smallest_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Ids
    from tokenmill.shards.receipts import ShardReceipt

HEADER_BYTES = 1024
MAGIC_AND_VERSION = {2: (20240520, 1), 4: (20240801, 7)}
# llm.c's loader seeks with a C int, so a whole 16-bit shard must stay below 2^31 bytes.
MAX_SHARD_TOKENS = (2**31 - 1 - HEADER_BYTES) // 2


def header(dtype: np.dtype, n_tokens: int) -> bytes:
    magic, version = MAGIC_AND_VERSION[dtype.itemsize]
    return struct.pack("<3i", magic, version, n_tokens).ljust(HEADER_BYTES, b"\0")


class LlmC:
    name = "llmc"
    trainers = "llm.c, modded-nanogpt"
    files = "NAME_val_000000.bin, NAME_train_000001.bin, ..."
    cut: Cut = "exact"
    defaults = Defaults(eot="first", shard_tokens=100_000_000, val="shard", shuffle="none", name="fineweb")

    def check(self, recipe: Recipe) -> None:
        if recipe.shard_tokens is not None and recipe.shard_tokens > MAX_SHARD_TOKENS:
            raise RecipeError(f"llm.c reads at most {MAX_SHARD_TOKENS:,} tokens a shard, not {recipe.shard_tokens:,}")

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        if itemsize == 2:
            return []
        return [f"The ids of {recipe.tokenizer} need 32 bits: the shards carry llm.c's llama-3 header (train_llama3)."]

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{recipe.name}_{place.split}_{place.number:06d}.bin"

    def file_pattern(self, recipe: Recipe) -> str:
        return re.escape(str(recipe.name)) + r"_(train|val)_\d{6}\.bin"

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> FlatShard:
        return FlatShard(out, self.shard_name(recipe, place), dtype, partial(header, dtype), recipe.shard_tokens or 0)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        return {}

    def read_header(self, path: Path, itemsize: int) -> Header:
        with path.open("rb") as file:
            head = file.read(12)
        if len(head) == 12:
            magic, version, n_tokens = struct.unpack("<3i", head)
            for found_itemsize, expected in MAGIC_AND_VERSION.items():
                if (magic, version) == expected:
                    return Header(n_bytes=HEADER_BYTES, n_tokens=n_tokens, itemsize=found_itemsize)
        raise DamageError(f"`{path}` does not begin with a header of llm.c")

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype, self.read_header(path, dtype.itemsize).n_bytes)


FORMAT = LlmC()
