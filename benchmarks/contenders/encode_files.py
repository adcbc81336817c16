"""gigatoken's own `encode_files` over JSONL or Parquet, then its result written as uint16: all of it in memory."""

from pathlib import Path

import gigatoken
import numpy as np

from benchmarks.contenders.protocol import DocumentIds, Task, serve


def run(task: Task) -> None:
    ranks = task.vocabulary / "r50k_base.tiktoken"
    tokenizer = gigatoken.Tokenizer.from_tiktoken(ranks, pretokenizer="gpt2", special_tokens={})
    kind = gigatoken.ParquetFileSource if task.files[0].endswith(".parquet") else gigatoken.JsonlFileSource
    encoded = tokenizer.encode_files(kind(task.files), parallel=task.processes > 1).layout
    offsets = np.asarray(encoded.offsets)
    np.asarray(encoded.content.data)[offsets[0] : offsets[-1]].astype(np.uint16).tofile(task.out / "tokens.bin")
    np.diff(offsets).tofile(task.out / "lengths.bin")


def read(out: Path) -> DocumentIds:
    return DocumentIds(np.fromfile(out / "tokens.bin", np.uint16), np.fromfile(out / "lengths.bin", np.int64))


if __name__ == "__main__":
    serve(run, read)
