"""Encode in worker processes on this machine.

One thread here attends to each worker (seat.py): it hands out a unit, waits for the receipt, and knows at once when
the process ends. A dead worker is an event, not the end: the unit goes to a fresh one, with what was learned
(deaths.py). One more thread ends workers that have stopped making progress.

    units ──► thread ──stdin──► worker ──stdout──► thread ──► one queue ──► receipts
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenmill.encode import Beat, Job
from tokenmill.executors import EncodeProgress, Mishap
from tokenmill.executors.deaths import Death
from tokenmill.executors.ledger import Ledger
from tokenmill.executors.seat import Seat
from tokenmill.fetching import Supply
from tokenmill.plan import Unit
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt
from tokenmill.worker import Done, Failed

T = TypeVar("T")
TICK_SECONDS = 0.2


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


class _Crew:
    """The workers, the units not yet done, and the results not yet taken."""

    def __init__(self, job: Job, units: Sequence[Unit], n_workers: int, stall_seconds: float, supply: Supply) -> None:
        self.ledger = Ledger(units, supply, n_workers, use_reference=job.use_reference)
        self.stall_seconds = stall_seconds
        # Bounded: when writing shards is the slow part, workers wait.
        self.results: queue.Queue[UnitReceipt | Beat | Mishap | Exception] = queue.Queue(maxsize=2 * n_workers)
        self.changed = threading.Condition()  # the ledger
        self.stopping = threading.Event()
        folder = Path(job.desk) / "workers"
        folder.mkdir(exist_ok=True)
        line = msgspec.json.encode(job) + b"\n"
        self.seats = [Seat(folder, i, line) for i in range(n_workers)]
        self.positions: dict[Seat, int] = {}  # of the units that they hold
        self.threads = [threading.Thread(target=self.attend, args=(seat,), daemon=True) for seat in self.seats]
        self.threads.append(threading.Thread(target=self.watch, daemon=True))

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def attend(self, seat: Seat) -> None:
        """Hand units to the workers of one seat until there are none left, or this one is too many."""
        try:
            while (position := self.next_position()) is not None:
                if not self.encode(seat, position):
                    return
        except Exception as error:
            self.put(error)
        finally:
            seat.close()

    def encode(self, seat: Seat, position: int) -> bool:
        """Have a worker encode a unit. After a death the unit goes back; return whether this seat goes on."""
        with self.changed:
            self.positions[seat] = position
            request = self.ledger.request(position)
        answer = seat.encode(request, self.put)
        if self.stopping.is_set():
            return False
        match answer:
            case Done(receipt):
                self.put(receipt)
                self.settle(partial(self.ledger.finish, position))
                return True
            case Failed(out_of_memory=True):
                seat.close()
                what = "a worker could not get the memory it asked for"
                mishap = self.settle(partial(self.ledger.with_fewer_workers, position, what))
            case Failed():
                raise answer.as_error()
            case Death():
                mishap = self.settle(partial(self.ledger.after_death, position, answer))
        self.put(mishap)
        return mishap.kind != "memory" or self.ledger.n_deaths_alone > 0

    def settle(self, change: partial[T]) -> T:
        """Enter into the ledger what came of a unit, and wake whoever waits for the next."""
        with self.changed:
            result = change()
            self.changed.notify_all()
        return result

    def watch(self) -> None:
        """End workers that have made no progress for too long."""
        while not self.stopping.wait(min(1.0, self.stall_seconds / 4)):
            for seat in self.seats:
                if (position := self.positions.get(seat)) is not None:
                    seat.end_stalled(partial(self.ledger.stall_limit, position, self.stall_seconds))

    def next_position(self) -> int | None:
        """Return the position of the next unit, as soon as there is one; None if there are no more."""
        with self.changed:
            while not self.stopping.is_set() and not self.ledger.is_over:
                if (position := self.ledger.next_position()) is not None:
                    return position
                self.changed.wait(TICK_SECONDS if self.ledger.waits_for_supply else None)
            return None

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
                seat.kill()
            for thread in self.threads:
                if thread.is_alive():
                    thread.join(TICK_SECONDS)
