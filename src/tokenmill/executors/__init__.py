"""Executors: units in, receipts out, in any order.

Every executor encodes units in about the order given, so that shards can be written while later units are still
being encoded; none is more than a bounded number of units ahead of the first unfinished one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tokenmill.encode import Beat, Job
    from tokenmill.plan import Unit
    from tokenmill.recipe import RunOptions
    from tokenmill.segments import UnitReceipt


class Executor(Protocol):
    def __call__(
        self, job: Job, units: Sequence[Unit], options: RunOptions, on_beat: Callable[[Beat], None]
    ) -> Generator[UnitReceipt]:
        """Encode the units and yield their receipts. Closing the iterator ends the work."""


def executor_named(name: str) -> Executor:
    if name == "inline":
        from tokenmill.executors.inline import encode_units as inline

        return inline
    if name == "datasets":
        from tokenmill.executors.datasets_map import encode_units as datasets_map

        return datasets_map
    from tokenmill.executors.processes import encode_units as processes

    return processes
