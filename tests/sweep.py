"""Every Unicode scalar value, in context, and whole corpora: engine against reference, id for id.

    python tests/sweep.py unicode                                all 1,112,064 scalar values in 6 contexts
    python tests/sweep.py corpora FOLDER [--tokenizers ...]      every document of every Parquet file below FOLDER

Takes minutes; `make test` has a seeded share of it. Prints a line for each tokenizer and exits with 1 on a difference.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill import Tokenizer
from tokenmill.batches import Documents

CONTEXTS = ["{}", "a{}a", "1{}1", " {}!", "{}'s", " {}'ll"]
SHIPPED = ["gpt2", "cl100k_base", "o200k_base"]


def n_different(tokenizer: Tokenizer, texts) -> int:
    """Compare engine and reference on some texts; differing ones are printed."""
    array = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts.cast(pa.large_string())
    documents = Documents(array, np.arange(len(array), dtype=np.uint32), len(array))
    fast, right = tokenizer.engine.encode(documents), tokenizer.reference.encode(documents)
    ids = np.split(right.ids, np.cumsum(right.doc_lengths)[:-1])
    # One document goes another way through the engine than many; a tenth of them is enough.
    alone = all(
        np.array_equal(tokenizer.engine.encode(documents.slice(i, i + 1)).ids, ids[i]) for i in range(0, len(ids), 10)
    )
    if alone and np.array_equal(fast.doc_lengths, right.doc_lengths) and np.array_equal(fast.ids, right.ids):
        return 0
    texts = array.to_pylist()
    by_batch = tokenizer.encode_batch(texts)
    different = [t for i, t in enumerate(texts) if not by_batch[i] == tokenizer.encode(t) == ids[i].tolist()]
    print(f"{tokenizer!r} differs:", *[ascii(text[:200]) for text in different[:5]], sep="\n  ")
    return len(different)


def sweep_unicode(tokenizer: Tokenizer) -> tuple[int, int]:
    points = [p for p in range(0x110000) if not 0xD800 <= p <= 0xDFFF]
    n = bad = 0
    for start in range(0, len(points), 50_000):
        for context in CONTEXTS:
            texts = [context.format(chr(p)) for p in points[start : start + 50_000]]
            bad += n_different(tokenizer, texts)
            n += len(texts)
    return n, bad


def sweep_corpora(tokenizer: Tokenizer, folder: Path) -> tuple[int, int]:
    n = bad = 0
    for path in sorted(folder.rglob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(500, columns=["text"]):
            bad += n_different(tokenizer, batch.column(0))
            n += len(batch)
    return n, bad


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["unicode", "corpora"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tokenizers", nargs="*", default=[], help="tokenizer.json files or their folders")
    options = parser.parse_args()
    failed = False
    for name in [*SHIPPED, *options.tokenizers]:
        tokenizer, began = Tokenizer(name), time.monotonic()
        swept = sweep_unicode(tokenizer) if options.what == "unicode" else sweep_corpora(tokenizer, options.folder)
        n, bad = swept
        failed |= bool(bad)
        print(f"{name}: {n:,} documents, {bad} differences, {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
