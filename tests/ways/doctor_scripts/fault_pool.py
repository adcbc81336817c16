# multiprocessing.Pool under all its names.
import multiprocessing
import multiprocessing as mp
import multiprocessing.pool
from multiprocessing import Pool as Workers
from multiprocessing import get_context

import torch.multiprocessing as tmp


def work(text):
    return len(text)


if __name__ == "__main__":
    texts = ["a", "b"]
    with mp.Pool(2) as pool:  # fault: pool-hangs
        print(pool.map(work, texts))
    with multiprocessing.pool.Pool(2) as pool:  # fault: pool-hangs
        print(pool.map(work, texts))
    with Workers() as pool:  # fault: pool-hangs
        print(pool.map(work, texts))
    spawned = get_context("spawn")
    pool = spawned.Pool(2)  # fault: pool-hangs
    print(pool.map(work, texts))
    make = mp.Pool
    other = make(2)  # fault: pool-hangs
    print(list(other.imap(work, texts)), tmp.Pool(1).map(work, texts))  # fault: pool-hangs
