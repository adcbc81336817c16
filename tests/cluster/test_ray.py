"""The same bytes from a cluster as from one machine, whatever happens to its nodes, stations and driver."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from runs import digests, fetched, kill, killed_driver, local_digests, ray_options, recipe_for, stations

from tokenmill.errors import RecipeError
from tokenmill.mill import prepare_recipe
from tokenmill.recipe import RunOptions


@pytest.fixture(scope="session")
def expected(corpus, tmp_path_factory):
    return local_digests(recipe_for(corpus), tmp_path_factory.mktemp("local") / "out")


def losing_and_gaining(cluster, mishaps):
    """A callback that takes a node away after a third of the units and adds one after two thirds."""
    done = set()

    def on_progress(progress):
        mishaps[:] = progress.mishaps
        share = progress.n_units_done / progress.n_units
        if share > 0.3 and "lost" not in done:
            done.add("lost")
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        if share > 0.6 and "gained" not in done:
            done.add("gained")
            cluster.add_node(num_cpus=1)

    return on_progress


def test_a_node_is_lost_and_another_comes_in_a_folder(three_nodes, corpus, expected, tmp_path):
    mishaps = []
    manifest = prepare_recipe(
        recipe_for(corpus), tmp_path / "out", ray_options(three_nodes), losing_and_gaining(three_nodes, mishaps)
    )
    assert digests(tmp_path / "out") == expected
    assert manifest.tokenizer.n_checked_documents >= 20
    assert not (tmp_path / "out/.work").exists()
    assert any(mishap.kind == "node" for _, mishap in mishaps)


def test_a_node_is_lost_and_another_comes_in_a_store(three_nodes, s3, corpus, expected, tmp_path):
    mishaps = []
    options = ray_options(three_nodes, scratch=str(tmp_path / "scratch"))
    on_progress = losing_and_gaining(three_nodes, mishaps)
    prepare_recipe(recipe_for(corpus), "s3://bucket/lost", options, on_progress)
    assert digests(fetched(s3, "lost", tmp_path / "out")) == expected
    assert not (tmp_path / "out/.work").exists()


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


def test_begun_on_one_machine_and_finished_on_the_cluster(three_nodes, corpus, expected, tmp_path):
    recipe = recipe_for(corpus)
    killed_driver(recipe, tmp_path / "out", RunOptions(workers=2, unit_bytes=30_000), 15)
    manifest = prepare_recipe(recipe, tmp_path / "out", ray_options(three_nodes))
    assert manifest.run.n_units_resumed >= 10
    assert digests(tmp_path / "out") == expected


def test_another_machine_without_scratch_goes_on_from_the_store(three_nodes, s3, corpus, expected, tmp_path):
    recipe = recipe_for(corpus)
    killed_driver(recipe, "s3://bucket/moved", ray_options(three_nodes, scratch=str(tmp_path / "a")), 40)
    prepare_recipe(recipe, "s3://bucket/moved", RunOptions(workers=2, scratch=str(tmp_path / "b")))
    assert digests(fetched(s3, "moved", tmp_path / "out")) == expected


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
