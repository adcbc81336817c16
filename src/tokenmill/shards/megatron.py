r"""Megatron-LM: `NAME_text_document.bin` and `.idx`, as its IndexedDataset reads them.

    .bin            uint16[N] or int32[N]   token ids, nothing else

    .idx  offset    type                    content
          0         9 bytes                 MMIDIDX\0\0
          9         uint64                  version 1
          17        uint8                   type of the ids: 8 uint16, 4 int32
          18        uint64                  S, the sequences
          26        uint64                  D, the entries of the document index
          34        int32[S]                tokens of each sequence
          34+4S     int64[S]                where each begins in .bin, in bytes
          34+12S    int64[D]                0 ... S: the sequences before each document, and behind the last

A sequence is a document with end-of-text behind it, as `preprocess_data.py --append-eod` writes it, so D = S + 1. There
is no type for uint32: vocabularies of 65,500 ids and more are int32. Megatron takes the path without its ending, and
splits by itself (`--split`); with `--val` there are two pairs, NAME_train_text_document and NAME_val_text_document.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.errors import DamageError, DataError, RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import FlatShard, Starts, mapped_ids
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import PartialFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Beginnings, Ids

MAGIC = b"MMIDIDX\0\0"
CODES = {8: "<u2", 4: "<i4"}
# Megatron's own limit, though uint16 holds 65,536.
MAX_UINT16_VOCABULARY = 65_500
MAX_SEQUENCE_TOKENS = 2**31 - 1


class Megatron:
    name = "megatron"
    trainers = "Megatron-LM, NeMo, gpt-neox"
    files = "NAME_text_document.bin, NAME_text_document.idx"
    cut: Cut = "documents"
    defaults = Defaults(eot="last", shard_tokens=None, val="none", shuffle="none", name="corpus")

    def check(self, recipe: Recipe) -> None:
        if recipe.shard_tokens is not None:
            raise RecipeError(
                "Megatron reads one pair of files a data set, so `--shard-tokens` has no meaning",
                hint="prepare parts of the corpus into folders of their own, and give Megatron several prefixes",
            )
        if recipe.val == "shard":
            raise RecipeError("the megatron format has one file a split: `--val` takes a fraction or a number")

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return []

    def dtype(self, largest_id: int) -> str:
        return "<u2" if largest_id + 1 < MAX_UINT16_VOCABULARY else "<i4"

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        split = "" if recipe.val == "none" else f"_{place.split}"
        return f"{recipe.name}{split}_text_document.bin"

    def file_pattern(self, recipe: Recipe) -> str:
        return re.escape(str(recipe.name)) + r"(_train|_val)?_text_document\.(bin|idx)"

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> MegatronShard:
        return MegatronShard(out, self.shard_name(recipe, place), dtype)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        return {}

    def read_header(self, path: Path, itemsize: int) -> Header:
        dtype, lengths = read_index(path.with_suffix(".idx"))
        return Header(0, int(lengths.sum()), dtype.itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype)


class MegatronShard:
    """The ids as they come, and at the end the index."""

    def __init__(self, out: Path, name: str, dtype: np.dtype) -> None:
        self.flat = FlatShard(out, name, dtype)
        self.starts = Starts()

    @property
    def n_tokens(self) -> int:
        return self.flat.n_tokens

    def append(self, ids: Ids, documents: Beginnings) -> None:
        self.flat.append(ids, documents)
        self.starts.append(documents)

    def commit(self) -> list[FileReceipt]:
        name = self.flat.name.removesuffix(".bin") + ".idx"
        index = PartialFile(self.flat.out / name, "side")
        for array in index_arrays(self.starts.edges(self.n_tokens), self.flat.dtype):
            index.write(array)
        index.commit()
        return [*self.flat.commit(), FileReceipt(name, index.n_bytes, index.sha256)]

    def abandon(self) -> None:
        self.flat.abandon()


def index_arrays(edges: npt.NDArray[np.int64], dtype: np.dtype) -> list[bytes | npt.NDArray[np.signedinteger]]:
    """The .idx file, stretch by stretch. An empty document is an entry without a sequence, as Megatron writes it."""
    lengths = np.diff(edges)
    if len(lengths) and int(lengths.max()) > MAX_SEQUENCE_TOKENS:
        raise DataError(f"a document has {int(lengths.max()):,} tokens, and Megatron takes {MAX_SEQUENCE_TOKENS:,}")
    code = next(code for code, name in CODES.items() if np.dtype(name) == dtype)
    sequences = np.flatnonzero(lengths)
    n_before = np.zeros(len(edges), dtype="<i8")
    np.cumsum(lengths > 0, out=n_before[1:])
    head = MAGIC + struct.pack("<QBQQ", 1, code, len(sequences), len(n_before))
    return [
        head,
        lengths[sequences].astype("<i4"),
        (edges[:-1][sequences] * dtype.itemsize).astype("<i8"),
        n_before,
    ]


def read_index(path: Path) -> tuple[np.dtype, npt.NDArray[np.int32]]:
    """The type of the ids and the tokens of each sequence."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DamageError(f"`{path}` is missing: it tells the documents of the .bin beside it") from None
    if len(data) < 34 or data[:9] != MAGIC:
        raise DamageError(f"`{path}` is no index of Megatron")
    version, code, n_sequences, n_entries = struct.unpack_from("<QBQQ", data, 9)
    if version != 1 or code not in CODES or len(data) < 34 + 12 * n_sequences + 8 * n_entries:
        raise DamageError(f"`{path}` is damaged, or of a version that is not known")
    return np.dtype(CODES[code]), np.frombuffer(data, "<i4", n_sequences, 34)


FORMAT = Megatron()
