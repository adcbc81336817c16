"""One lock for loading definitions and engines: each is made once per process, by one thread, across forks too.

`lru_cache` alone lets two threads make the same thing twice. A fork waits until a load is finished: a child born in
the middle of one would inherit half-done imports whose locks nobody releases.
"""

from __future__ import annotations

import os
import threading


class LoadingLock:
    """A re-entrant lock that no fork can leave locked."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=lambda: self._lock.acquire(),
                after_in_parent=lambda: self._lock.release(),
                after_in_child=self._renew,
            )

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


LOADING = LoadingLock()
