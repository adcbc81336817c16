"""What the scripts share: their command line, and documents out of flat files.

Needs numpy alone, since it is imported in every environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

EOT = 50256  # of gpt2: no text gives this id, so documents can be told apart by it
NANOGPT_SEED, NANOGPT_VAL = 2357, 0.0005
LLMC_HEADER_BYTES, LLMC_SHARD_TOKENS, LLMC_MAGIC = 1024, 100_000_000, 20240520


class DocumentIds(NamedTuple):
    """Ids of documents in the order of the corpus, without end-of-text."""

    ids: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What a script is asked for."""

    source: Path  # a folder of Parquet or JSONL files
    out: Path
    processes: int
    vocabulary: Path  # a folder with r50k_base.tiktoken and tokenizer.json

    @property
    def files(self) -> list[str]:
        return [str(path) for path in sorted(self.source.iterdir())]

    @property
    def tokenizer_json(self) -> str:
        return str(self.vocabulary / "tokenizer.json")


def serve(run: Callable[[Task], None], read: Callable[[Path], DocumentIds]) -> None:
    """Do what the command line asks for: run the contender, or read back what it wrote."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--ids", type=Path, help="read the output back into this .npz file")
    given: Any = parser.parse_args()
    if given.ids is None:
        run(Task(given.source, given.out, given.processes, given.vocabulary))
    else:
        found = read(given.out)
        np.savez(given.ids, ids=found.ids, lengths=found.lengths)


def divided(flat: npt.NDArray[np.unsignedinteger], *, eot_first: bool = False) -> DocumentIds:
    """Cut flat ids at end-of-text, which stands before or behind each document, and leave it out."""
    places = np.flatnonzero(flat == EOT)
    edges = np.append(places, len(flat)) if eot_first else np.insert(places, 0, -1)
    return DocumentIds(flat[flat != EOT], np.diff(edges) - 1)


def joined(parts: list[npt.NDArray[np.unsignedinteger]]) -> DocumentIds:
    """One array of ids a document."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return DocumentIds(np.concatenate(parts), lengths)


def nanogpt_ids(out: Path) -> DocumentIds:
    """val.bin and train.bin, whose documents nanoGPT's permutation has shuffled, in the order of the corpus."""
    splits = [np.fromfile(out / f"{name}.bin", dtype=np.uint16) for name in ("val", "train")]
    shuffled = divided(np.concatenate(splits))
    order = np.random.default_rng(NANOGPT_SEED).permutation(len(shuffled.lengths))
    starts = np.cumsum(shuffled.lengths) - shuffled.lengths
    back = np.argsort(order)
    return joined([shuffled.ids[starts[i] : starts[i] + shuffled.lengths[i]] for i in back])


def llmc_ids(out: Path) -> DocumentIds:
    """Shards with a header of 256 int32, documents in order, end-of-text before each."""
    shards = [np.fromfile(path, dtype=np.uint16, offset=LLMC_HEADER_BYTES) for path in sorted(out.glob("*.bin"))]
    return divided(np.concatenate(shards), eot_first=True)
