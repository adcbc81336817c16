# Encoders that are loaded once in each process, and processes below a guard.
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache

import tiktoken
from datasets import load_dataset
from transformers import AutoTokenizer

_enc = None


def tokenize(text):
    global _enc
    if _enc is None:
        _enc = tiktoken.get_encoding("gpt2")
    return _enc.encode_ordinary(text)


@lru_cache
def llama():
    return AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")


def tokenize_row(row):
    return {"ids": llama().encode(row["text"])}


def main(num_proc=None):
    ds = load_dataset("text", data_files="a.txt", split="train")
    print(ds.map(tokenize_row, num_proc=num_proc), ds.map(tokenize_row, num_proc=0))
    with ProcessPoolExecutor() as executor:
        print(list(executor.map(tokenize, ["a", "b"], chunksize=16)))


if "__main__" == __name__:
    main()
