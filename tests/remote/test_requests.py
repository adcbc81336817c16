"""How many requests a run makes, and that a commit of the Hub is looked up once."""

import json
from collections import Counter

import pytest
from journeys import OUT, RECIPES, REPO, content, corpus_files


def hub_kinds(hub) -> Counter:
    """The requests to the Hub by what they ask; the client's own housekeeping is left out."""
    kinds = {
        "/resolve/": "file",
        "/cdn/": "redirected",
        "/tree/": "tree",
        "/paths-info/": "paths",
        "/revision/": "info",
    }
    found = Counter()
    for request in hub.requests:
        if "agent-harness" not in request.path:
            found[next((kind for mark, kind in kinds.items() if mark in request.path), "info")] += 1
    return found


def store_kinds(s3) -> Counter:
    """The requests to the store by method and by what they are about."""
    found = Counter()
    for request in s3.front.requests:
        name = request.path.partition("?")[0]
        where = next((mark for mark in ("journal", "lock", "index", ".work") if mark in name), "")
        found[request.method, where or ("list" if "list-type" in request.path else "file")] += 1
    return found


@pytest.mark.parametrize("name", ["streamed"])
def test_requests_do_not_grow_with_workers(name, journey, hub, s3):
    files = corpus_files(n_files=5, n_documents=60)
    hub.add_repo(REPO, files)
    counted = []
    journey.constants["tokenmill.storage.lease.BEAT_SECONDS"] = 600.0
    for workers in (1, 2, 4):
        hub.requests.clear()
        s3.front.requests.clear()
        ended = journey.run(RECIPES[name], f"{OUT}/{workers}", executor="processes", workers=workers, unit_bytes=20_000)
        assert ended.code == 0, ended.said
        counted.append((hub_kinds(hub), store_kinds(s3)))
    assert counted[0] == counted[1] == counted[2]
    of_hub, of_store = counted[0]
    assert of_hub.pop("paths", 0) <= 1
    assert of_hub == {"info": 1, "tree": 1, "file": len(files), "redirected": len(files)}
    n_shards = len(json.loads((journey.output(f"{OUT}/1") / "manifest.json").read_bytes())["shards"])
    assert of_store["PUT", "index"] == of_store["PUT", "journal"] == n_shards
    assert sum(of_store.values()) == 19 + 3 * n_shards, of_store  # a file, its index, a part of the journal


def test_a_listing_is_asked_for_page_by_page_once(journey, hub):
    hub.page_size = 3
    hub.add_repo(REPO, corpus_files(n_files=7, n_documents=20))
    assert journey.run(RECIPES["shuffled"]).code == 0
    assert hub_kinds(hub)["tree"] == 3
    assert hub_kinds(hub)["file"] == 7


def test_a_finished_output_costs_a_listing_and_its_manifest(journey, hub, s3):
    hub.add_repo(REPO, corpus_files())
    assert journey.run(RECIPES["streamed"]).code == 0
    hub.requests.clear()
    s3.front.requests.clear()
    before = content(journey.output())
    assert journey.run(RECIPES["streamed"]).code == 0
    assert store_kinds(s3) == {("GET", "list"): 1, ("GET", "file"): 1}
    assert hub_kinds(hub).keys() <= {"tree", "paths"}
    assert content(journey.output()) == before


def test_the_commit_of_the_first_run_is_that_of_all_that_follow(journey, hub):
    files = corpus_files()
    sha = hub.add_repo(REPO, files)
    assert journey.run(RECIPES["streamed"], "s3://bucket/undisturbed").code == 0
    expected = content(journey.output("s3://bucket/undisturbed"))
    assert journey.run(RECIPES["streamed"], fault="shard.put:3").code == -9
    other = corpus_files(n_documents=50)
    hub.add_commit(REPO, {**other, "sample/10BT/new.parquet": next(iter(other.values()))})
    journey.lose_scratch()
    hub.requests.clear()
    ended = journey.run(RECIPES["streamed"])
    assert ended.code == 0, ended.said
    assert content(journey.output()) == expected
    assert hub_kinds(hub)["info"] == 0
    manifest = json.loads((journey.output() / "manifest.json").read_bytes())
    assert manifest["recipe"]["sources"] == [f"hf://datasets/{REPO}@{sha}/sample/10BT"]
    assert journey.run(RECIPES["streamed"]).code == 0  # a rerun of what is finished
    ended = journey.cli("verify", OUT)
    assert ended.code == 0, ended.said
    assert "64 documents encoded again: equal" in ended.said
    ended = journey.run(RECIPES["streamed"], "s3://bucket/later")
    assert ended.code == 0
    assert content(journey.output("s3://bucket/later")) != expected


def test_another_revision_is_another_recipe(journey, hub):
    first = hub.add_repo(REPO, corpus_files())
    hub.add_commit(REPO, corpus_files(n_documents=50))
    source = f"hf://datasets/{REPO}@{first}/sample/10BT"
    assert journey.run(RECIPES["streamed"], source=source).code == 0
    assert journey.run(RECIPES["streamed"], source=source).code == 0
    ended = journey.run(RECIPES["streamed"], source=f"hf://datasets/{REPO}@{'0' * 40}/sample/10BT")
    assert ended.code == 2
    ended = journey.run({**RECIPES["streamed"], "shard_tokens": 9999})
    assert ended.code == 2
    assert "holds the output of another recipe" in ended.said
    assert journey.leftovers() == []
