"""nanoGPT's own shape: one global encoder, the work below a guard, eight workers."""

import os

import numpy as np
import tiktoken
from datasets import load_dataset

num_proc = 8
enc = tiktoken.get_encoding("gpt2")

if __name__ == "__main__":
    dataset = load_dataset("parquet", data_files=["corpus.parquet"], split="train", num_proc=1)
    dataset = dataset.select_columns(["text"])
    split_dataset = dataset.train_test_split(test_size=0.0005, seed=2357, shuffle=True)
    split_dataset["val"] = split_dataset.pop("test")

    def process(example):
        ids = enc.encode_ordinary(example["text"])
        ids.append(enc.eot_token)
        return {"ids": ids, "len": len(ids)}

    tokenized = split_dataset.map(process, remove_columns=["text"], num_proc=num_proc)
    for split, dset in tokenized.items():
        filename = os.path.join(os.path.dirname(__file__), f"{split}.bin")
        arr = np.memmap(filename, dtype=np.uint16, mode="w+", shape=(sum(dset["len"]),))
        arr[:] = np.concatenate(dset.with_format("numpy")["ids"])
        arr.flush()
