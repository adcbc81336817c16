"""Who encodes: executors take units and yield receipts, in any order.

inline      this process, one unit after another
processes   worker processes on this machine
datasets    the processes of `datasets.map`
ray         stations on a Ray cluster, which write shards too (cluster/)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from tokenmill.encode import Beat, Job
    from tokenmill.fetching import Supply
    from tokenmill.plan import Unit
    from tokenmill.recipe import RunOptions
    from tokenmill.segments import UnitReceipt


class Mishap(NamedTuple):
    """Something went wrong and the run goes on: what, and what happens next, in one line."""

    kind: Literal["death", "stall", "memory", "node"]
    what: str


class EncodeProgress(Protocol):
    """Who wants to know how the workers are. Each call may raise, which ends the run."""

    def beat(self, beat: Beat) -> None: ...
    def mishap(self, mishap: Mishap) -> None: ...
    def tick(self) -> None:
        """Nothing happened for a moment."""


class Executor(Protocol):
    def __call__(
        self, job: Job, units: Sequence[Unit], options: RunOptions, progress: EncodeProgress, supply: Supply
    ) -> Generator[UnitReceipt]:
        """Encode all units; an error ends it, and closing it ends whatever it started.

        A unit is begun when the supply has its inputs, and `units` are begun in their order.
        """


def executor_named(name: str) -> Executor:
    module = {"datasets": "datasets_map"}.get(name, name)
    executor: Executor = import_module(f"tokenmill.executors.{module}").encode_units
    return executor
