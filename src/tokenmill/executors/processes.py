"""Encode in worker processes on this machine.

Workers are started as `python -m tokenmill.worker`, never forked and never by multiprocessing: scripts without a
`__main__` guard and notebooks work, and nothing is pickled. One thread here attends to each worker: it hands out a
unit, waits for the receipt, and knows at once when the process ends. A dead worker is an event, not the end: the unit
goes to a fresh one, with what was learned (deaths.py). One more thread ends workers that have stopped making progress.

    units ──► thread ──stdin──► worker ──stdout──► thread ──► one queue ──► receipts
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import msgspec

from tokenmill import machine
from tokenmill.encode import Beat, Job
from tokenmill.errors import WorkerError
from tokenmill.executors import EncodeProgress, Mishap
from tokenmill.executors.deaths import Trouble, exit_in_words, stall_limit, was_out_of_memory
from tokenmill.fetching import Supply
from tokenmill.plan import Unit
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt
from tokenmill.worker import NOTE, Done, Failed, Message, UnitRequest, read_note

# How many units may lie between the first unfinished one and the last one begun, per worker. It bounds the
# segments on disk when one unit takes long.
WINDOW_PER_WORKER = 8
TICK_SECONDS = 0.2
# One thread a worker. numpy's linear algebra, which nobody here uses, would spin on all cores as it is loaded: 0.13 s
# of CPU; and the tokenizers library would take all cores in each worker.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def encode_units(
    job: Job, units: Sequence[Unit], options: RunOptions, progress: EncodeProgress, supply: Supply
) -> Generator[UnitReceipt]:
    n_workers = max(1, min(options.n_workers, len(units)))
    crew = _Crew(job, units, n_workers, options.stall_seconds, supply)
    try:
        crew.start()
        n_left = len(units)
        while n_left:
            try:
                result = crew.results.get(timeout=TICK_SECONDS)
            except queue.Empty:
                progress.tick()
                continue
            match result:
                case Beat():
                    progress.beat(result)
                case Mishap():
                    progress.mishap(result)
                case Exception():
                    raise result
                case receipt:
                    n_left -= 1
                    yield receipt
    finally:
        crew.stop()


class _Seat:
    """A place for a worker: the process that has it, what it is at, and since when."""

    def __init__(self, folder: Path, number: int) -> None:
        self.notes_path = folder / f"{number}.notes"
        self.log_path = folder / f"{number}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.position: int | None = None  # of the unit it holds
        self.n_notes = 0
        self.since = monotonic()
        self.stalled = False
        self.n_oom_kills = 0

    def start(self, job: bytes) -> subprocess.Popen[bytes]:
        self.notes_path.write_bytes(bytes(NOTE.size))
        self.n_notes = 0
        self.stalled = False
        self.n_oom_kills = oom_kills()
        with self.log_path.open("wb") as log:
            # -P: a file called numpy.py in the working folder is not ours to import.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tokenmill.worker", str(self.notes_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=ONE_THREAD | os.environ,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(job)
        return self.process

    def last_words(self) -> str:
        """What the worker said last on its standard error."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

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


class _Crew:
    """The workers, the units not yet done, and the results not yet taken."""

    def __init__(self, job: Job, units: Sequence[Unit], n_workers: int, stall_seconds: float, supply: Supply) -> None:
        self.job = msgspec.json.encode(job) + b"\n"
        self.use_reference = job.use_reference
        self.units, self.supply = units, supply
        self.stall_seconds = stall_seconds
        self.window = WINDOW_PER_WORKER * n_workers
        # Bounded: when writing shards is the slow part, workers wait.
        self.results: queue.Queue[UnitReceipt | Beat | Mishap | Exception] = queue.Queue(maxsize=2 * n_workers)
        self.changed = threading.Condition()
        self.again: deque[int] = deque()  # positions in `units` whose worker died
        self.n_begun = 0  # positions handed out so far
        self.first_unfinished = 0
        self.finished: set[int] = set()  # those behind the first unfinished one
        self.troubles: defaultdict[int, Trouble] = defaultdict(Trouble)
        self.n_workers = n_workers
        self.n_deaths_alone = 0  # for want of memory, of the last worker
        self.stopping = threading.Event()
        folder = Path(job.desk) / "workers"
        folder.mkdir(exist_ok=True)
        self.seats = [_Seat(folder, i) for i in range(n_workers)]
        self.threads = [threading.Thread(target=self.attend, args=(seat,), daemon=True) for seat in self.seats]
        self.threads.append(threading.Thread(target=self.watch, daemon=True))

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def attend(self, seat: _Seat) -> None:
        """Hand units to the workers of one seat until there are none left, or this one is too many."""
        try:
            while (position := self.next_position()) is not None:
                if not self.encode(seat, position):
                    return
        except Exception as error:
            self.put(error)
        finally:
            seat.close()

    def encode(self, seat: _Seat, position: int) -> bool:
        """Have a worker encode a unit. After a death the unit goes back; return whether this seat goes on."""
        unit = self.units[position]
        request = UnitRequest(unit, self.troubles[position].care, self.supply.paths(unit) or {})
        try:
            process = seat.process or seat.start(self.job)
            seat.position, seat.since = position, monotonic()
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
            answer = self.answer(process)
        except (BrokenPipeError, ConnectionError, EOFError):
            return self.after_death(seat, position)
        seat.position = None
        if isinstance(answer, Done):
            self.put(answer.receipt)
            self.finish(position)
            return True
        if answer.out_of_memory:
            seat.close()
            return self.with_fewer_workers(position, "a worker could not get the memory it asked for")
        raise answer.as_error()

    def answer(self, process: subprocess.Popen[bytes]) -> Done | Failed:
        """Wait for the worker to finish its unit."""
        assert process.stdout is not None
        while True:
            line = process.stdout.readline()
            if not line.endswith(b"\n"):
                raise EOFError  # it died, perhaps in the middle of a word
            message: Message = msgspec.json.decode(line, type=Message)
            if not isinstance(message, Beat):
                return message
            self.put(message)

    def after_death(self, seat: _Seat, position: int) -> bool:
        assert seat.process is not None
        process, seat.position = seat.process, None
        status = process.wait()
        seat.close()
        if self.stopping.is_set():
            return False
        how, unit, words = exit_in_words(status), self.units[position].index, seat.last_words()
        if seat.stalled:
            how = f"no progress for {monotonic() - seat.since:.0f} s, so it was ended"
        elif was_out_of_memory(status, oom_kills() - seat.n_oom_kills, words):
            return self.with_fewer_workers(position, f"worker {process.pid} died in unit {unit}: {how}, out of memory")
        trouble = self.troubles[position]
        _, note = read_note(seat.notes_path)
        if note is not None and note.unit != unit:  # of the unit before: it died before it had begun with this one
            note = None
        then = trouble.blame(note, how, use_reference=self.use_reference)
        what = f"worker {process.pid} died in unit {unit}: {how}"
        if trouble.hopeless:
            raise WorkerError(
                f"{what}; the third time while it was reading or writing" + (f"\n  {words}" if words else ""),
                hint="run the same command again to go on from here; `tokenmill doctor` looks at the machine",
            )
        self.put(Mishap("stall" if seat.stalled else "death", f"{what}; {then}"))
        self.give_back(position)
        return True

    def with_fewer_workers(self, position: int, what: str) -> bool:
        """Give the unit back and take this worker out, so that the others fit; the last one cannot be taken out.

        It may try once more alone: the kernel may have taken it together with those that were too many.
        """
        with self.changed:
            alone = self.n_workers == 1
            self.n_workers -= not alone
            self.n_deaths_alone += alone
        if self.n_deaths_alone > 1:
            limit = machine.memory_limit()
            room = f"{limit / 1e9:.1f} GB are allowed here" if limit else "this machine has no more"
            raise WorkerError(
                f"{what}, and there is no other worker to take out; one worker and its parent need about"
                f" {(machine.PARENT_BYTES + machine.WORKER_MAX_BYTES) / 1e9:.1f} GB, and {room}",
                hint="run the same command again with more memory: it goes on from here",
            )
        self.put(Mishap("memory", f"{what}; the run goes on with {self.n_workers}"))
        self.give_back(position)
        return alone

    def watch(self) -> None:
        """End workers that have made no progress for too long."""
        while not self.stopping.wait(min(1.0, self.stall_seconds / 4)):
            for seat in self.seats:
                position, process = seat.position, seat.process
                if position is None or process is None:
                    continue
                n_notes, note = read_note(seat.notes_path)
                if n_notes != seat.n_notes:
                    seat.n_notes, seat.since = n_notes, monotonic()
                elif monotonic() - seat.since > stall_limit(self.stall_seconds, note, self.troubles[position]):
                    seat.stalled = True
                    process.kill()

    def next_position(self) -> int | None:
        """Return the position of the next unit, as soon as it is not too far ahead of the first unfinished one.

        And as soon as its inputs are here. A unit that comes again has them: they stay until it is done.
        """
        with self.changed:
            while not self.stopping.is_set() and self.first_unfinished < len(self.units):
                if self.again:
                    return self.again.popleft()
                if self.n_begun < min(len(self.units), self.first_unfinished + self.window):
                    if self.supply.paths(self.units[self.n_begun]) is not None:
                        self.n_begun += 1
                        return self.n_begun - 1
                    self.changed.wait(TICK_SECONDS)
                else:
                    self.changed.wait()
            return None

    def give_back(self, position: int) -> None:
        with self.changed:
            self.again.append(position)
            self.changed.notify_all()

    def finish(self, position: int) -> None:
        with self.changed:
            self.troubles.pop(position, None)
            self.finished.add(position)
            while self.first_unfinished in self.finished:
                self.finished.remove(self.first_unfinished)
                self.first_unfinished += 1
            self.changed.notify_all()

    def put(self, result: UnitReceipt | Beat | Mishap | Exception) -> None:
        while not self.stopping.is_set():
            with suppress(queue.Full):
                self.results.put(result, timeout=TICK_SECONDS)
                return

    def stop(self) -> None:
        """End every worker, by a signal."""
        self.stopping.set()
        with self.changed:
            self.changed.notify_all()
        while any(thread.is_alive() for thread in self.threads):
            for seat in self.seats:  # again and again: one may just be starting
                if (process := seat.process) is not None:
                    process.kill()
            for thread in self.threads:
                if thread.is_alive():
                    thread.join(TICK_SECONDS)


def oom_kills() -> int:
    """Processes that the kernel has killed for memory so far, by the control group's count or the machine's."""
    return (machine.oom_kills() or 0) + (machine.system_oom_kills() or 0)
