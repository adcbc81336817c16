"""The corpus a benchmark runs on, in every form that a contender reads; and the ids that are right for it.

work/NAME/parquet/00000.parquet ...     links to the files given, or the first documents of them
work/NAME/jsonl/00000.jsonl ...         the same rows, all columns; also .jsonl.gz, .jsonl.zst, .txt, other Parquet
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders.protocol import DocumentIds

ROW_GROUP_ROWS = 1000
SEPARATOR = "<|endoftext|>"


@dataclass(frozen=True)
class Corpus:
    name: str
    folder: Path

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def files(self) -> list[Path]:
        return sorted(self.parquet.iterdir())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the row groups."""
        for path in self.files:
            file = pq.ParquetFile(path)
            for i in range(file.num_row_groups):
                yield file.read_row_group(i)

    def texts(self) -> Iterator[list[str]]:
        """Yield the documents of each row group."""
        for table in self.tables():
            yield table.column("text").to_pylist()

    @property
    def n_text_bytes(self) -> int:
        return sum(len(text.encode()) for texts in self.texts() for text in texts)

    def facts(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for path in self.files:
            digest.update(path.read_bytes())
        return {
            "n_files": len(self.files),
            "n_file_bytes": sum(path.stat().st_size for path in self.files),
            "n_documents": sum(pq.ParquetFile(path).metadata.num_rows for path in self.files),
            "n_text_bytes": self.n_text_bytes,
            "sha256": digest.hexdigest(),
        }

    def form(self, kind: str) -> Path:
        """The folder with the corpus in another form, made when it is first asked for."""
        place = self.folder / kind
        if kind == "parquet" or place.exists():
            return place
        unfinished = self.folder / f"{kind}.unfinished"
        unfinished.mkdir(exist_ok=True)
        for path in self.files:
            write_form(kind, path, unfinished / f"{path.stem}.{kind.removesuffix('.snappy').removesuffix('.zstd')}")
        return unfinished.rename(place)

    def first(self, name: str, n_text_bytes: int, n_files: int = 1) -> Corpus:
        """The first documents, in files of their own."""
        taken, n_bytes = [], 0
        for table in self.tables():
            lengths = np.array([len(text.encode()) for text in table.column("text").to_pylist()])
            n_rows = int(np.searchsorted(np.cumsum(lengths), n_text_bytes - n_bytes)) + 1
            taken.append(table.slice(0, n_rows))
            n_bytes += int(lengths[:n_rows].sum())
            if n_bytes >= n_text_bytes:
                break
        corpus = Corpus(name, self.folder.parent / name)
        corpus.parquet.mkdir(parents=True)
        whole = pa.concat_tables(taken)
        n_rows = -(-len(whole) // n_files)
        for i in range(n_files):
            path = corpus.parquet / f"{i:05d}.parquet"
            pq.write_table(whole.slice(i * n_rows, n_rows), path, ROW_GROUP_ROWS, compression="zstd")
        return corpus

    def times(self, n: int) -> Corpus:
        """The same files several times over."""
        return linked(f"{self.name}-{n}x", self.files * n, self.folder.parent)


def linked(name: str, files: list[Path], work: Path) -> Corpus:
    """A corpus of files that lie elsewhere."""
    corpus = Corpus(name, work / name)
    if corpus.parquet.exists():
        return corpus
    corpus.parquet.mkdir(parents=True)
    for i, path in enumerate(files):
        (corpus.parquet / f"{i:05d}.parquet").symlink_to(path.resolve())
    return corpus


def parquet_files(given: Path) -> list[Path]:
    """The Parquet files of a folder, or the file itself."""
    return sorted(given.glob("**/*.parquet")) if given.is_dir() else [given]


def write_form(kind: str, source: Path, target: Path) -> None:
    table = pq.read_table(source)
    if kind.startswith("parquet."):
        pq.write_table(table, target, ROW_GROUP_ROWS, compression=kind.removeprefix("parquet."))
        return
    if kind == "txt":
        target.write_text(SEPARATOR.join(table.column("text").to_pylist()), encoding="utf-8")
        return
    lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in table.to_pylist())
    if kind == "jsonl.gz":
        lines = gzip.compress(lines, 6)
    elif kind == "jsonl.zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(lines)
        lines = sink.getvalue().to_pybytes()
    target.write_bytes(lines)


def reference_ids(corpus: Corpus, tokenizer: str) -> DocumentIds:
    """What tiktoken gives for a name, and what `tokenizers` gives for a tokenizer.json."""
    encode = by_tokenizers(tokenizer) if tokenizer.endswith(".json") else by_tiktoken(tokenizer)
    batches = [[np.array(ids, dtype=np.uint32) for ids in encode(texts)] for texts in corpus.texts()]
    documents = [ids for batch in batches for ids in batch]
    return DocumentIds(np.concatenate(documents), np.array([len(ids) for ids in documents], dtype=np.int64))


def by_tiktoken(name: str) -> Any:
    import tiktoken

    encoding = tiktoken.get_encoding("r50k_base" if name == "gpt2" else name)
    return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=os.cpu_count() or 1)


def by_tokenizers(path: str) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    return lambda texts: [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def first_difference(right: DocumentIds, found: DocumentIds) -> str | None:
    """Say where ids differ from those that are right, or that they do not."""
    if len(right.lengths) != len(found.lengths):
        return f"{len(found.lengths):,} documents, not {len(right.lengths):,}"
    same_lengths = right.lengths == found.lengths
    if same_lengths.all() and np.array_equal(right.ids, found.ids):
        return None
    ends_right, ends_found = np.cumsum(right.lengths), np.cumsum(found.lengths)
    for i in range(len(right.lengths)):
        a = right.ids[ends_right[i] - right.lengths[i] : ends_right[i]]
        b = found.ids[ends_found[i] - found.lengths[i] : ends_found[i]]
        if not np.array_equal(a, b):
            n = min(len(a), len(b))
            at = next((int(k) for k in np.flatnonzero(a[:n] != b[:n])[:1]), n)
            return f"document {i:,} differs at token {at:,}: {b[at : at + 3].tolist()}, not {a[at : at + 3].tolist()}"
    return f"{len(found.ids):,} ids, not {len(right.ids):,}"


def digest(ids: DocumentIds) -> str:
    """SHA-256 of the lengths of all documents and their ids."""
    whole = hashlib.sha256(ids.lengths.astype("<i8").tobytes())
    whole.update(ids.ids.astype("<u4").tobytes())
    return whole.hexdigest()
