"""Differential fuzzing: random documents through the engines and the reference, until the time is up.

    python tests/fuzz.py --seconds 3600 --processes 2

Every difference is printed with the document that shows it, and ends the run with 1. Random bytes go through the
check of text columns too: they must be taken exactly where they are UTF-8.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill import Tokenizer
from tokenmill.batches import Documents, Tokens
from tokenmill.errors import DataError
from tokenmill.recipe import Recipe
from tokenmill.sources import Input
from tokenmill.sources.columns import documents_from_batch
from tokenmill.tokenizers.disagreements import ODD_UNDER_NFC

SHIPPED = ["gpt2", "cl100k_base", "o200k_base"]
WORDS = [
    "the",
    " The",
    "'s",
    "'LL",
    "'ve",
    " 'd",
    "ſ",
    "123",
    "4567890",
    " \t",
    "\r\n",
    "\n\n\n",
    "   ",
    "/",
    "!!",
    "://",
]
WORDS += ["<|endoftext|>", "<|fim_prefix|>", "<think>", "</think>", "<tool_call>", "<|im_start|>", "<|begin_of_text|>"]
WORDS += [
    "\u0301",
    "\u0345",
    "\u1ab0",
    "e\u0301",
    "\u212b",
    "\uac00",
    "\u1100\u1161",
    "\u0338",
    "\u200d",
    "\ufe0f",
    "👩‍👩‍👧",
]
ODD = [p for first, last in ODD_UNDER_NFC for p in range(first, min(last, first + 40) + 1)]
# Blocks that came with recent versions of Unicode, where tables of different age differ.
RECENT = [*range(0x105C0, 0x10600), *range(0x11380, 0x11400), *range(0x16100, 0x16140), *range(0x16D40, 0x16D80)]
RECENT += [*range(0x1C80, 0x1C90), *range(0x10D40, 0x10D90), *range(0x11F00, 0x11F60), *range(0x0897, 0x0898)]


def code_point(rng: random.Random) -> str:
    match rng.randrange(8):
        case 0 | 1:
            return chr(rng.randrange(32, 127))
        case 2:
            return chr(rng.randrange(0x80, 0x800))
        case 3:
            return chr(rng.choice(ODD))
        case 4:
            return chr(rng.choice(RECENT))
        case 5:
            return rng.choice(" \t\n\r\u00a0\u2003\u3000\u0085\u001c")
        case 6:
            return chr(rng.randrange(0x300, 0x370))
        case _:
            point = rng.randrange(0x110000)
            return chr(point) if not 0xD800 <= point <= 0xDFFF else "x"


def random_text(rng: random.Random) -> str:
    length = rng.choice([0, 1, 2, 3, 5, 8, 20, 60])
    return "".join(rng.choice(WORDS) if rng.random() < 0.4 else code_point(rng) for _ in range(length))


def check_bytes(rng: random.Random) -> None:
    values = [rng.randbytes(rng.randrange(6)) if rng.random() < 0.5 else random_text(rng).encode() for _ in range(20)]
    entry = Input("fuzz", 0, 0, "", "parquet")
    try:
        for value in values:
            value.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    recipe = Recipe(sources=("fuzz",))
    batch = pa.record_batch([pa.array(values, pa.binary())], names=["text"])
    try:
        documents = documents_from_batch(batch, entry, recipe, lambda: 0)
        assert valid, values
        assert documents.texts.to_pylist() == [value.decode() for value in values]
    except DataError:
        assert not valid, values


def each(tokens: Tokens) -> list[np.ndarray]:
    """The ids of each document."""
    return np.split(tokens.ids, np.cumsum(tokens.doc_lengths)[:-1])


def fuzz(seed: int, seconds: float, names: list[str]) -> tuple[int, list[str]]:
    """Return the number of documents compared, and every difference found."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    tokenizers = [Tokenizer(name) for name in names]
    n_documents, differences, end = 0, [], time.monotonic() + seconds
    while time.monotonic() < end and len(differences) < 20:
        check_bytes(rng)
        texts = [random_text(rng) for _ in range(200)]
        array = pa.array(texts, pa.large_string())
        documents = Documents(array, np.arange(len(texts), dtype=np.uint32), len(texts))
        for tokenizer in tokenizers:
            fast, right = tokenizer.engine.encode(documents), tokenizer.reference.encode(documents)
            n_documents += len(texts)
            for i, (text, ids, batched) in enumerate(zip(texts, each(right), each(fast), strict=True)):
                alone = tokenizer.engine.encode(documents.slice(i, i + 1)).ids  # one document goes another way
                if not (np.array_equal(ids, batched) and np.array_equal(ids, alone)):
                    differences.append(f"{tokenizer!r}: {text!r} {[hex(ord(c)) for c in text]}")
    return n_documents, differences


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--tokenizers", nargs="*", default=[], help="tokenizer.json files or their folders")
    options = parser.parse_args()
    names = [*SHIPPED, *(str(Path(name).absolute()) for name in options.tokenizers)]
    jobs = [(options.seed + i, options.seconds, names) for i in range(options.processes)]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        results = pool.starmap(fuzz, jobs)
    differences = [line for _, lines in results for line in lines]
    print("\n".join(differences[:50]))
    n_documents = sum(n for n, _ in results)
    print(f"seed {options.seed}: {n_documents:,} documents, {len(differences)} differences")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
