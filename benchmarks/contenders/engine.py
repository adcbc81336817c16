"""The limit: gigatoken on Arrow buffers, all text in memory already, one thread, batches of one row group.

Only the encoding is timed: reading before it and writing after it are not.
"""

import json
import resource
import time
from pathlib import Path

import awkward as ak
import gigatoken
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders.protocol import DocumentIds, Task, serve
from benchmarks.measure import OWN_FIGURES


def run(task: Task) -> None:
    ranks = task.vocabulary / "r50k_base.tiktoken"
    tokenizer = gigatoken.Tokenizer.from_tiktoken(ranks, pretokenizer="gpt2", special_tokens={})
    batches = [batch for file in task.files for batch in text_batches(file)]
    cpu, wall = cpu_seconds(), time.perf_counter()
    encoded = [tokenizer.encode_batch(batch, parallel=False) for batch in batches]
    taken = {"cpu_seconds": cpu_seconds() - cpu, "wall_seconds": time.perf_counter() - wall}
    (task.out / OWN_FIGURES).write_text(json.dumps(taken))
    ids = np.concatenate([np.asarray(one.layout.content.data) for one in encoded])
    lengths = np.concatenate([np.diff(np.asarray(one.layout.offsets)) for one in encoded])
    np.savez(task.out / "ids.npz", ids=ids, lengths=lengths)


def text_batches(path: str) -> list[ak.Array]:
    file = pq.ParquetFile(path)
    columns = [file.read_row_group(i, columns=["text"]).column("text") for i in range(file.num_row_groups)]
    return [as_strings(column.combine_chunks().cast(pa.large_string())) for column in columns]


def as_strings(texts: pa.LargeStringArray) -> ak.Array:
    """Arrow's buffers as an awkward array of strings, without a copy."""
    _, offsets, data = texts.buffers()
    characters = ak.contents.NumpyArray(np.frombuffer(data, dtype=np.uint8), parameters={"__array__": "char"})
    index = ak.index.Index64(np.frombuffer(offsets, dtype=np.int64)[: len(texts) + 1])
    return ak.Array(ak.contents.ListOffsetArray(index, characters, parameters={"__array__": "string"}))


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def read(out: Path) -> DocumentIds:
    found = np.load(out / "ids.npz")
    return DocumentIds(found["ids"], found["lengths"])


if __name__ == "__main__":
    serve(run, read)
