"""verify compares an output with its sources: what no checksum shows is found, and named to the token."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import jsonl_bytes, prepare_inline, write_parquet

import tokenmill
from tokenmill.verification import verify

TEXTS = [f"document {i} has some words of its own, such as {i * 7919}" for i in range(30)]
FORMATS = {
    "nanogpt": {"val": 2},
    "llmc": {"shard_tokens": 100},
    "npy": {"shard_tokens": 100, "shuffle": "keyed:3", "val": 3},
}


def run_verify(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tokenmill", "verify", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def seal_again(out: Path) -> None:
    """Make manifest and SHA256SUMS agree with files that were tampered with."""
    manifest = json.loads((out / "manifest.json").read_text())
    for shard in manifest["shards"]:
        for file in (shard, shard["index"]):
            file["sha256"] = hashlib.sha256((out / file["file"]).read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    names = [line.split()[1] for line in (out / "SHA256SUMS").read_text().splitlines()]
    sums = [f"{hashlib.sha256((out / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (out / "SHA256SUMS").write_text("".join(sums))


@pytest.mark.parametrize("level", ["sample", "full"])
@pytest.mark.parametrize("shard_format", FORMATS)
def test_a_wrong_token_under_right_checksums_is_named(shard_format, level, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", TEXTS)
    out = tmp_path / "out"
    prepare_inline(source, out, format=shard_format, **FORMATS[shard_format])
    assert verify(out, level).ok
    shards = tokenmill.open_shards(out)
    sizes = {shard.file: shard.n_tokens for shard in shards.manifest.shards}
    document = next(
        document for document in shards if document.number > 5 and document.start + 4 < sizes[document.shard]
    )
    name, itemsize, right = document.shard, 2, int(document.tokens[3])  # the tokens are a view of the file
    data = bytearray((out / name).read_bytes())
    place = len(data) - (sizes[name] - document.start - 3) * itemsize
    assert int.from_bytes(data[place : place + 2], "little") == right
    data[place : place + 2] = (11).to_bytes(2, "little")
    (out / name).write_bytes(data)
    seal_again(out)
    (problem,) = verify(out, level).problems
    assert problem == (
        f"{name}: document {document.number} (`{source}` row {document.row:,}): its token 3"
        f" (token {document.start + 3:,} from the beginning of that shard) is 11, expected {right}"
    )


def test_an_id_above_the_vocabulary_is_found(tmp_path):
    out = tmp_path / "out"
    prepare_inline(write_parquet(tmp_path / "a.parquet", TEXTS), out, val=2)
    ids = np.fromfile(out / "train.bin", "<u2")
    ids[5] = 60_000
    ids.tofile(out / "train.bin")
    seal_again(out)
    assert verify(out).problems == ("train.bin: token 5 is 60000, and the vocabulary ends at 50256",)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "txt"])
def test_a_source_that_changed_since_the_run_is_found_by_its_digest(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        write_parquet(path, TEXTS)
    else:
        path.write_bytes(jsonl_bytes(TEXTS) if kind == "jsonl" else "<|endoftext|>".join(TEXTS).encode())
    prepare_inline(path, tmp_path / "out", val=2)
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for level in ("sample", "full"):
        problems = verify(tmp_path / "out", level).problems
        assert len(problems) == 1
        assert problems[0].startswith(f"source `{path}` changed since the run: SHA-256 ")
    assert verify(tmp_path / "out", "checksums").ok


def test_an_output_that_was_moved_away_from_its_sources_verifies_with_a_note(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", TEXTS)
    prepare_inline(source, tmp_path / "out", val=2)
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    assert verify(tmp_path / "elsewhere").n_compared > 20
    source.unlink()
    result = verify(tmp_path / "elsewhere")
    assert result.ok
    assert result.n_compared == 0
    assert result.notes == (f"source `{source}` is not here, so nothing of it was compared",)
    done = run_verify(tmp_path / "elsewhere", "--full")
    assert done.returncode == 1
    assert "not everything could be encoded again" in done.stdout


def test_swapped_shards_are_found(tmp_path):
    out = tmp_path / "out"
    prepare_inline(write_parquet(tmp_path / "a.parquet", TEXTS), out, format="llmc", shard_tokens=100)
    one, two = out / "fineweb_train_000001.bin", out / "fineweb_train_000002.bin"
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    assert len(verify(out, "checksums").problems) == 2
    seal_again(out)
    assert verify(out, "checksums").ok
    assert not verify(out).ok


@pytest.mark.parametrize("limits", [{"limit_documents": 17}, {"limit_tokens": 200}, {"min_chars": 52}])
def test_full_counts_with_limits_filters_and_several_kinds_of_files(limits, tmp_path):
    (tmp_path / "corpus").mkdir()
    write_parquet(tmp_path / "corpus" / "a.parquet", TEXTS[:11], row_group_size=4)
    pq.write_table(pa.table({"text": [*TEXTS[11:20], None, ""]}), tmp_path / "corpus" / "b.parquet", row_group_size=3)
    (tmp_path / "c.jsonl").write_bytes(jsonl_bytes(TEXTS[20:]))
    out = tmp_path / "out"
    manifest = prepare_inline([tmp_path / "corpus", tmp_path / "c.jsonl"], out, val=2, **limits)
    result = verify(out, "full", workers=1)
    assert result.ok
    assert result.n_compared == manifest.totals.n_documents
    assert verify(out).ok


def test_a_level_that_is_none_is_refused(tmp_path):
    with pytest.raises(tokenmill.TokenmillError, match="unknown level"):
        verify(tmp_path, "everything")
    done = run_verify(tmp_path, "--full", "--checksums-only")
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
