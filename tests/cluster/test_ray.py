"""The same bytes from a cluster as from one machine, whatever happens to its nodes, stations and driver."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from runs import digests, fetched, kill, killed_driver, local_digests, ray_options, recipe_for, stations

from tokenmill.errors import RecipeError
from tokenmill.mill import prepare_recipe
from tokenmill.recipe import RunOptions

CHOOSY = """
class Choosy:
    name, identity, vocab_size, special_tokens = "choosy", "choosy 1", 256, {"<end>": 255}

    def encode_batch(self, texts):
        if "text 17" in texts:
            raise ValueError("not this one")
        return [list(text.encode()) for text in texts]

    def decode(self, ids):
        return bytes(ids).decode()

tokenizer = Choosy()
"""


@pytest.fixture(scope="session")
def expected(corpus, tmp_path_factory):
    return local_digests(recipe_for(corpus), tmp_path_factory.mktemp("local") / "out")


class LosingAndGaining:
    """Takes a node away after a third of the units and adds one soon after, which is given time to come."""

    def __init__(self, cluster) -> None:
        self.cluster, self.steps = cluster, ["lose", "gain"]
        self.mishaps, self.nodes = [], {}

    def __call__(self, progress):
        self.mishaps[:] = progress.mishaps
        self.nodes.update(progress.nodes)
        share = progress.n_units_done / progress.n_units
        if share > 0.3 and "lose" in self.steps:
            self.steps.remove("lose")
            self.cluster.remove_node(next(iter(self.cluster.worker_nodes)), allow_graceful=False)
        elif share > 0.4 and "gain" in self.steps:
            self.steps.remove("gain")
            self.cluster.add_node(num_cpus=1)
        elif not self.steps and len(self.nodes) < 4:
            time.sleep(0.3)


def test_a_node_is_lost_and_another_comes_in_a_folder(three_nodes, corpus, expected, tmp_path):
    watch = LosingAndGaining(three_nodes)
    manifest = prepare_recipe(recipe_for(corpus), tmp_path / "out", ray_options(three_nodes), watch)
    assert digests(tmp_path / "out") == expected
    assert manifest.tokenizer.n_checked_documents >= 20
    assert not list((tmp_path / "out").rglob("*.partial"))
    assert not (tmp_path / "out/.work").exists()
    assert any(mishap.kind == "node" for _, mishap in watch.mishaps)
    assert len(watch.nodes) == 4
    assert len(watch.mishaps) < 10


def test_a_node_is_lost_and_another_comes_in_a_store(three_nodes, s3, corpus, expected, tmp_path):
    watch = LosingAndGaining(three_nodes)
    options = ray_options(three_nodes, scratch=str(tmp_path / "scratch"))
    prepare_recipe(recipe_for(corpus), "s3://bucket/lost", options, watch)
    assert digests(fetched(s3, "lost", tmp_path / "out")) == expected
    assert not (tmp_path / "out/.work").exists()
    assert len(watch.nodes) == 4


@pytest.mark.parametrize("place", ["folder", "store"])
def test_a_driver_killed_twice_and_finished_on_one_machine(three_nodes, s3, corpus, expected, tmp_path, place):
    out = str(tmp_path / "out") if place == "folder" else "s3://bucket/killed"
    scratch = {} if place == "folder" else {"scratch": str(tmp_path / "scratch")}
    recipe = recipe_for(corpus)
    for n_units in (10, 30):
        killed_driver(recipe, out, ray_options(three_nodes, **scratch), n_units)
    manifest = prepare_recipe(recipe, out, RunOptions(workers=2, **scratch))
    assert manifest.run.n_units_resumed >= 20
    folder = tmp_path / "out" if place == "folder" else fetched(s3, "killed", tmp_path / "out")
    assert digests(folder) == expected
    assert not (folder / ".work").exists()


@pytest.mark.parametrize("shuffle", ["none", "keyed:3"])
@pytest.mark.parametrize("place", ["folder", "store"])
def test_begun_on_one_machine_and_finished_on_the_cluster(three_nodes, s3, corpus, tmp_path, place, shuffle):
    out = str(tmp_path / "out") if place == "folder" else f"s3://bucket/begun-{shuffle[:5]}"
    scratch = {} if place == "folder" else {"scratch": str(tmp_path / "scratch")}
    recipe = recipe_for(corpus, shuffle=shuffle)
    killed_driver(recipe, out, RunOptions(workers=2, unit_bytes=30_000, **scratch), 30)
    manifest = prepare_recipe(recipe, out, ray_options(three_nodes, **scratch))
    assert manifest.run.n_units_resumed >= 20
    folder = tmp_path / "out" if place == "folder" else fetched(s3, f"begun-{shuffle[:5]}", tmp_path / "out")
    assert digests(folder) == local_digests(recipe, tmp_path / "local")


def test_another_machine_without_scratch_goes_on_from_the_store(three_nodes, s3, corpus, expected, tmp_path):
    recipe = recipe_for(corpus)
    killed_driver(recipe, "s3://bucket/moved", ray_options(three_nodes, scratch=str(tmp_path / "a")), 40)
    manifest = prepare_recipe(recipe, "s3://bucket/moved", RunOptions(workers=2, scratch=str(tmp_path / "b")))
    assert manifest.run.n_units_resumed >= 20
    assert digests(fetched(s3, "moved", tmp_path / "out")) == expected


@pytest.mark.parametrize("executor", ["ray", "processes"])
def test_another_machine_goes_on_with_what_was_scattered(three_nodes, s3, corpus, tmp_path, executor):
    recipe, out = recipe_for(corpus, shuffle="keyed:3"), f"s3://bucket/scattered-{executor}"
    options = ray_options(three_nodes, scratch=str(tmp_path / "a"))
    killed_driver(recipe, out, options, n_units=10**6, fault="put.before-receipt")  # the first shards have come
    others = {"ray": ray_options(three_nodes, scratch=str(tmp_path / "b"))}
    manifest = prepare_recipe(recipe, out, others.get(executor, RunOptions(workers=2, scratch=str(tmp_path / "b"))))
    assert manifest.run.n_units_resumed == manifest.run.n_units
    assert digests(fetched(s3, f"scattered-{executor}", tmp_path / "out")) == local_digests(recipe, tmp_path / "local")


def test_a_station_that_stands_still_keeps_nobody_waiting(three_nodes, corpus, expected, tmp_path):
    stopped = []

    def on_progress(progress):
        if progress.n_units_done > 5 and not stopped:
            stopped.append(stations()[0])
            kill(stopped[0], signal.SIGSTOP)

    try:
        prepare_recipe(recipe_for(corpus), tmp_path / "out", ray_options(three_nodes), on_progress)
    finally:
        for pid in stopped:
            kill(pid, signal.SIGKILL)
    assert digests(tmp_path / "out") == expected


def test_a_killed_station_is_replaced(three_nodes, corpus, expected, tmp_path):
    killed = []

    def on_progress(progress):
        if progress.n_units_done > 5 and not killed:
            killed.append(stations()[0])
            kill(killed[0])

    prepare_recipe(recipe_for(corpus), tmp_path / "out", ray_options(three_nodes), on_progress)
    assert digests(tmp_path / "out") == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "nanogpt", "shard_tokens": None, "val": 0.1},
        {"format": "nanogpt", "shard_tokens": None, "val": None, "shuffle": "keyed:7"},
        {"format": "datatrove", "shuffle": "keyed:3"},
        {"format": "datatrove", "val": 50},
        {"format": "megatron", "shard_tokens": None, "val": 0.05},
        {"format": "mds", "sequence_length": 128, "shard_tokens": 12_800},
        {"format": "llmc", "val": "shard"},
        {"limit_documents": 200},
        {"limit_tokens": 150_000, "format": "npy"},
        {"tokenizer": "cl100k_base", "format": "npy"},
    ],
    ids=lambda fields: "-".join(str(value) for value in fields.values() if value is not None),
)
def test_every_kind_of_recipe(three_nodes, corpus, tmp_path, fields):
    recipe = recipe_for(corpus, **fields)
    prepare_recipe(recipe, tmp_path / "out", ray_options(three_nodes))
    assert digests(tmp_path / "out") == local_digests(recipe, tmp_path / "local")
    assert not (tmp_path / "out/.work").exists()


def test_shuffled_in_a_store(three_nodes, s3, corpus, tmp_path):
    recipe = recipe_for(corpus, shuffle="keyed:5", limit_documents=300)
    prepare_recipe(
        recipe,
        "s3://bucket/shuffled",
        ray_options(three_nodes, scratch=str(tmp_path / "scratch"), bucket_bytes=100_000),
    )
    assert digests(fetched(s3, "shuffled", tmp_path / "out")) == local_digests(recipe, tmp_path / "local")


def test_sources_in_a_store(three_nodes, s3, corpus, expected, tmp_path):
    for path in corpus.iterdir():
        (s3.folder / "bucket/corpus").mkdir(exist_ok=True)
        (s3.folder / "bucket/corpus" / path.name).write_bytes(path.read_bytes())
    manifest = prepare_recipe(recipe_for("s3://bucket/corpus"), tmp_path / "out", ray_options(three_nodes))
    assert {n: d for n, d in digests(tmp_path / "out").items() if n.endswith(".bin")} == {
        n: d for n, d in expected.items() if n.endswith(".bin")
    }
    assert all(entry.sha256 for entry in manifest.inputs)


def test_the_command_shows_nodes_and_status_sees_it(three_nodes, corpus, expected, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tokenmill", "prepare", str(corpus), "-o", str(out), "--executor", "ray"]
    options = ["--ray-address", three_nodes.address, "--format", "llmc", "--val", "none", "--shard-tokens", "20K"]
    done = subprocess.run(
        [*command, *options, "--progress", "jsonl"], capture_output=True, text=True, timeout=240, check=True
    )
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    nodes = [event["nodes"] for event in events if event.get("nodes")]
    assert nodes
    assert sum(node["units"] for node in nodes[-1].values()) >= 1
    assert digests(out) == expected


def test_no_cluster_at_the_address(corpus, tmp_path):
    with pytest.raises(RecipeError, match=r"cannot reach the Ray cluster at `127\.0\.0\.1:1`"):
        prepare_recipe(recipe_for(corpus), tmp_path / "out", RunOptions(executor="ray", ray_address="127.0.0.1:1"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["folder", "store"])
def test_a_document_that_no_engine_takes_is_kept(three_nodes, s3, tmp_path, monkeypatch, place):
    """A tokenizer that nobody can use on one document: it goes to quarantine, wherever the output is."""
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(40)))
    (tmp_path / "choosy.py").write_text(CHOOSY)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = str(tmp_path / "out") if place == "folder" else "s3://bucket/choosy"
    scratch = {} if place == "folder" else {"scratch": str(tmp_path / "scratch")}
    recipe = recipe_for(tmp_path / "docs.jsonl", tokenizer="choosy:tokenizer", eot_token="<end>")
    manifest = prepare_recipe(recipe, out, ray_options(three_nodes, **scratch))
    (excluded,) = manifest.excluded
    folder = tmp_path / "out" if place == "folder" else fetched(s3, "choosy", tmp_path / "out")
    assert (folder / excluded.text).read_text() == "text 17"
