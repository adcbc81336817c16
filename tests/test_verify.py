"""The manifest tells what was made, and verify finds whatever is no longer so."""

import json
import shutil
import subprocess
from contextlib import suppress

import pytest
from conftest import prepare_inline, write_parquet

import tokenmill
from tokenmill.errors import DamageError, OutputError


@pytest.fixture(scope="module", params=["nanogpt", "llmc", "npy"])
def output(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "out"
    prepare_inline("sample", out, format=request.param, shard_tokens=None if request.param == "nanogpt" else 100_000)
    return out


@pytest.fixture
def copied(output, tmp_path):
    return shutil.copytree(output, tmp_path / "copy")


def test_a_fresh_output_verifies_also_when_it_was_copied(output, copied):
    assert tokenmill.verify(output).problems == ()
    assert tokenmill.verify(copied).problems == ()


def test_sha256sum_accepts_the_sums(output):
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=output, check=True)


def test_every_damaged_missing_or_truncated_file_is_found(copied):
    for path in sorted(path for path in copied.rglob("*") if path.is_file() and path.name != "manifest.json"):
        data = path.read_bytes()
        for damaged in (data[:-1], data[:20] + bytes([data[20] ^ 1]) + data[21:], data + b"x"):
            path.write_bytes(damaged)
            assert not tokenmill.verify(copied).ok, path
        path.unlink()
        assert not tokenmill.verify(copied).ok, path
        path.write_bytes(data)
    assert tokenmill.verify(copied).ok


def test_damaged_index_or_header_is_told_by_inspect_too(copied):
    manifest = tokenmill.open_shards(copied).manifest
    (copied / manifest.shards[0].index.file).write_bytes(b"")
    with pytest.raises(DamageError, match="cannot read the document index"):
        tokenmill.open_shards(copied)[0]
    (copied / manifest.shards[0].file).unlink()
    (copied / manifest.shards[0].file).mkdir()
    assert any(
        "cannot be read" in problem or "bytes, expected" in problem for problem in tokenmill.verify(copied).problems
    )


def test_flipped_bits_in_the_manifest_never_crash(copied):
    path = copied / "manifest.json"
    data = path.read_bytes()
    for i in range(0, len(data) * 8, 61):
        damaged = bytearray(data)
        damaged[i // 8] ^= 1 << i % 8
        path.write_bytes(damaged)
        with suppress(tokenmill.TokenmillError):
            assert not tokenmill.verify(copied).ok


def test_a_changed_manifest_is_found(copied):
    path = copied / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["totals"]["n_tokens"] += 1
    path.write_text(json.dumps(manifest))
    problems = tokenmill.verify(copied).problems
    assert any("manifest.json" in problem for problem in problems)
    assert any("n_tokens is 368,659 in all, and 368,658 over the shards" in problem for problem in problems)


def test_a_manifest_that_is_none_is_refused(copied):
    (copied / "manifest.json").write_text('{"schema": 2, "recipe": 3}')
    with pytest.raises(DamageError, match="is damaged"):
        tokenmill.verify(copied)
    (copied / "manifest.json").write_text('{"schema": 99}')
    with pytest.raises(OutputError, match="has schema 99, and this tokenmill reads 2"):
        tokenmill.verify(copied)
    (copied / "manifest.json").unlink()
    with pytest.raises(OutputError, match="no output of tokenmill"):
        tokenmill.verify(copied)


def test_manifest_counts_everything(tmp_path):
    a = write_parquet(tmp_path / "a.parquet", ["one two", None, "<|endoftext|>"])
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\n\n{"text": "<|endoftext|>"}\n')
    manifest = prepare_inline([a, tmp_path / "b.jsonl"], tmp_path / "out", val=1)
    raw = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert raw["schema"] == 2
    assert raw["fingerprint"] == manifest.recipe.fingerprint
    assert raw["skipped"] == {"null": 1}
    assert raw["n_special_text_documents"] == 2
    assert raw["totals"]["n_documents"] == 4
    assert [(entry["n_rows"], entry["n_documents"]) for entry in raw["inputs"]] == [(3, 2), (3, 2)]
    assert sum(entry["n_tokens"] for entry in raw["inputs"]) == raw["totals"]["n_tokens"]
    assert raw["tokenizer"]["engine"] == "gigatoken"
    assert {"gigatoken", "tiktoken"} <= set(raw["tokenizer"]["versions"])


@pytest.mark.parametrize("eot", ["first", "last"])
def test_a_document_without_its_end_of_text_is_found(eot, tmp_path):
    """Even where every checksum has been made to fit."""
    import hashlib

    import msgspec
    import numpy as np

    from tokenmill.manifest import sums_text

    source = write_parquet(tmp_path / "a.parquet", ["one", "two", "three"])
    manifest = prepare_inline(source, tmp_path / "out", val="none", shuffle="none", eot=eot)
    ids = np.fromfile(tmp_path / "out" / "train.bin", np.uint16)
    ids[2 if eot == "first" else 3] = 7
    ids.tofile(tmp_path / "out" / "train.bin")
    shard = msgspec.structs.replace(manifest.shards[0], sha256=hashlib.sha256(ids.tobytes()).hexdigest())
    changed = msgspec.structs.replace(manifest, shards=(shard,))
    data = msgspec.json.encode(changed)
    (tmp_path / "out" / "manifest.json").write_bytes(data)
    (tmp_path / "out" / "SHA256SUMS").write_text(sums_text(changed, data))
    (problem,) = tokenmill.verify(tmp_path / "out").problems
    assert "no end-of-text at token" in problem
