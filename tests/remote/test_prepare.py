"""From the Hub to a store: the bytes of a local run, whatever the servers do."""

import pytest
from journeys import OUT, RECIPES, SOURCE, content, corpus_files, shards_of, write_files
from proxy import FaultProxy

REPO = "tester/corpus"
FAULTS = ("slow", "refused", "cut", "unavailable", "too_many", "short", "truncated", "padded")


@pytest.fixture
def corpus(hub, tmp_path):
    """The same files on the Hub and in a folder."""
    files = corpus_files()
    hub.add_repo(REPO, files)
    return write_files(tmp_path / "corpus", files) / "sample" / "10BT"


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


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("conditional", [True, False], ids=["conditional", "unconditional"])
def test_a_tenth_of_all_requests_meets_a_fault(fault, conditional, journey, hub, s3, corpus, tmp_path):
    """Some request in ten fails; here more of them do, so that a small run has its share."""
    recipe = RECIPES["streamed"]
    wanted = expected(journey, recipe, corpus, tmp_path)
    with FaultProxy(s3.rclone_endpoint, etag_of=s3.etag_of if conditional else None) as proxy:
        journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
        for server in (hub, proxy):
            server.faults.set(**{fault: 0.1}, seed=1, slow_seconds=0.05)
        ended = journey.run(recipe)
        assert ended.code == 0, ended.said
        assert hub.faults.n_made + proxy.faults.n_made > 0
    assert content(journey.output()) == wanted
    assert journey.leftovers() == []
