"""Hugging Face `tokenizers`: `encode_batch` over the documents of a row group, ids written as uint16."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from benchmarks.contenders.protocol import EOT, DocumentIds, Task, divided, serve


def run(task: Task) -> None:
    tokenizer = Tokenizer.from_file(task.tokenizer_json)
    with (task.out / "tokens.bin").open("wb") as file:
        for path in task.files:
            parquet = pq.ParquetFile(path)
            for i in range(parquet.num_row_groups):
                texts = parquet.read_row_group(i, columns=["text"]).column("text").to_pylist()
                for encoded in tokenizer.encode_batch(texts, add_special_tokens=False):
                    file.write(np.array([*encoded.ids, EOT], dtype=np.uint16).tobytes())


def read(out: Path) -> DocumentIds:
    return divided(np.fromfile(out / "tokens.bin", np.uint16))


if __name__ == "__main__":
    serve(run, read)
