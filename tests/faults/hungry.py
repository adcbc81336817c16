"""A tokenizer of the user's that takes HUNGRY megabytes in each worker."""

import os
import time

import words

_taken: list[bytearray] = []


class Letters(words.Letters):
    identity = "hungry 1"

    def encode_batch(self, texts):
        n_bytes = int(os.environ.get("HUNGRY", "0")) * 1_000_000
        if n_bytes and not _taken:
            _taken.append(bytearray(n_bytes))
            _taken[0][::4096] = bytes(len(range(0, n_bytes, 4096)))
        if n_bytes:
            time.sleep(0.02)  # so that all workers have their memory at the same time
        return super().encode_batch(texts)
