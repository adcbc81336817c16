"""Peak memory of `tokenmill prepare`, all processes together, and how it grows with the corpus.

    python -m benchmarks.memory FOLDER_OR_FILES...          1 x and 10 x the files, 2 workers, nanogpt and llmc

Reads Linux's /proc: PSS counts a page that several processes share once. The figures go to stdout as a table.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *(one for child in children for one in tree(int(child)))]
    except FileNotFoundError:
        return []


def pss_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def peak_of(command: list[str]) -> tuple[int, float]:
    """Run a command and return the peak memory of its process tree, sampled every 20 ms, and its seconds."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(pss_bytes(pid) for pid in tree(process.pid)))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return peak, time.perf_counter() - began


def main() -> None:
    sources = sys.argv[1:] or ["sample"]
    print("| format | times the files | peak MB | seconds |\n|---|---|---|---|")
    for shard_format in ("nanogpt", "llmc"):
        for times in (1, 10):
            out = tempfile.mkdtemp(prefix="tokenmill-memory-")
            shard = [] if shard_format == "nanogpt" else ["--shard-tokens", "10M"]
            command = [sys.executable, "-m", "tokenmill", "prepare", *sources * times, "-o", out, "--workers", "2"]
            peak, seconds = peak_of([*command, "--format", shard_format, *shard, "--progress", "off"])
            shutil.rmtree(out)
            print(f"| {shard_format} | {times} | {peak / 1e6:,.0f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
