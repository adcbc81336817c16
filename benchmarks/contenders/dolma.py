"""`dolma tokens` over JSONL.gz. It shuffles; its metadata says from which file and line each document came."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.contenders.protocol import EOT, DocumentIds, Task, joined, serve


def run(task: Task) -> None:
    dolma = [Path(sys.executable).parent / "dolma", "tokens"]
    tokenizer = ["--tokenizer.name_or_path", task.tokenizer_json, "--tokenizer.eos_token_id", str(EOT)]
    options = ["--tokenizer.pad_token_id", str(EOT), "--dtype", "uint16", "--processes", str(task.processes)]
    places = ["--documents", f"{task.source}/*.gz", "--destination", str(task.out)]
    subprocess.run([*dolma, *places, *tokenizer, *options], check=True)


def read(out: Path) -> DocumentIds:
    found = {}
    for path in sorted(out.glob("*.npy")):  # flat ids, whatever the name says
        ids = np.fromfile(path, np.uint16)
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as rows:
            for start, end, _, source, line in csv.reader(rows):
                document = ids[int(start) : int(end)]
                found[source, int(line)] = document[document != EOT]
    return joined([found[place] for place in sorted(found)])


if __name__ == "__main__":
    serve(run, read)
