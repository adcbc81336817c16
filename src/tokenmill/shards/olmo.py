"""OLMo and dolma: `train/part-0-00000.npy` with `.csv.gz`.

    .npy       uint16[N] or uint32[N]   token ids, little-endian; a bare array in spite of its name, without a header
    .csv.gz    gzip, a line a document: start,end,id,src,loc

`start` and `end` are places in the .npy, the end behind the last token; `id` is source number and row, joined by `-`,
`src` its source file and `loc` its line there, counted from 1. No document is in two files, and one without a token is
in no list: OLMo-core refuses what begins behind the last token. End-of-text comes last.
"""

from __future__ import annotations

import csv
import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.errors import RecipeError
from tokenmill.shards import Cut, Defaults, Header, Place
from tokenmill.shards.flat import FlatShard, Starts, mapped_ids, smallest_unsigned
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.storage.local import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenmill.recipe import Recipe
    from tokenmill.shards import Beginnings, Ids

MAX_SHARD_TOKENS = 1_073_741_824


class Olmo:
    name = "olmo"
    trainers = "OLMo, OLMo-core, dolma"
    files = "SPLIT/part-0-00000.npy, .csv.gz"
    cut: Cut = "documents"
    defaults = Defaults(eot="last", shard_tokens=MAX_SHARD_TOKENS, val="none", shuffle="none", name=None)

    def check(self, recipe: Recipe) -> None:
        if recipe.name is not None:
            raise RecipeError("the files of the olmo format are called part-0-00000.npy, so `--name` has no meaning")
        if recipe.shard_tokens is not None and recipe.shard_tokens > MAX_SHARD_TOKENS:
            raise RecipeError(f"dolma writes at most {MAX_SHARD_TOKENS:,} tokens a file, not {recipe.shard_tokens:,}")

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        return [] if itemsize == 2 else ["Tell OLMo-core the type of the ids: `dtype=NumpyDatasetDType.uint32`."]

    def dtype(self, largest_id: int) -> str:
        return smallest_unsigned(largest_id)

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        return f"{place.split}/part-0-{place.number_in_split:05d}.npy"

    def file_pattern(self, recipe: Recipe) -> str:
        return r"(train|val)/part-0-\d{5,}\.(npy|csv\.gz)"

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> OlmoShard:
        return OlmoShard(out, self.shard_name(recipe, place), dtype, inputs)

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        return {}

    def read_header(self, path: Path, itemsize: int) -> Header:
        return Header(0, path.stat().st_size // itemsize, itemsize)

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        return mapped_ids(path, dtype)


class OlmoShard:
    """The ids as they come, and at the end the list of documents."""

    def __init__(self, out: Path, name: str, dtype: np.dtype, inputs: Sequence[str]) -> None:
        self.flat, self.inputs = FlatShard(out, name, dtype), inputs
        self.starts = Starts()
        self.sources: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]] = []

    def append(self, ids: Ids, documents: Beginnings) -> None:
        self.flat.append(ids, documents)
        self.starts.append(documents)
        self.sources.append((documents.inputs, documents.rows))

    def commit(self) -> list[FileReceipt]:
        edges = self.starts.edges(self.flat.n_tokens).tolist()
        sources = [int(i) for inputs, _ in self.sources for i in inputs]
        rows = [int(row) for _, rows in self.sources for row in rows]
        lines = io.StringIO(newline="")
        writer = csv.writer(lines, lineterminator="\n")  # a line a document: 2 us each, and gzip takes longer
        for i, (start, end) in enumerate(pairwise(edges)):
            if start == end:
                continue
            writer.writerow((start, end, f"{sources[i]}-{rows[i]}", self.inputs[sources[i]], rows[i] + 1))
        # No time in the header: the same documents give the same bytes.
        content = gzip.compress(lines.getvalue().encode(), mtime=0)
        name = self.flat.name.removesuffix(".npy") + ".csv.gz"
        receipt = FileReceipt(name, len(content), write_whole(self.flat.out / name, content, "side"))
        return [*self.flat.commit(), receipt]

    def abandon(self) -> None:
        self.flat.abandon()


FORMAT = Olmo()
