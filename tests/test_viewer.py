"""The viewer's door and its answers."""

import http.client
import json
import shutil
import threading
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import prepare_inline, write_parquet

from tokenmill.cli import cli
from tokenmill.inspect import open_shards
from tokenmill.reading import open_any
from tokenmill.reading.finding import find
from tokenmill.sources.catalog import CATALOG
from tokenmill.viewer import search
from tokenmill.viewer.questions import Questions
from tokenmill.viewer.server import PAGE, AskedWronglyError, ViewServer

ODD = ["plain", "", "日本語のテキスト", "x <|endoftext|> y", "🐈‍⬛ and 👍🏽", "a\x00b", " ".join(["word"] * 5_000)]


@pytest.fixture(scope="module")
def sample_out(tmp_path_factory):
    out = tmp_path_factory.mktemp("view") / "out"
    prepare_inline(CATALOG["sample"], out, format="llmc", shard_tokens=100_000)
    return out


@pytest.fixture(scope="module")
def bare_out(sample_out, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare") / "shards"
    shutil.copytree(sample_out, folder, ignore=shutil.ignore_patterns("manifest.json", "index", "SHA256SUMS"))
    return folder


@pytest.fixture(scope="module")
def odd_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    write_parquet(folder / "odd.parquet", ODD)
    prepare_inline(folder / "odd.parquet", folder / "out", format="llmc", val="none")
    return folder / "out"


@pytest.fixture(scope="module")
def server(sample_out):
    with ViewServer(Questions(open_any(sample_out), ("o200k_base",))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, path, method="GET", **headers):
    """Status, headers and body of an answer; `{token}` in a path is the right one."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path.replace("{token}", server.token), skip_host=True)
    given = {"Host": f"127.0.0.1:{server.server_port}", **{key.replace("_", "-"): v for key, v in headers.items()}}
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    found = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return found


def test_the_page_and_its_files_are_served_with_a_strict_policy(server):
    for name in ("", *PAGE, "api/overview"):
        status, headers, body = get(server, "/{token}/" + name)
        assert status == 200
        assert body
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", ["/", "/api/overview", "/wrong/", "/wrong/api/overview", "/{token}x/", "/%C3%A9/"])
def test_without_the_right_token_nothing_is_served(server, path):
    assert get(server, path)[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "", "localhost", "[::1]:80", "0.0.0.0:80"]
)
def test_another_host_name_is_refused(server, host):
    assert get(server, "/{token}/", Host=host)[0] == 403


def test_the_other_name_of_the_loopback_and_a_forwarded_port_are_welcome(server):
    assert get(server, "/{token}/", Host=f"localhost:{server.server_port}")[0] == 200
    assert get(server, "/{token}/", Host="localhost:9999", Origin="http://localhost:9999")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
def test_another_origin_is_refused(server, origin):
    assert get(server, "/{token}/api/overview", Origin=origin)[0] == 403


def test_another_site_is_refused_even_where_it_sends_no_origin(server):
    assert get(server, "/{token}/api/overview", Sec_Fetch_Site="cross-site")[0] == 403
    assert get(server, "/{token}/api/overview", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize(
    "name",
    [
        "../server.py",
        "..%2fserver.py",
        "../../manifest.json",
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "page/../server.py",
        "app.js/../../server.py",
        "..\\server.py",
        "nothing.js",
    ],
)
def test_no_path_leads_to_another_file(server, name):
    assert get(server, "/{token}/" + name)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(server, method):
    assert get(server, "/{token}/api/overview", method=method)[0] == 501


def test_it_listens_on_the_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert urlsplit(server.url).hostname == "127.0.0.1"
    assert len(server.token) >= 32


@pytest.mark.parametrize("query", [{"number": "x"}, {"number": "99999"}, {"token": "-1"}, {"token": "9" * 30}, {}])
def test_a_question_that_makes_no_sense_is_refused_in_words(server, query):
    status, _, body = get(server, "/{token}/api/document?" + urlencode(query))
    assert status == 400
    assert json.loads(body)["error"]


def test_a_tokenizer_file_cannot_be_named_by_the_page(server):
    query = urlencode({"document": 0, "tokenizer": "/etc/passwd"})
    assert get(server, "/{token}/api/compare?" + query)[0] == 400


def test_documents_are_those_of_the_library(sample_out):
    ask, shards = Questions(open_any(sample_out)), open_shards(sample_out)
    for document in [shards[0], shards[113], shards[114], shards[-1]]:
        facts = ask("document", {"number": str(document.number)})
        assert (facts["split"], facts["shard"]) == (document.split, document.shard)
        assert (facts["source"], facts["row"]) == (document.source, document.row)
        assert facts["stop"] - facts["start"] == len(document.tokens)
        assert ask("document", {"token": str(facts["stop"] - 1)}) == facts
        assert ask("source", {"file": document.source, "row": str(document.row)})["row"] == document.row
    assert ask("document", {"number": "-1"})["number"] == len(shards) - 1


def test_the_tokens_of_a_document_come_in_windows_that_cut_no_character(odd_out):
    ask, shards = Questions(open_any(odd_out)), open_shards(odd_out)
    for number, text in enumerate(ODD):
        facts = ask("document", {"number": str(number)})
        ids, shown, at = [], "", facts["start"]
        while at < facts["stop"]:
            window = ask("tokens", {"document": str(facts["start"]), "start": str(at)})
            assert window["start"] == at
            ids += [token for piece in window["pieces"] for token in piece.ids]
            shown += "".join(piece.text for piece in window["pieces"] if piece.kind == "text")
            at = window["stop"]
        assert ids == shards[number].tokens.tolist()
        assert shown == text


def test_a_window_from_inside_a_character_begins_with_all_of_it(odd_out):
    ask = Questions(open_any(odd_out))
    facts = ask("document", {"number": "2"})
    for start in range(facts["start"], facts["stop"]):
        window = ask("tokens", {"document": str(facts["start"]), "start": str(start)})
        assert "\ufffd" not in "".join(piece.text for piece in window["pieces"])
        assert window["start"] <= start


def searched(questions, text):
    numbers, start = [], 0
    questions.locator.count(60)
    while start is not None:
        found = questions("search", {"text": text, "start": str(start)})
        numbers += [hit.number for hit in found.hits]
        start = found.next
    return numbers


@pytest.mark.parametrize("text", ["the", "Grace", "whale", ".\n\n", "é", "nowhere to be found"])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_search_finds_what_a_look_at_every_document_finds(sample_out, bare_out, has_manifest, text, monkeypatch):
    monkeypatch.setattr(search, "STRETCH_TOKENS", 3_000)
    shards = open_any(sample_out if has_manifest else bare_out)
    assert searched(Questions(shards), text) == list(dict.fromkeys(hit.number for hit in find(shards, text)))


def test_search_finds_nothing_across_documents_nor_in_end_of_text(odd_out):
    questions = Questions(open_any(odd_out))
    assert searched(questions, "<|endoftext|>") == [3]
    assert searched(questions, "plain日本語") == []
    hit = questions("search", {"text": "本語", "start": "0"}).hits[0]
    assert (hit.before, hit.match, hit.after) == ("日", "本語", "のテキスト")


def test_lengths_lead_to_the_longest_and_to_documents_of_each_length(sample_out):
    questions = Questions(open_any(sample_out))
    facts = questions("lengths", {})
    while not facts["done"]:
        facts = questions("lengths", {})
    lengths = np.array([len(document.tokens) for document in open_shards(sample_out)])
    assert facts["n_documents"] == len(lengths)
    assert [length for _, length in facts["longest"]] == sorted(lengths.tolist(), reverse=True)[:50]
    for part in facts["bins"]:
        assert part["n_documents"] == ((lengths >= part["low"]) & (lengths <= part["high"])).sum()
        assert all(lengths[number] == length for number, length in part["documents"])


def test_another_tokenizer_is_compared_over_the_same_text(odd_out):
    found = Questions(open_any(odd_out), ("o200k_base",))("compare", {"document": "5", "tokenizer": "o200k_base"})
    ours, theirs = ("".join(piece.text for piece in side["pieces"]) for side in found["sides"])
    assert ours == theirs


def test_a_row_that_nobody_has_is_said_so(sample_out, bare_out):
    with pytest.raises(AskedWronglyError, match="row 9,999,999"):
        Questions(open_any(sample_out))("source", {"file": "sample.parquet", "row": "9999999"})
    with pytest.raises(AskedWronglyError, match="no manifest"):
        Questions(open_any(bare_out))("source", {"file": "sample.parquet", "row": "0"})


def test_ids_without_a_tokenizer_are_shown_as_numbers(tmp_path):
    np.random.default_rng(0).integers(0, 60_000, 50_000).astype(np.uint16).tofile(tmp_path / "train.bin")
    questions = Questions(open_any(tmp_path))
    assert not questions("overview", {})["can_decode"]
    window = questions("tokens", {"document": "0", "start": "10"})
    assert window["pieces"][0].text == f"<{window['pieces'][0].ids[0]}>"


def test_a_port_in_use_is_said_so(server, sample_out):
    result = CliRunner().invoke(cli, ["view", str(sample_out), "--no-browser", "--port", str(server.server_port)])
    assert result.exit_code == 2
    assert f"{server.server_port} is in use" in result.output
