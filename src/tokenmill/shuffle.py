"""Permutations of documents: for each document of the corpus, which position it takes in the output.

In: the number of documents and a seed. Out: a function from document numbers to positions. How one is carried out in
bounded memory is in scatter.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tokenmill.errors import RecipeError

# document numbers -> positions in the output
Permutation = Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.uint64]]

# The numpy permutation holds 12 bytes a document while it is made: 6.4 GB here. nanoGPT's OpenWebText has 8 million.
MAX_NUMPY_DOCUMENTS = 2**29
ARANGE_ROWS = 2**20


def permutation(kind: str, n_documents: int, seed: int) -> Permutation:
    return numpy_permutation(n_documents, seed) if kind == "numpy" else keyed_permutation(n_documents, seed)


def check_permutation(kind: str, n_documents: int, seed: int) -> None:
    """Refuse what would not fit into memory."""
    if kind == "numpy" and n_documents > MAX_NUMPY_DOCUMENTS:
        raise RecipeError(
            f"the numpy permutation of {n_documents:,} documents would need {n_documents * 12 / 1e9:.0f} GB of memory",
            hint=f"pass `--shuffle {seed}`, which needs none, or `--no-shuffle`",
        )


def numpy_permutation(n_documents: int, seed: int) -> Permutation:
    """nanoGPT's own order: document `default_rng(seed).permutation(n)[j]` takes position j."""
    check_permutation("numpy", n_documents, seed)
    order = np.random.default_rng(seed).permutation(n_documents)
    positions = np.empty(n_documents, dtype=np.uint32)
    for start in range(0, n_documents, ARANGE_ROWS):  # in slices: a third array of this length would be too many
        documents = order[start : start + ARANGE_ROWS]
        positions[documents] = np.arange(start, start + len(documents), dtype=np.uint32)
    del order
    return lambda documents: positions[documents].astype(np.uint64)


N_ROUNDS = 8


def keyed_permutation(n_documents: int, seed: int) -> Permutation:
    """A bijection of 0 .. n - 1, computed for each document by itself: no table, any number of documents.

    A Feistel network over the next even number of bits, with a keyed hash as its round function; a value that falls
    outside 0 .. n - 1 is put through again until it does not (at most four times on average).
    """
    half = max(1, (max(1, n_documents - 1).bit_length() + 1) // 2)
    half_bits, mask = np.uint64(half), np.uint64(2**half - 1)
    digests = (hashlib.sha256(f"tokenmill keyed {seed} {i}".encode()).digest() for i in range(N_ROUNDS))
    keys = [np.uint64(int.from_bytes(digest[:8], "little")) for digest in digests]

    def network(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = values >> half_bits, values & mask
        for key in keys:
            left, right = right, left ^ (mixed(right ^ key) >> np.uint64(64 - half))
        return left << half_bits | right

    def positions(documents: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        values = network(documents)
        outside = np.flatnonzero(values >= n_documents)
        while len(outside):
            values[outside] = network(values[outside])
            outside = outside[values[outside] >= n_documents]
        return values

    return positions


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every bit of a 64-bit value over all others (the finalizer of SplitMix64)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
