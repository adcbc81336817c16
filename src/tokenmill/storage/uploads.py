"""What is on its way to a store: one thing after another, in order, by a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

TICK_SECONDS = 0.2
MAX_WAITING = 2  # shards sealed and not put: when the network is the slow part, the run waits


class Uploads:
    """A thread that puts one thing after another, in order; `taken` yields what is done, and raises what went wrong."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], list[Path]] | None] = queue.Queue()
        self._done: queue.Queue[list[Path] | Exception] = queue.Queue()
        self._n_open = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tokenmill-put", daemon=True)
        self._thread.start()

    def add(self, put: Callable[[], list[Path]]) -> None:
        self._n_open += 1
        self._waiting.put(put)

    def taken(self, on_wait: Callable[[], None] | None) -> list[Path] | None:
        """The files of the next upload that is done; None where there is none, or none is left to wait for."""
        while self._n_open:
            try:
                done = self._done.get(timeout=TICK_SECONDS if on_wait or self._n_open > MAX_WAITING else 0.0)
            except queue.Empty:
                if on_wait:
                    on_wait()
                elif self._n_open <= MAX_WAITING:
                    return None
                continue
            self._n_open -= 1
            if isinstance(done, Exception):
                raise done
            return done
        return None

    def close(self) -> None:
        """Stop behind the upload that is under way."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (put := self._waiting.get()) is not None and not self._closing.is_set():
            try:
                self._done.put(put())
            except Exception as error:
                self._done.put(error)
                return
