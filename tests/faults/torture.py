"""The long form: `make torture` kills runs a few hundred times, then runs every fault test, and writes the table.

    python tests/faults/torture.py [KILLS] [--page docs/reliability.md]

Ends with 0 differences, 0 hangs, 0 orphans and 0 leftovers, or exits with 1.
"""

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import table
from harness import HERE, Forks, digests, write_corpus
from kills import RECIPES, torture

# nanogpt with its shuffle, llmc and npy get most of the kills.
ROUND = [*list(RECIPES)[:3], *RECIPES]
RESULT = HERE / "torture.json"
KINDS = ("difference", "hang", "orphan", "leftover")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--page", type=Path, help="run every fault test too, and write the table into this page")
    parser.add_argument("--tests-only", action="store_true", help="keep the kills of the last time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenmill-torture-") as folder:
        if arguments.tests_only:
            result = json.loads(RESULT.read_text())
        else:
            result = killing(Path(folder), arguments.kills, arguments.seed)
            RESULT.write_text(json.dumps({**result, "tests": []}, indent=1) + "\n")
        n_problems = sum(result["problems"].values())
        if arguments.page:
            tally = Path(folder) / "tally"
            tests = [sys.executable, "-m", "pytest", str(HERE), "-q", "--no-header"]
            n_problems += subprocess.run(tests, env={**os.environ, "TOKENMILL_FAULTS_TALLY": str(tally)}).returncode
            result["tests"] = [json.loads(line) for line in tally.read_text().splitlines()]
            if n_problems == 0:
                RESULT.write_text(json.dumps({**result, "tests": table.added_up(result["tests"])}, indent=1) + "\n")
                table.write(arguments.page, json.loads(RESULT.read_text()))
    print(f"{result['kills']} kills in {result['seconds']} s:", end=" ")
    print(", ".join(f"{result['problems'][kind]} {kind}s" for kind in KINDS), flush=True)
    return 1 if n_problems else 0


def killing(folder: Path, n_wanted: int, seed: int) -> dict:
    """Kill runs until there were enough kills; return how many there were, and problems of each kind."""
    began = time.monotonic()
    print(f"{n_wanted} kills, seed {seed}", flush=True)
    rng, n_kills, n_problems, moments = random.Random(seed), 0, Counter(), Counter()
    corpus, forks, expected = write_corpus(folder / "in", n_documents=6000), Forks(folder), {}
    for name, fields in RECIPES.items():
        spec = {"recipe": {"sources": corpus, **fields}, "options": {"executor": "inline"}}
        whole = folder / "whole"
        ended = forks.run({**spec, "out": str(whole)})
        assert ended.code == 0, ended.said
        expected[name] = digests(whole)
        shutil.rmtree(whole)
    i = 0
    while n_kills < n_wanted:
        name = ROUND[i % len(ROUND)]
        out = folder / f"out{i}"
        told = torture({"sources": corpus, **RECIPES[name]}, out, expected[name], rng, min(8, n_wanted - n_kills))
        n_kills += told.n_kills
        moments += told.killed_at
        n_problems.update(problem.partition(":")[0] for problem in told.problems)
        print(
            f"{n_kills:5} kills: {name}, {told.n_kills} in {told.seconds:.1f} s", *told.problems, sep="\n  ", flush=True
        )
        shutil.rmtree(out)
        i += 1
    forks.close()
    print("killed at", dict(moments), flush=True)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "kills": n_kills,
        "seconds": round(time.monotonic() - began),
        "killed_at": dict(moments),
        "problems": {kind: n_problems[kind] for kind in KINDS},
    }


if __name__ == "__main__":
    sys.exit(main())
