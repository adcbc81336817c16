"""The Hub's own cache and switches; verify and status of outputs whose sources or shards are elsewhere."""

import json
import time
from pathlib import Path

import pytest
from journeys import OUT, RECIPES, REPO, SOURCE, content, corpus_files, file_bytes, shards_of, texts, write_files

RECIPE = RECIPES["streamed"]


@pytest.fixture
def cached(hub):
    """A corpus on the Hub, two files of which are in this user's cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    files = corpus_files()
    hub.add_repo(REPO, files)
    here = [
        Path(hf_hub_download(REPO, name, repo_type="dataset", endpoint=hub.endpoint, token=hub.token))
        for name in list(files)[:2]
    ]
    hub.requests.clear()
    return here


def fetched_names(hub) -> set[str]:
    return {request.path.rpartition("/")[2] for request in hub.requests if "/resolve/" in request.path}


def test_files_of_the_cache_are_used_in_place(cached, hub, journey, tmp_path):
    before = [(path, path.read_bytes(), path.resolve()) for path in cached]
    ended = journey.run(RECIPE, disk_budget=max(len(data) for _, data, _ in before))
    assert ended.code == 0, ended.said
    assert fetched_names(hub) == {"002_00000.parquet", "003_00000.parquet"}
    assert [(path, path.read_bytes(), path.resolve()) for path in cached] == before
    write_files(tmp_path / "corpus", corpus_files())
    assert journey.run(RECIPE, tmp_path / "local", source=str(tmp_path / "corpus" / "sample" / "10BT")).code == 0
    assert shards_of(content(journey.output())) == shards_of(content(tmp_path / "local"))


def test_a_damaged_file_of_the_cache_is_told_and_left_alone(cached, journey):
    blob = cached[0].resolve()
    blob.write_bytes(blob.read_bytes()[::-1])
    ended = journey.run(RECIPE)
    assert ended.code == 1
    assert f"`{cached[0]}` is damaged" in ended.said
    assert blob.exists()


def test_offline_with_the_files_in_the_cache(cached, hub, journey, tmp_path):
    journey.env["HF_HUB_OFFLINE"] = "1"
    ended = journey.run(RECIPE)
    assert ended.code == 0, ended.said
    assert hub.requests == []
    manifest = json.loads((journey.output() / "manifest.json").read_bytes())
    assert [entry["path"].rpartition("/")[2] for entry in manifest["inputs"]] == [path.name for path in cached]
    assert hub.repos[REPO].refs["main"] in manifest["recipe"]["sources"][0]
    ended = journey.cli("verify", OUT)
    assert ended.code == 0, ended.said


def test_offline_without_them(hub, journey):
    hub.add_repo(REPO, corpus_files())
    journey.env["HF_HUB_OFFLINE"] = "1"
    ended = journey.run(RECIPE)
    assert ended.code == 2
    assert "is not in the cache, and the Hub is switched off (HF_HUB_OFFLINE)" in ended.said
    assert hub.requests == []
    assert journey.leftovers() == []


def test_offline_in_the_middle_of_a_run(hub, journey):
    files = corpus_files(n_files=8)
    hub.add_repo(REPO, files)
    assert journey.run(RECIPE, fault="shard.put:2", disk_budget=2 * max(map(len, files.values()))).code == -9
    journey.env["HF_HUB_OFFLINE"] = "1"
    ended = journey.run(RECIPE)
    assert ended.code in (2, 3), ended.said
    assert "HF_HUB_OFFLINE" in ended.said
    journey.env["HF_HUB_OFFLINE"] = "0"
    ended = journey.run(RECIPE)
    assert ended.code == 0, ended.said
    assert journey.leftovers() == []


@pytest.mark.parametrize("level", [(), ("--full", "--workers", "1"), ("--checksums-only",)])
def test_an_output_of_the_hub_in_a_store_is_verified(level, hub, journey):
    hub.add_repo(REPO, corpus_files(), private=True)
    assert journey.run(RECIPE).code == 0
    ended = journey.cli("verify", OUT, *level)
    assert ended.code == 0, ended.said
    assert ("encoded again: equal" in ended.said) == (level != ("--checksums-only",))
    assert journey.leftovers() == []


@pytest.mark.parametrize("what", ["changed", "gone", "forbidden"])
def test_a_source_in_a_store_that_is_not_what_it_was(what, s3, proxy, journey):
    journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
    files = corpus_files()
    write_files(s3.folder / s3.add_bucket("data").name, files)
    assert journey.run(RECIPE, source="s3://data/sample/10BT").code == 0
    assert journey.cli("verify", OUT).code == 0
    victim = s3.folder / "data" / next(iter(files))
    if what == "changed":
        victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    elif what == "gone":
        victim.unlink()
    else:
        proxy.deny_buckets.add("data")
    time.sleep(0.2)
    ended = journey.cli("verify", OUT)
    assert ended.code == (1 if what == "changed" else 0), ended.said
    said = {"changed": "changed since the run", "gone": "is not there any more", "forbidden": "no permission"}
    assert said[what] in ended.said
    assert ended.said.count("note: ") == {"changed": 0, "gone": 1, "forbidden": 4}[what]
    ended = journey.run(RECIPE, source="s3://data/sample/10BT")
    assert ended.code == 2, ended.said


@pytest.mark.parametrize("what", ["changed", "short", "gone", "index", "manifest"])
def test_damage_in_the_store_is_told(what, hub, journey):
    hub.add_repo(REPO, corpus_files())
    assert journey.run(RECIPE).code == 0
    out = journey.output()
    shard = sorted(out.glob("*train*"))[0]
    match what:
        case "changed":
            shard.write_bytes(shard.read_bytes()[:-1] + b"?")
        case "short":
            shard.write_bytes(shard.read_bytes()[:-1])
        case "gone":
            shard.unlink()
        case "index":
            (out / "index" / "000001.arrow").write_bytes(b"x" * (out / "index" / "000001.arrow").stat().st_size)
        case "manifest":
            (out / "manifest.json").write_bytes((out / "manifest.json").read_bytes()[:-9])
    time.sleep(0.2)
    ended = journey.cli("verify", OUT)
    assert ended.code == 1, ended.said
    assert "Traceback" not in ended.said
    assert journey.leftovers() == []
    rerun = journey.run(RECIPE)
    assert rerun.code == {"changed": 0, "short": 2, "gone": 2, "index": 0, "manifest": 1}[what], rerun.said


def test_status_of_a_run_that_runs_stops_and_is_done(hub, journey):
    hub.add_repo(REPO, corpus_files())
    assert journey.cli("status", OUT).code == 2
    hub.faults.set(slow=1, path="003_00000", slow_seconds=3.0)
    command = ("prepare", SOURCE, "-o", OUT, "-q", "--format", "llmc", "--shard-tokens", "5000", "--workers", "1")
    run = journey.start(*command)
    try:
        ended = None
        while run.running and (ended is None or "Running" not in ended.said):
            ended = journey.cli("status", OUT)
        assert ended.code == 0, ended.said
        assert f"Running: process {run.pid} on " in ended.said
    finally:
        run.kill_group()
        run.wait()
    ended = journey.cli("status", OUT)
    assert ended.code == 3
    assert "Stopped" in ended.said
    assert journey.cli("verify", OUT).code == 2
    hub.faults.clear()
    assert journey.start(*command).wait().code == 0
    ended = journey.cli("status", OUT, "--json")
    assert ended.code == 0
    assert json.loads(ended.said)["state"] == "finished"
    assert journey.leftovers() == []


def test_another_endpoint_is_asked_for_everything(journey, hub, tmp_path):
    from hub_server import HubServer

    with HubServer() as other:
        other.add_repo(REPO, corpus_files(n_files=2))
        journey.env |= other.environment
        ended = journey.run(RECIPE)
        assert ended.code == 0, ended.said
        assert hub.requests == []


@pytest.mark.parametrize("point", ["over.file-removed", "over.done"])
def test_documents_in_quarantine_are_tried_again_in_a_store(point, hub, journey):
    documents = texts(80)
    files = {"sample/10BT/a.jsonl": file_bytes([*documents[:40], "a POISON document", *documents[40:]], ".jsonl")}
    hub.add_repo(REPO, files)
    journey.env["FAULT"] = "exception always"
    assert journey.run(RECIPE, fault="shard.put:2").code == -9
    journey.lose_scratch()
    ended = journey.run(RECIPE)
    assert ended.code == 4, ended.said
    assert len(list((journey.output() / "quarantine").iterdir())) == 1
    journey.env["FAULT"] = ""
    ended = journey.run(RECIPE, retry_excluded=True, fault=point)
    assert ended.code == -9, ended.said
    journey.lose_scratch()
    ended = journey.run(RECIPE, retry_excluded=True)
    assert ended.code == 0, ended.said
    assert not (journey.output() / "quarantine").exists() or not list((journey.output() / "quarantine").iterdir())
    assert journey.run(RECIPE, "s3://bucket/undisturbed").code == 0
    assert content(journey.output()) == content(journey.output("s3://bucket/undisturbed"))
    assert journey.leftovers() == []
