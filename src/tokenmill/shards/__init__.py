"""Shard formats: one file each, its byte layout drawn on top.

A format is one object: its defaults, its file names, how a shard is written, and how to read itself back. Formats in
this table are imported when they are asked for; others are found by entry point (group `tokenmill.formats`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tokenmill.errors import RecipeError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from tokenmill.recipe import Recipe
    from tokenmill.shards.receipts import FileReceipt, ShardReceipt

    Ids = npt.NDArray[np.integer]

GROUP = "tokenmill.formats"
Split = Literal["train", "val"]
# How a shard ends: after exactly so many tokens, in the middle of a document; at the end of a document; or after
# whole samples of `sequence_length` tokens, where what does not fill one at the end of a split is dropped.
Cut = Literal["exact", "documents", "samples"]


class Defaults(NamedTuple):
    """What a recipe's open fields mean for a format: the ways of the project it is named after."""

    eot: Literal["first", "last"]
    shard_tokens: int | None  # None: one shard a split
    val: float | str
    shuffle: str
    name: str | None  # None: files have names of their own
    sequence_length: int | None = None  # of formats with fixed-length samples


class Header(NamedTuple):
    """What a shard file says of itself, and where its tokens begin."""

    n_bytes: int
    n_tokens: int
    itemsize: int


class Place(NamedTuple):
    """Which shard of an output: its split, its number through all splits, and its number in its own."""

    split: Split
    number: int
    number_in_split: int


class Beginnings(NamedTuple):
    """Documents that begin in a stretch of a shard: where, and which source file and row each came from."""

    starts: npt.NDArray[np.int64]  # places in the shard, in order
    inputs: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint64]


class OpenShard(Protocol):
    """A shard while it is written."""

    def append(self, ids: Ids, documents: Beginnings) -> None:
        """Add tokens, and the documents that begin in them."""

    def commit(self) -> list[FileReceipt]:
        """Give the files of the shard their names, on disk for good; the one with the tokens comes first."""

    def abandon(self) -> None:
        """Remove what was written."""


class ShardFormat(Protocol):
    """Where tokens go."""

    name: str
    trainers: str  # for which training code
    files: str  # what its files are called, for people
    defaults: Defaults
    cut: Cut

    def check(self, recipe: Recipe) -> None:
        """Refuse a recipe that this format cannot carry."""

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        """What the user must know before training on the result."""

    def dtype(self, largest_id: int) -> str:
        """How numpy spells the type of the ids."""

    def shard_name(self, recipe: Recipe, place: Place) -> str:
        """The file with the tokens of a shard, relative to the output folder."""

    def file_pattern(self, recipe: Recipe) -> str:
        """A regular expression that the names of all files of this format match, and that no stranger should."""

    def open(self, out: Path, recipe: Recipe, dtype: np.dtype, place: Place, inputs: Sequence[str]) -> OpenShard:
        """Begin a shard; `inputs` are the source files that its documents come from."""

    def closing_files(self, recipe: Recipe, dtype: np.dtype, shards: Sequence[ShardReceipt]) -> dict[str, bytes]:
        """Files that tell of all shards, written when there are no more."""

    def read_header(self, path: Path, itemsize: int) -> Header:
        """What a shard says of itself; `itemsize` serves formats that do not say it."""

    def read_ids(self, path: Path, dtype: np.dtype) -> Ids:
        """The token ids of a shard, memory-mapped where the format allows it."""


_FORMATS = {
    "nanogpt": "tokenmill.shards.nanogpt",
    "llmc": "tokenmill.shards.llmc",
    "npy": "tokenmill.shards.npy",
    "megatron": "tokenmill.shards.megatron",
    "datatrove": "tokenmill.shards.datatrove",
    "olmo": "tokenmill.shards.olmo",
    "litdata": "tokenmill.shards.litdata",
    "mds": "tokenmill.shards.mds",
    "parquet": "tokenmill.shards.parquet",
}


def format_names() -> list[str]:
    """The formats that ship, and those of entry points."""
    return [*_FORMATS, *sorted(entry.name for entry in entry_points(group=GROUP))]


def format_named(name: str) -> ShardFormat:
    """Return the format of that name."""
    if name in _FORMATS:
        shipped: ShardFormat = import_module(_FORMATS[name]).FORMAT
        return shipped
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            found = entry.load()
            from_outside: ShardFormat = found() if isinstance(found, type) else found
            return from_outside
    raise RecipeError(f"unknown format `{name}`", hint=did_you_mean(name, format_names()))
