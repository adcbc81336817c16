"""The driver's side of a cluster, with made-up stations: who gets what, and what is said when it goes wrong."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest

from tokenmill.care import Note
from tokenmill.cluster import pace
from tokenmill.cluster.crew import Crew
from tokenmill.cluster.link import Ended, Task
from tokenmill.cluster.station import About, Encoded, Written
from tokenmill.errors import OutputError, SourceError, SpaceError, WorkerError
from tokenmill.executors.deaths import Death
from tokenmill.executors.ledger import Ledger
from tokenmill.fetching import AllHere
from tokenmill.plan import Span, Unit
from tokenmill.segments import SpanReceipt, StageSeconds, UnitReceipt
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.worker import Done, Failed, UnitRequest

HERE = About("driver", 1, sees_out=True, missing_input=None, versions={"tokenmill": "1", "Python": "3.11"})


class MadeUp:
    """Stations that answer at once, but for what `script` says of some."""

    def __init__(self, n: int) -> None:
        self.names = [f"s{i}" for i in range(n)]
        self.asked: list[tuple[str, str, bytes]] = []
        self.answers: deque[Ended] = deque()
        self.about = dict.fromkeys(self.names, HERE)
        self.silent: set[str] = set()  # they take a task and never answer
        self.lost_at: dict[str, int] = {}  # the station is lost when it gets so many tasks
        self.dismissed: list[str] = []
        self.n_given = dict.fromkeys(self.names, 0)
        self.deaths: dict[int, list[Death]] = {}  # of the worker, by unit

    def stations(self):
        return [name for name in self.names if name not in self.dismissed]

    def n_nodes(self):
        return len(self.names)

    def node_of(self, station):
        return f"node-{station}"

    def submit(self, station, kind, task):
        self.asked.append((station, kind, task))
        if kind == "about":
            self.answers.append(Ended(station, msgspec.json.encode(self.about[station])))
            return
        self.n_given[station] += 1
        if self.lost_at.get(station) == self.n_given[station]:
            self.answers.append(Ended(station, None, "the node went away"))
        elif station not in self.silent:
            self.answers.append(Ended(station, msgspec.json.encode(self.result(kind, task))))

    def result(self, kind, task):
        if kind == "shard":
            index = FileReceipt("index/0.arrow", 1, "")
            return Written(ShardReceipt("0.bin", "train", 1, 1, 1, "", index))
        request = msgspec.json.decode(task, type=UnitRequest)
        if self.deaths.get(request.unit.index):
            return Encoded(self.deaths[request.unit.index].pop(0))
        return Encoded(Done(receipt(request.unit.index)))

    def wait(self, seconds):
        taken, self.answers = list(self.answers), deque()
        return taken

    def dismiss(self, station):
        self.dismissed.append(station)

    def close(self):
        pass


class Heard:
    def __init__(self) -> None:
        self.mishaps = []

    def beat(self, beat): ...
    def tick(self): ...
    def mishap(self, mishap):
        self.mishaps.append(mishap.what)


def receipt(unit: int) -> UnitReceipt:
    return UnitReceipt(unit, (SpanReceipt(1, 1, 10, 40),), {}, 0, StageSeconds(0, 0, 0), 1)


def crew_of(link: MadeUp, n_units: int) -> Crew:
    units = [Unit(i, (Span(0, i, i + 1, 1),)) for i in range(n_units)]
    return Crew(link, Ledger(units, AllHere(), len(link.names), use_reference=False), Heard(), HERE)


def units_done(crew: Crew) -> list[int]:
    return sorted(receipt.unit for receipt in crew.encode())


def test_every_unit_once():
    link = MadeUp(3)
    crew = crew_of(link, 50)
    assert units_done(crew) == list(range(50))
    assert sum(node.n_units for node in crew.nodes.values()) == 50
    assert sum(kind == "encode" for _, kind, _ in link.asked) == 50


def test_a_lost_station_gives_its_unit_back_and_comes_again():
    link = MadeUp(2)
    link.lost_at = {"s0": 3}
    crew = crew_of(link, 20)
    assert units_done(crew) == list(range(20))
    assert any("was lost; unit" in what for what in crew.progress.mishaps)
    assert [kind for station, kind, _ in link.asked if station == "s0"].count("about") == 2


def test_what_a_silent_station_holds_is_done_by_another(monkeypatch):
    monkeypatch.setattr(pace, "SLOW_SECONDS", 0.0)
    link = MadeUp(2)
    link.silent = {"s1"}
    assert units_done(crew_of(link, 20)) == list(range(20))


def test_shards_come_before_units():
    link = MadeUp(1)
    crew = crew_of(link, 3)
    crew.add(Task("shard", ("shard", 0), b"", 0, 1))
    assert units_done(crew) == [0, 1, 2]
    assert [kind for _, kind, _ in link.asked] == ["about", "shard", "encode", "encode", "encode"]
    assert crew.n_open == 0
    assert crew.shards.keys() == {0}


def test_a_document_that_kills_workers_is_cut_out_step_by_step():
    link = MadeUp(2)
    note = Note(4, 0, 7, 7, 1)
    link.deaths = {4: [Death(1, "killed by SIGSEGV", "", note)] * 4}
    crew = crew_of(link, 10)
    assert units_done(crew) == list(range(10))
    requests = [msgspec.json.decode(task, type=UnitRequest) for _, kind, task in link.asked if kind == "encode"]
    cares = [request.care for request in requests if request.unit.index == 4]
    assert len(cares) == 5
    assert cares[-1].by_reference == ((0, 7),)
    assert any("goes to the reference engine" in what for what in crew.progress.mishaps)
    assert "worker 1 on node-s" in crew.progress.mishaps[0]


def test_a_station_short_of_memory_is_done_without():
    link = MadeUp(2)
    link.deaths = {3: [Death(1, "killed by SIGKILL", "", None, out_of_memory=True)]}
    assert units_done(crew_of(link, 10)) == list(range(10))
    assert len(link.dismissed) == 1


def test_a_failure_ends_the_run():
    link = MadeUp(1)
    link.result = lambda kind, task: Encoded(Failed("row 3 is broken", error="DataError"))
    with pytest.raises(Exception, match="row 3 is broken"):
        units_done(crew_of(link, 2))


@pytest.mark.parametrize(
    ("about", "error", "words"),
    [
        (msgspec.structs.replace(HERE, sees_out=False), OutputError, "does not see the output"),
        (msgspec.structs.replace(HERE, missing_input="/data/a"), SourceError, "does not see the source `/data/a`"),
        (
            msgspec.structs.replace(HERE, versions={"tokenmill": "2", "Python": "3.11"}),
            OutputError,
            "tokenmill: 2 there, 1 here",
        ),
    ],
)
def test_a_node_that_is_not_fit_is_named_before_the_work(about, error, words):
    link = MadeUp(2)
    link.about["s1"] = about
    with pytest.raises(error, match=words) as raised:
        units_done(crew_of(link, 10))
    assert "node-s1" in str(raised.value)
    assert not any(kind == "encode" for _, kind, _ in link.asked)


def test_a_node_that_comes_later_and_is_not_fit_gets_no_work():
    link = MadeUp(1)
    crew = crew_of(link, 30)
    receipts = crew.encode()
    next(receipts)
    link.names.append("late")
    link.about["late"] = msgspec.structs.replace(HERE, sees_out=False)
    link.n_given["late"] = 0
    assert len(list(receipts)) == 29
    assert link.dismissed == ["late"]
    assert any("gets no work" in what for what in crew.progress.mishaps)


def test_no_station_can_be_started():
    link = MadeUp(1)
    link.submit = lambda station, kind, task: link.answers.append(Ended(station, None, "No module named tokenmill"))
    with pytest.raises(WorkerError, match="No module named tokenmill"):
        units_done(crew_of(link, 1))


def test_the_units_of_an_input_go_to_one_node_while_there_are_others():
    link = MadeUp(4)
    link.nodes = {"s0": "a", "s1": "a", "s2": "b", "s3": "b"}
    link.node_of, link.n_nodes = link.nodes.__getitem__, lambda: 2
    units = [Unit(i, (Span(i // 6, i % 6, i % 6 + 1, 1),)) for i in range(48)]
    crew = Crew(link, Ledger(units, AllHere(), 4, use_reference=False), Heard(), HERE)
    assert units_done(crew) == list(range(48))
    requests = [
        (station, msgspec.json.decode(task, type=UnitRequest)) for station, kind, task in link.asked if kind == "encode"
    ]
    nodes_of = {i: {link.nodes[station] for station, one in requests if one.unit.spans[0].input == i} for i in range(8)}
    assert [len(nodes) for nodes in nodes_of.values()] == [1] * 8


def test_what_is_set_aside_for_a_node_is_taken_by_others_at_the_end():
    ledger = Ledger([Unit(i, (Span(0, i, i + 1, 1),)) for i in range(5)], AllHere(), 4, use_reference=False)
    begun = [ledger.next_position(node) for node in ("a", "b", "a", "b", "b", "a")]
    assert begun == [0, 1, 2, 3, 4, None]


def test_a_station_that_cannot_look_around_says_why():
    link = MadeUp(1)
    link.submit = lambda station, kind, task: link.answers.append(
        Ended(station, msgspec.json.encode(Failed("no permission for `s3://bucket`", error="AccessError")))
    )
    with pytest.raises(Exception, match="no permission for `s3://bucket`"):
        units_done(crew_of(link, 1))


def test_a_full_disk_is_that_of_the_node():
    link = MadeUp(1)
    link.result = lambda kind, task: Failed("No space left on device", errno=28, filename="/x")
    with pytest.raises(SpaceError, match="node node-s0 has no room for `/x`"):
        units_done(crew_of(link, 1))


def test_when_nobody_is_left_the_run_ends_with_a_word():
    link = MadeUp(2)
    link.deaths = {0: [Death(1, "killed by SIGKILL", "", None, out_of_memory=True)] * 9}
    with pytest.raises(WorkerError, match=r"there is no other worker to take out.*and node-s\d has no more"):
        units_done(crew_of(link, 1))


def test_a_unit_whose_copy_was_done_is_not_begun_again():
    ledger = Ledger([Unit(0, (Span(0, 0, 1, 1),))], AllHere(), 1, use_reference=False)
    assert ledger.next_position("a") == 0
    ledger.give_back(0)
    ledger.finish(0)
    assert ledger.next_position("a") is None
