"""litdata's `optimize` with TokensLoader: a function that yields the ids of each document of a file, with tiktoken."""

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
        reorder_files=False,
        item_loader=litdata.TokensLoader(),
    )


def read(out: Path) -> DocumentIds:
    blocks = litdata.StreamingDataset(str(out), item_loader=litdata.TokensLoader(block_size=1))
    return divided(np.array([int(block) for block in blocks], dtype=np.uint16))


if __name__ == "__main__":
    serve(run, read)
