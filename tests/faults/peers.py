"""What others do under the same faults, as observed: `make torture-peers`, in a venv with them from PyPI.

Each case is a script of a few lines, as people write it, in a process of its own with a time limit. The outcomes go to
peers.json, which the table of docs/reliability.md takes its last column from.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

LIMIT_SECONDS = 40
N_DOCUMENTS = 400

COMMON = """
import os, signal, sys, time, glob
from pathlib import Path
import tiktoken
MARKER = Path("marker")
ranks = {bytes([i]): i for i in range(256)}
pattern = r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"
enc = tiktoken.Encoding("letters", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
def ids(text):
    fault = os.environ["FAULT"]
    with open("n_encoded", "a") as file:
        file.write("x")
    if fault == "slow":
        time.sleep(0.02)
    if "POISON" in text:
        if fault == "kill" and not MARKER.exists():
            MARKER.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "panic":
            text = "a" + " " * 1_100_000 + "x"
    return enc.encode_ordinary(text)
"""

DATASETS = """
import datasets
os.environ["HF_HOME"] = str(Path("hf").absolute())
if __name__ == "__main__":
    corpus = datasets.load_dataset("json", data_files="in.jsonl", split="train", cache_dir="hf")
    done = corpus.map(lambda row: {"ids": ids(row["text"])}, num_proc=2)
    print("documents:", len(done))
"""

POOL = """
import json, multiprocessing
if __name__ == "__main__":
    texts = [json.loads(line)["text"] for line in open("in.jsonl")]
    with multiprocessing.Pool(2) as pool, open("out.bin", "wb") as out:
        n = 0
        for one in pool.imap(ids, texts, chunksize=16):
            out.write(bytes(i % 256 for i in one))
            n += 1
    print("documents:", n)
"""

DATATROVE = """
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
def encode(data, rank=0, world_size=1):
    for document in data:
        document.metadata["n"] = len(ids(document.text))
        yield document
if __name__ == "__main__":
    from datatrove.pipeline.writers import JsonlWriter
    LocalPipelineExecutor(
        pipeline=[JsonlReader("split"), encode, JsonlWriter("out", compression=None)],
        tasks=4, workers=2, logging_dir="logs", start_method="fork",
    ).run()
    print("documents:", sum(len(open(path).readlines()) for path in glob.glob("out/*.jsonl")))
"""

PEERS = {"datasets.map": DATASETS, "multiprocessing.Pool": POOL, "datatrove": DATATROVE}


def main() -> None:
    """Try those that are named, or all; what was seen of the others is kept."""
    file = Path(__file__).parent / "peers.json"
    observed: dict[str, dict[str, str]] = json.loads(file.read_text())["observed"] if file.exists() else {}
    for peer, script in PEERS.items():
        if sys.argv[1:] and peer not in sys.argv[1:]:
            continue
        observed[peer] = {
            "worker killed once": outcome(peer, script, "kill"),
            "worker panics": outcome(peer, script, "panic"),
            "parent killed and rerun": killed_and_rerun(peer, script),
        }
        for case, what in observed[peer].items():
            print(f"{peer}: {case}: {what}", flush=True)
    versions = {name: version(name) for name in ("datasets", "datatrove", "tiktoken")}
    versions["python"] = sys.version.split()[0]
    table = {
        "worker dies on one document, once: kill": column(observed, "worker killed once"),
        "worker dies on one document, always: panic": column(observed, "worker panics"),
        "1,100,000 spaces in a row (tiktoken panics)": column(observed, "worker panics"),
        "SIGKILL of the whole process group at a random moment": column(observed, "parent killed and rerun"),
    }
    result = {"versions": versions, "limit_seconds": LIMIT_SECONDS, "observed": observed, "table": table}
    file.write_text(json.dumps(result, indent=1) + "\n")


def column(observed: dict[str, dict[str, str]], case: str) -> str:
    return "; ".join(f"{peer}: {cases[case]}" for peer, cases in observed.items())


def prepared(folder: Path, script: str) -> None:
    texts = [f"document {i} of the mill" for i in range(N_DOCUMENTS)]
    texts[N_DOCUMENTS // 2] = "POISON"
    lines = [json.dumps({"text": text, "id": str(i)}) + "\n" for i, text in enumerate(texts)]
    (folder / "in.jsonl").write_text("".join(lines))
    (folder / "split").mkdir()
    for i in range(4):
        (folder / "split" / f"{i}.jsonl").write_text("".join(lines[i::4]))
    (folder / "script.py").write_text(COMMON + script)


def started(folder: Path, fault: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "script.py"], cwd=folder, env={**os.environ, "FAULT": fault}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=(folder / "log").open("wb"), stderr=subprocess.STDOUT,
    )  # fmt: skip


def ended(process: subprocess.Popen) -> int | None:
    """The exit code; None for a process that had to be ended. Whatever it started is ended too."""
    try:
        return process.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def outcome(peer: str, script: str, fault: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder, script)
        code = ended(started(folder, fault))
        return in_words(code, (folder / "log").read_text(errors="replace"))


def in_words(code: int | None, said: str) -> str:
    if code is None:
        return f"hangs (ended after {LIMIT_SECONDS} s)"
    lines = [line for line in said.strip().splitlines() if line.strip()]
    documents = next((line for line in reversed(lines) if line.startswith("documents:")), None)
    if code == 0 and documents:
        n = int(documents.split()[1])
        return "finishes, all documents" if n == N_DOCUMENTS else f"finishes with {n} of {N_DOCUMENTS} documents"
    last = lines[-1].partition(".")[0][:90] if lines else ""
    return f"ends with exit code {code}, `{last}`"


def killed_and_rerun(peer: str, script: str) -> str:
    """Kill the whole group at about half of the documents, and count how many are encoded in all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder, script)
        process = started(folder, "slow")
        ends = time.monotonic() + LIMIT_SECONDS
        while count(folder) < N_DOCUMENTS * 0.7 and time.monotonic() < ends:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = count(folder)
        time.sleep(0.5)
        code = ended(started(folder, "slow"))
        if code is None:
            return f"the rerun hangs (ended after {LIMIT_SECONDS} s)"
        again = count(folder) - before
        how = in_words(code, (folder / "log").read_text(errors="replace"))
        return f"killed after {before} of {N_DOCUMENTS} documents, the rerun encodes {again} and {how}"


def count(folder: Path) -> int:
    path = folder / "n_encoded"
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    main()
