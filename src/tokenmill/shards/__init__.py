"""Shard formats: one file each, its byte layout drawn on top.

A format is one object: its defaults, its file names, its header, and how to read itself back. Formats in this
table are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tokenmill.errors import RecipeError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from tokenmill.recipe import Recipe

Split = Literal["train", "val"]


class Defaults(NamedTuple):
    """What a recipe's open fields mean for a format: the ways of the project it is named after."""

    eot: Literal["first", "last"]
    shard_tokens: int | None  # None: one file a split
    val: float | str
    shuffle: str
    name: str | None  # None: files have names of their own


class Header(NamedTuple):
    """What a shard file says of itself, and where its tokens begin."""

    n_bytes: int
    n_tokens: int
    itemsize: int


class ShardFormat(Protocol):
    """Where tokens go: `header` and the ids, little-endian, nothing after them."""

    name: str
    trainers: str  # for which training code
    files: str  # what its files are called, for people
    defaults: Defaults

    def check(self, recipe: Recipe) -> None:
        """Refuse a recipe that this format cannot carry."""

    def notes(self, recipe: Recipe, itemsize: int) -> list[str]:
        """What the user must know before training on the result."""

    def shard_name(self, name: str, split: Split, index: int) -> str:
        """The file name of shard `index`, counted through all splits."""

    def shard_pattern(self, name: str) -> str:
        """A regular expression that all names of `shard_name` match, and that no stranger should."""

    def header(self, n_tokens: int, dtype: np.dtype) -> bytes:
        """The bytes before the tokens. Their number does not depend on `n_tokens`."""

    def read_header(self, path: Path, itemsize: int) -> Header:
        """Read back what `header` wrote; `itemsize` serves formats that do not say it themselves."""


_FORMATS = {
    "nanogpt": "tokenmill.shards.nanogpt",
    "llmc": "tokenmill.shards.llmc",
    "npy": "tokenmill.shards.npy",
}


def format_names() -> list[str]:
    return list(_FORMATS)


def format_named(name: str) -> ShardFormat:
    """Return the format of that name."""
    if name not in _FORMATS:
        raise RecipeError(f"unknown format `{name}`", hint=did_you_mean(name, format_names()))
    shard_format: ShardFormat = import_module(_FORMATS[name]).FORMAT
    return shard_format
