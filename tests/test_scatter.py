"""Groups of units are scattered each by itself: in any order, anywhere, and twice, it comes to the same output."""

import tracemalloc

import msgspec
import numpy as np
import pytest

from tokenmill import scatter
from tokenmill.assemble import scatter_groups
from tokenmill.batches import Tokens
from tokenmill.errors import OutputError, RecipeError
from tokenmill.journal import Journal
from tokenmill.plan import Span, Unit
from tokenmill.scatter import ScatterTask, bucket_stretches, pieces_path, scatter_tasks, scattered_group
from tokenmill.segments import Segment, SpanReceipt, StageSeconds, UnitReceipt, segment_path, write_batch
from tokenmill.shuffle import permutation

DTYPE = np.dtype("uint16")
N_BUCKETS = 5
BUCKET_BYTES = 200
N_UNITS, PER_UNIT = 12, 30


def documents_of(unit: int) -> list[list[int]]:
    """Documents of 0 to 8 tokens, each with ids of its own."""
    numbers = range(unit * PER_UNIT, (unit + 1) * PER_UNIT)
    return [[number * 10 + i for i in range(number * 7 % 9)] for number in numbers]


def write_segment(work, unit: int) -> Segment:
    """A segment of two frames, and one of no documents at all where the unit is 3."""
    documents = [] if unit == 3 else documents_of(unit)
    path = segment_path(work, unit)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for rows in (range(17), range(17, PER_UNIT)) if documents else ():
            lengths = np.array([len(documents[row]) for row in rows], dtype=np.int64)
            ids = np.array([token for row in rows for token in documents[row]], dtype=DTYPE)
            write_batch(file, Tokens(ids, lengths), np.array(rows, dtype=np.uint32))
    n_tokens = sum(len(document) for document in documents)
    span = SpanReceipt(PER_UNIT, len(documents), n_tokens, 0)
    receipt = UnitReceipt(unit, (span,), {}, 0, StageSeconds(0, 0, 0), path.stat().st_size)
    return Segment(Unit(unit, (Span(0, unit, unit + 1, 1),)), receipt, (unit * PER_UNIT,))


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(scatter, "GROUP_BYTES", 500)


def made(work, kind: str = "keyed") -> list[ScatterTask]:
    segments = [write_segment(work, unit) for unit in range(N_UNITS)]
    return scatter_tasks(segments, kind, 7, N_BUCKETS, DTYPE)


def scattered(task: ScatterTask, work):
    return scattered_group(task, work, DTYPE, BUCKET_BYTES, lambda n_tokens: None)


def output_of(work, journal: Journal, n_groups: int) -> list[tuple[int, list[int]]]:
    """The documents in the order of the output, each with its row."""
    state = journal.state
    found = []

    def open_group(group: int):
        return pieces_path(work, group).open("rb")

    for stretch in bucket_stretches(open_group, n_groups, state.bucket_documents, state.bucket_tokens, DTYPE):
        for run in stretch.runs():
            assert (len(run), len(run.ids)) == (stretch.n_documents, stretch.n_tokens)
            ids = np.split(run.ids, run.doc_offsets[1:-1])
            found += zip(run.doc_rows.tolist(), (document.tolist() for document in ids), strict=True)
    return found


def expected_output(kind: str) -> list[tuple[int, list[int]]]:
    units = [unit for unit in range(N_UNITS) if unit != 3]
    documents = [(u * PER_UNIT + i, document) for u in units for i, document in enumerate(documents_of(u))]
    positions = permutation(kind, len(documents), 7)(np.arange(len(documents), dtype=np.uint64))
    return [documents[i] for i in np.argsort(positions)]


@pytest.mark.parametrize("kind", ["keyed", "numpy"])
def test_groups_in_any_order_give_the_output_of_the_permutation(kind, small_groups, tmp_path):
    tasks = made(tmp_path, kind)
    assert len(tasks) > 3
    assert [unit for task in tasks for unit in task.units] == list(range(N_UNITS))

    def in_some_order(some):
        for task in [*some[1::2], *reversed(some[::2])]:
            yield scattered(task, tmp_path)

    journal = Journal(tmp_path / "journal")
    scatter_groups(tasks, tmp_path, journal, in_some_order)
    assert output_of(tmp_path, journal, len(tasks)) == expected_output(kind)
    assert not list((tmp_path / "units").iterdir())
    journal.close()


def test_a_group_done_twice_changes_nothing(small_groups, tmp_path):
    tasks = made(tmp_path)
    receipts = [scattered(task, tmp_path) for task in tasks]
    before = [pieces_path(tmp_path, task.group).read_bytes() for task in tasks]

    def again(some):
        for task in some:
            yield scattered(task, tmp_path)
        yield from receipts  # told a second time, late

    journal = Journal(tmp_path / "journal")
    scatter_groups(tasks, tmp_path, journal, again)
    assert [pieces_path(tmp_path, task.group).read_bytes() for task in tasks] == before
    assert output_of(tmp_path, journal, len(tasks)) == expected_output("keyed")
    journal.close()


def test_groups_of_other_documents_are_not_gone_on_with(small_groups, tmp_path):
    tasks = made(tmp_path)
    journal = Journal(tmp_path / "journal")
    scatter_groups(tasks, tmp_path, journal, lambda some: [scattered(some[0], tmp_path)])
    tasks = [msgspec.structs.replace(task, n_documents=task.n_documents + 1) for task in tasks]
    with pytest.raises(OutputError, match="with other documents than it has now"):
        scatter_groups(tasks, tmp_path, journal, lambda some: [])
    journal.close()


def test_a_task_travels_as_json_and_gives_the_same_bytes_elsewhere(small_groups, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    tasks = made(here)
    made(there)
    for task in tasks:
        again = msgspec.json.decode(msgspec.json.encode(task), type=ScatterTask)
        assert again == task
        assert scattered(again, there) == scattered(task, here)
        assert pieces_path(there, task.group).read_bytes() == pieces_path(here, task.group).read_bytes()


def test_two_writers_of_one_group_do_not_hurt_each_other(small_groups, tmp_path):
    """The second does the whole group while the first is in the middle of it."""
    task, receipts = made(tmp_path)[1], []

    def meanwhile(n_tokens):
        if not receipts:
            receipts.append(scattered(task, tmp_path))

    receipts.append(scattered_group(task, tmp_path, DTYPE, BUCKET_BYTES, meanwhile))
    assert receipts[0] == receipts[1]
    assert [path.name for path in (tmp_path / "scattered").iterdir()] == ["000001.pieces"]
    assert pieces_path(tmp_path, 1).stat().st_size == receipts[0].n_bytes


def test_a_file_that_was_cut_off_is_found_out(small_groups, tmp_path):
    tasks = made(tmp_path)
    journal = Journal(tmp_path / "journal")
    scatter_groups(tasks, tmp_path, journal, lambda some: [scattered(task, tmp_path) for task in some])
    with pieces_path(tmp_path, 1).open("r+b") as file:
        file.write(bytes(16))  # a frame of nothing
    with pytest.raises(OutputError, match="of bucket 0 are there"):
        output_of(tmp_path, journal, len(tasks))
    journal.close()


def test_26_billion_documents_take_no_more_memory_than_a_few(tmp_path):
    """The keyed permutation: the last documents of a corpus that large are scattered, without a table of all."""
    n_documents = 26_000_000_000
    segments = tuple(write_segment(tmp_path, unit) for unit in range(3))
    task = ScatterTask(9, segments, n_documents - 3 * PER_UNIT, n_documents, "keyed", 7, 1000)
    tracemalloc.start()
    try:
        receipt = scattered(task, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(receipt.bucket_documents) == 3 * PER_UNIT
    assert peak < 5_000_000


def test_numpys_permutation_of_26_billion_documents_is_refused_before_it_is_scattered(tmp_path):
    segment = write_segment(tmp_path, 0)
    span = SpanReceipt(26_000_000_000, 26_000_000_000, 0, 0)
    segment = msgspec.structs.replace(segment, receipt=msgspec.structs.replace(segment.receipt, spans=(span,)))
    with pytest.raises(RecipeError, match="would need 312 GB"):
        scatter_tasks([segment], "numpy", 5, 1000, DTYPE)
    assert len(scatter_tasks([segment], "keyed", 5, 1000, DTYPE)) == 1
