"""The three ways of "My prepare.py dies", on the same Parquet files: wall time, and CPU seconds of all processes.

    python -m benchmarks.three_ways FOLDER

A script in the shape of nanoGPT's (datasets.map, tiktoken, two processes) as it is, patched by `tokenmill doctor` to
each of the three ways, and the drop-in scripts. All write train.bin; no figure is given unless their bytes are equal.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tiktoken_ext.openai_public

import tokenmill
from tokenmill.doctor.patches import script_patch

SHAPE = Path(__file__).parent.parent / "tests/ways/doctor_scripts/nanogpt_shaped.py"
ROUNDS = 3


def main() -> None:
    corpus = str(Path(sys.argv[1]).absolute())
    with tempfile.TemporaryDirectory() as folder:
        ways = scripts(Path(folder), corpus)
        best: dict[str, tuple[float, float]] = {}
        digests = set()
        for _ in range(ROUNDS):  # in turns, so that a noisy neighbor is everybody's
            for name, command in ways.items():
                out = Path(folder) / "run"
                shutil.rmtree(out, ignore_errors=True)
                shutil.copytree(Path(folder) / name, out) if (Path(folder) / name).exists() else out.mkdir()
                wall, cpu = measured(command, out, Path(folder))
                best[name] = min(best.get(name, (wall, cpu)), (wall, cpu), key=lambda pair: pair[1])
                digests.add(hashlib.sha256((out / "train.bin").read_bytes()).hexdigest())
    assert len(digests) == 1, "the ways do not agree"
    slowest = best["as it is"][1]
    print("| way | wall s | CPU s | against the script as it is |\n|---|---|---|---|")
    for name, (wall, cpu) in best.items():
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {slowest / cpu:.1f} times |")


def scripts(folder: Path, corpus: str) -> dict[str, list[str]]:
    """Write the script and its three patched forms; return what to run for each way."""
    source = SHAPE.read_text().replace('"corpus.parquet"', repr(f"{corpus}/*.parquet")).replace('"gpt2"', '"r50k_base"')
    tiktoken_cache(folder)
    ways: dict[str, list[str]] = {}
    for name, way in {"as it is": 0, "patched to way 1": 1, "patched to way 2": 2, "patched to way 3": 3}.items():
        place = folder / name / "prepare.py"
        place.parent.mkdir()
        place.write_text(source)
        if way:
            diff = script_patch(source, "prepare.py", way)
            subprocess.run(["patch", "-p1", "-s"], cwd=place.parent, input=diff, text=True, check=True)
        ways[name] = [sys.executable, "prepare.py"]
    module = [sys.executable, "-m", "tokenmill.scripts.prepare", "--input", corpus]
    ways["prepare.py --num_proc 1"] = [*module, "--num_proc", "1"]
    ways["prepare.py --num_proc 2"] = [*module, "--num_proc", "2"]
    fineweb = [sys.executable, "-m", "tokenmill.scripts.prepare_fineweb", "--input", corpus]
    ways["prepare_fineweb.py --num_proc 2"] = [*fineweb, "--num_proc", "2"]
    return ways


def tiktoken_cache(folder: Path) -> None:
    """Put the vocabulary where tiktoken looks for it before it asks the network."""
    (url,) = re.findall(r'"(https://[^"]+)"', inspect.getsource(tiktoken_ext.openai_public.r50k_base))
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    (folder / "tiktoken").mkdir()
    vocabulary = Path(tokenmill.__file__).parent / "tokenizers/vocab/r50k_base.tiktoken"
    shutil.copy(vocabulary, folder / "tiktoken" / name)


def measured(command: list[str], out: Path, folder: Path) -> tuple[float, float]:
    """Run a command with an empty cache of `datasets`; return wall time and CPU seconds of all its processes."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    env = os.environ | {"HF_HOME": str(cache), "TIKTOKEN_CACHE_DIR": str(folder / "tiktoken")}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=env, cwd=out, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
