"""Peak memory of `tokenmill prepare`, all processes together, and how it grows with the corpus.

    python -m benchmarks.memory FOLDER_OR_FILES...          1 x and 10 x the files, 2 workers, nanogpt and llmc

The figures go to stdout as a table; runner.py says what is counted.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import measured


def main() -> None:
    sources = [
        str(Path(source).resolve()) if Path(source).exists() else source for source in sys.argv[1:] or ["sample"]
    ]
    print("| format | times the files | peak MB | seconds |\n|---|---|---|---|")
    for shard_format in ("nanogpt", "llmc"):
        for times in (1, 10):
            shard = [] if shard_format == "nanogpt" else ["--shard-tokens", "10M"]
            with tempfile.TemporaryDirectory(prefix="tokenmill-memory-") as folder:
                out = Path(folder) / "out"
                command = [sys.executable, "-m", "tokenmill", "prepare", *sources * times, "-o", str(out)]
                options = ["--workers", "2", "--format", shard_format, *shard, "--progress", "off"]
                taken = measured([*command, *options], Path(folder), out, poll="memory")
            peak, seconds = taken["peak_bytes"] / 1e6, taken["wall_seconds"]
            print(f"| {shard_format} | {times} | {peak:,.0f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
