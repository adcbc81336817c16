"""Names from elsewhere: whatever they are, nothing of them becomes a path outside scratch or OUT."""

from pathlib import Path

import pytest
from hub_repos import file_entry
from journeys import OUT, RECIPES, REPO, content, corpus_files, file_bytes, shards_of, texts, write_files

RECIPE = RECIPES["shuffled"]
DATA = file_bytes(texts(40), ".jsonl")
HOSTILE = [
    "../../../../../../../../etc/passwd.jsonl",
    "/etc/passwd.jsonl",
    "sample/../../../x.jsonl",
    "sample/./x.jsonl",
    "sample//x.jsonl",
    "sample/a\nb.jsonl",
    "sample/a\x00b.jsonl",
    "sample/a\x1b[2Jb.jsonl",
]
ODD = [
    "sample/C:\\Windows\\x.jsonl",
    "C:/x.jsonl",
    "sample/%2e%2e/x.jsonl",
    "sample/a%00b.jsonl",
    "sample/a b+c#d?e&f=g;h.jsonl",
    "sample/Mühle 粉 \U0001f35e.jsonl",
    "sample/data[1].jsonl",
    "sample/a*b?.jsonl",
    "sample/x@main.jsonl",
    "sample/" + "long" * 60 + ".jsonl",
    "sample/" + "a/" * 60 + "x.jsonl",
    "sample/~root.jsonl",
    "sample/$HOME`id`.jsonl",
]
KEYS = [name for name in ODD if "\\" not in name and len(name.rpartition("/")[2]) < 255]  # as far as rclone takes them


def files_outside(*roots: Path) -> set[Path]:
    """All there is beside the folders of a test, to see that nothing came."""
    return {path for root in roots for path in root.rglob("*") if path.is_file()}


def publish(hub, name: str) -> None:
    """A repository whose listing has this name, as no honest server would."""
    hub.add_repo(REPO, {"sample/good.jsonl": file_bytes(texts(40, seed=1), ".jsonl")})
    repo = hub.repos[REPO]
    sha = repo.refs["main"]
    repo.trees[sha][name] = hub.blob("x.parquet", DATA)


def pretend(hub, monkeypatch, name: str) -> None:
    import hub_server

    publish(hub, name)
    blob = hub.repos[REPO].trees[hub.repos[REPO].refs["main"]][name]
    entries = [file_entry(name, blob), file_entry("sample/good.jsonl", hub.blob("x", b"{}"))]
    monkeypatch.setattr(hub_server, "listing", lambda *_, **__: entries[:1])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_on_the_hub_that_leads_elsewhere_is_refused(name, hub, journey, monkeypatch, tmp_path):
    pretend(hub, monkeypatch, name)
    before = files_outside(tmp_path)
    ended = journey.run(RECIPE, source=f"hf://datasets/{REPO}")
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    assert "\x1b[2J" not in ended.said
    assert files_outside(tmp_path) == before
    assert journey.leftovers() == []
    assert [request for request in hub.requests if "passwd" in request.path] == []


def test_odd_names_on_the_hub_are_read(hub, journey, tmp_path):
    hub.add_repo(REPO, {name: file_bytes(texts(20, seed=i), ".jsonl") for i, name in enumerate(ODD)})
    before = files_outside(tmp_path)
    ended = journey.run(RECIPE, source=f"hf://datasets/{REPO}", fault="download.written:7")
    assert ended.code == -9, ended.said
    new = files_outside(tmp_path) - before
    assert all(path.is_relative_to(journey.scratch) for path in new)
    downloads = [path for path in new if path.parent.name == "downloads"]
    assert downloads
    assert all(path.name.removesuffix(".partial").isalnum() for path in downloads)
    ended = journey.run(RECIPE, source=f"hf://datasets/{REPO}")
    assert ended.code == 0, ended.said
    ended = journey.cli("verify", OUT)
    assert ended.code == 0, ended.said
    assert "documents encoded again: equal" in ended.said
    assert "note: " not in ended.said


def test_odd_keys_are_read(s3, journey, tmp_path):
    files = {f"in/{name}": file_bytes(texts(20, seed=i), ".jsonl") for i, name in enumerate(KEYS)}
    write_files(s3.folder / "bucket", files)
    write_files(tmp_path / "local", files)
    ended = journey.run(RECIPE, source="s3://bucket/in")
    assert ended.code == 0, ended.said
    assert journey.run(RECIPE, tmp_path / "out", source=str(tmp_path / "local" / "in")).code == 0
    assert shards_of(content(journey.output())) == shards_of(content(tmp_path / "out"))
    ended = journey.cli("verify", OUT)
    assert ended.code == 0, ended.said
    assert "documents encoded again: equal" in ended.said
    assert "note: " not in ended.said


@pytest.mark.parametrize("name", ["a b+c#d?e&f=g;h", "Mühle [1] %2e%2e", "x@main/**/y"])
def test_an_odd_place_is_written(name, s3, journey):
    write_files(s3.folder / "bucket", {"in/x.jsonl": DATA})
    out = f"s3://bucket/out/{name}"
    assert journey.run(RECIPE, out, source="s3://bucket/in/x.jsonl", fault="shard.put").code == -9
    journey.lose_scratch()
    ended = journey.run(RECIPE, f"{out}/", source="s3://bucket/in/x.jsonl")
    assert ended.code == 0, ended.said
    assert (s3.folder / "bucket" / "out" / name / "manifest.json").exists()
    assert journey.cli("verify", out).code == 0
    assert journey.cli("status", out).code == 0
    assert journey.leftovers() == []


def test_hidden_names_are_no_sources(hub, journey):
    files = corpus_files(n_documents=30)
    hub.add_repo(
        REPO, {**files, "sample/10BT/.work/x.parquet": b"no parquet", "sample/10BT/_old/y.parquet": b"neither"}
    )
    ended = journey.run(RECIPE)
    assert ended.code == 0, ended.said


def test_an_output_below_a_source_is_no_source(s3, journey):
    write_files(s3.folder / "bucket", {"data/a.jsonl": DATA})
    for fault in ("shard.put", "closing.put", ""):
        ended = journey.run(RECIPE, "s3://bucket/data/tokens", source="s3://bucket/data", fault=fault)
        assert ended.code == (-9 if fault else 0), ended.said
    assert journey.run(RECIPE, "s3://bucket/data/tokens", source="s3://bucket/data").code == 0
    ended = journey.run(RECIPE, "s3://bucket/data", source="s3://bucket/data")
    assert ended.code == 2
    assert "a source is in the output" in ended.said


def test_a_stranger_in_the_place_of_the_output_is_left_alone(s3, hub, journey):
    hub.add_repo(REPO, corpus_files(n_documents=30))
    write_files(s3.folder / "bucket", {"tokens/z/train.bin": b"precious", "tokens/z/notes.txt": b"mine"})
    ended = journey.run(RECIPE)
    assert ended.code == 2
    assert "holds `train.bin`, which tokenmill did not make" in ended.said
    assert (journey.output() / "train.bin").read_bytes() == b"precious"
    (journey.output() / "train.bin").unlink()
    assert journey.run(RECIPE).code == 0
    assert (journey.output() / "notes.txt").read_bytes() == b"mine"
