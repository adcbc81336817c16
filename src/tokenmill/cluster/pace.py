"""How long tasks usually take, and which take so much longer that another station should try them too."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque

from tokenmill.cluster.link import Task

# A task is slow when it has taken so many times as long as others of its kind and size do, and so long at least.
SLOW_TIMES, SLOW_SECONDS = 3.0, 2.0
# And this long, where no other has been done yet to compare with.
UNKNOWN_SECONDS = 300.0
REMEMBERED = 100


class Pace:
    """The latest tasks of each kind: seconds for each byte or token of them."""

    def __init__(self) -> None:
        self._rates: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def add(self, task: Task, seconds: float) -> None:
        self._rates[task.kind].append(seconds / task.size)

    def limits(self) -> dict[str, float]:
        """Seconds for each byte or token, by kind, from which on a task is slow."""
        return {kind: SLOW_TIMES * statistics.median(rates) for kind, rates in self._rates.items()}


def is_slow(task: Task, seconds: float, limits: dict[str, float]) -> bool:
    limit = limits[task.kind] * task.size if task.kind in limits else UNKNOWN_SECONDS
    return seconds > max(SLOW_SECONDS, limit)
