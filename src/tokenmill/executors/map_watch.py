"""Watch `datasets.map` from the parent: progress while it runs, and how a worker died if one does.

`datasets` says only that a worker died. Its pool throws the process objects away at once; whoever holds one can
still ask it how the process ended. So a thread looks for new children all the time, keeps them, and reads notes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.encode import Beat
from tokenmill.executors.encode_rows import COUNT, FIRST, PER_UNIT, UNITS

LOOK_SECONDS = 0.02
BEAT_EVERY = 25  # looks: twice a second
STUCK_LOOKS = 250  # 5 s: datasets gives up within 1 s of a death, if it can


class MapWatch:
    """Beats while `datasets.map` runs in this block, and the workers that died in it."""

    def __init__(self, folder: Path, n_units: int, on_beat: Callable[[Beat], None]) -> None:
        self._folder, self._n_units, self._on_beat = folder, n_units, on_beat
        self._processes: dict[int, Any] = {}
        self._totals = np.zeros((n_units, PER_UNIT), dtype=np.int64)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tokenmill-map", daemon=True)
        self._error: BaseException | None = None
        self._n_looks_since_death = 0
        self._caller = threading.get_ident()
        self.was_stuck = False
        self._ignored = False

    def __enter__(self) -> MapWatch:
        # A shell has its background jobs ignore interrupts, and an interrupt is what frees a map that hangs.
        in_main = threading.current_thread() is threading.main_thread()
        self._ignored = in_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if self._ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._totals = self._noted_totals()
        if error is None and self._error is not None:
            raise self._error

    def deaths(self) -> dict[int, int]:
        """Exit codes by process id of the workers that ended early, as far as is known."""
        codes = {pid: process.exitcode for pid, process in self._processes.items()}
        early = {pid: code for pid, code in codes.items() if code not in (None, 0)}
        # The pool ends its workers by SIGTERM when one has died, or raised.
        first = {pid: code for pid, code in early.items() if code != -signal.SIGTERM}
        return first or early

    @property
    def saw_death(self) -> bool:
        """Whether a worker ended in a way that the pool does not end them in."""
        return any(code != -signal.SIGTERM for code in self.deaths().values())

    def documents_at(self, pid: int) -> tuple[int, int] | None:
        """Return the documents that a worker was at: from and to, counted through the dataset."""
        path = self._folder / f"{pid}.notes"
        notes = read_notes(path) if path.exists() else None
        if notes is None or not notes[COUNT]:
            return None
        return int(notes[FIRST]), int(notes[FIRST] + notes[COUNT])

    def encode_seconds(self, unit: int) -> float:
        """Return how long the workers took to encode a unit; 0 where it came from the cache."""
        return float(self._totals[unit, 2]) / 1e6

    def _watch(self) -> None:
        try:
            n_looks = 0
            while not self._stop.wait(LOOK_SECONDS):
                self._keep_children()
                self._free_if_stuck()
                n_looks += 1
                if n_looks % BEAT_EVERY == 0:
                    self._beat()
        except BaseException as error:  # whatever shows progress raised; it belongs to the run, not to this thread
            self._error = error

    def _keep_children(self) -> None:
        from multiprocess import process

        # A copy in one step: the pool adds to the set and takes from it in other threads.
        for child in process._children.copy():
            self._processes[child.pid] = child

    def _free_if_stuck(self) -> None:
        """Interrupt a map that cannot end: a worker killed while it waited for work took the pool's lock with it."""
        self._n_looks_since_death += self.saw_death
        if self._n_looks_since_death < STUCK_LOOKS:
            return
        self._n_looks_since_death = 0
        for process in self._processes.values():
            if process.is_alive():
                process.terminate()
        # Only the main thread hears signals, and only Python's own handler is known to raise.
        in_main = self._caller == threading.main_thread().ident
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.was_stuck = True
            signal.pthread_kill(self._caller, signal.SIGINT)

    def _beat(self) -> None:
        totals = self._noted_totals()
        for unit in np.flatnonzero((totals != self._totals).any(axis=1)).tolist():
            self._on_beat(Beat(unit, int(totals[unit, 0]), int(totals[unit, 1])))
        self._totals = totals

    def _noted_totals(self) -> npt.NDArray[np.int64]:
        found = [notes[UNITS:] for path in self._folder.glob("*.notes") if (notes := read_notes(path)) is not None]
        shape = (self._n_units, PER_UNIT)
        totals = [units.reshape(shape) for units in found if units.size == self._n_units * PER_UNIT]
        return np.sum(totals, axis=0, dtype=np.int64) if totals else np.zeros(shape, np.int64)


def read_notes(path: Path) -> npt.NDArray[np.int64] | None:
    """The notes of a worker as they are now; None if they are just being made."""
    data = path.read_bytes()
    return np.frombuffer(data, dtype=np.int64) if len(data) >= 8 * UNITS else None
