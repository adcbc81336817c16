"""One process at a time on an output in a store, with conditional puts and without them."""

import threading
import time

import msgspec
import pytest
from journeys import OUT, RECIPES, REPO, SOURCE, content, corpus_files
from proxy import FaultProxy

from tokenmill import errors
from tokenmill.lock import holder_here
from tokenmill.storage import lease, objects
from tokenmill.storage.addresses import parsed
from tokenmill.storage.lease import Lease, read_lease

LOCK = parsed(f"{OUT}/.work/lock")


@pytest.fixture(params=["conditional", "unconditional"])
def store(request, s3, in_this_process):
    """The S3 server of this process, once as S3 is and once as rclone is."""
    with FaultProxy(s3.rclone_endpoint, etag_of=s3.etag_of if request.param == "conditional" else None) as proxy:
        in_this_process(proxy.endpoint)
        yield proxy


@pytest.fixture
def quick_beats(monkeypatch):
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(lease, "STALE_SECONDS", 1.0)


def put_holder(**changes):
    """A lease of somebody on another machine."""
    holder = msgspec.structs.replace(holder_here(), host="elsewhere", machine="another one", pid=7, **changes)
    objects.put(LOCK, msgspec.json.encode(holder))
    return holder


def lost_within(held: Lease, seconds: float = 5.0) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            held.check()
        except errors.BusyError:
            return True
        time.sleep(0.02)
    return False


def test_a_second_process_is_told_who_is_at_it(store, journey, hub, tmp_path):
    hub.add_repo(REPO, corpus_files())
    held = Lease(LOCK, OUT)
    try:
        journey.env["TOKENMILL_SCRATCH"] = str(tmp_path / "other")
        ended = journey.run(RECIPES["streamed"])
        assert ended.code == 3
        assert f"`{OUT}` is being written by process" in ended.said
        assert list((tmp_path / "other").rglob("*")) == []
    finally:
        held.release()
    assert not journey.output().exists() or list(journey.output().rglob("*.bin")) == []
    ended = journey.run(RECIPES["streamed"])
    assert ended.code == 0, ended.said


def test_a_finished_output_is_done_while_its_owner_clears_up(store, journey, hub):
    hub.add_repo(REPO, corpus_files())
    assert journey.run(RECIPES["streamed"]).code == 0
    held = Lease(LOCK, OUT)
    try:
        ended = journey.run(RECIPES["streamed"])
    finally:
        held.release()
    assert ended.code == 0, ended.said


def test_two_processes_at_once_and_one_of_them_gets_it(store, journey, hub, tmp_path):
    hub.add_repo(REPO, corpus_files())
    command = ("prepare", SOURCE, "-o", OUT, "-q", "--format", "llmc", "--shard-tokens", "5000")
    runs = [journey.start(*command, TOKENMILL_SCRATCH=str(tmp_path / name)) for name in ("one", "two")]
    ended = [run.wait() for run in runs]
    assert sorted(each.code for each in ended) in ([0, 3], [0, 0]), ended  # or one came when all was done
    assert [path for path in journey.bucket.rglob("*") if ".work" in path.parts and path.is_file()] == []


def test_of_many_that_take_it_in_the_same_moment_one_has_it(store, monkeypatch):
    monkeypatch.setattr(lease, "SETTLE_SECONDS", 1.0)  # as users have it: longer than any of them may be held up
    taken, refused = [], []

    def take():
        try:
            taken.append(Lease(LOCK, OUT))
        except errors.BusyError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert len(refused) == 5
    taken[0].release()
    assert read_lease(LOCK) is None


def test_somebody_elsewhere_who_is_alive_is_left_alone(store, quick_beats):
    holder = put_holder()
    done = threading.Event()

    def beat():
        while not done.wait(0.1):
            nonlocal holder
            holder = msgspec.structs.replace(holder, beat=holder.beat + 1)
            objects.put(LOCK, msgspec.json.encode(holder))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(errors.BusyError, match="process 7 on elsewhere"):
            Lease(LOCK, OUT)
    finally:
        done.set()
        thread.join()


def test_somebody_elsewhere_who_is_gone_is_taken_over_from(store, quick_beats):
    put_holder(beat=3)
    began = time.monotonic()
    held = Lease(LOCK, OUT)
    assert time.monotonic() - began >= 1.0
    held.release()
    assert read_lease(LOCK) is None


def test_whoever_was_robbed_notices_and_leaves_the_lease_alone(store, quick_beats):
    held, thief = Lease(LOCK, OUT), put_holder()
    while not lost_within(held, 1.0):  # without conditions a beat may come between
        thief = put_holder()
    held.release()
    assert read_lease(LOCK) == thief


def test_whoever_was_robbed_between_two_beats_notices_before_the_end(store):
    held = Lease(LOCK, OUT)
    thief = put_holder()
    held.check()
    with pytest.raises(errors.BusyError, match="taken over"):
        held.confirm()
    held.release()
    assert read_lease(LOCK) == thief


def test_a_lost_answer_is_no_lost_lease(store, quick_beats):
    store.faults.set(lost=0.5, methods=("PUT",), path=".work/lock")
    held = Lease(LOCK, OUT)
    assert not lost_within(held, 2.0)
    store.faults.clear()
    held.confirm()
    assert read_lease(LOCK).beat > 3
    held.release()
    assert read_lease(LOCK) is None


def test_half_a_lease_is_read_again(store):
    holder = put_holder()
    store.faults.set(truncated=1, methods=("GET",), path=".work/lock", at_most=1)
    assert read_lease(LOCK) == holder


def test_a_run_that_is_robbed_stops_and_writes_nothing_more(store, journey, hub):
    """Its uploads stand still until the thief has been noticed; then nothing may follow."""
    hub.add_repo(REPO, corpus_files())
    journey.constants |= {"tokenmill.storage.lease.BEAT_SECONDS": 0.1}
    store.faults.set(slow=1, methods=("PUT",), path="_train_", slow_seconds=0.5)
    robbed = threading.Event()

    def rob():
        while not list(journey.output().glob("*_train_*")):
            time.sleep(0.01)
        while read_lease(LOCK).host != "elsewhere":  # without conditions a beat may come between
            put_holder()
            time.sleep(0.05)
        robbed.set()

    thread = threading.Thread(target=rob)
    thread.start()
    ended = journey.run(RECIPES["streamed"])
    thread.join()
    assert robbed.is_set()
    assert ended.code == 3, ended.said
    assert "was taken over by another process" in ended.said
    assert "manifest.json" not in content(journey.output())
    assert read_lease(LOCK).host == "elsewhere"
    n_requests = len(store.requests)
    time.sleep(1.0)
    assert [request for request in store.requests[n_requests:] if request.method == "PUT"] == []
