"""llm.c's loop: rows of `datasets` through `multiprocessing.Pool.imap`, tiktoken in the workers, shards of uint16."""

import multiprocessing

import numpy as np
import tiktoken
from datasets import load_dataset

from benchmarks.contenders.protocol import LLMC_MAGIC, LLMC_SHARD_TOKENS, Task, llmc_ids, serve

encoding = tiktoken.get_encoding("r50k_base")


def tokenized(row: dict) -> np.ndarray:
    ids = np.array([encoding.eot_token, *encoding.encode_ordinary(row["text"])])
    assert ids.max() < 2**16
    return ids.astype(np.uint16)


def run(task: Task) -> None:
    corpus = load_dataset("parquet", data_files=task.files, split="train")
    shard, n_filled, n_shards = np.empty(LLMC_SHARD_TOKENS, dtype=np.uint16), 0, 0

    def write() -> None:
        header = np.zeros(256, dtype=np.int32)
        header[:3] = LLMC_MAGIC, 1, n_filled
        with (task.out / f"train_{n_shards:06d}.bin").open("wb") as file:
            file.write(header.tobytes())
            file.write(shard[:n_filled].tobytes())

    with multiprocessing.Pool(task.processes) as pool:
        for ids in pool.imap(tokenized, corpus, chunksize=16):
            while len(ids):
                taken = ids[: len(shard) - n_filled]
                shard[n_filled : n_filled + len(taken)] = taken
                n_filled += len(taken)
                ids = ids[len(taken) :]
                if n_filled == len(shard):
                    write()
                    n_filled, n_shards = 0, n_shards + 1
    if n_filled:
        write()


if __name__ == "__main__":
    serve(run, llmc_ids)
