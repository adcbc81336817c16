"""Files behind https addresses, and secrets: in addresses, variables and tokens, and nowhere else."""

import pytest
from journeys import OUT, RECIPES, REPO, SOURCE, Journey, content, corpus_files, file_bytes, shards_of, texts
from web_server import WebServer

from tokenmill.storage.addresses import redacted

SIGNED = "X-Amz-Signature=0123456789abcdefSECRET&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE"
SECRET = "0123456789abcdefSECRET"


@pytest.fixture
def web():
    with WebServer() as server:
        server.files["/data/a.jsonl"] = file_bytes(texts(100), ".jsonl")
        yield server


@pytest.fixture(scope="module")
def expected(forks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    (folder / "a.jsonl").write_bytes(file_bytes(texts(100), ".jsonl"))
    journey = Journey(forks, folder / "scratch", folder, {})
    assert journey.run(RECIPES["shuffled"], folder / "local", source=str(folder / "a.jsonl")).code == 0
    return shards_of(content(folder / "local"))


@pytest.mark.parametrize("kind", ["ranges", "no ranges", "no etag", "neither", "redirected", "spaces", "signed"])
def test_a_file_behind_an_address(kind, web, journey, expected):
    url = f"{web.endpoint}/data/a.jsonl"
    web.ranges, web.etags = kind not in ("no ranges", "neither"), kind not in ("no etag", "neither")
    if kind == "redirected":
        web.redirects["/here.jsonl"] = url
        url = f"{web.endpoint}/here.jsonl"
    if kind == "spaces":
        web.files["/d ä#?%/a b+.jsonl"] = web.files["/data/a.jsonl"]
        url = f"{web.endpoint}/d%20%C3%A4%23%3F%25/a%20b%2B.jsonl"
    if kind == "signed":
        web.secret = SECRET
        url += f"?{SIGNED}"
    ended = journey.run(RECIPES["shuffled"], source=url)
    assert ended.code == 0, ended.said
    assert shards_of(content(journey.output())) == expected
    assert len(web.requests) == (4 if kind == "redirected" else 2)


@pytest.mark.parametrize(
    ("fault", "ranges"),
    [("refused", True), ("too_many", True), ("unavailable", False), ("cut", True), ("short", False)],
)
def test_a_broken_connection_is_gone_on_with(fault, ranges, web, journey, expected):
    web.ranges = ranges
    web.faults.set(**{fault: 1}, at_most=3)
    ended = journey.run(RECIPES["shuffled"], source=f"{web.endpoint}/data/a.jsonl")
    assert ended.code == 0, ended.said
    assert web.faults.n_made == 3
    assert shards_of(content(journey.output())) == expected


def test_a_file_that_changes_on_the_way_is_told(web, journey):
    web.faults.set(short=1, at_most=2)

    def change():
        web.files["/data/a.jsonl"] = b'{"text": "other"}\n' + web.files["/data/a.jsonl"][18:]

    original = web.faults.draw

    def draw(*request):
        if len(web.requests) == 2:
            change()
        return original(*request)

    web.faults.draw = draw
    ended = journey.run(RECIPES["shuffled"], source=f"{web.endpoint}/data/a.jsonl")
    assert ended.code == 2, ended.said
    assert "changed while it was read" in ended.said
    assert journey.leftovers() == []


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("missing", 2, "there is nothing at `http://"),
        ("forbidden", 2, "no permission to read `http://"),
        ("too long", 2, "is shorter than the server said"),
        ("too short", 3, "more than its"),
        ("no ending", 2, "cannot tell what"),
        ("loop", 2, "redirects"),
        ("elsewhere", 3, "cannot list"),
    ],
)
def test_what_a_server_may_do_wrong(what, code, said, web, journey):
    url, n_bytes = f"{web.endpoint}/data/a.jsonl", len(web.files["/data/a.jsonl"])
    match what:
        case "missing":
            url = f"{web.endpoint}/none.jsonl"
        case "forbidden":
            web.secret = "another one"
        case "too long":
            web.said_bytes = n_bytes + 7
        case "too short":
            web.said_bytes = n_bytes - 7
        case "no ending":
            web.files["/data/a"] = b"x"
            url = f"{web.endpoint}/data/a"
        case "loop":
            web.redirects["/data/a.jsonl"] = url
        case "elsewhere":
            url = "http://127.0.0.1:9/a.jsonl"
    ended = journey.run(RECIPES["shuffled"], source=url)
    assert ended.code == code, ended.said
    assert said in ended.said
    assert "Traceback" not in ended.said
    if code == 2:
        assert journey.leftovers() == []
        assert not [path for path in journey.bucket.rglob("*") if path.is_file()]


def everything_written(folder, *, skip=()) -> str:
    """The text of all files below a folder: what a run left there."""
    files = [path for path in folder.rglob("*") if path.is_file() and not any(word in str(path) for word in skip)]
    return "".join(path.read_bytes().decode(errors="replace") + str(path) for path in files)


@pytest.mark.parametrize(
    ("end", "progress"),
    [("done", "plain"), ("done", "jsonl"), ("killed", "plain"), ("forbidden", "plain"), ("gone", "jsonl")],
)
def test_secrets_of_an_address_appear_nowhere(progress, end, web, journey, tmp_path):
    web.secret = SECRET
    if end == "forbidden":
        web.secret = "another one"
    host = web.endpoint.removeprefix("http://") if end != "gone" else "127.0.0.1:9"
    url = f"http://someone:passw0rd-in-url@{host}/data/a.jsonl?{SIGNED}"
    fault = {"TOKENMILL_FAULT": "shard.put"} if end == "killed" else {}
    command = (
        "prepare",
        url,
        "-o",
        OUT,
        "--progress",
        progress,
        "-v",
        "--workers",
        "1",
        "--tokenizer",
        "words:Letters",
    )
    run = journey.start(*command, "--eot-token", "<end>", **fault)
    ended = run.wait()
    assert ended.code == {"done": 0, "killed": -9, "forbidden": 2, "gone": 3}[end], ended.said
    left = ended.said + everything_written(journey.bucket) + everything_written(journey.scratch)
    for secret in (SECRET, "passw0rd-in-url", "AKIAIOSFODNN7EXAMPLE", "someone:"):
        assert secret not in left
    assert f"http://{host}/data/a.jsonl" in left


@pytest.mark.parametrize("end", ["done", "killed", "denied", "hub"])
def test_tokens_and_keys_appear_nowhere(end, hub, s3, proxy, journey):
    hub.add_repo(REPO, corpus_files())
    hub.token = "hf_" + "sEcReTtOkEn" * 3
    journey.env |= {"HF_TOKEN": hub.token, "AWS_ENDPOINT_URL": proxy.endpoint}
    proxy.deny_writes = end == "denied"
    if end == "hub":
        journey.env["HF_TOKEN"] = hub.token + "x"
    fault = {"TOKENMILL_FAULT": "shard.put"} if end == "killed" else {}
    command = (
        "prepare",
        SOURCE,
        "-o",
        OUT,
        "--progress",
        "plain",
        "-v",
        "--workers",
        "1",
        "--tokenizer",
        "words:Letters",
    )
    ended = journey.start(*command, "--eot-token", "<end>", **fault).wait()
    assert ended.code == {"done": 0, "killed": -9, "denied": 2, "hub": 2}[end], ended.said
    left = ended.said + everything_written(journey.bucket) + everything_written(journey.scratch)
    for secret in (hub.token, s3.secret_key, "Signature="):
        assert secret not in left


@pytest.mark.parametrize("text", [
    "https://user:pass@host/x?token=abc",
    "GET 'https://host/x?X-Amz-Signature=abc&y=pass' failed",
    "(https://host/x?sig=abc).",
    "s3://abc:pass@bucket/key",
])  # fmt: skip
def test_what_is_printed_has_no_secrets(text):
    assert "abc" not in redacted(text)
    assert "pass" not in redacted(text)
