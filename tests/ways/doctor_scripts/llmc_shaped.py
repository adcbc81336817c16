"""Writes shards for llm.c, in the shape of its own script: a pool, one buffer a shard, a header of 256 integers."""

import argparse
import multiprocessing as mp
import os

import numpy as np
import tiktoken
from datasets import load_dataset

parser = argparse.ArgumentParser(description="tokenize a corpus")
parser.add_argument("-s", "--shard_size", type=int, default=10**8, help="tokens in a shard")
parser.add_argument("-n", "--name", default="edu_fineweb")
args = parser.parse_args()

out_dir = os.path.join(os.path.dirname(__file__), "shards")
os.makedirs(out_dir, exist_ok=True)

# one row a document
docs = load_dataset("parquet", data_files="corpus.parquet", split="train")


def write_datafile(filename, toks):
    header = np.zeros(256, dtype=np.int32)
    header[0] = 20240520
    header[1] = 1
    header[2] = len(toks)
    body = np.array(toks, dtype=np.uint16)
    with open(filename, "wb") as f:
        f.write(header.tobytes())
        f.write(body.tobytes())


def tokenize(doc):
    enc = tiktoken.get_encoding("gpt2")  # fault: tokenizer-per-document
    eot = enc._special_tokens["<|endoftext|>"]
    tokens = [eot]  # a document begins with it
    tokens.extend(enc.encode_ordinary(doc["text"]))
    array = np.array(tokens)
    assert (0 <= array).all() and (array < 2**16).all(), """a token
that does not fit"""
    return array.astype(np.uint16)


# leave a core to others
nprocs = max(1, os.cpu_count() - 1)
with mp.Pool(nprocs) as pool:  # fault: no-main-guard pool-hangs
    shard_index = 0
    all_tokens = np.empty((args.shard_size,), dtype=np.uint16)
    token_count = 0
    for tokens in pool.imap(tokenize, docs, chunksize=16):
        if token_count + len(tokens) < args.shard_size:
            all_tokens[token_count : token_count + len(tokens)] = tokens
            token_count += len(tokens)
        else:
            # full: write it, the rest of the document opens the next one
            split = "val" if shard_index == 0 else "train"
            filename = os.path.join(out_dir, f"{args.name}_{split}_{shard_index:06d}.bin")
            room = args.shard_size - token_count
            all_tokens[token_count : token_count + room] = tokens[:room]
            write_datafile(filename, all_tokens.tolist())  # fault: tokens-to-list
            shard_index += 1
            all_tokens[0 : len(tokens) - room] = tokens[room:]
            token_count = len(tokens) - room

    if token_count != 0:
        split = "val" if shard_index == 0 else "train"
        filename = os.path.join(out_dir, f"{args.name}_{split}_{shard_index:06d}.bin")
        write_datafile(filename, (all_tokens[:token_count]).tolist())  # fault: tokens-to-list
