"""Megatron-LM's classic way: JSON lines one at a time through a Pool with `tokenizers`, flat ids and lengths."""

import json
import multiprocessing
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.contenders.protocol import EOT, DocumentIds, Task, divided, serve

tokenizer: Tokenizer | None = None


def load(path: str) -> None:
    global tokenizer
    tokenizer = Tokenizer.from_file(path)


def tokenized(line: str) -> list[int]:
    assert tokenizer is not None
    return [*tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids, EOT]


def run(task: Task) -> None:
    lengths = []
    with (
        multiprocessing.Pool(task.processes, initializer=load, initargs=(task.tokenizer_json,)) as pool,
        (task.out / "tokens.bin").open("wb") as file,
    ):
        for path in task.files:
            with Path(path).open(encoding="utf-8") as lines:
                for ids in pool.imap(tokenized, lines, 32):
                    file.write(np.array(ids, dtype=np.uint16).tobytes())
                    lengths.append(len(ids))
    np.array(lengths, dtype=np.int64).tofile(task.out / "lengths.bin")


def read(out: Path) -> DocumentIds:
    return divided(np.fromfile(out / "tokens.bin", np.uint16))


if __name__ == "__main__":
    serve(run, read)
