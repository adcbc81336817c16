"""How long documents are, found out a while at a time: a histogram, and some documents of each length to look at."""

from __future__ import annotations

from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.reading import AnyShards
from tokenmill.reading.lengths import OCTAVES, Lengths

MAX_LISTED = 50


class LengthScan:
    """Goes through all documents once, as far as it is asked to; by the index where there is one."""

    def __init__(self, shards: AnyShards) -> None:
        self.lengths, self.done = Lengths(), False
        self._n_tokens = shards.n_tokens
        self._batches = shards.lengths()
        self._longest = np.empty((0, 2), np.int64)  # number and length
        self._examples: dict[int, list[tuple[int, int]]] = {}  # by bin, the first ones

    def go_on(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self.done:
            batch = next(self._batches, None)
            if batch is None:
                self.done = True
                return
            self.add(batch[1])
            if monotonic() >= until:
                return

    def add(self, lengths: npt.NDArray[np.int64]) -> None:
        numbers = np.arange(self.lengths.n_documents, self.lengths.n_documents + len(lengths))
        self.lengths.add(lengths)
        both = np.concatenate([self._longest, np.stack([numbers, lengths], axis=1)])
        # The longest first, and of equal ones the first in order.
        self._longest = both[np.lexsort((both[:, 0], -both[:, 1]))[:MAX_LISTED]]
        bins = np.searchsorted(OCTAVES, lengths, side="right") - 1
        for i in np.unique(bins).tolist():
            listed = self._examples.setdefault(i, [])
            chosen = np.flatnonzero(bins == i)[: MAX_LISTED - len(listed)]
            listed += zip(numbers[chosen].tolist(), lengths[chosen].tolist(), strict=True)

    def facts(self) -> dict[str, Any]:
        bins = self.lengths.histogram()
        return {
            "done": self.done,
            "share": 1.0 if self.done else self.lengths.n_tokens / max(1, self._n_tokens),
            "n_documents": self.lengths.n_documents,
            "bins": [
                {
                    "low": part.low,
                    "high": part.high - 1,
                    "n_documents": part.n_documents,
                    "documents": self._examples.get(OCTAVES.index(part.low), []),
                }
                for part in bins
            ],
            "longest": self._longest.tolist(),
        }
