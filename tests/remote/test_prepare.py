"""From the Hub to a store: the bytes of a local run, whatever the servers do."""

import pytest
from journeys import RECIPES, REPO, content, corpus_files, shards_of, write_files
from proxy import FaultProxy

FAULTS = ("slow", "refused", "cut", "unavailable", "too_many", "short", "truncated", "padded", "lost")


@pytest.fixture
def corpus(hub, tmp_path):
    """The same files on the Hub and in a folder."""
    files = corpus_files()
    hub.add_repo(REPO, files)
    return write_files(tmp_path / "corpus", files) / "sample" / "10BT"


@pytest.fixture(scope="module")
def undisturbed():
    """What runs gave, by the name of their recipe."""
    return {}


def expected(journey, recipe, corpus, tmp_path):
    """What a run from here to here gives, and one from the Hub to here."""
    assert journey.run(recipe, tmp_path / "local", source=str(corpus)).code == 0
    ended = journey.run(recipe, tmp_path / "from-hub")
    assert ended.code == 0, ended.said
    local, from_hub = content(tmp_path / "local"), content(tmp_path / "from-hub")
    assert shards_of(local) == shards_of(from_hub)
    return from_hub


@pytest.mark.parametrize("name", RECIPES)
def test_an_output_in_a_store_is_that_of_a_local_run(name, journey, corpus, tmp_path):
    ended = journey.run(RECIPES[name])
    assert ended.code == 0, ended.said
    assert content(journey.output()) == expected(journey, RECIPES[name], corpus, tmp_path)
    assert journey.leftovers() == []


@pytest.mark.parametrize("name", ["streamed", "shuffled", "sided"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_tenth_of_all_requests_meets_some_fault(name, seed, journey, hub, s3, corpus, tmp_path, undisturbed):
    """Every kind of fault, in turn and all together."""
    with FaultProxy(s3.rclone_endpoint, etag_of=s3.etag_of) as proxy:
        journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
        for server in (hub, proxy):
            server.faults.set(**dict.fromkeys(FAULTS, 0.1 / len(FAULTS)), seed=seed, slow_seconds=0.05)
        ended = journey.run(RECIPES[name])
        assert ended.code == 0, ended.said
        assert hub.faults.n_made + proxy.faults.n_made > 0
        hub.faults.clear()
    if name not in undisturbed:
        undisturbed[name] = expected(journey, RECIPES[name], corpus, tmp_path)
    assert content(journey.output()) == undisturbed[name]
    assert journey.leftovers() == []


@pytest.mark.parametrize(
    ("fault", "conditional"),
    [*((fault, True) for fault in FAULTS), ("refused", False), ("truncated", False), ("lost", False)],
)
def test_a_tenth_of_all_requests_meets_a_fault(fault, conditional, journey, hub, s3, corpus, tmp_path, undisturbed):
    recipe = RECIPES["streamed"]
    if "streamed" not in undisturbed:
        undisturbed["streamed"] = expected(journey, recipe, corpus, tmp_path)
    with FaultProxy(s3.rclone_endpoint, etag_of=s3.etag_of if conditional else None) as proxy:
        journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
        for server in (hub, proxy):
            server.faults.set(**{fault: 0.1}, seed=1, slow_seconds=0.05)
        ended = journey.run(recipe)
        assert ended.code == 0, ended.said
        assert hub.faults.n_made + proxy.faults.n_made > 0
    assert content(journey.output()) == undisturbed["streamed"]
    assert journey.leftovers() == []
