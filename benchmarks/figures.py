"""Rounds -> figures: medians, spreads, and rates with start-up set apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from statistics import median
from typing import Any, NamedTuple

Record = dict[str, Any]


class Figure(NamedTuple):
    """The median of some rounds, and the least and the greatest."""

    median: float
    least: float
    greatest: float

    @property
    def spread(self) -> float:
        """How far apart the rounds are, as a share of the median."""
        return (self.greatest - self.least) / self.median if self.median else 0.0


def figure(values: Sequence[float]) -> Figure:
    return Figure(median(values), min(values), max(values))


def taken(record: Record, what: str) -> Figure:
    """What the rounds of a case took, of `cpu_seconds`, `wall_seconds` and their like."""
    return figure([one[what] for one in record["rounds"]])


def start_up(record: Record, what: str) -> Figure | None:
    """What the small job took."""
    return figure([one[what] for one in record["small_rounds"]]) if record["small_rounds"] else None


def rate(record: Record, what: str = "cpu_seconds") -> float:
    """MB a second with start-up set apart: what the small job took right after is taken off, and its bytes too.

    NaN where that leaves nothing: the job is too short to tell.
    """
    small = record["small_rounds"] or [{what: 0.0}] * len(record["rounds"])
    seconds = median(one[what] - start[what] for one, start in zip(record["rounds"], small, strict=True))
    return (record["n_bytes"] - record["n_small_bytes"]) / 1e6 / seconds if seconds > 0 else nan


def is_measured(record: Record | None) -> bool:
    return record is not None and record["wrong"] is None and bool(record["rounds"])
