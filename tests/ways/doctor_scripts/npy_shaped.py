# Writes .npy shards, in the shape of build-nanogpt's script: one global encoder, a pool, np.save.
import os
from multiprocessing import Pool

import numpy as np
import pyarrow.parquet as pq
import tiktoken

local_dir = "npy_shards"
shard_size = int(1e5)  # small, for the sample

DATA_DIR = os.path.join(os.path.dirname(__file__), local_dir)
os.makedirs(DATA_DIR, exist_ok=True)

enc = tiktoken.get_encoding("gpt2")
eot = enc._special_tokens["<|endoftext|>"]


def tokenize(doc):
    tokens = [eot]
    tokens.extend(enc.encode_ordinary(doc["text"]))
    return np.array(tokens).astype(np.uint16)


def rows(path):
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        yield from batch.to_pylist()


def write_datafile(filename, tokens_np):
    np.save(filename, tokens_np)


pool = Pool(2)  # fault: no-main-guard pool-hangs
shard_index = 0
buffer = np.empty((shard_size,), dtype=np.uint16)
token_count = 0
for tokens in pool.imap(tokenize, rows("corpus.parquet"), 16):
    if token_count + len(tokens) < shard_size:
        buffer[token_count : token_count + len(tokens)] = tokens
        token_count += len(tokens)
    else:
        split = "val" if shard_index == 0 else "train"
        filename = os.path.join(DATA_DIR, f"edufineweb_{split}_{shard_index:06d}")
        room = shard_size - token_count
        buffer[token_count : token_count + room] = tokens[:room]
        write_datafile(filename, buffer)
        shard_index += 1
        buffer[0 : len(tokens) - room] = tokens[room:]
        token_count = len(tokens) - room
if token_count != 0:
    split = "val" if shard_index == 0 else "train"
    filename = os.path.join(DATA_DIR, f"edufineweb_{split}_{shard_index:06d}")
    write_datafile(filename, buffer[:token_count])
pool.close()
pool.join()
