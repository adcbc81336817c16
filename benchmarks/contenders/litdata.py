"""litdata's `optimize` with TokensLoader: a function that yields the ids of each document of a file, with tiktoken."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import litdata
import numpy as np
import pyarrow.parquet as pq
import tiktoken
import torch

from benchmarks.contenders.protocol import DocumentIds, Task, divided, serve


def tokenized(path: str) -> Iterator[torch.Tensor]:
    encoding = tiktoken.get_encoding("r50k_base")
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        for text in batch.column("text").to_pylist():
            ids = [*encoding.encode_ordinary(text), encoding.eot_token]
            yield torch.from_numpy(np.array(ids, dtype=np.uint16))


def run(task: Task) -> None:
    litdata.optimize(
        fn=tokenized,
        inputs=task.files,
        output_dir=str(task.out),
        chunk_bytes="64MB",
        num_workers=min(task.processes, len(task.files)),
        keep_data_ordered=True,
        item_loader=litdata.TokensLoader(),
    )


def read(out: Path) -> DocumentIds:
    """Each chunk is a count, the places of its items and their end, uint32 each, and then the items."""
    chunks = json.loads((out / "index.json").read_text())["chunks"]
    found = []
    for name in sorted((chunk["filename"] for chunk in chunks), key=lambda name: [*map(int, re.findall(r"\d+", name))]):
        raw = (out / name).read_bytes()
        first = int(np.frombuffer(raw, "<u4", 1, 4)[0])
        found.append(np.frombuffer(raw, "<u2", offset=first))
    return divided(np.concatenate(found))


if __name__ == "__main__":
    serve(run, read)
