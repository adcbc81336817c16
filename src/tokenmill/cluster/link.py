"""Between the driver and whoever runs the stations: Ray, or a made-up one in tests and simulations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol


class Ended(NamedTuple):
    """What came of a task: the answer, or why there is none."""

    station: Hashable
    answer: bytes | None
    lost: str = ""


class Link(Protocol):
    """Whoever runs the stations."""

    def stations(self) -> list[Hashable]:
        """All stations that there are or may yet be: those on nodes that come later too, and no dismissed ones."""

    def n_nodes(self) -> int:
        """Nodes that could have a station now."""

    def n_cpus(self) -> int:
        """CPUs of the cluster as it is now."""

    def node_of(self, station: Hashable) -> str:
        """The node where a station that has answered is."""

    def submit(self, station: Hashable, kind: str, task: bytes) -> None:
        """Have a station do something; it may not be there yet. One that was lost is started again for it."""

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended since, waiting a little if nothing has."""

    def dismiss(self, station: Hashable) -> None:
        """End a station for good."""

    def close(self) -> None:
        """End all stations, and wait until they have ended."""


class Task(NamedTuple):
    kind: str
    key: Hashable  # by which it is known to be done
    data: bytes
    position: int  # of a unit in the ledger; the number of a shard
    size: int  # bytes or tokens, at least 1: what its duration is in proportion to
