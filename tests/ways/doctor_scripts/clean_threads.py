# Threads, generators and plain maps start no process, and lists of lengths are short.
import multiprocessing.dummy
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import numpy as np


class Pool:
    def map(self, function, items):
        return [function(item) for item in items]


def size(text):
    return len(text)


texts = ["a", "bb"]
with ThreadPool(4) as pool:
    lengths = np.array(pool.map(size, texts))
with multiprocessing.dummy.Pool(4) as pool:
    print(pool.map(size, texts))
with ThreadPoolExecutor(4) as executor:
    print(list(executor.map(size, texts)), list(map(size, texts)), Pool().map(size, texts))
user_ids = np.arange(3)
print(lengths.tolist(), user_ids.tolist(), {"url": np.array(["x"])}["url"].tolist())
