"""Which units are to do, begun and done, and what is known of those whose workers died.

No threads and no processes here: executors ask what is next, and say what came of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from tokenmill import machine
from tokenmill.care import Note
from tokenmill.errors import WorkerError
from tokenmill.executors import Mishap
from tokenmill.executors.deaths import Death, Trouble, stall_limit
from tokenmill.fetching import Supply
from tokenmill.plan import Unit
from tokenmill.worker import UnitRequest

# How many units may lie between the first unfinished one and the last one begun, per worker. It bounds the
# segments on disk when one unit takes long.
WINDOW_PER_WORKER = 8


class Ledger:
    """The units of a run by their positions in `units`."""

    def __init__(self, units: Sequence[Unit], supply: Supply, n_workers: int, *, use_reference: bool) -> None:
        self.units, self.supply, self.use_reference = units, supply, use_reference
        self.n_workers = n_workers
        self.n_deaths_alone = 0  # for want of memory, of the last worker
        self.n_begun = 0  # positions handed out so far
        self.first_unfinished = 0
        self.is_stopped = False  # nobody wants what is not begun: a limit was reached
        self._again: deque[int] = deque()  # positions whose worker died
        self._set_aside: defaultdict[str, deque[int]] = defaultdict(deque)  # positions that a node is to begin next
        self._finished: set[int] = set()  # those behind the first unfinished one
        self._troubles: defaultdict[int, Trouble] = defaultdict(Trouble)

    @property
    def is_over(self) -> bool:
        return self.first_unfinished == len(self.units)

    @property
    def waits_for_supply(self) -> bool:
        """Whether a unit could be begun if its inputs were here."""
        return self.n_begun < min(len(self.units), self.first_unfinished + self.window)

    @property
    def window(self) -> int:
        return WINDOW_PER_WORKER * self.n_workers

    def is_late(self, position: int) -> bool:
        """Whether a unit that is not done will soon keep all others from being begun."""
        return self.n_begun - position > self.window // 2

    def next_position(self, node: str | None = None) -> int | None:
        """The next unit to begin, if it is not too far ahead of the first unfinished one and its inputs are here.

        A unit that comes again has them: they stay until it is done.
        """
        if self.is_stopped:
            return None
        while self._again:
            if not self.is_finished(position := self._again.popleft()):  # a copy of it may have been done since
                return position
        if node is not None:
            return self._next_on(node)
        if self.waits_for_supply and self.supply.paths(self.units[self.n_begun]) is not None:
            self.n_begun += 1
            return self.n_begun - 1
        return None

    def _next_on(self, node: str) -> int | None:
        """The next unit for a node of a cluster, which has to fetch its inputs whole: each goes to as few as can be.

        The units of an input are set aside for the node that begins with it. A node that has none takes what is set
        aside for another if that is late, or if nothing else may be begun.
        """
        aside = self._set_aside
        if not aside[node]:
            other = min((one for one in aside if aside[one]), key=lambda one: aside[one][0], default=node)
            if self.waits_for_supply and not (aside[other] and self.is_late(aside[other][0])):
                aside[node].extend(self._begun_together(self.window // len(aside)))
            else:
                aside[node], aside[other] = aside[other], aside[node]
        return aside[node].popleft() if aside[node] else None

    def _begun_together(self, at_most: int) -> range:
        """The next units that begin in the same input; not so many that others would have to wait."""
        first, first_input = self.n_begun, self.units[self.n_begun].spans[0].input
        while self.waits_for_supply and self.units[self.n_begun].spans[0].input == first_input:
            self.n_begun += 1
            if self.n_begun - first >= at_most:
                break
        return range(first, self.n_begun)

    def request(self, position: int) -> UnitRequest:
        unit = self.units[position]
        return UnitRequest(unit, self._troubles[position].care, self.supply.paths(unit) or {})

    def is_finished(self, position: int) -> bool:
        return position < self.first_unfinished or position in self._finished

    def finish(self, position: int) -> None:
        self._troubles.pop(position, None)
        self._finished.add(position)
        while self.first_unfinished in self._finished:
            self._finished.remove(self.first_unfinished)
            self.first_unfinished += 1

    def give_back(self, position: int) -> None:
        self._again.append(position)

    def after_death(self, position: int, death: Death, node: str | None = None) -> Mishap:
        """Take a worker's death into account, give the unit back, and say what happens next; raise if nothing can.

        `node` is the one of a cluster where it was.
        """
        unit = self.units[position].index
        what = f"worker {death.pid}{f' on {node}' if node else ''} died in unit {unit}: {death.how}"
        if death.out_of_memory:
            return self.with_fewer_workers(position, f"{what}, out of memory", node)
        trouble = self._troubles[position]
        then = trouble.blame(death.note, death.how, use_reference=self.use_reference)
        if trouble.hopeless:
            raise WorkerError(
                f"{what}; the third time while it was reading or writing"
                + (f"\n  {death.words}" if death.words else ""),
                hint="run the same command again to go on from here; `tokenmill doctor` looks at the machine",
            )
        self.give_back(position)
        return Mishap("stall" if death.stalled else "death", f"{what}; {then}")

    def with_fewer_workers(self, position: int, what: str, node: str | None = None) -> Mishap:
        """Give the unit back and count one worker less, so that the others fit; the last one cannot be taken out.

        It may try once more alone: the kernel may have taken it together with those that were too many.
        """
        alone = self.n_workers == 1
        self.n_workers -= not alone
        self.n_deaths_alone += alone
        if self.n_deaths_alone > 1:
            limit = None if node else machine.memory_limit()
            room = f"{limit / 1e9:.1f} GB are allowed here" if limit else f"{node or 'this machine'} has no more"
            raise WorkerError(
                f"{what}, and there is no other worker to take out; one worker and its parent need about"
                f" {(machine.PARENT_BYTES + machine.WORKER_MAX_BYTES) / 1e9:.1f} GB, and {room}",
                hint="run the same command again with more memory: it goes on from here",
            )
        self.give_back(position)
        return Mishap("memory", f"{what}; the run goes on with {self.n_workers}")

    def stall_limit(self, position: int, seconds: float, note: Note | None) -> float:
        """How long the worker of a unit may go without a sign."""
        return stall_limit(seconds, note, self._troubles[position])
