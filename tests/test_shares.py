"""Shares of a corpus, encoded by several processes into one folder, and finished by one: the bytes of a single run."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parent / "faults"))

from harness import HERE, Forks, digests, start, wait_until, write_corpus, write_jsonl

import tokenmill
from tokenmill import beginning, lock, sharing
from tokenmill.cli.status import in_words
from tokenmill.errors import BusyError, DataError, OutputError, RecipeError
from tokenmill.faults import SHARE_POINTS
from tokenmill.journal import UnitDone, read_events
from tokenmill.plan import plan_units
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.shares import Share, found_shares, parsed_share, refuse_shares_at_work, take_share_lock
from tokenmill.status import read_status

SMALL = {"unit_bytes": 20_000, "batch_bytes": 10_000, "bucket_bytes": 100_000}
LETTERS = {"tokenizer": "words:Letters", "eot_token": "<end>"}  # no engine to load, a token a byte
RECIPES = {
    "llmc": {"format": "llmc", "shard_tokens": 9_000},
    "nanogpt, shuffled": {"format": "nanogpt", "val": 0.05},
    "datatrove, cut between documents": {"format": "datatrove", "shard_tokens": 20_000},
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Three that start processes, so that three may begin at the same moment."""
    made = [Forks(tmp_path_factory.mktemp("forks")) for _ in range(3)]
    yield made
    for server in made:
        server.close()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> list[str]:
    """Three files, some fifteen units."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "in", n_documents=600)


@pytest.fixture(scope="module")
def letters(corpus):
    """A run with the tokenizer of the tests, in one process, as a spec without its folder."""
    recipe = {"sources": corpus, "format": "npy", "shard_tokens": 20_000, **LETTERS}
    return {"recipe": recipe, "options": {**SMALL, "executor": "inline"}, "modules": [str(HERE)]}


@pytest.fixture(scope="module")
def expected(letters, servers, tmp_path_factory):
    """What a run without shares gives."""
    out = tmp_path_factory.mktemp("expected") / "out"
    ended = servers[0].run({**letters, "out": str(out)})
    assert ended.code == 0, ended.said
    return digests(out)


def of_share(spec: dict, node: str | None) -> dict:
    return {**spec, "options": {**spec["options"], "node": node}}


def at_once(servers, specs: list[dict]) -> list:
    """How each of these runs ended, begun within a few milliseconds of each other."""
    barrier = threading.Barrier(len(specs))

    def run(server, spec):
        barrier.wait()
        return server.run(spec)

    with ThreadPoolExecutor(len(specs)) as threads:
        return list(threads.map(run, servers, specs))


def units_in(path: Path) -> list[int]:
    return [event.receipt.unit for event, _ in read_events(path) if isinstance(event, UnitDone)]


def sums(out: Path) -> list[str]:
    """What SHA256SUMS says, but of the manifest, which tells how the run went."""
    return [line for line in (out / "SHA256SUMS").read_text().splitlines() if not line.endswith("manifest.json")]


@pytest.mark.parametrize("name", RECIPES)
def test_three_shares_at_once_and_then_the_plain_command_give_the_same_bytes(name, corpus, tmp_path):
    recipe, options = {"sources": corpus, **RECIPES[name]}, {**SMALL, "workers": 1}
    plain, out = tmp_path / "plain", tmp_path / "out"
    runs = [start({"recipe": recipe, "out": str(out), "options": {**options, "node": f"{i}/3"}}) for i in range(1, 4)]
    for run in runs:
        ended = run.wait()
        assert ended.code == 0, ended.said
    assert not (out / "manifest.json").exists()
    for place in (out, plain):
        ended = start({"recipe": recipe, "out": str(place), "options": options}).wait()
        assert ended.code == 0, ended.said
    assert sums(out) == sums(plain)
    assert digests(out) == digests(plain)
    assert not (out / ".work").exists()
    manifest = tokenmill.open_shards(out).manifest
    assert manifest.run.n_units_resumed == manifest.run.n_units
    assert manifest.inputs == tokenmill.open_shards(plain).manifest.inputs
    assert manifest.tokenizer.n_checked_documents == tokenmill.open_shards(plain).manifest.tokenizer.n_checked_documents
    assert tokenmill.verify(out).ok


def test_shares_cover_all_units_once(corpus):
    plan = plan_units(Recipe(sources=tuple(corpus)).resolve(), 20_000)
    for n in (1, 2, 3, 7, 100):
        shares = [Share(n, i).units(plan) for i in range(1, n + 1)]
        assert [unit for units in shares for unit in units] == list(plan.units)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_three_shares_begun_at_the_same_instant_on_an_empty_folder(letters, expected, servers, tmp_path):
    for attempt in range(5):
        spec = {**letters, "out": str(tmp_path / f"out{attempt}")}
        for ended in at_once(servers, [of_share(spec, f"{i}/3") for i in range(1, 4)]):
            assert ended.code == 0, ended.said
        assert servers[0].run(spec).code == 0
        assert digests(Path(spec["out"])) == expected


def test_begun_without_file_locks_the_first_recipe_stays(corpus, tmp_path, monkeypatch):
    """As on a network file system that has none: whoever comes with another recipe is refused."""
    monkeypatch.setattr(beginning, "guarded", lambda folder: nullcontext())
    recipes = [Recipe(sources=tuple(corpus), shuffle=f"keyed:{i % 2}").resolve() for i in range(8)]
    plan = plan_units(recipes[0], 20_000)
    for attempt in range(20):
        out = tmp_path / str(attempt)
        (out / ".work").mkdir(parents=True)
        barrier = threading.Barrier(len(recipes))

        def join(recipe, out=out, barrier=barrier):
            barrier.wait()
            try:
                return beginning.joined(out, recipe, plan) == plan
            except OutputError as error:
                return error.message.splitlines()[0]

        with ThreadPoolExecutor(len(recipes)) as threads:
            joined = list(threads.map(join, recipes))
        first = msgspec.json.decode((out / ".work" / "recipe.json").read_bytes(), type=Recipe)
        refused = f"`{out}` holds the output of another recipe"
        assert joined == [recipe == first or refused for recipe in recipes]
        assert sorted(path.name for path in (out / ".work").iterdir()) == ["plan.json", "recipe.json"]


def test_plain_command_and_shares_begun_at_the_same_instant(letters, expected, servers, tmp_path):
    for attempt in range(5):
        spec = {**letters, "out": str(tmp_path / f"out{attempt}")}
        for ended in at_once(servers, [of_share(spec, "1/2"), of_share(spec, "2/2"), spec]):
            assert ended.code in (0, 3), ended.said
        assert servers[0].run(spec).code == 0
        assert digests(Path(spec["out"])) == expected
        assert not (Path(spec["out"]) / ".work").exists()


POINTS = [
    "lock.taken", "recipe.synced", "recipe.renamed", "plan.synced", "plan.renamed", "segment.written",
    "segment.renamed", "unit.before-receipt", "unit.half-receipt", "unit.receipt-synced", "input.half-receipt",
    "lock.released", *(point for point in SHARE_POINTS if point.startswith("share.")),
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_killed_share_goes_on_where_it_was(point, letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    first = of_share(spec, "1/2")
    for times in (1, 2):
        assert forks.run({**first, "fault": f"{point}:{times}"}).code in (-9, 0)
    journal = out / ".work" / "shares" / "1-of-2" / "journal"
    before = units_in(journal)
    assert forks.run(first).code == 0
    assert units_in(journal)[: len(before)] == before
    assert len(units_in(journal)) == len(set(units_in(journal)))
    assert forks.run(of_share(spec, "2/2")).code == 0
    assert forks.run(spec).code == 0
    assert digests(out) == expected
    assert not (out / ".work").exists()


def test_share_killed_with_its_workers_goes_on(letters, expected, servers, tmp_path):
    out = tmp_path / "out"
    spec = {**letters, "out": str(out), "options": {**SMALL, "workers": 2}}
    run = start(of_share(spec, "1/2"))
    wait_until(lambda: units_in(out / ".work" / "shares" / "1-of-2" / "journal"), run=run)
    run.kill_group()
    assert run.wait().code in (-9, 0)
    for node in ("1/2", "2/2", None):
        ended = servers[0].run(of_share(spec, node))
        assert ended.code == 0, ended.said
    assert digests(out) == expected


@pytest.mark.parametrize("point", ["shares.taken-in", "shard.renamed", "unit.receipt-synced", "recipe.renamed"])
def test_plain_command_killed_behind_shares_goes_on(point, letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    assert forks.run(of_share(spec, "2/3")).code == 0
    assert forks.run({**spec, "fault": point}).code in (-9, 0)
    assert forks.run(of_share(spec, "3/3")).code == 0
    assert forks.run(spec).code == 0
    assert digests(out) == expected


def test_plain_command_encodes_a_share_that_nobody_did(letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    for node in ("1/3", "3/3"):
        assert forks.run(of_share(spec, node)).code == 0
    assert forks.run(spec).code == 0
    assert digests(out) == expected
    run = tokenmill.open_shards(out).manifest.run
    assert 0 < run.n_units_resumed < run.n_units


def test_shares_of_different_numbers_do_no_unit_twice(letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    for node in ("1/2", "2/3", "3/3"):
        assert forks.run(of_share(spec, node)).code == 0
    done = [unit for path in (out / ".work" / "shares").glob("*/journal") for unit in units_in(path)]
    assert sorted(done) == list(range(len(done)))
    assert forks.run(spec).code == 0
    assert digests(out) == expected


def test_overlapping_shares_at_the_same_time(letters, expected, servers, tmp_path):
    spec = {**letters, "out": str(tmp_path / "out")}
    for ended in at_once(servers, [of_share(spec, node) for node in ("1/1", "1/2", "2/2")]):
        assert ended.code == 0, ended.said
    assert servers[0].run(spec).code == 0
    assert digests(tmp_path / "out") == expected


def test_lost_segment_of_a_share_is_encoded_again(letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    assert forks.run(of_share(spec, "1/1")).code == 0
    segments = sorted((out / ".work" / "units").glob("*.segment"))
    segments[2].unlink()
    segments[3].write_bytes(b"damaged")
    assert forks.run(spec).code == 0
    assert digests(out) == expected
    run = tokenmill.open_shards(out).manifest.run
    assert run.n_units_resumed == run.n_units - 2


def test_same_share_twice_at_the_same_time_is_refused(letters, servers, tmp_path):
    out = tmp_path / "out"
    (out / ".work").mkdir(parents=True)
    held = take_share_lock(out / ".work", Share(3, 2))
    try:
        ended = servers[0].run(of_share({**letters, "out": str(out)}, "2/3"))
    finally:
        held.release()
    assert ended.code == 3, ended.said
    assert f"share 2/3 of `{out}` is being written by process" in ended.said
    assert f"tokenmill status {out}" in ended.said


def test_plain_command_is_refused_while_a_share_is_encoded(letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    assert forks.run(of_share(spec, "1/3")).code == 0
    held = take_share_lock(out / ".work", Share(3, 2))
    try:
        ended = forks.run(spec)
    finally:
        held.release()
    assert ended.code == 3, ended.said
    assert f"share 2/3 of `{out}` is being encoded by process" in ended.said
    assert f"tokenmill status {out}" in ended.said
    assert not (out / ".work" / "lock").exists()
    assert forks.run(spec).code == 0
    assert digests(out) == expected


def test_share_is_refused_while_the_plain_command_works(letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    assert forks.run(of_share(spec, "1/3")).code == 0
    held = lock.take_lock(out / ".work")
    try:
        ended = forks.run(of_share(spec, "2/3"))
    finally:
        held.release()
    assert ended.code == 3, ended.said
    assert f"`{out}` is being finished by process" in ended.said
    assert not (out / ".work" / "shares" / "2-of-3").exists()
    assert forks.run(spec).code == 0
    assert digests(out) == expected


def test_share_on_another_host_counts_while_it_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.4)
    folder = Share(8, 2).folder(tmp_path)
    folder.mkdir(parents=True)
    holder = lock.Holder("node-7", "another boot", 4711, "1", "token")
    lock.write_holder(folder / "lock", holder)
    gone = refuse_shares_at_work(tmp_path, set())
    assert gone == {"token"}
    monkeypatch.undo()  # it is seen at its next beat, however late that comes
    begun, stop = threading.Event(), threading.Event()

    def beat():
        n = 0
        while not stop.wait(0.02):
            n += 1
            lock.write_holder(folder / "lock", msgspec.structs.replace(holder, beat=n, token="another"))
            begun.set()

    thread = threading.Thread(target=beat)
    thread.start()
    begun.wait()
    try:
        with pytest.raises(BusyError, match=r"share 2/8 of .* process 4711 on node-7"):
            refuse_shares_at_work(tmp_path, gone)
    finally:
        stop.set()
        thread.join()


def test_share_of_a_finished_output_says_so(letters, expected, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    assert forks.run({**letters, "out": str(out)}).code == 0
    command = ["prepare", *letters["recipe"]["sources"], "-o", str(out), "--format", "npy", "--shard-tokens", "20_000"]
    command += ["--tokenizer", "words:Letters", "--eot-token", "<end>", "--node", "1/3"]
    ended = forks.run({"argv": command, "modules": [str(HERE)]})
    assert ended.code == 0, ended.said
    assert ended.said.startswith("Already done")
    assert digests(out) == expected
    assert not (out / ".work").exists()


def test_share_of_another_recipe_or_of_changed_inputs_is_refused(tmp_path, servers):
    path, out, forks = write_jsonl(tmp_path / "in.jsonl", ["a", "b", "c"] * 100), tmp_path / "out", servers[0]
    recipe = {"sources": [str(path)], "format": "npy", **LETTERS}
    spec = {"recipe": recipe, "out": str(out), "options": {"executor": "inline", "unit_bytes": 500}}
    spec["modules"] = [str(HERE)]
    assert forks.run(of_share(spec, "1/2")).code == 0
    ended = forks.run(of_share({**spec, "recipe": {**recipe, "eot": "none"}}, "2/2"))
    assert ended.code == 2
    assert "another recipe" in ended.said
    write_jsonl(path, ["a", "b", "d"] * 100)
    ended = forks.run(of_share(spec, "2/2"))
    assert ended.code == 2
    assert "other inputs" in ended.said


def test_share_that_fails_at_once_leaves_the_folder_to_the_next_try(tmp_path, servers):
    path, out = write_jsonl(tmp_path / "in.jsonl", ["a", "b", "c"] * 100), tmp_path / "out"
    recipe = {"sources": [str(path)], "text_column": "txt", "format": "npy", "val": "none", **LETTERS}
    spec = {"recipe": recipe, "out": str(out), "options": {"executor": "inline", "unit_bytes": 500}}
    spec["modules"] = [str(HERE)]
    for ended in at_once(servers, [of_share(spec, f"{i}/3") for i in range(1, 4)]):
        assert ended.code == 1, ended.said
    right = {**spec, "recipe": {**recipe, "text_column": "text"}}
    for node in ("1/2", "2/2", None):
        ended = servers[0].run(of_share(right, node))
        assert ended.code == 0, ended.said


def test_share_that_begins_while_another_withdraws_keeps_its_folder(tmp_path, monkeypatch):
    path, out = write_jsonl(tmp_path / "in.jsonl", ["a", "b", "c"] * 100), tmp_path / "out"
    began = []

    def look_while_another_begins(work: Path) -> list[Share]:
        shares = found_shares(work)
        other = threading.Thread(target=lambda: began.append(take_share_lock(work, Share(3, 2))))
        other.start()
        other.join(0.5)  # it waits for this share to be gone
        return shares

    monkeypatch.setattr(sharing, "found_shares", look_while_another_begins)
    with pytest.raises(DataError, match="txt"):
        tokenmill.prepare(path, out, format="npy", text_column="txt", node="1/1")
    wait_until(lambda: began)
    assert began[0].path.exists()
    began[0].release()


def test_limit_is_cut_by_the_plain_command(letters, servers, tmp_path):
    limited = {**letters, "recipe": {**letters["recipe"], "limit_documents": 150}}
    plain, out = tmp_path / "plain", tmp_path / "out"
    for node in ("1/3", "3/3", "2/3", None):
        assert servers[0].run(of_share({**limited, "out": str(out)}, node)).code == 0
    assert servers[0].run({**limited, "out": str(plain)}).code == 0
    assert digests(out) == digests(plain)


def test_excluded_documents_of_shares_are_in_the_manifest(tmp_path, servers):
    documents = [f"document {i}" for i in range(100)]
    documents[10] = documents[80] = "POISON"
    path, out, plain = write_jsonl(tmp_path / "in.jsonl", documents), tmp_path / "out", tmp_path / "plain"
    recipe = {"sources": [str(path)], "format": "npy", "val": "none", **LETTERS}
    spec = {"recipe": recipe, "options": {"executor": "inline", "unit_bytes": 300}}
    spec |= {"modules": [str(HERE)], "env": {"FAULT": "exception always"}}
    for node, code in (("1/2", 0), ("2/2", 0), (None, 4)):
        assert servers[0].run(of_share({**spec, "out": str(out)}, node)).code == code
    assert servers[0].run({**spec, "out": str(plain)}).code == 4
    assert digests(out) == digests(plain)
    assert [entry.row for entry in tokenmill.open_shards(out).manifest.excluded] == [10, 80]


def test_status_lists_shares(letters, servers, tmp_path):
    out, forks = tmp_path / "out", servers[0]
    spec = {**letters, "out": str(out)}
    assert forks.run(of_share(spec, "1/3")).code == 0
    assert forks.run({**of_share(spec, "2/3"), "fault": "unit.receipt-synced:2"}).code == -9
    held = take_share_lock(out / ".work", Share(3, 3))
    try:
        found = read_status(out)
        told = forks.run({"argv": ["status", str(out), "--json"]})
    finally:
        held.release()
    assert [(share.share, share.state) for share in found.shares] == [
        ("1/3", "done"), ("2/3", "stopped"), ("3/3", "running"),
    ]  # fmt: skip
    assert found.state == "running"
    assert found.shares[0].n_units == found.shares[0].n_units_done > 2
    assert found.shares[1].n_units_done == 2
    assert found.n_units_done == found.shares[0].n_units_done + 2
    assert [share["host"] for share in json.loads(told.said)["shares"]] == [share.host for share in found.shares]
    words = in_words(found, out)
    assert words.startswith("Running: 1 share; ")
    assert f"share 2/3: stopped on {found.shares[1].host}; 2 of" in words
    assert "When all shares are done, run" in words
    assert "All units are done: run" in in_words(msgspec.structs.replace(found, n_units_done=found.n_units), out)
    ended = forks.run({"argv": ["status", str(out)]})
    assert ended.code == 3
    assert "without `--node`" in ended.said


def test_share_says_what_it_did_and_what_comes_next(corpus, servers, tmp_path):
    command = ["prepare", *corpus, "-o", str(tmp_path / "out"), "--format", "llmc", "--workers", "1", "--node"]
    spec = {"constants": {"tokenmill.plan.MIN_UNIT_BYTES": 20_000}}
    ended = servers[0].run({"argv": [*command, "1/2", "--progress", "plain"], **spec})
    assert ended.code == 0, ended.said
    for words in ("planned units=0/", "Encoded share 1/2: ", "  units  ", "  speed  ", "without `--node`", "status"):
        assert words in ended.said
    again = servers[0].run({"argv": [*command, "1/2", "-q", "--json"], **spec})
    done = json.loads(again.said)
    assert done["n_units_before"] == done["n_units"] < done["n_units_in_all"]


def test_more_shares_than_units_is_fine(corpus, servers, tmp_path):
    command = ["prepare", *corpus, "-o", str(tmp_path / "out"), "--workers", "1"]
    told = [servers[0].run({"argv": [*command, "--node", f"{i}/3"]}) for i in range(1, 4)]
    assert [ended.code for ended in told] == [0, 0, 0]
    assert sum("Nothing to do for share" in ended.said for ended in told) == 2
    assert servers[0].run({"argv": command}).code == 0
    assert tokenmill.verify(tmp_path / "out").ok


@pytest.mark.parametrize("node", ["0/3", "4/3", "x", "3", "1/0", "-1/3", "1/3/5", "", "1 /3"])
def test_what_is_no_share_is_refused(node):
    with pytest.raises(RecipeError, match="no share") as refused:
        RunOptions(node=node)
    assert "--node 2/8" in str(refused.value.hint)


def test_shares_are_written_as_they_are_read():
    assert str(parsed_share("2/8")) == "2/8"
    assert Share(8, 2).folder(Path("work")) == Path("work/shares/2-of-8")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--report"], "`--report` needs a finished output"),
        (["--dry-run"], "`--dry-run` tells"),
        (["--keep-downloads"], "keeps no downloads"),
        (["--retry-excluded"], "does not try excluded documents again"),
        (["-o", "s3://bucket/out"], "in a store"),
    ],
)
def test_what_makes_no_sense_for_a_share_is_refused(more, words, servers, tmp_path):
    ended = servers[0].run({"argv": ["prepare", "sample", "-o", str(tmp_path / "out"), "--node", "1/2", *more]})
    assert ended.code == 2, ended.said
    assert words in ended.said
    assert not (tmp_path / "out").exists()


def test_share_from_python(corpus, tmp_path):
    done = tokenmill.prepare(corpus, tmp_path / "out", executor="inline", node="1/1")
    assert (done.share, done.n_units) == ("1/1", 1)
    assert tokenmill.prepare(corpus, tmp_path / "out", executor="inline").totals.n_tokens == done.n_tokens
