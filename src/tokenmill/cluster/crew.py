"""The driver's side: hand tasks to stations, take results, and cope with what goes wrong. Knows nothing of Ray.

A station gets one task at a time, and the next when it has answered. One that is lost (its process, its node) is
started anew by whoever runs the stations, and its task goes to another at once. When nothing is left to begin, or when
all would soon wait for one unit, idle stations take another copy of what is slow elsewhere: nobody waits for a slow
node. Every task gives the same bytes however often it is done, so the first answer counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from tokenmill.cluster.link import Ended, Link, Task
from tokenmill.cluster.meeting import problem_with
from tokenmill.cluster.pace import Pace, is_slow
from tokenmill.cluster.station import About, Encoded, GroupDone, Result, Written
from tokenmill.errors import NO_ROOM, SpaceError, WorkerError
from tokenmill.executors import EncodeProgress, Mishap
from tokenmill.executors.deaths import Death
from tokenmill.executors.ledger import Ledger
from tokenmill.journal import InputHashed
from tokenmill.progress import NodeRecord
from tokenmill.scatter import GroupReceipt
from tokenmill.segments import UnitReceipt
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.worker import Done, Failed

TURN_SECONDS = 0.2
MAX_COPIES = 3  # of a slow task at a time: the second station may be a slow one too
MAX_STARTS = 3
START_SECONDS = 60.0  # until every node that was there at the beginning has said who it is
ALONE_SECONDS = 60.0  # without any station, until that is said

_decoder = msgspec.json.Decoder(Result)


@dataclass
class _Hand:
    """A station, and what it is at."""

    ready: bool = False
    task: Task | None = None
    since: float = 0.0
    node: str = ""
    n_failed_starts: int = 0  # in a row


@dataclass
class Crew:
    """The stations of a run, the tasks that are waiting, and the results not yet taken."""

    link: Link
    ledger: Ledger
    progress: EncodeProgress
    expected: About  # what the driver would say of itself
    now: Callable[[], float] = monotonic
    receipts: deque[UnitReceipt] = field(default_factory=deque)
    shards: dict[int, ShardReceipt] = field(default_factory=dict)  # by their numbers
    groups: deque[GroupReceipt] = field(default_factory=deque)
    hashed: list[InputHashed] = field(default_factory=list)
    asked: set[Hashable] = field(default_factory=set)  # all stations there ever were
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    _hands: dict[Hashable, _Hand] = field(default_factory=dict)
    _waiting: deque[Task] = field(default_factory=deque)
    _open: dict[Hashable, Task] = field(default_factory=dict)  # submitted or waiting, by key
    _copies: Counter[Hashable] = field(default_factory=Counter)  # stations at each task
    _pace: Pace = field(default_factory=Pace)
    _slow: deque[Task] | None = None  # to be copied in this turn; None: nobody has looked
    _slow_nodes: set[str] = field(default_factory=set)
    _first_turn: float | None = None
    _all_met: bool = False
    _last_ready: float = 0.0

    def encode(self) -> Generator[UnitReceipt]:
        """Yield the receipts of all units of the ledger."""
        while True:
            while self.receipts:
                yield self.receipts.popleft()
            if self.ledger.is_over:
                return
            self.turn()

    def add(self, task: Task) -> None:
        """Have something done besides units; it comes before them."""
        self._open[task.key] = task
        self._waiting.append(task)

    @property
    def n_open(self) -> int:
        """Tasks besides units that are not done."""
        return len(self._open)

    def turn(self) -> None:
        """Hand out what can be handed out, and take what has ended."""
        if self._first_turn is None:
            self._first_turn = self._last_ready = self.now()
        for station in self.link.stations():
            if station not in self._hands:
                self._hands[station] = _Hand()
                self.asked.add(station)
                self.link.submit(station, "about", str(station).encode())
        if self.all_met():
            self._count_stations()
            self._slow = None
            for station, hand in self._hands.items():
                if hand.ready and hand.task is None:
                    if (task := self._next(hand)) is not None:
                        self._hand_out(station, hand, task)
                    elif not self._slow:
                        break  # nor is there anything for the others
        for ended in self.link.wait(TURN_SECONDS):
            self._ended(ended)
        self.progress.tick()

    def all_met(self) -> bool:
        """Whether work may begin: every node that is there has been looked at, or was given long enough."""
        if self._all_met:
            return True
        assert self._first_turn is not None
        n_met = len({hand.node for hand in self._hands.values() if hand.ready})
        waited = self.now() - self._first_turn > START_SECONDS
        if waited and not n_met:
            raise WorkerError(
                f"no station of the cluster answered within {START_SECONDS:.0f} s",
                hint="has the cluster free CPUs, and is tokenmill installed on its nodes?",
            )
        self._all_met = bool(n_met) and (waited or n_met >= self.link.n_nodes())
        return self._all_met

    def _count_stations(self) -> None:
        """Keep up with a cluster that grows and shrinks, and say so when nobody is left."""
        n_ready = sum(hand.ready for hand in self._hands.values())
        self.ledger.n_workers = max(1, n_ready)
        if n_ready:
            self._last_ready = self.now()
        elif not self._hands:
            raise WorkerError(
                "no station of the cluster is left", hint="run the same command again: it goes on from here"
            )
        elif self.now() - self._last_ready > ALONE_SECONDS:
            self._last_ready = self.now()
            self.progress.mishap(Mishap("node", "no node has room for a station; waiting until one comes"))

    @property
    def nodes_worked(self) -> bool:
        return any(node.n_units or node.n_shards for node in self.nodes.values())

    def _next(self, hand: _Hand) -> Task | None:
        if self._waiting:
            return self._waiting.popleft()
        late = self.ledger.is_late(self.ledger.first_unfinished)
        if late and (task := self._copy_of_slow(hand)) is not None:
            return task
        if (position := self.ledger.next_position(hand.node)) is not None:
            return self._unit_task(position)
        return self._copy_of_slow(hand)

    def _copy_of_slow(self, hand: _Hand) -> Task | None:
        """Something to do a second time, for a station of a node that is not slow itself."""
        if self._slow is None:
            self._slow = self._slow_tasks()
            waiting = {task.key for task in self._slow}
            nodes = {one.node for one in self._hands.values() if one.task is not None and one.task.key in waiting}
            self._slow_nodes = nodes if len(nodes) < len(self.nodes) else set()
        return self._slow.popleft() if self._slow and hand.node not in self._slow_nodes else None

    def _unit_task(self, position: int) -> Task:
        request = self.ledger.request(position)
        return Task("encode", ("unit", position), msgspec.json.encode(request), position, max(1, request.unit.n_bytes))

    def _slow_tasks(self) -> deque[Task]:
        """What all stations that are at it have been at for long, and not too many; the longest first."""
        now, limits = self.now(), self._pace.limits()
        begun: dict[Hashable, tuple[float, Task]] = {}  # when the last station began with each
        for hand in self._hands.values():
            if (task := hand.task) is not None and hand.since >= begun.get(task.key, (hand.since, task))[0]:
                begun[task.key] = (hand.since, task)
        slow = [
            (since, task)
            for since, task in begun.values()
            if is_slow(task, now - since, limits) and self._copies[task.key] < MAX_COPIES and not self._is_done(task)
        ]
        return deque(task for _, task in sorted(slow, key=lambda pair: pair[0]))

    def _hand_out(self, station: Hashable, hand: _Hand, task: Task) -> None:
        hand.task, hand.since = task, self.now()
        self._copies[task.key] += 1
        self.link.submit(station, task.kind, task.data)

    def _ended(self, ended: Ended) -> None:
        if (hand := self._hands.get(ended.station)) is None:  # dismissed in the meantime
            return
        task, hand.task = hand.task, None
        if ended.answer is None:
            self._lost(ended, hand, task)
            return
        result = _decoder.decode(ended.answer)
        if isinstance(result, About):
            self._meet(ended.station, hand, result)
            return
        if task is None:
            assert isinstance(result, Failed)  # it could not even say who it is
            self._unfit(ended.station, self.link.node_of(ended.station), result.as_error())
            return
        self._one_copy_less(task)
        if self._is_done(task):
            return
        self._pace.add(task, self.now() - hand.since)
        if task.kind == "encode":
            self._unit_ended(ended.station, hand, task, result)
        else:
            self._other_ended(hand, task, result)

    def _one_copy_less(self, task: Task) -> None:
        self._copies[task.key] -= 1
        if not self._copies[task.key]:
            del self._copies[task.key]

    def _is_done(self, task: Task) -> bool:
        return self.ledger.is_finished(task.position) if task.kind == "encode" else task.key not in self._open

    def _lost(self, ended: Ended, hand: _Hand, task: Task | None) -> None:
        """A station is gone: look at it again when it is back, and give its task to another."""
        hand.ready = False
        if task is None:
            self._failed_start(ended, hand)
            return
        self.link.submit(ended.station, "about", str(ended.station).encode())
        self._one_copy_less(task)
        if self._is_done(task):
            return
        what = f"unit {self.ledger.units[task.position].index}" if task.kind == "encode" else f"its {task.kind}"
        self.progress.mishap(Mishap("node", f"a station on {hand.node} was lost; {what} goes to another"))
        if task.key in self._copies:  # another has it too
            return
        if task.kind == "encode":
            self.ledger.give_back(task.position)
        else:
            self._waiting.append(task)

    def _failed_start(self, ended: Ended, hand: _Hand) -> None:
        """A station did not come to say who it is; after some tries it will not come at all."""
        hand.n_failed_starts += 1
        if hand.n_failed_starts < MAX_STARTS:
            self.link.submit(ended.station, "about", str(ended.station).encode())
            return
        if not self.nodes:
            raise WorkerError(f"no station can be started: {ended.lost}", hint="is tokenmill installed on all nodes?")
        self.progress.mishap(Mishap("node", f"a station cannot be started ({ended.lost}); the run goes on without it"))
        self._dismiss(ended.station)

    def _meet(self, station: Hashable, hand: _Hand, about: About) -> None:
        """Look at what a station says of itself before it gets work."""
        hand.node = self.link.node_of(station)
        if problem := problem_with(hand.node, about, self.expected):
            self._unfit(station, hand.node, problem)
            return
        self.nodes.setdefault(hand.node, NodeRecord(about.host))
        hand.ready, hand.n_failed_starts = True, 0

    def _unfit(self, station: Hashable, node: str, problem: Exception) -> None:
        """Say what is wrong with a node; one that comes when others are at work only gets none."""
        if not self.nodes_worked:
            raise problem
        self.progress.mishap(Mishap("node", f"node {node} gets no work: {problem}"))
        self._dismiss(station)

    def _dismiss(self, station: Hashable) -> None:
        self.link.dismiss(station)
        del self._hands[station]

    def _unit_ended(self, station: Hashable, hand: _Hand, task: Task, result: Result) -> None:
        if isinstance(result, Failed):
            raise on_node(result, hand.node)
        assert isinstance(result, Encoded)
        self.hashed += result.hashed
        match result.answer:
            case Done(receipt):
                self.ledger.finish(task.position)
                self.nodes[hand.node].n_units += 1
                self.receipts.append(receipt)
            case Failed(out_of_memory=False) as failed:
                raise on_node(failed, hand.node)
            case _ if task.key in self._copies:  # another has it too, and will tell what becomes of it
                pass
            case Failed():
                what = f"a worker on {hand.node} could not get the memory it asked for"
                self._mishap(station, self.ledger.with_fewer_workers(task.position, what, hand.node))
            case Death() as death:
                self._mishap(station, self.ledger.after_death(task.position, death, hand.node))

    def _mishap(self, station: Hashable, mishap: Mishap) -> None:
        """Say what happened; where memory was short, do without this station, if it is not the last one."""
        self.progress.mishap(mishap)
        if mishap.kind == "memory" and not self.ledger.n_deaths_alone:
            self._dismiss(station)

    def _other_ended(self, hand: _Hand, task: Task, result: Result) -> None:
        if isinstance(result, Failed):
            raise on_node(result, hand.node)
        del self._open[task.key]
        match result:
            case Written(receipt):
                self.nodes[hand.node].n_shards += 1
                self.shards[task.position] = receipt
            case GroupDone(receipt):
                self.groups.append(receipt)
            case InputHashed():
                self.hashed.append(result)


def on_node(failed: Failed, node: str) -> Exception:
    """What went wrong in a station; a full disk is that of its node."""
    if failed.errno in NO_ROOM:
        return SpaceError(
            f"node {node} has no room for `{failed.filename}`: {failed.message.lower()}",
            hint="make room there, or set TMPDIR on the nodes; the same command goes on from here",
        )
    return failed.as_error()
