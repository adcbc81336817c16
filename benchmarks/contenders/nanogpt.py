"""nanoGPT's recipe: `datasets.map` with tiktoken, a document at a time, then a memory-mapped file for each split."""

import numpy as np
import tiktoken
from datasets import load_dataset

from benchmarks.contenders.protocol import NANOGPT_SEED, NANOGPT_VAL, Task, nanogpt_ids, serve

N_BATCHES = 1024
encoding = tiktoken.get_encoding("r50k_base")


def tokenized(row: dict) -> dict:
    ids = [*encoding.encode_ordinary(row["text"]), encoding.eot_token]
    return {"ids": ids, "len": len(ids)}


def run(task: Task) -> None:
    corpus = load_dataset("parquet", data_files=task.files, split="train", num_proc=task.processes)
    splits = corpus.train_test_split(test_size=NANOGPT_VAL, seed=NANOGPT_SEED, shuffle=True)
    splits["val"] = splits.pop("test")
    done = splits.map(tokenized, remove_columns=corpus.column_names, num_proc=task.processes)
    for name, split in done.items():
        n_tokens = int(np.sum(split["len"], dtype=np.uint64))
        file = np.memmap(task.out / f"{name}.bin", dtype=np.uint16, mode="w+", shape=(n_tokens,))
        n_batches, written = min(N_BATCHES, len(split)), 0
        for i in range(n_batches):
            batch = split.shard(num_shards=n_batches, index=i, contiguous=True).with_format("numpy")
            ids = np.concatenate(batch["ids"])
            file[written : written + len(ids)] = ids
            written += len(ids)
        file.flush()


if __name__ == "__main__":
    serve(run, nanogpt_ids)
