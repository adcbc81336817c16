"""datatrove and nanotron: `train/000_NAME.ds` with `.ds.index` and `.ds.metadata`.

    .ds             uint16[N] or uint32[N]   token ids, little-endian; uint32 for vocabularies above 65,536 ids
    .ds.index       uint64[D]                for each document the place behind its last token
    .ds.metadata    text                     tokenizer|bytes a token, the token count, and that count for people

Documents end with end-of-text and are whole in a shard. Splits are folders, since the readers take whole folders; each
has a `NAME.ds.metadata` for all of its shards, as datatrove's merger writes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import FlatShard, Starts, mapped_ids, smallest_unsigned
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Beginnings, Ids


class Datatrove:
    name = "datatrove"
    trainers = "nanotron, datatrove"
    files = "SPLIT/000_NAME.ds, .ds.index, .ds.metadata"
    cut: Cut = "documents"
    defaults = Defaults(eot="last", shard_tokens=1_000_000_000, val="none", shuffle="none", name="tokens")

    def check(self, recipe: Recipe) -> None:
        pass

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return [f"datatrove's reader must be told the size of a token: `token_size={itemsize}`."]

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{place.split}/{place.number_in_split:03d}_{recipe.name}.ds"

    def file_pattern(self, recipe: Recipe) -> str:
        return rf"(train|val)/(\d{{3,}}_)?{re.escape(str(recipe.name))}\.ds(\.index|\.metadata)?"

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> DatatroveShard:
        return DatatroveShard(out, self.shard_name(recipe, place), dtype, tokenizer_name(recipe))

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        splits = dict.fromkeys(shard.split for shard in shards)
        counts = {split: sum(shard.n_tokens for shard in shards if shard.split == split) for split in splits}
        name = tokenizer_name(recipe)
        return {f"{split}/{recipe.name}.ds.metadata": metadata(name, dtype.itemsize, n) for split, n in counts.items()}

    def read_header(self, path: Path, itemsize: int) -> Header:
        return Header(0, path.stat().st_size // itemsize, itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype)


class DatatroveShard:
    """The ids as they come, and at the end the index and the metadata."""

    def __init__(self, out: Path, name: str, dtype: np.dtype, tokenizer: str) -> None:
        self.flat, self.tokenizer = FlatShard(out, name, dtype), tokenizer
        self.starts = Starts()

    @property
    def n_tokens(self) -> int:
        return self.flat.n_tokens

    def append(self, ids: Ids, documents: Beginnings) -> None:
        self.flat.append(ids, documents)
        self.starts.append(documents)

    def commit(self) -> list[FileReceipt]:
        sides = {
            ".index": self.starts.edges(self.n_tokens)[1:].astype("<u8").tobytes(),
            ".metadata": metadata(self.tokenizer, self.flat.dtype.itemsize, self.n_tokens),
        }
        receipts = []
        for ending, content in sides.items():
            name = self.flat.name + ending
            receipts.append(FileReceipt(name, len(content), write_whole(self.flat.out / name, content, "side")))
        return [*self.flat.commit(), *receipts]

    def abandon(self) -> None:
        self.flat.abandon()


def tokenizer_name(recipe: Recipe) -> str:
    """The tokenizer in one word: a file by its folder, as models are called."""
    path = Path(recipe.tokenizer)
    return path.parent.name if path.name == "tokenizer.json" else path.name


def metadata(tokenizer: str, itemsize: int, n_tokens: int) -> bytes:
    return f"{tokenizer}|{itemsize}\n{n_tokens}\n{for_people(n_tokens)}".encode()


def for_people(n_tokens: int) -> str:
    """7 -> 7.00 T, 12,345,678 -> 12.3 MT: three digits, rounded, and T for tokens, as humanize.metric has it."""
    value, unit = float(n_tokens), ""
    for larger in ("k", "M", "G", "T", "P"):
        if round(value) < 1000:
            break
        value, unit = value / 1000, larger
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}T"


FORMAT = Datatrove()
