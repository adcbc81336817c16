"""A tokenizer as a user may bring one, which fails in every way there is.

`FAULT` in the environment says how, and when: `kill always`, `segv once:MARKER`, `exit random:0.02`. The document that
is struck spells POISON; at random any may be.
"""

import ctypes
import os
import random
import signal
import time
from pathlib import Path


class Letters:
    name = "letters"
    identity = "letters 1"
    vocab_size = 257
    special_tokens = {"<end>": 256}  # noqa: RUF012

    def encode_batch(self, texts):
        how, _, when = os.environ.get("FAULT", "").partition(" ")
        if how:
            for text in texts:
                if struck(text, when):
                    fail(how)
        return [list(text.encode()) for text in texts]

    def decode(self, ids):
        return bytes(i for i in ids if i < 256).decode()


def struck(text: str, when: str) -> bool:
    when, _, argument = when.partition(":")
    if when == "random":
        return random.SystemRandom().random() < float(argument)
    if "POISON" not in text:
        return False
    if when == "always":
        return True
    try:  # once: whoever makes the marker first
        Path(argument).open("x").close()
    except FileExistsError:
        return False
    return True


def fail(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segv":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)
    elif how == "panic":
        rust_panic()
    elif how == "exception":
        raise ValueError("cannot take this")
    elif how == "hang":
        time.sleep(3600)
    raise AssertionError(how)


def rust_panic() -> None:
    """A real one: tiktoken gives up on a million spaces, by an exception that is no Exception."""
    import tiktoken

    ranks = {bytes([i]): i for i in range(256)}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    encoding = tiktoken.Encoding("letters", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    encoding.encode_ordinary("a" + " " * 1_100_000 + "x")
