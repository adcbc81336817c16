"""What the tests share: the sample corpus in every source format, and small corpora made on the spot."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.sources.catalog import CATALOG

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
INLINE = RunOptions(executor="inline")


def corpora_folder() -> Path | None:
    """The larger corpora with golden digests, which are not part of the repository (see CONTRIBUTING)."""
    named = os.environ.get("TOKENMILL_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder if (folder / "golden.json").exists() else None


needs_corpora = pytest.mark.skipif(
    corpora_folder() is None, reason="needs the test corpora: name their folder in TOKENMILL_DATA (see CONTRIBUTING)"
)


@pytest.fixture(scope="session")
def sample_texts() -> list[str]:
    return pq.read_table(CATALOG["sample"], columns=["text"]).column("text").to_pylist()


def write_parquet(path: Path, texts, row_group_size=100, kind=None, **columns) -> Path:
    table = pa.table({"text": pa.array(texts, kind or pa.string()), **columns})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def write_arrow(path: Path, texts, stream=True, batch_rows=100) -> Path:
    table = pa.table({"id": pa.array(range(len(texts))), "text": pa.array(texts, pa.string())})
    open_writer = pa.ipc.new_stream if stream else pa.ipc.new_file
    with open_writer(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def jsonl_bytes(texts) -> bytes:
    return b"".join(
        json.dumps({"id": i, "text": t}, ensure_ascii=i % 2 == 0).encode() + b"\n" for i, t in enumerate(texts)
    )


def zstd_bytes(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def write_every_format(folder: Path, texts) -> list[Path]:
    """Write the same documents once in each source format, and return the files."""
    lines, joined = jsonl_bytes(texts), "<|endoftext|>".join(texts).encode()
    plain = {
        "docs.jsonl": lines,
        "docs.jsonl.gz": gzip.compress(lines),
        "docs.jsonl.zst": zstd_bytes(lines),
        "docs.txt": joined,
        "docs.txt.gz": gzip.compress(joined),
        "docs.txt.zst": zstd_bytes(joined),
    }
    for name, data in plain.items():
        (folder / name).write_bytes(data)
    return [
        write_parquet(folder / "docs.parquet", texts),
        write_parquet(folder / "large.parquet", texts, kind=pa.large_string()),
        write_parquet(folder / "binary.parquet", [t.encode() for t in texts], kind=pa.binary()),
        write_arrow(folder / "stream.arrow", texts, stream=True),
        write_arrow(folder / "file.arrow", texts, stream=False),
        *(folder / name for name in plain),
    ]


def prepare_inline(sources, out, options: RunOptions = INLINE, **fields) -> tokenmill.Manifest:
    """Carry out a recipe in this process: most tests need no workers."""
    from tokenmill.mill import prepare_recipe

    sources = [sources] if isinstance(sources, str | Path) else sources
    return prepare_recipe(Recipe(sources=tuple(str(s) for s in sources), **fields), out, options)


def digests(manifest: tokenmill.Manifest) -> dict[str, str]:
    """Every file of an output that must not differ: the format's own, and our indexes."""
    return shard_digests(manifest) | {shard.index.file: shard.index.sha256 for shard in manifest.shards}


def shard_digests(manifest: tokenmill.Manifest) -> dict[str, str]:
    """Every file of the format."""
    files = [file for shard in manifest.shards for file in shard.files[:-1]]
    return {file.file: file.sha256 for file in [*files, *manifest.closing_files]}
