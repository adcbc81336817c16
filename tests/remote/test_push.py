"""`tokenmill push`, against a stand-in for the Hub and through its real client."""

import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from huggingface_hub import DatasetCard, snapshot_download
from markdown_it import MarkdownIt

import tokenmill
from tokenmill import card, push
from tokenmill.cli import exit_code
from tokenmill.errors import DamageError, NetworkError, OutputError
from tokenmill.manifest import InputRecord, load_manifest
from tokenmill.markdown import one_line

REPO = "tester/sample"
ADDRESS = f"hf://datasets/{REPO}"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "out"
    tokenmill.prepare("sample", folder, format="llmc", shard_tokens="100K", executor="inline")
    return folder


@pytest.fixture
def hub(as_the_hub):
    return as_the_hub


def run(monkeypatch, *words) -> int:
    monkeypatch.setattr(sys, "argv", ["tokenmill", *map(str, words)])
    return exit_code()


def files_of(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def downloaded(hub, folder: Path) -> Path:
    snapshot_download(REPO, repo_type="dataset", endpoint=hub.endpoint, token=hub.token, local_dir=folder)
    return folder


def writes(hub) -> list[str]:
    return [request.path for request in hub.requests if request.method == "PUT" or "/commit/" in request.path]


# There and back


@pytest.mark.parametrize("folder", ["", "/deep/down"])
def test_a_pushed_output_is_the_same_when_it_is_downloaded_again(hub, out, tmp_path, monkeypatch, capsys, folder):
    assert run(monkeypatch, "push", out, ADDRESS + folder) == 0
    assert "Pushed: 368,658 tokens of 420 documents" in capsys.readouterr().out
    there = downloaded(hub, tmp_path / "there") / folder.lstrip("/")
    found = files_of(there)
    assert {name: found[name] for name in files_of(out)} == files_of(out)
    assert set(found) - set(files_of(out)) - {".gitattributes"} == {"README.md"}
    assert run(monkeypatch, "verify", there) == 0
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=there, capture_output=True, check=False)
    assert done.returncode == 0


def test_the_second_push_uploads_nothing(hub, out, monkeypatch, capsys):
    assert run(monkeypatch, "push", out, ADDRESS) == 0
    sha, n_writes = hub.repos[REPO].refs["main"], len(writes(hub))
    capsys.readouterr()
    assert run(monkeypatch, "push", out, ADDRESS) == 0
    assert "Already there" in capsys.readouterr().out
    assert (hub.repos[REPO].refs["main"], len(writes(hub))) == (sha, n_writes)


def test_the_manifest_is_in_the_last_commit_alone(hub, out, monkeypatch):
    monkeypatch.setattr(push, "COMMIT_FILES", 2)
    push.push(push.push_plan(out, ADDRESS), message="mine")
    trees = list(hub.repos[REPO].trees.values())
    assert len(trees) > 4
    assert [("manifest.json" in tree, "README.md" in tree) for tree in trees[:-1]] == [(False, False)] * (
        len(trees) - 1
    )
    assert {"manifest.json", "README.md", "SHA256SUMS"} < set(trees[-1])
    assert set(hub.repos[REPO].titles[2:]) == {"mine"}


def test_a_push_that_failed_between_commits_goes_on(hub, out, monkeypatch):
    monkeypatch.setattr(push, "COMMIT_FILES", 2)
    plan = push.push_plan(out, ADDRESS)
    with pytest.raises(NetworkError, match="cannot be reached"):
        push.push(plan, on_files=lambda *_: hub.faults.set(refused=1, path="/commit/"))
    hub.faults.clear()
    committed = set(hub.repos[REPO].trees[hub.repos[REPO].refs["main"]]) - {".gitattributes"}
    assert len(committed) == 2
    pushed = push.push(plan)
    assert committed & {upload.path for upload in pushed.uploaded} == set()
    assert len(pushed.uploaded) == len(plan.files) - 2
    assert hub.content(REPO, "manifest.json") == (out / "manifest.json").read_bytes()


def test_a_push_that_was_killed_uploads_no_object_again(hub, out, monkeypatch):
    hub.faults.set(slow=1, slow_seconds=0.5, methods=("PUT",))
    process = subprocess.Popen([sys.executable, "-m", "tokenmill", "push", str(out), ADDRESS], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(hub.objects) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stored = set(hub.objects)
    assert len(stored) >= 2
    assert "manifest.json" not in hub.repos[REPO].trees[hub.repos[REPO].refs["main"]]
    hub.faults.clear()
    hub.requests.clear()
    assert run(monkeypatch, "push", out, ADDRESS) == 0
    again = {request.path.split("/")[2] for request in hub.requests if request.method == "PUT"}
    assert not again & stored
    assert hub.content(REPO, "manifest.json") == (out / "manifest.json").read_bytes()


def test_a_dry_run_shows_files_and_card_and_asks_nobody(hub, out, monkeypatch, capsys):
    assert run(monkeypatch, "push", out, ADDRESS, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in files_of(out))
    assert "## Tokenizer" in shown
    assert hub.requests == []


# What is refused


def test_an_output_that_is_not_finished_or_not_whole_is_refused(hub, out, tmp_path):
    (tmp_path / "begun" / ".work").mkdir(parents=True)
    with pytest.raises(OutputError, match="not finished"):
        push.push_plan(tmp_path / "begun", ADDRESS)
    copy = copied(out, tmp_path / "copy")
    shard = copy / load_manifest(copy).shards[0].file
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(OutputError, match="not of the size"):
        push.push_plan(copy, ADDRESS)
    shard.unlink()
    with pytest.raises(OutputError, match="missing"):
        push.push_plan(copy, ADDRESS)
    assert hub.requests == []


def test_a_damaged_file_is_never_published(hub, out, tmp_path):
    copy = copied(out, tmp_path / "copy")
    shard = copy / load_manifest(copy).shards[1].file
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DamageError, match="not what its checksum says"):
        push.push(push.push_plan(copy, ADDRESS))
    assert set(hub.repos[REPO].trees[hub.repos[REPO].refs["main"]]) == {".gitattributes"}


def test_another_output_is_not_overwritten(hub, out, tmp_path):
    push.push(push.push_plan(out, ADDRESS))
    sha = hub.repos[REPO].refs["main"]
    tokenmill.prepare("sample", tmp_path / "other", format="llmc", shard_tokens="90K", executor="inline")
    with pytest.raises(OutputError, match="holds another output"):
        push.push(push.push_plan(tmp_path / "other", ADDRESS))
    assert hub.repos[REPO].refs["main"] == sha
    push.push(push.push_plan(tmp_path / "other", f"{ADDRESS}/other"))


def test_a_file_of_somebody_else_is_not_overwritten(hub, out):
    name = load_manifest(out).shards[0].file
    hub.add_repo(REPO, {name: b"mine"})
    with pytest.raises(OutputError, match=f"holds another `{name}`"):
        push.push(push.push_plan(out, ADDRESS))
    assert hub.content(REPO, name) == b"mine"


def test_a_card_that_somebody_wrote_is_kept_and_ours_is_renewed(hub, out):
    hub.add_repo(REPO, {"README.md": b"# mine\n"})
    assert push.push(push.push_plan(out, ADDRESS)).kept_card
    assert hub.content(REPO, "README.md") == b"# mine\n"
    hub.add_commit(REPO, {"README.md": f"---\n---\n{card.MARK}\nold\n".encode()})
    assert not push.push(push.push_plan(out, ADDRESS)).kept_card
    assert b"## Tokenizer" in hub.content(REPO, "README.md")


def test_private_means_private(hub, out):
    push.push(push.push_plan(out, ADDRESS), private=True)
    assert hub.repos[REPO].private
    hub.add_repo("tester/public")
    with pytest.raises(OutputError, match="is public"):
        push.push(push.push_plan(out, "hf://datasets/tester/public"), private=True)
    assert set(hub.repos["tester/public"].trees[hub.repos["tester/public"].refs["main"]]) == {".gitattributes"}


@pytest.mark.parametrize(
    ("token", "address", "code", "said"),
    [
        ("", ADDRESS, 2, "the Hub wants a token, and there is none"),
        ("hf_wrong", ADDRESS, 2, "the Hub does not take this token"),
        ("hf_stranger", ADDRESS, 2, "this token may not write to `tester/sample`"),
        ("hf_tester", "hf://datasets/somebody/else", 2, "this token may not write to `somebody/else`"),
        ("hf_tester", "hf://datasets/tester/a--b", 2, "is no name for a repository"),
        ("hf_tester", "hf://datasets/tester", 2, "is no dataset repository"),
        ("hf_tester", "hf://datasets/tester/x/../y", 2, "is no plain path"),
        ("hf_tester", "s3://tester/x", 2, "is no dataset repository"),
    ],
)
def test_mistakes_are_one_clear_error(hub, out, monkeypatch, capsys, token, address, code, said):
    hub.add_repo(REPO)
    monkeypatch.setenv("HF_TOKEN", token)
    assert run(monkeypatch, "push", out, address) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert writes(hub) == []


@pytest.mark.parametrize("fault", ["refused", "unavailable", "too_many"])
def test_a_hub_that_cannot_be_reached_is_exit_3(hub, out, monkeypatch, capsys, fault):
    hub.faults.set(**{fault: 1}, path="/api/repos/create")
    assert run(monkeypatch, "push", out, ADDRESS) == 3
    shown = capsys.readouterr().err
    assert "run the same command again" in shown
    assert "Traceback" not in shown


def test_a_hub_that_does_not_give_the_manifest_is_exit_3(hub, out, monkeypatch, capsys):
    push.push(push.push_plan(out, ADDRESS))
    hub.faults.set(too_many=1, path="/resolve/")
    assert run(monkeypatch, "push", out, ADDRESS) == 3
    assert "the Hub answers with 429" in capsys.readouterr().err


def test_no_network_is_exit_3(out, monkeypatch, capsys):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert run(monkeypatch, "push", out, ADDRESS) == 3
    assert "cannot be reached" in capsys.readouterr().err


def test_an_address_with_a_password_in_the_manifest_is_refused(out, tmp_path):
    copy = copied(out, tmp_path / "copy")
    with_sources(copy, ["https://me:hunter2@example.com/x.parquet"])
    with pytest.raises(OutputError, match="user or password") as error:
        push.push_plan(copy, ADDRESS)
    assert "hunter2" not in error.value.message


# The card


def copied(out: Path, folder: Path) -> Path:
    import shutil

    return Path(shutil.copytree(out, folder))


def with_sources(out: Path, sources: list[str], inputs: list[str] | None = None):
    """Write a manifest that names other sources and inputs, and return it."""
    manifest = load_manifest(out)
    entry = manifest.inputs[0]
    records = tuple(InputRecord(**(msgspec.structs.asdict(entry) | {"path": path})) for path in (inputs or sources))
    recipe = msgspec.structs.replace(manifest.recipe, sources=tuple(sources))
    changed = msgspec.structs.replace(manifest, recipe=recipe, inputs=records)
    (out / "manifest.json").write_bytes(msgspec.json.encode(changed))
    return changed


def cells(text: str) -> list[list[str]]:
    """The text of every cell of every table, row by row, as a Markdown reader takes it."""
    rows: list[list[str]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif before.type in ("th_open", "td_open"):
            rows[-1].append("".join(child.content for child in token.children))
    return rows


def test_the_card_says_what_it_is(out):
    text = card.card_text(load_manifest(out), REPO)
    data = DatasetCard(text).data
    assert data.task_categories == ["text-generation"]
    assert data.size_categories == ["n<1K"]
    assert data.pretty_name == "sample"
    assert {"tokenized", "llmc"} < set(data.tags)
    assert ["train", "3", "306", "268,658"] in cells(text)
    assert ["vocabulary", "50,257 ids"] in cells(text)
    assert "50256, before each document" in text
    assert ["shard_tokens", "100000"] in cells(text)


def test_the_card_has_no_folder_of_this_machine_and_no_secret(out, tmp_path):
    home = "/home/somebody-secret/private"
    sources = [
        f"{home}/crawl",
        f"{home}/more/**/*.parquet",
        f"{home}/one.jsonl",
        "https://user:hunter2@example.com/data/x.parquet?sig=abc123#part",
        "s3://key:hunter2@bucket/prefix/y.parquet?X-Amz-Signature=abc123",
        "hf://datasets/some/corpus@0123456789012345678901234567890123456789/data/?.parquet",
    ]
    inputs = [
        f"{home}/crawl/a/b.parquet",
        f"{home}/more/2024/c.parquet",
        f"{home}/one.jsonl",
        *sources[3:5],
        "hf://datasets/some/corpus@0123456789012345678901234567890123456789/data/1.parquet",
    ]
    manifest = with_sources(copied(out, tmp_path / "copy"), sources, inputs)
    recipe = msgspec.structs.replace(manifest.recipe, tokenizer=f"{home}/tokenizer.json")
    record = msgspec.structs.replace(manifest.tokenizer, name=f"{home}/tokenizer.json")
    text = card.card_text(msgspec.structs.replace(manifest, recipe=recipe, tokenizer=record), REPO)
    for secret in ("somebody-secret", "private", "/home", "hunter2", "abc123", "user:", "X-Amz"):
        assert secret not in text
    for name in ("crawl/a/b.parquet", "2024/c.parquet", "one.jsonl", "https://example.com/data/x.parquet"):
        assert f"- `{name}`" in text
    for name in ("crawl", "**/*.parquet", "one.jsonl", "s3://bucket/prefix/y.parquet", "tokenizer.json"):
        assert name in [cell for row in cells(text) for cell in row]
    assert [row[1] for row in cells(text) if row[0].startswith(("hf://", "crawl", "s3://"))] == ["1", "1", "1"]


HOSTILE = [
    "a|b.parquet",
    "`rm`.parquet",
    "``` \n# Owned\n```",
    "<script>alert(1)<!--",
    "x\n---\nlicense: mit\n---\n",
    "](javascript:evil) ![x](y)",
    "$(reboot); 'quoted' \"twice\"",
    "--\u202egnp.exe\u2028next",
    "back\\slash\\|",
]


def shape(text: str) -> list[str]:
    """What a Markdown reader finds in a card, without the words."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    parts = [part.type for token in tokens for part in (token, *(token.children or []))]
    return [kind for kind in parts if kind not in ("text", "text_special", "code_inline")]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(out, tmp_path, name):
    plain = card.card_text(with_sources(copied(out, tmp_path / "plain"), ["/data/plain"]), REPO)
    text = card.card_text(with_sources(copied(out, tmp_path / "copy"), [f"/data/{name}"]), REPO)

    assert shape(text) == shape(plain)
    assert DatasetCard(text).data.to_dict() == DatasetCard(plain).data.to_dict()
    assert [len(row) for row in cells(text)] == [len(row) for row in cells(plain)]
    assert one_line(name).strip() in [cell for row in cells(text) for cell in row]


def test_a_license_is_named_if_that_of_every_source_is_known(out, tmp_path, monkeypatch):
    known = {"/data/a": "odc-by", "/data/b": "public domain"}
    monkeypatch.setattr(card.catalog, "license_of", known.get)
    two = card.card_text(with_sources(copied(out, tmp_path / "two"), ["/data/a", "/data/b"]), REPO)
    assert DatasetCard(two).data.license == ["odc-by", "other"]
    assert ["b", "1", "420", "368,658", "public domain"] in cells(two)
    three = card.card_text(with_sources(copied(out, tmp_path / "three"), ["/data/a", "/data/c"]), REPO)
    assert DatasetCard(three).data.license is None
    assert ["c", "1", "420", "368,658", "not known"] in cells(three)


@pytest.mark.parametrize("shard_format", ["nanogpt", "llmc", "npy", "parquet", "mds"])
def test_the_lines_of_the_card_work(hub, tmp_path, shard_format):
    tokenmill.prepare("sample", tmp_path / "out", format=shard_format, limit_documents=50, val=0.1, executor="inline")
    plan = push.push_plan(tmp_path / "out", f"{ADDRESS}/inside")
    push.push(plan)
    program = re.search(r"```python\n(.*?)```", plan.card, flags=re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, check=True)
    n_tokens, first = done.stdout.split(maxsplit=1)
    shards = tokenmill.open_shards(tmp_path / "out")
    manifest = shards.manifest
    shard = next((shard for shard in manifest.shards if shard.split == "train"), manifest.shards[0])
    whole = shard_format in ("nanogpt", "llmc", "npy")
    document = (
        next(document for document in shards if document.shard == shard.file)
        if shard_format == "parquet"
        else shards[0]
    )
    assert int(n_tokens) == (shard.n_tokens if whole else len(document.tokens))
    if not whole:
        assert [int(id) for id in re.findall(r"\d+", first)] == document.tokens[:10].tolist()


def test_the_command_of_the_card_makes_the_same_output_again(tmp_path, monkeypatch):
    fields = {"format": "llmc", "shard_tokens": 50_000, "shuffle": "keyed:7", "val": 0.1, "min_chars": 10}
    tokenmill.prepare("sample", tmp_path / "out", **fields, eot="last", name="books", executor="inline")
    text = push.push_plan(tmp_path / "out", ADDRESS).card
    command = re.search(r"^tokenmill prepare .*$", text, flags=re.MULTILINE)[0]
    words = [str(tmp_path / "again") if word == "OUT" else word for word in shlex.split(command)]
    assert run(monkeypatch, *words[1:], "-q") == 0
    assert load_manifest(tmp_path / "again").fingerprint == load_manifest(tmp_path / "out").fingerprint
