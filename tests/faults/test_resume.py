"""What a rerun finds: other inputs, another recipe, a clock that went backwards, a lock."""

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import HERE, digests, journal_of, size_of, start, start_cli, tally, texts, wait_until, write_jsonl

from tokenmill import lock
from tokenmill.errors import BusyError

SMALL = {"executor": "inline", "unit_bytes": 4_000}
LETTERS = {"tokenizer": "words:Letters", "eot_token": "<end>"}


@pytest.fixture
def stopped(tmp_path, forks):
    """A run over two files, killed in the middle; and the bytes it is to come to."""
    write_jsonl(tmp_path / "a.jsonl", texts(100, seed=1))
    pq.write_table(pa.table({"text": texts(100, seed=2)}), tmp_path / "b.parquet", row_group_size=10)
    recipe = {"sources": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.parquet")], "format": "npy", **LETTERS}
    recipe |= {"shard_tokens": 5000}
    spec = {"recipe": recipe, "options": SMALL, "modules": [str(HERE)], "out": str(tmp_path / "whole")}
    assert forks.run(spec).code == 0
    spec["out"] = str(tmp_path / "out")
    assert forks.run({**spec, "fault": "shard.receipt-synced:2"}).code == -9
    return spec, digests(tmp_path / "whole")


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"text": "one more"}\n')


def touch(path: Path) -> None:
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1_000_000_000))


def change_the_end(path: Path) -> None:
    status, data = path.stat(), path.read_bytes()
    path.write_bytes(data.replace(data[-60:-40], data[-60:-40][::-1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (grow, "a.jsonl", "bytes then"),
        (touch, "a.jsonl", "was written since"),
        (change_the_end, "b.parquet", ""),
        (Path.unlink, "a.jsonl", ""),
    ],
)
def test_input_replaced_between_two_runs_is_refused_by_name(change, name, words, stopped, forks, tmp_path):
    spec, expected = stopped
    shutil.copy2(tmp_path / name, tmp_path / "kept")
    change(tmp_path / name)
    ended = forks.run(spec)
    assert ended.code in (1, 2), ended.said
    assert name in ended.said
    assert words in ended.said
    shutil.copy2(tmp_path / "kept", tmp_path / name)  # as it was, time included
    assert forks.run(spec).code == 0
    assert digests(tmp_path / "out") == expected
    tally("input replaced between two runs", "refused by name; put back: same bytes")


def test_input_replaced_after_the_run_is_refused_too(stopped, forks, tmp_path):
    spec, _ = stopped
    assert forks.run(spec).code == 0
    grow(tmp_path / "a.jsonl")
    ended = forks.run(spec)
    assert ended.code == 2
    assert "a.jsonl" in ended.said


@pytest.mark.parametrize("field", [{"shard_tokens": 4000}, {"eot": "last"}, {"val": 3}, {"limit_documents": 9}])
def test_changed_recipe_is_refused_with_the_field(field, stopped, forks, tmp_path):
    spec, expected = stopped
    ended = forks.run({**spec, "recipe": {**spec["recipe"], **field}})
    assert ended.code == 2
    assert f"{next(iter(field))}: " in ended.said
    assert forks.run(spec).code == 0
    assert digests(tmp_path / "out") == expected
    tally("recipe changed between two runs", "refused with the field; unchanged: same bytes")


@pytest.mark.parametrize("days", [3650, -3650])
def test_clock_that_jumped_changes_nothing(days, stopped, forks, tmp_path):
    spec, expected = stopped
    moment = time.time() + days * 86_400
    for path in [*(tmp_path / "out").rglob("*"), tmp_path / "out"]:
        os.utime(path, (moment, moment))
    ended = forks.run(spec)
    assert ended.code == 0, ended.said
    assert digests(tmp_path / "out") == expected
    tally("clock that goes backwards, or far ahead", "same bytes")


def test_more_workers_and_other_sizes_go_on_with_the_same_run(stopped, tmp_path):
    spec, expected = stopped
    ended = start({**spec, "options": {"workers": 2, "unit_bytes": 9_000, "batch_bytes": 700}}).wait()
    assert ended.code == 0, ended.said
    assert digests(tmp_path / "out") == expected


def test_lock_of_a_dead_process_does_not_block(stopped, forks, tmp_path):
    spec, expected = stopped
    assert (tmp_path / "out" / ".work" / "lock").exists()
    assert forks.run(spec).code == 0
    assert digests(tmp_path / "out") == expected
    tally("lock left by a dead process", "does not block")


@pytest.fixture
def slow(tmp_path) -> list:
    """The arguments of a run that takes long: each worker sleeps on a document."""
    documents = [*texts(40, seed=1, empty=False), "POISON", *texts(40, seed=2, empty=False)]
    path = write_jsonl(tmp_path / "in.jsonl", documents)
    return ["prepare", path, "-o", tmp_path / "out", "--val", "1", "--tokenizer", "words:Letters", "--eot-token",
            "<end>", "--workers", "2"]  # fmt: skip


HANG = {"FAULT": "hang always"}


def at_work(out: Path) -> bool:
    """Whether a worker has been given documents."""
    return any(path.read_bytes()[:8] > bytes(8) for path in out.glob(".work/workers/*.notes"))


def test_second_run_on_one_output_is_refused(slow, tmp_path):
    first = start_cli(*slow, env=HANG)
    try:
        wait_until(lambda: at_work(tmp_path / "out"), run=first)
        second = start_cli(*slow).wait()
        assert second.code == 3, second.said
        assert f"process {first.pid} on {socket.gethostname()}" in second.said
        assert first.running
    finally:
        first.kill_group()
        first.wait()
    assert start_cli(*slow).wait().code == 0
    tally("second run on one output", "refused, naming host and process, exit 3")


def test_lock_of_another_host_blocks_while_it_beats_and_is_taken_over_when_it_does_not(tmp_path, monkeypatch):
    holder = lock.Holder("elsewhere", "another boot", 4711, "1", "token")
    path = tmp_path / lock.LOCK
    lock.write_holder(path, holder)
    stop = threading.Event()

    def beat():
        n = 0
        while not stop.wait(0.3):
            n += 1
            lock.write_holder(path, lock.Holder("elsewhere", "another boot", 4711, "1", "token", beat=n))

    thread = threading.Thread(target=beat)
    thread.start()
    monkeypatch.setattr(lock, "STALE_SECONDS", 3.0)
    try:
        with pytest.raises(BusyError, match="process 4711 on elsewhere"):
            lock.take_lock(tmp_path)
    finally:
        stop.set()
        thread.join()
    taken = lock.take_lock(tmp_path)
    assert lock.read_holder(path).pid == os.getpid()
    taken.release()
    assert not path.exists()
    tally("lock of another host", "blocks while it beats, taken over when it stands still")


@pytest.mark.parametrize(("signum", "code"), [("INT", 130), ("TERM", 143)])
def test_signal_stops_the_run_soon_and_says_how_to_go_on(signum, code, slow, tmp_path):
    import signal

    run = start_cli(*slow, env=HANG)
    wait_until(lambda: at_work(tmp_path / "out"), run=run)
    began = time.monotonic()
    os.kill(run.pid, getattr(signal, f"SIG{signum}"))
    ended = run.wait(10)
    assert time.monotonic() - began < 5
    assert ended.code == code, ended.said
    assert "run the same command again" in ended.said
    assert "Traceback" not in ended.said
    assert ended.orphans == []
    again = start_cli(*slow).wait()
    assert again.code == 0, again.said
    tally(f"SIG{signum}", f"exit {code} within 5 s, says how to go on; rerun finishes")


def test_signal_to_the_whole_group_as_a_terminal_sends_it(slow, tmp_path):
    import signal

    run = start_cli(*slow, env=HANG)
    wait_until(lambda: at_work(tmp_path / "out"), run=run)
    os.killpg(run.pid, signal.SIGINT)
    ended = run.wait(10)
    assert ended.code == 130, ended.said
    assert ended.orphans == []


def test_second_interrupt_stops_at_once(slow, tmp_path):
    import signal

    run = start_cli(*slow, env=HANG)
    wait_until(lambda: at_work(tmp_path / "out"), run=run)
    os.kill(run.pid, signal.SIGINT)
    time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):  # it was quick
        os.kill(run.pid, signal.SIGINT)
    ended = run.wait(10)
    assert ended.code in (130, -2), ended.said  # -2: it had stopped already, and was about to end
    assert "Traceback" not in ended.said
    assert ended.orphans == []


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.3, 0.5])
def test_signal_while_the_run_begins(seconds, slow, tmp_path):
    import signal

    run = start_cli(*slow)
    wait_until(lambda: (tmp_path / "out" / ".work").exists(), run=run)
    time.sleep(seconds)
    if run.running:
        os.kill(run.pid, signal.SIGTERM)
    ended = run.wait(10)
    assert ended.code in (0, 143, -15), ended.said  # -15: it was done already, and about to end
    assert "Traceback" not in ended.said
    assert ended.orphans == []
    assert start_cli(*slow).wait().code == 0


def test_workers_end_with_a_parent_that_is_killed(slow, tmp_path):
    run = start_cli(*slow, env=HANG)  # in the middle of a batch that takes an hour
    wait_until(lambda: at_work(tmp_path / "out"), run=run)
    run.process.kill()
    ended = run.wait(10, gone_seconds=2)
    assert ended.code == -9
    assert ended.orphans == []
    assert start_cli(*slow).wait().code == 0
    tally("SIGKILL of the parent alone", "all workers gone within 2 s; rerun finishes")


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3])
def test_workers_that_are_just_starting_end_with_their_parent(seconds, slow, tmp_path):
    run = start_cli(*slow, env=HANG)
    wait_until(lambda: (tmp_path / "out" / ".work" / "workers" / "0.log").exists(), run=run)
    time.sleep(seconds)
    run.process.kill()
    assert run.wait(10).orphans == []


def test_status_tells_of_a_stopped_run(stopped, tmp_path):
    ended = start_cli("status", tmp_path / "out", "--json").wait()
    status = json.loads(ended.said)
    assert status["state"] == "stopped"
    assert 0 < status["n_units_done"] <= status["n_units"]
    assert size_of(journal_of(tmp_path / "out")) > 0
