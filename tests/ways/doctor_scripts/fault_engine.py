# Engines that no version can pickle, on their way to other processes.
from concurrent.futures import ProcessPoolExecutor

import gigatoken
import tiktoken
from tiktoken._tiktoken import CoreBPE


def with_core(texts):
    enc = tiktoken.get_encoding("gpt2")
    core = enc._core_bpe
    with ProcessPoolExecutor(4) as executor:
        return list(executor.map(core.encode_ordinary, texts))  # fault: unpicklable-engine


def with_own_core(texts):
    enc = tiktoken.get_encoding("gpt2")
    bpe = CoreBPE(enc._mergeable_ranks, enc._special_tokens, enc._pat_str)
    with ProcessPoolExecutor(4) as executor:
        futures = [executor.submit(encode, bpe, text) for text in texts]  # fault: unpicklable-engine
    return [future.result() for future in futures]


def encode(engine, text):
    return engine.encode_ordinary(text)


def with_gigatoken(ds):
    fast = gigatoken.Tokenizer.from_tiktoken("r50k_base.tiktoken", "gpt2", {})
    return ds.map(lambda row: {"ids": fast.encode(row["text"])}, num_proc=8)  # fault: unpicklable-engine


if __name__ == "__main__":
    print(with_core(["a"]), with_own_core(["b"]))
