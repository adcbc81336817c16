"""Encode in this process, one unit after another: for debugging, and where no process may be started."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

from tokenmill.encode import Job, encode_unit
from tokenmill.executors import EncodeProgress
from tokenmill.fetching import Supply
from tokenmill.plan import Unit
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt

TICK_SECONDS = 0.2


def encode_units(
    job: Job, units: Sequence[Unit], options: RunOptions, progress: EncodeProgress, supply: Supply
) -> Generator[UnitReceipt]:
    for unit in units:
        while (paths := supply.paths(unit)) is None:
            progress.tick()
            time.sleep(TICK_SECONDS)
        yield encode_unit(job, unit, on_beat=progress.beat, paths=paths)
