"""The lease of a folder between processes that come and go at bad moments; whole runs are in faults/test_resume.py."""

import shutil
import sys
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "faults"))

from harness import wait_until, write_jsonl

import tokenmill
from tokenmill import lock, mill, sharing, status
from tokenmill.errors import BusyError, DataError
from tokenmill.status import read_status

ELSEWHERE = lock.Holder("elsewhere", "another boot", 4711, "1", "another")


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "in.jsonl", ["some", "words", "and", "more"])


def test_lease_outlives_a_server_that_does_not_answer_for_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.02)
    mine, read, n_failures = lock.take_lock(tmp_path), lock.read_holder, 0

    def read_in_vain(path):
        nonlocal n_failures
        n_failures += 1
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(lock, "read_holder", read_in_vain)
    wait_until(lambda: n_failures >= 3)
    mine.check()
    monkeypatch.setattr(lock, "read_holder", read)
    beat = mine.holder.beat
    wait_until(lambda: mine.holder.beat > beat)
    mine.release()
    assert not mine.path.exists()


def test_lease_taken_over_is_seen_at_the_next_check(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 3600)
    mine = lock.take_lock(tmp_path)
    lock.write_holder(mine.path, ELSEWHERE)
    with pytest.raises(BusyError, match="taken over"):
        mine.check()
    mine.release()
    assert lock.read_holder(mine.path) == ELSEWHERE


def test_folder_that_goes_away_with_its_owner_is_said_to_be_left(tmp_path):
    work = tmp_path / "out" / ".work"
    work.mkdir(parents=True)
    lock.write_holder(work / lock.LOCK, ELSEWHERE)
    with pytest.raises(BusyError, match="left by another process just now"):
        lock.take_lock(work, lambda seconds: shutil.rmtree(work, ignore_errors=True))


@pytest.mark.parametrize(
    ("module", "stage", "options", "kept"),
    [(mill, "carried_out", {}, "recipe.json"), (sharing, "encoded_share", {"node": "1/1"}, "shares/1-of-1/journal")],
    ids=["run", "share"],
)
def test_whoever_fails_leaves_what_another_has_taken_over(module, stage, options, kept, source, tmp_path, monkeypatch):
    def lose_it(space, *_):
        lock.write_holder(space.lock.path, ELSEWHERE)
        raise DataError("nothing to go on with")

    monkeypatch.setattr(module, stage, lose_it)
    with pytest.raises(BusyError, match="taken over"):
        tokenmill.prepare(source, tmp_path / "out", **options)
    assert (tmp_path / "out" / ".work" / kept).exists()


def test_share_that_fails_leaves_the_folder_to_the_run_that_finishes(source, tmp_path, monkeypatch):
    out = tmp_path / "out"

    def begin_to_finish(space, *_):
        lock.write_holder(space.work / lock.LOCK, ELSEWHERE)
        raise DataError("nothing to go on with")

    monkeypatch.setattr(sharing, "encoded_share", begin_to_finish)
    with pytest.raises(DataError):
        tokenmill.prepare(source, out, node="1/1")
    assert (out / ".work" / "recipe.json").exists()
    assert not (out / ".work" / "shares" / "1-of-1").exists()


def test_finished_output_is_returned_while_its_owner_clears_up(source, tmp_path):
    out = tmp_path / "out"
    manifest = tokenmill.prepare(source, out)
    (out / ".work").mkdir()
    owner = lock.take_lock(out / ".work")
    assert tokenmill.prepare(source, out) == manifest
    owner.release()


@pytest.mark.parametrize("gone", ["the lock", "all of it"])
def test_run_that_is_finished_while_status_looks_is_finished(gone, source, tmp_path, monkeypatch):
    out, done = tmp_path / "out", tmp_path / "done"
    tokenmill.prepare(source, done)
    assert tokenmill.prepare(source, out, node="1/1").n_units == 1
    look = status.unfinished

    def look_while_it_ends(work):
        if gone == "all of it":
            shutil.rmtree(work)
        found = look(work)
        shutil.copy(done / "manifest.json", out)
        return found

    monkeypatch.setattr(status, "unfinished", look_while_it_ends)
    assert read_status(out).state == "finished"


def test_whoever_waits_at_a_guard_that_is_removed_waits_at_the_next_one(tmp_path):
    guard, inside = tmp_path / "lock.guard", []

    def enter():
        with lock.guarded(tmp_path):
            inside.append(guard.exists())

    other = threading.Thread(target=enter)
    with lock.guarded(tmp_path):
        other.start()
        other.join(0.2)
        assert not inside
        guard.unlink()
    other.join()
    assert inside == [True]
