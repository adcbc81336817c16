"""How long documents are: exact counts of any number of lengths in bounded memory, and what they say.

Each length below a million has a counter of its own; of longer documents there are few, and they are listed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

MAX_COUNTED = 1 << 20
OCTAVES = [0, *(1 << i for i in range(64))]
# Four to an octave, as far as whole numbers allow.
QUARTERS = [0, *dict.fromkeys(round(2 ** (i / 4)) for i in range(4 * 40))]


class Bin(msgspec.Struct, frozen=True):
    """Documents of `low` tokens and more, but fewer than `high`."""

    low: int
    high: int
    n_documents: int
    n_tokens: int


class Lengths:
    """Adds up lengths of documents, in tokens."""

    def __init__(self) -> None:
        self.n_documents = self.n_tokens = self.longest = 0
        self._counts = np.zeros(MAX_COUNTED, np.int64)
        self._long: list[int] = []

    def add(self, lengths: npt.NDArray[np.int64]) -> None:
        if not len(lengths):
            return
        self.n_documents += len(lengths)
        self.n_tokens += int(lengths.sum())
        self.longest = max(self.longest, int(lengths.max()))
        found = np.bincount(lengths[lengths < MAX_COUNTED])
        self._counts[: len(found)] += found
        self._long += lengths[lengths >= MAX_COUNTED].tolist()

    def percentiles(self, shares: Sequence[float]) -> list[int]:
        """The smallest length that so many percent of the documents do not exceed."""
        if not self.n_documents:
            return []
        ends, long = np.cumsum(self._counts), sorted(self._long)
        found = []
        for share in shares:
            rank = max(1, int(np.ceil(share / 100 * self.n_documents)))
            is_long = rank > ends[-1]
            found.append(long[rank - int(ends[-1]) - 1] if is_long else int(np.searchsorted(ends, rank)))
        return found

    def histogram(self, edges: Sequence[int] = OCTAVES) -> tuple[Bin, ...]:
        """Documents by length, without the empty bins at both ends."""
        used = np.flatnonzero(self._counts)
        lengths = np.concatenate([used, np.array(self._long, np.int64)])
        weights = np.concatenate([self._counts[used], np.ones(len(self._long), np.int64)])
        if not len(lengths):
            return ()
        bins = np.searchsorted(edges, lengths, side="right") - 1
        first, last = int(bins[0]), int(bins.max())
        n_documents = np.bincount(bins, weights=weights, minlength=last + 1)
        n_tokens = np.bincount(bins, weights=weights * lengths, minlength=last + 1)
        return tuple(Bin(edges[i], edges[i + 1], int(n_documents[i]), int(n_tokens[i])) for i in range(first, last + 1))
