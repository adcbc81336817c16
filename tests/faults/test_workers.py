"""A worker that dies in every way there is: on a document always, on a document once, at random."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
from harness import HERE, digests, start, start_cli, tally, texts, write_jsonl

import tokenmill

WAYS = ["kill", "segv", "exit", "panic", "exception", "hang"]
POISON_ROW = 37
REASONS = {
    "kill": "its worker died: killed by SIGKILL",
    "segv": "its worker died: killed by SIGSEGV",
    "exit": "its worker died: exit code 7",
    "panic": "PanicException",
    "exception": "ValueError: cannot take this",
    "hang": "its worker died: no progress",
}


def corpus() -> list[str]:
    return texts(64, seed=3, mean_words=15, empty=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory, forks):
    """The corpus with a document that is poison, and what undisturbed runs with and without it give."""
    folder = tmp_path_factory.mktemp("workers")
    documents = corpus()
    without = write_jsonl(folder / "without.jsonl", documents)
    documents.insert(POISON_ROW, "this is POISON to some")
    path = write_jsonl(folder / "in.jsonl", documents)
    whole, clean = folder / "whole", folder / "clean"
    for source, out in ((path, whole), (without, clean)):
        ended = start_cli(*arguments(source, out)).wait()
        assert ended.code == 0, ended.said
    return path, whole, clean


def arguments(source: Path, out: Path, *more: str, stall_seconds: int = 30) -> list[str]:
    return [
        "prepare", str(source), "-o", str(out), "--tokenizer", "words:Letters", "--eot-token", "<end>", "--format",
        "npy", "--shard-tokens", "2000", "--workers", "2", "--stall-seconds", str(stall_seconds), "-q", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def hanging(made, tmp_path_factory):
    """A run whose workers hang on a document, again and again. It waits for most of its time, so the others go on."""
    out = tmp_path_factory.mktemp("hanging") / "out"
    run = start_cli(*arguments(made[0], out, stall_seconds=3), env={"FAULT": "hang always"})
    yield run, out
    run.kill_group()


@pytest.mark.parametrize("way", ["kill", "segv", "exit", "panic", "exception"])
def test_document_that_always_kills_is_left_out_alone(way, made, tmp_path):
    out = tmp_path / "out"
    left_out_alone(way, start_cli(*arguments(made[0], out), env={"FAULT": f"{way} always"}), out, made)


def left_out_alone(way, run, out, made):
    path, _, clean = made
    ended = run.wait()
    assert ended.code == 4, ended.said
    assert ended.orphans == []
    (excluded,) = json.loads((out / "manifest.json").read_text())["excluded"]
    assert (excluded["file"], excluded["row"], excluded["n_bytes"]) == (str(path), POISON_ROW, 22)
    assert REASONS[way] in excluded["reason"]
    assert [file.read_text() for file in (out / "quarantine").iterdir()] == ["this is POISON to some"]
    assert shards(out) == shards(clean)
    assert documents_of(out) == [
        (start, length, row + (row >= POISON_ROW)) for start, length, row in documents_of(clean)
    ]
    assert tokenmill.verify(out).ok
    tally(f"worker dies on one document, always: {way}", "that document alone in quarantine, exit 4")


@pytest.mark.parametrize("way", WAYS)
def test_document_that_kills_once_goes_in(way, made, tmp_path):
    path, whole, _ = made
    out = tmp_path / "out"
    command = arguments(path, out, stall_seconds=3 if way == "hang" else 30)
    ended = start_cli(*command, env={"FAULT": f"{way} once:{tmp_path / 'marker'}"}).wait()
    assert ended.code == 0, ended.said
    assert (tmp_path / "marker").exists()
    assert digests(out) == digests(whole)
    tally(f"worker dies on one document, once: {way}", "same bytes")


@pytest.mark.parametrize("way", ["kill", "segv", "exit"])
def test_workers_that_die_at_random_change_nothing(way, forks, tmp_path):
    path = write_jsonl(tmp_path / "in.jsonl", texts(300, seed=3, mean_words=15, empty=False))
    recipe = {"sources": [str(path)], "format": "npy", "tokenizer": "words:Letters", "eot_token": "<end>"}
    recipe |= {"shard_tokens": 4000}
    spec = {"recipe": recipe, "modules": [str(HERE)], "options": {"executor": "inline"}, "out": str(tmp_path / "whole")}
    assert forks.run(spec).code == 0
    spec |= {"out": str(tmp_path / "out"), "options": {"workers": 2, "unit_bytes": 2000, "batch_bytes": 500}}
    ended = start(spec, env={"FAULT": f"{way} random:0.015"}).wait()
    assert ended.code == 0, ended.said
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    n_deaths = len(json.loads((tmp_path / "out" / "manifest.json").read_text())["run"]["mishaps"])
    tally(f"worker dies at random: {way}", "same bytes", n_deaths)


def test_finished_output_with_exclusions_stays_and_can_be_tried_again(made, tmp_path):
    path, whole, _ = made
    out = tmp_path / "out"
    poisoned = {"FAULT": "exit always"}
    assert start_cli(*arguments(path, out), env=poisoned).wait().code == 4
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    assert start_cli(*arguments(path, out), env=poisoned).wait().code == 4
    assert start_cli(*arguments(path, out, "--allow-excluded"), env=poisoned).wait().code == 0
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before
    assert start_cli(*arguments(path, out, "--retry-excluded")).wait().code == 0
    assert digests(out) == digests(whole)
    assert not (out / "quarantine").exists()
    tally("excluded documents tried again after the cause is gone", "same bytes")


def test_two_documents_of_one_batch_may_both_be_left_out(made, forks, tmp_path):
    path = write_jsonl(tmp_path / "in.jsonl", ["first", "POISON", "POISON", "last"])
    recipe = {"sources": [str(path)], "tokenizer": "words:Letters", "eot_token": "<end>", "format": "npy"}
    recipe |= {"val": "none"}
    spec = {"recipe": recipe, "options": {"executor": "inline", "batch_bytes": 12}, "out": str(tmp_path / "out")}
    spec |= {"env": {"FAULT": "exception always"}, "modules": [str(Path(__file__).parent)]}
    ended = forks.run(spec)
    assert ended.code == 4, ended.said
    assert len(list((tmp_path / "out" / "quarantine").iterdir())) == 2


def test_tokenizer_that_always_fails_is_refused(forks, tmp_path):
    path = write_jsonl(tmp_path / "in.jsonl", ["POISON " * (i + 1) for i in range(9)])
    out = tmp_path / "out"
    ended = start_cli(*arguments(path, out), env={"FAULT": "exception always"}).wait()
    assert ended.code == 1, ended.said
    assert "fails on every document" in ended.said
    assert not out.exists()


def test_million_spaces_are_encoded_and_not_left_out(tmp_path):
    path = write_jsonl(tmp_path / "in.jsonl", ["before", "a" + " " * 1_100_000 + "x", "after"])
    ended = start_cli("prepare", path, "-o", tmp_path / "out", "--val", "1", "--workers", "1", "-q").wait()
    assert ended.code == 0, ended.said
    assert tokenmill.verify(tmp_path / "out").n_documents == 3
    tally("1,100,000 spaces in a row (tiktoken panics)", "encoded, exact")


def test_document_on_which_workers_hang_is_left_out_alone(hanging, made):
    left_out_alone("hang", *hanging, made)


def shards(out: Path) -> dict[str, str]:
    return {name: digest for name, digest in digests(out).items() if name.endswith(".npy")}


def documents_of(out: Path) -> list[tuple[int, int, int]]:
    """Start, length and row of each document, by the indexes."""
    found = []
    for path in sorted((out / "index").iterdir()):
        found += [(row["start"], row["length"], row["row"]) for row in pa.ipc.open_file(path).read_all().to_pylist()]
    return found
