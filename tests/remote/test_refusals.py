"""What a server refuses: one clear error each, an exit code that says whether a rerun helps, nothing left behind."""

import socket
import time

import pytest
from journeys import OUT, RECIPES, REPO, SOURCE, corpus_files

RECIPE = RECIPES["streamed"]
NO_NETWORK_SECONDS = 20


@pytest.fixture
def corpus(hub):
    return hub.add_repo(REPO, corpus_files(n_documents=30))


def assert_refused(ended, code, *said):
    assert ended.code == code, ended.said
    for words in said:
        assert words in ended.said
    assert "Traceback" not in ended.said
    assert ended.said.startswith("error: ")
    assert ended.said.count("\nerror: ") == 0


def assert_nothing_left(journey):
    assert journey.leftovers() == []
    assert [path for path in journey.bucket.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (f"hf://datasets/{REPO}/sample/nowhere", "there is nothing at `hf://datasets/"),
        (f"hf://datasets/{REPO}/sample/10BT/none.parquet", "there is nothing at `hf://datasets/"),
        (f"hf://datasets/{REPO}/sample/*.jsonl", "no file matches"),
        (f"hf://datasets/{REPO}@never/sample/10BT", "has no revision `never`"),
        (f"hf://datasets/{REPO}@{'0' * 40}/sample/10BT", "has no revision"),
        ("hf://datasets/tester/none/x", "there is no data set"),
        ("hf://datasets/tester", "is no address of a data set"),
        ("hf://models/a/b/c", "is no address of a data set"),
        ("hf://datasets/te ster/no..ne/x", "is no name of a repository"),
        ("s3://bucket/nowhere", "bucket/nowhere"),
        ("s3://bucket/none.parquet", "bucket/none.parquet"),
        ("s3://no-such-bucket/x", "no-such-bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", "credentials never go into an address"),
        ("ftp://host/x", "does not read `ftp://`"),
        ("http://", "names no host"),
    ],
)
def test_sources_that_are_not_there(source, said, journey, corpus):
    ended = journey.run(RECIPE, source=source)
    assert_refused(ended, 2, said)
    assert_nothing_left(journey)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("s3://no-such-bucket/x", "no-such-bucket"),
        ("s3://bucket", "is a whole bucket"),
        ("s3://bucket/", "is a whole bucket"),
        (f"hf://datasets/{REPO}/out", "does not write to `hf://`"),
        ("https://host/x", "does not write to `https://`"),
        ("s3://bu@cket/x", "credentials never go into an address"),
    ],
)
def test_outputs_that_cannot_be(out, said, journey, corpus):
    assert_refused(journey.run(RECIPE, out), 2, said)
    assert_nothing_left(journey)


def test_a_wrong_token(journey, hub, corpus):
    journey.env["HF_TOKEN"] = "hf_wrong"
    assert_refused(journey.run(RECIPE), 2, "does not accept the token", "HF_TOKEN")
    assert_nothing_left(journey)


@pytest.mark.parametrize("token", ["", "hf_stranger"])
def test_a_gated_repository(token, journey, hub):
    hub.add_repo(REPO, corpus_files(), gated=True)
    journey.env["HF_TOKEN"] = token
    assert_refused(journey.run(RECIPE), 2, "is gated, and this user has no access", "hf auth login")
    assert_nothing_left(journey)
    journey.env["HF_TOKEN"] = hub.token
    assert journey.run(RECIPE).code == 0


@pytest.mark.parametrize("token", ["", "hf_stranger"])
def test_a_private_repository(token, journey, hub):
    hub.add_repo(REPO, corpus_files(), private=True)
    journey.env["HF_TOKEN"] = token
    assert_refused(journey.run(RECIPE), 2, "there is no data set", "or it is private")
    assert_nothing_left(journey)
    journey.env["HF_TOKEN"] = hub.token
    assert journey.run(RECIPE).code == 0


def test_a_bucket_that_may_not_be_read(journey, proxy, corpus, tmp_path):
    journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
    proxy.deny_buckets.add("bucket")
    assert_refused(journey.run(RECIPE), 2, "no permission for `s3://bucket/", "AWS_ACCESS_KEY_ID")
    ended = journey.run(RECIPE, tmp_path / "out", source="s3://bucket/data")
    assert_refused(ended, 2, "no permission for `s3://bucket/data`")
    assert not (tmp_path / "out").exists()
    assert_nothing_left(journey)


def test_a_bucket_that_may_not_be_written(journey, proxy, corpus):
    journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
    proxy.deny_writes = True
    assert_refused(journey.run(RECIPE), 2, "no permission for `s3://bucket/")
    assert_nothing_left(journey)


@pytest.mark.parametrize("what", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_keys(what, journey, corpus):
    journey.env[what] = "somebody-elses"
    assert_refused(journey.run(RECIPE), 2, "no permission for `s3://bucket/")
    assert_nothing_left(journey)


def test_a_permission_that_ends_on_the_way_costs_nothing_that_is_done(journey, proxy, hub):
    hub.add_repo(REPO, corpus_files())
    journey.env["AWS_ENDPOINT_URL"] = proxy.endpoint
    original = proxy.faults.draw

    def draw(method, path, asked):
        proxy.deny_writes |= "train_000002" in path
        return original(method, path, asked)

    proxy.faults.draw = draw
    ended = journey.run(RECIPE)
    assert_refused(ended, 2, "no permission for `s3://bucket/", "it goes on from here")
    assert list(journey.output().glob("*train_000001*"))
    proxy.faults.draw, proxy.deny_writes = original, False
    proxy.requests.clear()
    ended = journey.run(RECIPE)
    assert ended.code == 0, ended.said
    assert [request for request in proxy.requests if "train_000001" in request.path] == []
    assert journey.leftovers() == []


def test_an_access_that_ends_on_the_way_costs_nothing_that_is_done(journey, hub):
    files = corpus_files(n_files=8)
    hub.add_repo(REPO, files)
    original = hub.faults.draw

    def draw(method, path, asked):
        if "005_00000" in path:
            hub.token = "hf_another"
        return original(method, path, asked)

    hub.faults.draw, token = draw, hub.token
    budget = 2 * max(map(len, files.values()))
    assert_refused(journey.run(RECIPE, disk_budget=budget), 3, "does not accept the token", "what is done is kept")
    hub.faults.draw, hub.token = original, token
    hub.requests.clear()
    ended = journey.run(RECIPE, disk_budget=budget)
    assert ended.code == 0, ended.said
    assert [request for request in hub.requests if "000_00000" in request.path] == []


@pytest.fixture
def closed_port():
    """A port that refuses, and that no other test can get meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("what", ["HF_ENDPOINT", "AWS_ENDPOINT_URL", "https"])
def test_no_network_at_all(what, journey, corpus, closed_port):
    """With the waits that users have."""
    journey.constants.clear()
    nobody = f"http://127.0.0.1:{closed_port}"
    journey.env |= {what: nobody} if what != "https" else {}
    began = time.monotonic()
    ended = journey.run(RECIPE, source=f"{nobody}/a.jsonl" if what == "https" else SOURCE)
    assert_refused(ended, 3, "run the same command again when the network is there")
    assert time.monotonic() - began < NO_NETWORK_SECONDS
    assert_nothing_left(journey)


@pytest.mark.parametrize("address", ["s3://bucket/x", "gs://bucket/x", "az://bucket/x"])
@pytest.mark.parametrize("role", ["source", "out"])
def test_no_credentials_at_all(address, role, journey, corpus, closed_port, tmp_path):
    """Where no role of a machine is given either: its address is one that nobody answers at."""
    journey.constants.clear()
    journey.env = {name: value for name, value in journey.env.items() if not name.startswith("AWS_")}
    journey.env |= {"HOME": str(tmp_path), "AWS_METADATA_ENDPOINT": f"http://127.0.0.1:{closed_port}"}
    began = time.monotonic()
    source, out = (address, OUT) if role == "source" else (SOURCE, address)
    if role == "source":
        out = str(tmp_path / "out")
    ended = journey.run(RECIPE, out, source=source)
    assert ended.code in (2, 3), ended.said
    assert_refused(ended, ended.code, f"{address[:2]}://bucket")
    assert time.monotonic() - began < NO_NETWORK_SECONDS
    assert not (tmp_path / "out").exists()
