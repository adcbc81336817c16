"""Encode in this process, one unit after another: for debugging, and where no process may be started."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from tokenmill.encode import Job, encode_unit
from tokenmill.executors import EncodeProgress
from tokenmill.plan import Unit
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt


def encode_units(
    job: Job, units: Sequence[Unit], options: RunOptions, progress: EncodeProgress
) -> Generator[UnitReceipt]:
    for unit in units:
        yield encode_unit(job, unit, on_beat=progress.beat)
