"""A place for a worker process: start it, hand it a unit, and know at once when it dies, and how.

A worker is started as `python -m tokenmill.worker`, never forked and never by multiprocessing: scripts without a
`__main__` guard and notebooks work, and nothing is pickled. What it says on standard error is kept for its last words.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import msgspec

from tokenmill import machine
from tokenmill.care import Note
from tokenmill.encode import Beat
from tokenmill.executors.deaths import Death, exit_in_words, was_out_of_memory
from tokenmill.worker import NOTE, Done, Failed, Message, UnitRequest, read_note

# One thread a worker. numpy's linear algebra, which nobody here uses, would spin on all cores as it is loaded: 0.13 s
# of CPU; and the tokenizers library would take all cores in each worker.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

# A worker that has made no note yet is given at least so long: importing may take that from a cold or distant disk.
STARTING_SECONDS = 60.0


class Seat:
    """The process that has this place, what it is at, and since when."""

    def __init__(self, folder: Path, number: int, job: bytes) -> None:
        self.job = job  # a line
        self.process: subprocess.Popen[bytes] | None = None
        self._notes_path = folder / f"{number}.notes"
        self._log_path = folder / f"{number}.log"
        self._unit: int | None = None  # the one it holds
        self._n_notes = 0
        self._since = monotonic()
        self._stalled = False
        self._n_oom_kills = 0

    def encode(self, request: UnitRequest, on_beat: Callable[[Beat], None]) -> Done | Failed | Death:
        """Have the worker encode a unit, a fresh one if there is none."""
        try:
            process = self.process or self._start()
            self._unit, self._since = request.unit.index, monotonic()
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
            answer = self._answer(process, on_beat)
        except (BrokenPipeError, ConnectionError, EOFError):
            return self._death(request.unit.index)
        self._unit = None
        return answer

    def end_stalled(self, limit: Callable[[Note | None], float]) -> None:
        """End the worker if it has made no progress for longer than the limit for what it is at."""
        unit, process = self._unit, self.process
        if unit is None or process is None:
            return
        n_notes, note = read_note(self._notes_path)
        if n_notes != self._n_notes:
            self._n_notes, self._since = n_notes, monotonic()
        elif monotonic() - self._since > (limit(note) if note else max(limit(note), STARTING_SECONDS)):
            self._stalled = True
            process.kill()

    def kill(self) -> None:
        """End the process from another thread; whoever waits for its answer learns of it."""
        if (process := self.process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process, whatever it does: it holds nothing that cannot be made again."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):  # a request was still in the buffer when the worker ended
                pipe.close()
        self.process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._notes_path.write_bytes(bytes(NOTE.size))
        self._n_notes = 0
        self._stalled = False
        self._n_oom_kills = oom_kills()
        with self._log_path.open("wb") as log:
            # -P: a file called numpy.py in the working folder is not ours to import.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tokenmill.worker", str(self._notes_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=ONE_THREAD | os.environ,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(self.job)
        return self.process

    def _answer(self, process: subprocess.Popen[bytes], on_beat: Callable[[Beat], None]) -> Done | Failed:
        """Wait for the worker to finish its unit."""
        assert process.stdout is not None
        while True:
            line = process.stdout.readline()
            if not line.endswith(b"\n"):
                raise EOFError  # it died, perhaps in the middle of a word
            message: Message = msgspec.json.decode(line, type=Message)
            if not isinstance(message, Beat):
                return message
            on_beat(message)

    def _death(self, unit: int) -> Death:
        assert self.process is not None
        pid, self._unit = self.process.pid, None
        status = self.process.wait()
        self.close()
        how, words = exit_in_words(status), self._last_words()
        if self._stalled:
            how = f"no progress for {monotonic() - self._since:.0f} s, so it was ended"
        _, note = read_note(self._notes_path)
        if note is not None and note.unit != unit:  # of the unit before: it died before it had begun with this one
            note = None
        out_of_memory = not self._stalled and was_out_of_memory(status, oom_kills() - self._n_oom_kills, words)
        return Death(pid, how, words, note, stalled=self._stalled, out_of_memory=out_of_memory)

    def _last_words(self) -> str:
        """What the worker said last on its standard error."""
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def oom_kills() -> int:
    """Processes that the kernel has killed for memory so far, by the control group's count or the machine's."""
    return (machine.oom_kills() or 0) + (machine.system_oom_kills() or 0)
