"""The same bytes as nanoGPT's, llm.c's, build-nanogpt's and Megatron's own scripts wrote."""

import json

import pytest
from conftest import GOLDEN, corpora_folder, needs_corpora, prepare_inline, shard_digests, write_every_format

import tokenmill

FORMATS = ["nanogpt", "llmc", "npy", "megatron"]
NAMES = {"nanogpt": None, "llmc": "edu_fineweb", "npy": "edufineweb"}


def golden_fields(golden: dict, shard_format: str) -> dict:
    name = NAMES.get(shard_format)
    if shard_format == "megatron":
        name = min(golden["files"]).removesuffix("_text_document.bin")
    return {"format": shard_format, "name": name, "shard_tokens": golden.get("shard_tokens")}


@pytest.mark.parametrize("shard_format", FORMATS)
def test_sample_gives_the_bytes_of_the_projects_own_scripts(shard_format, tmp_path):
    golden = GOLDEN["sets"]["sample"][shard_format]
    manifest = tokenmill.prepare("sample", tmp_path / "out", workers=1, **golden_fields(golden, shard_format))
    assert shard_digests(manifest) == golden["files"]


@pytest.mark.parametrize("shard_format", FORMATS)
def test_every_source_format_gives_the_golden_bytes(shard_format, tmp_path, sample_texts):
    golden = GOLDEN["sets"]["sample"][shard_format]
    for path in write_every_format(tmp_path, sample_texts):
        out = tmp_path / f"out-{path.name}"
        manifest = prepare_inline(path, out, **golden_fields(golden, shard_format))
        assert shard_digests(manifest) == golden["files"], path.name


def corpora_cases():
    folder = corpora_folder()
    if folder is None:
        return [pytest.param("none", "none", id="corpora")]
    sets = json.loads((folder / "golden.json").read_text())["sets"]
    return [(name, shard_format) for name in sets for shard_format in FORMATS]


@needs_corpora
@pytest.mark.parametrize(("corpus", "shard_format"), corpora_cases())
def test_whole_corpora_give_the_bytes_of_the_projects_own_scripts(corpus, shard_format, tmp_path):
    folder = corpora_folder()
    entry = json.loads((folder / "golden.json").read_text())["sets"][corpus]
    fields = golden_fields(entry[shard_format], shard_format)
    manifest = tokenmill.prepare(str(folder / entry["source"]), tmp_path / "out", workers=2, **fields)
    assert shard_digests(manifest) == entry[shard_format]["files"]


@needs_corpora
@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "jsonl.gz", "jsonl.zst", "txt"])
def test_same_documents_in_any_file_format_give_the_golden_bytes(ending, tmp_path):
    folder = corpora_folder()
    golden = json.loads((folder / "golden.json").read_text())["sets"]["same"]
    for shard_format in FORMATS:
        source = folder / "corpora" / "same" / f"docs.{ending}"
        manifest = prepare_inline(source, tmp_path / shard_format, **golden_fields(golden[shard_format], shard_format))
        assert shard_digests(manifest) == golden[shard_format]["files"]
