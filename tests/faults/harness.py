"""What the fault tests share: corpora made on the fly, real processes with a time limit, and what a run must not leave.

Every process has a session of its own and a hard time limit. A hang is a failure, never a stuck test.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.journal import read_events

HERE = Path(__file__).parent
RUN = HERE / "run.py"
LIMIT_SECONDS = 90.0
UNSTABLE = ("manifest.json", "SHA256SUMS")  # they tell when a run was, and how it went
WORDS = ["the", "of", "and", "mill", "stone", "grain", "Mühle", "粉", "\U0001f35e", "it's", "1234", "<|endoftext|>"]
WORDS += ["\n\n", "=", "(", "river", "turns", "a", "wheel"]


class HangError(AssertionError):
    """A process did not end within its time limit."""


def texts(n: int, seed: int = 0, mean_words: int = 60, *, empty: bool = True) -> list[str]:
    """Documents of very different lengths, a few of them empty."""
    rng = random.Random(seed)
    lengths = [int(rng.expovariate(1 / mean_words)) + (0 if empty else 1) for _ in range(n)]
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


def write_jsonl(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    return path


def write_corpus(folder: Path, n_documents: int = 6000, mean_words: int = 60, n_files: int = 3) -> list[str]:
    """JSONL and Parquet files in a folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    documents = texts(n_documents, mean_words=mean_words)
    for i in range(n_files):
        some = documents[i::n_files]
        if i % 2:
            pq.write_table(pa.table({"text": some}), folder / f"{i}.parquet", row_group_size=100)
        else:
            write_jsonl(folder / f"{i}.jsonl", some)
    return sorted(map(str, folder.iterdir()))


def digests(out: Path) -> dict[str, str]:
    """SHA-256 of every file of an output that must not depend on how the run went."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in UNSTABLE
    }


@dataclass
class Ended:
    """How a process ended: its exit code (negative: the signal), and what it said."""

    code: int
    said: str
    seconds: float
    orphans: list[str] = field(default_factory=list)


class Run:
    """A process in a session of its own, which is ended with all its children when the test is through with it."""

    def __init__(
        self, command: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None, **popen
    ) -> None:
        self.log = tempfile.TemporaryFile()
        environment = {**os.environ, "TMPDIR": str(temp_folder()), "NO_COLOR": "1", **(env or {})}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
            env=environment, cwd=cwd, **popen,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill_group(self) -> None:
        """SIGKILL to all of it at once, as a container's end or a batch system does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, limit_seconds: float = LIMIT_SECONDS, *, gone_seconds: float = 15.0) -> Ended:
        """Wait for its end, and for that of all processes that it started."""
        try:
            code = self.process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            self.kill_group()
            self.process.wait()
            raise HangError(f"no end after {limit_seconds} s:\n{self.said()}") from None
        ended = Ended(code, self.said(), time.monotonic() - self.began, orphans(self.pid, gone_seconds))
        self.log.close()
        return ended

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


def start(spec: dict, **options) -> Run:
    """Start run.py with a spec."""
    path = temp_folder().parent / f"{time.monotonic_ns()}.json"
    path.write_text(json.dumps(spec))
    return Run([sys.executable, str(RUN), str(path)], **options)


def start_cli(*arguments: str | Path, modules: Path | None = HERE, **options) -> Run:
    """Start the command line. A tokenizer of the tests' is found in their own folder."""
    code = f"import sys; sys.path.append({str(modules)!r}); from tokenmill.cli import main; main()"
    return Run([sys.executable, "-c", code, *map(str, arguments)], **options)


_TEMP: list[tempfile.TemporaryDirectory] = []


def temp_folder() -> Path:
    """The TMPDIR of every run of this test process: nothing may be left in it."""
    if not _TEMP:
        _TEMP.append(tempfile.TemporaryDirectory(prefix="tokenmill-faults-"))
        (Path(_TEMP[0].name) / "tmp").mkdir()
    return Path(_TEMP[0].name) / "tmp"


SHM = Path("/dev/shm")  # noqa: S108


def shared_memory() -> set[Path]:
    return set(SHM.iterdir()) if SHM.is_dir() else set()


_SHM_BEFORE = shared_memory()


def leftovers(within_seconds: float = 2.0) -> list[str]:
    """What runs have left in the temp folder and in shared memory.

    Others on the machine use shared memory too: what a living process has mapped is not left behind.
    """
    ends = time.monotonic() + within_seconds
    while (left := [*unused(shared_memory() - _SHM_BEFORE), *temp_folder().iterdir()]) and time.monotonic() < ends:
        time.sleep(0.1)
    return sorted(map(str, left))


def unused(paths: set[Path]) -> set[Path]:
    """Those of the files that no process has mapped, by inode: a semaphore is mapped under another name."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps") if paths else ():
        with contextlib.suppress(OSError):  # it has just ended
            lines = maps.read_text(errors="replace").splitlines()
            mapped |= {int(line.split()[4]) for line in lines if str(SHM) in line}
    left = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino not in mapped:
                left.add(path)
    return left


def session_processes(session: int) -> list[str]:
    """The living processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, process_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(process_session) == session and state not in "ZX":
                found.append(f"{folder.name}: {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except (OSError, ValueError):  # it has just ended
            continue
    return found


def orphans(session: int, within_seconds: float) -> list[str]:
    """Processes of a session that are still there so long after its leader's end; they are ended then."""
    ends = time.monotonic() + within_seconds
    while (left := session_processes(session)) and time.monotonic() < ends:
        time.sleep(0.02)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.partition(":")[0]), signal.SIGKILL)
    return left


class Forks:
    """The server of run.py: runs without the cost of starting an interpreter."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.log = folder / "forks.log"
        self.process = subprocess.Popen(
            [sys.executable, str(RUN), "--serve", *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(temp_folder()), "NO_COLOR": "1"},
        )  # fmt: skip

    def run(self, spec: dict, limit_seconds: float = 30.0) -> Ended:
        assert self.process.stdin
        assert self.process.stdout
        began = time.monotonic()
        self.process.stdin.write(json.dumps({**spec, "log": str(self.log), "limit_seconds": limit_seconds}) + "\n")
        self.process.stdin.flush()
        code = json.loads(self.process.stdout.readline())
        said = self.log.read_text(errors="replace")
        if code is None:
            raise HangError(f"no end after {limit_seconds} s:\n{said}")
        return Ended(code, said, time.monotonic() - began)

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def wait_until(condition, limit_seconds: float = 30.0, *, run: Run | None = None) -> bool:
    """Wait for a condition; False when the run ended before it came true."""
    ends = time.monotonic() + limit_seconds
    while not condition():
        if run is not None and not run.running:
            return bool(condition())
        if time.monotonic() > ends:
            if run is not None:
                run.kill_group()
            raise HangError(f"not within {limit_seconds} s" + (f":\n{run.said()}" if run else ""))
        time.sleep(0.005)
    return True


def journal_of(out: Path) -> Path:
    return out / ".work" / "journal"


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def journal_events(path: Path) -> list:
    return [event for event, _ in read_events(path)]


def tally(fault: str, outcome: str, n: int = 1) -> None:
    """Count a fault that was tried, for the table of docs/reliability.md. Called when its outcome was as promised."""
    if path := os.environ.get("TOKENMILL_FAULTS_TALLY"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"fault": fault, "outcome": outcome, "n": n}) + "\n")
