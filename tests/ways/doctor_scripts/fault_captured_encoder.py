# An encoder that lives in a function, used by the function inside it that datasets sends to its workers.
from functools import partial

import tiktoken as tt
from datasets import load_dataset


def build(path, workers=4):
    tokenizer = tt.get_encoding("cl100k_base")
    ds = load_dataset("json", data_files=path, split="train")

    def encode(row):
        return {
            "ids": tokenizer.encode_ordinary(row["text"]),  # fault: captured-encoder
        }

    return ds.map(encode, num_proc=workers)


def build_by_argument(path):
    enc = tt.encoding_for_model("gpt-4")
    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(partial(encode_with, enc=enc), num_proc=4)  # fault: captured-encoder


def encode_with(row, enc):
    return {"ids": enc.encode_ordinary(row["text"])}


if __name__ == "__main__":
    build("docs.jsonl")
    build_by_argument("docs.jsonl")
