"""mosaicml-streaming's MDSWriter: a sample for each document, a process for each group of files, indexes merged."""

import multiprocessing
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow.parquet as pq
import tiktoken

from benchmarks.contenders.protocol import DocumentIds, Task, joined, serve

# `streaming` imports torchvision for its image datasets, and PyPI's does not load beside a torch for CPUs.
for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__spec__ = ModuleSpec(name, None)
    sys.modules[name].VisionDataset = sys.modules[name].to_tensor = object

from streaming import LocalDataset, MDSWriter  # noqa: E402
from streaming.base.util import merge_index  # noqa: E402


def write_group(group: tuple[str, list[str]]) -> None:
    folder, files = group
    encoding = tiktoken.get_encoding("r50k_base")
    with MDSWriter(out=folder, columns={"tokens": "ndarray:uint16"}) as writer:
        for path in files:
            for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
                for text in batch.column("text").to_pylist():
                    writer.write({"tokens": np.array(encoding.encode_ordinary(text), dtype=np.uint16)})


def run(task: Task) -> None:
    groups = [list(group) for group in np.array_split(task.files, task.processes) if len(group)]
    with multiprocessing.Pool(task.processes) as pool:
        for _ in pool.imap_unordered(write_group, [(f"{task.out}/{i:05d}", files) for i, files in enumerate(groups)]):
            pass
    merge_index(str(task.out), keep_local=True)


def read(out: Path) -> DocumentIds:
    samples = LocalDataset(str(out))
    return joined([samples[i]["tokens"] for i in range(len(samples))])


if __name__ == "__main__":
    serve(run, read)
