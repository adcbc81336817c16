"""Encode in worker processes on this machine.

Workers are started as `python -m tokenmill.worker`, never forked and never by multiprocessing: scripts without a
`__main__` guard and notebooks work, and nothing is pickled. One thread here attends to each worker: it hands out a
unit, waits for the receipt, and knows at once when the process ends.

    units ──► thread ──stdin──► worker ──stdout──► thread ──► one queue ──► receipts
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

import msgspec

from tokenmill.encode import Beat, Job
from tokenmill.errors import WorkerError
from tokenmill.plan import Unit
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt
from tokenmill.worker import Done, Failed, Message

# How many units may lie between the first unfinished one and the last one begun, per worker. It bounds the
# segments on disk when one unit takes long.
WINDOW_PER_WORKER = 8


def encode_units(
    job: Job, units: Sequence[Unit], options: RunOptions, on_beat: Callable[[Beat], None]
) -> Generator[UnitReceipt]:
    n_workers = max(1, min(options.n_workers, len(units)))
    crew = _Crew(job, units, n_workers)
    try:
        for _ in range(n_workers):
            crew.start_worker()
        n_left = len(units)
        while n_left:
            result = crew.results.get()
            if isinstance(result, Beat):
                on_beat(result)
            elif isinstance(result, Exception):
                raise result
            else:
                n_left -= 1
                yield result
    finally:
        crew.stop()


class _Crew:
    """The workers, the units not yet handed out, and the results not yet taken."""

    def __init__(self, job: Job, units: Sequence[Unit], n_workers: int) -> None:
        self.job = msgspec.json.encode(job) + b"\n"
        self.units = units
        self.window = WINDOW_PER_WORKER * n_workers
        # Bounded: when writing shards is the slow part, workers wait.
        self.results: queue.Queue[UnitReceipt | Beat | Exception] = queue.Queue(maxsize=2 * n_workers)
        self.changed = threading.Condition()
        self.n_begun = 0  # positions in `units` handed out so far
        self.first_unfinished = 0
        self.finished: set[int] = set()  # those behind the first unfinished one
        self.stopping = False
        self.processes: list[subprocess.Popen[bytes]] = []
        self.threads: list[threading.Thread] = []

    def start_worker(self) -> None:
        # -P: a file called numpy.py in the working folder is not ours to import.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        thread = threading.Thread(target=self.attend, args=(process,), daemon=True)
        self.threads.append(thread)
        thread.start()

    def attend(self, process: subprocess.Popen[bytes]) -> None:
        """Hand units to one worker until there are none left."""
        assert process.stdin is not None
        assert process.stdout is not None
        position: int | None = None
        try:
            process.stdin.write(self.job)
            while (position := self.next_position()) is not None:
                process.stdin.write(msgspec.json.encode(self.units[position]) + b"\n")
                process.stdin.flush()
                self.put(self.receipt(process))
                self.finish(position)
        except (BrokenPipeError, ConnectionError, EOFError):
            self.put(self.death(process, position))
        except Exception as error:
            self.put(error)

    def next_position(self) -> int | None:
        """Return the position of the next unit, as soon as it is not too far ahead of the first unfinished one."""
        with self.changed:
            while not self.stopping and self.n_begun < len(self.units):
                if self.n_begun < self.first_unfinished + self.window:
                    self.n_begun += 1
                    return self.n_begun - 1
                self.changed.wait()
            return None

    def finish(self, position: int) -> None:
        with self.changed:
            self.finished.add(position)
            while self.first_unfinished in self.finished:
                self.finished.remove(self.first_unfinished)
                self.first_unfinished += 1
            self.changed.notify_all()

    def receipt(self, process: subprocess.Popen[bytes]) -> UnitReceipt:
        """Wait for the worker to finish its unit."""
        assert process.stdout is not None
        while True:
            line = process.stdout.readline()
            if not line.endswith(b"\n"):
                raise EOFError  # it died, perhaps in the middle of a word
            match msgspec.json.decode(line, type=Message):
                case Beat() as beat:
                    self.put(beat)
                case Done(receipt):
                    return receipt
                case Failed() as failed:
                    raise failed.as_error()

    def put(self, result: UnitReceipt | Beat | Exception) -> None:
        while not self.stopping:
            try:
                self.results.put(result, timeout=0.2)
                return
            except queue.Full:
                continue

    def death(self, process: subprocess.Popen[bytes], position: int | None) -> Exception:
        where = "" if position is None else f" while it encoded unit {self.units[position].index}"
        return WorkerError(
            f"worker process {process.pid} ended{where}: {exit_in_words(process.wait())}",
            hint="run the same command again; with fewer `--workers` if memory is short",
        )

    def stop(self) -> None:
        """End every worker, by a signal."""
        self.stopping = True
        with self.changed:
            self.changed.notify_all()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        for thread in self.threads:
            thread.join()
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):  # the job was still in the buffer when the worker ended
                    pipe.close()


def exit_in_words(status: int) -> str:
    """Return how a process ended: its exit code, or the name of the signal."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
