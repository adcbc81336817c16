"""Writes train.bin and val.bin beside this file, in the shape of nanoGPT's preparation, all inside one function."""

import os

import numpy as np
import tiktoken
from datasets import load_dataset

# how many processes tokenize
num_proc = 2


def main():
    enc = tiktoken.get_encoding("gpt2")
    corpus = load_dataset("parquet", data_files="corpus.parquet", split="train")
    corpus = corpus.select_columns(["text"])

    # a very small part is held out
    splits = corpus.train_test_split(test_size=0.0005, seed=2357, shuffle=True)
    splits["val"] = splits.pop("test")

    def process(example):
        ids = enc.encode_ordinary(example["text"])  # fault: captured-encoder
        ids.append(enc.eot_token)  # a document ends with it
        return {"ids": ids, "len": len(ids)}

    tokenized = splits.map(process, remove_columns=["text"], desc="tokenizing", num_proc=num_proc)

    for split, part in tokenized.items():
        n_tokens = np.sum(part["len"], dtype=np.uint64)
        filename = os.path.join(os.path.dirname(__file__), f"{split}.bin")
        arr = np.memmap(filename, dtype=np.uint16, mode="w+", shape=(n_tokens,))
        at = 0
        n_batches = min(8, len(part))
        for i in range(n_batches):
            batch = part.shard(num_shards=n_batches, index=i, contiguous=True).with_format("numpy")
            ids = np.concatenate(batch["ids"])
            arr[at : at + len(ids)] = ids
            at += len(ids)
        arr.flush()


main()  # fault: no-main-guard
