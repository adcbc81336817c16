"""Inputs that are cut off or have a bit flipped: refused or read, never a crash and never a hang."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from harness import start_cli, tally, texts

KINDS = ["parquet", "arrow file", "arrow stream", "jsonl", "jsonl.gz", "jsonl.zst", "txt.gz", "txt.zst"]
NAMES = {"arrow file": "in.arrow", "arrow stream": "stream.arrow"}


def written(folder: Path, kind: str, **parquet) -> Path:
    documents = texts(800, seed=2, mean_words=40, empty=False)
    path = folder / NAMES.get(kind, f"in.{kind}")
    table = pa.table({"text": documents})
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    plain = "<|endoftext|>".join(documents).encode()
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=100, **parquet)
    elif kind.startswith("arrow"):
        opened = pa.ipc.new_file if kind == "arrow file" else pa.ipc.new_stream
        with opened(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    else:
        data = plain if kind.startswith("txt") else lines
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else zstd(data) if kind.endswith("zst") else data)
    return path


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.999, 0.5])
def test_truncated_input_is_refused(kind, share, tmp_path, forks):
    path = written(tmp_path, kind)
    data = path.read_bytes()
    cut = int(len(data) * share)
    if kind == "jsonl" and data[cut - 1 : cut] == b"\n":
        cut -= 3  # in the middle of a record
    path.write_bytes(data[:cut])
    out = tmp_path / "out"
    if share == 0.5:
        ended = start_cli("prepare", path, "-o", out, "--val", "1", "--workers", "1").wait()
    else:
        ended = forks.run(spec_of(path, out))
    assert ended.code in (1, 2), ended.said
    assert "Traceback" not in ended.said
    assert path.name in ended.said
    assert not out.exists()
    tally(f"input cut off: {kind}", "refused, exit 1 or 2")


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_never_crash_or_hang(kind, tmp_path, forks):
    data = written(tmp_path, kind).read_bytes()
    path = written(tmp_path, kind)
    for seed in range(8):
        path.write_bytes(flipped(data, random.Random(f"{kind} {seed}")))
        ended = forks.run(spec_of(path, tmp_path / f"out{seed}"))
        assert ended.code in (0, 1, 2), f"seed {seed}: {ended.code} {ended.said}"
        assert "Traceback" not in ended.said
        tally(f"input with a bit flipped: {kind}", "refused, or read as it is; no crash, no hang")


def test_flipped_bits_in_pages_with_checksums_are_refused(tmp_path, forks):
    path = written(tmp_path, "parquet", write_page_checksum=True, use_dictionary=False, compression="none")
    data = path.read_bytes()
    metadata = pq.ParquetFile(path).metadata
    rng = random.Random(0)
    for seed in range(8):
        column = metadata.row_group(rng.randrange(metadata.num_row_groups)).column(0)
        # In the second half of the page: its header is at the beginning, and has no checksum.
        place = column.data_page_offset + rng.randrange(column.total_compressed_size // 2, column.total_compressed_size)
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :])
        ended = forks.run(spec_of(path, tmp_path / f"out{seed}"))
        assert ended.code == 1, f"{seed}: {ended.said}"
        assert not (tmp_path / f"out{seed}").exists()
        tally("input with a bit flipped: parquet with page checksums", "refused, exit 1")


def spec_of(path: Path, out: Path) -> dict:
    recipe = {"sources": [str(path)], "val": 1, "tokenizer": "words:Letters", "eot_token": "<end>"}
    return {
        "recipe": recipe, "out": str(out), "modules": [str(Path(__file__).parent)],
        "options": {"executor": "inline", "unit_bytes": 20_000},
    }  # fmt: skip


def flipped(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
