r"""build-nanogpt: `NAME_val_000000.npy`, `NAME_train_000001.npy`, ... as numpy.save writes them.

    offset  type        content
    0       6 bytes     \x93NUMPY
    6       2 bytes     version 1.0
    8       uint16      length of the text that follows, 118 here: the tokens begin at a multiple of 64
    10      ASCII       {'descr': '<u2', 'fortran_order': False, 'shape': (N,), } padded with spaces, then \n
    128     uint16[N]   token ids, little-endian (uint32 for vocabularies above 65,536 ids)

Each document begins with end-of-text and runs on into the next shard where one is full. Shard 0 is val.
build-nanogpt loads every file of the folder whose name contains `train` or `val`: no other file may.
"""

from __future__ import annotations

import io
import re
from functools import partial
from tokenize import TokenError
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


def header(dtype: np.dtype, n_tokens: int) -> bytes:
    from numpy.lib import format as npy

    buffer = io.BytesIO()
    npy.write_array_header_1_0(
        buffer, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (n_tokens,)}
    )
    return buffer.getvalue()


class Npy:
    name = "npy"
    trainers = "build-nanogpt, numpy.load"
    files = "NAME_val_000000.npy, NAME_train_000001.npy, ..."
    cut: Cut = "exact"
    defaults = Defaults(eot="first", shard_tokens=100_000_000, val="shard", shuffle="none", name="fineweb")

    def check(self, recipe: Recipe) -> None:
        if recipe.name and ("train" in recipe.name or "val" in recipe.name):
            raise RecipeError(
                f"name `{recipe.name}` contains `train` or `val`, and build-nanogpt tells its splits by these",
                hint="pass another `--name`",
            )

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return []

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{recipe.name}_{place.split}_{place.number:06d}.npy"

    def file_pattern(self, recipe: Recipe) -> str:
        return re.escape(str(recipe.name)) + r"_(train|val)_\d{6}\.npy"

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> FlatShard:
        return FlatShard(out, self.shard_name(recipe, place), dtype, partial(header, dtype), recipe.shard_tokens or 0)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        return {}

    def read_header(self, path: Path, itemsize: int) -> Header:
        from numpy.lib import format as npy

        with path.open("rb") as file:
            try:
                version = npy.read_magic(file)
                shape, _, dtype = npy.read_array_header_1_0(file)
            except (ValueError, SyntaxError, TokenError) as error:
                raise DamageError(f"`{path}` does not begin with a header of numpy: {error}") from None
            if version != (1, 0) or len(shape) != 1:
                raise DamageError(f"`{path}` holds an array of shape {shape}, not a row of token ids")
            return Header(n_bytes=file.tell(), n_tokens=shape[0], itemsize=dtype.itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype, self.read_header(path, dtype.itemsize).n_bytes)


FORMAT = Npy()
