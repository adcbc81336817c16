"""Run one command and write down what its whole process tree took.

    python runner.py REPORT LOG memory|cpu|- COMMAND...

Orphans come to this process (Linux's child subreaper) and are waited for. At each wait Linux adds a child's CPU time
and I/O to its parent's, so RUSAGE_CHILDREN and /proc/self/io cover killed workers and daemons too. Not covered: a child
whose parent ignores SIGCHLD, as Ray's raylet does. With `cpu`, the CPU time of every process of the tree is looked at
every 100 ms too, and counts where it comes to more; what a process does after the last look is missed.

Peak memory is the largest sum of PSS (a page shared by n processes counts 1/n for each) over the tree, polled every
20 ms. Polling takes time of the machine, so it is done only in rounds that are not timed.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.02
CPU_POLL_SECONDS = 0.1
GRACE_SECONDS = 20.0  # for what the command leaves running
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    report, log, polled, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    io_before, began = io_counts(), time.perf_counter()
    with Path(log).open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    peak = PeakMemory() if polled == "memory" else None
    seen = SeenCpu() if polled == "cpu" else None
    exit_code = wait_for(child.pid)
    wall_seconds = time.perf_counter() - began
    n_left = wait_for_rest()
    usage, io_after = resource.getrusage(resource.RUSAGE_CHILDREN), io_counts()
    taken = {
        "exit_code": exit_code,
        "wall_seconds": wall_seconds,
        "cpu_seconds": max(usage.ru_utime + usage.ru_stime, seen.finish() if seen else 0.0),
        "user_seconds": usage.ru_utime,
        "system_seconds": usage.ru_stime,
        "peak_bytes": peak.finish() if peak else None,
        "n_left_running": n_left,
        # rchar and wchar are what went through system calls, pipes too; disk bytes count pages, mapped ones too.
        "n_read_bytes": io_after["rchar"] - io_before["rchar"],
        "n_written_bytes": io_after["wchar"] - io_before["wchar"],
        "n_disk_read_bytes": io_after["read_bytes"] - io_before["read_bytes"],
        "n_disk_written_bytes": io_after["write_bytes"] - io_before["write_bytes"],
    }
    Path(report).write_text(json.dumps(taken))


def wait_for(pid: int) -> int:
    """Wait for a process, and for whatever ends before it."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def wait_for_rest() -> int:
    """Wait for what still runs, and kill it after a while; return how many processes there were."""
    killer = threading.Timer(GRACE_SECONDS, kill_tree)
    killer.daemon = True
    killer.start()
    n_left = 0
    with suppress(ChildProcessError):
        while True:
            os.wait()
            n_left += 1
    killer.cancel()
    return n_left


def kill_tree() -> None:
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """All processes below one, whichever of its threads started them."""
    below: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                below += [int(child), *descendants(int(child))]
    except OSError:  # it ended just now
        pass
    return below


def pss_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def cpu_ticks(pid: int) -> tuple[str, int] | None:
    """When a process began, which tells it from others with its number, and its own CPU time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19], int(fields[11]) + int(fields[12])


def io_counts() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}


class Polled:
    """Looks at all processes below this one from time to time, in a thread."""

    seconds: float

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._over.wait(self.seconds):
            self.look(descendants(os.getpid()))

    def look(self, pids: list[int]) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class PeakMemory(Polled):
    """The most memory that they had at a time."""

    seconds = POLL_SECONDS

    def __init__(self) -> None:
        self.n_bytes = 0
        super().__init__()

    def look(self, pids: list[int]) -> None:
        self.n_bytes = max(self.n_bytes, sum(map(pss_bytes, pids)))

    def finish(self) -> int:
        self.stop()
        return self.n_bytes


class SeenCpu(Polled):
    """The CPU time that they had when they were last seen."""

    seconds = CPU_POLL_SECONDS

    def __init__(self) -> None:
        self.ticks: dict[tuple[int, str], int] = {}
        super().__init__()

    def look(self, pids: list[int]) -> None:
        for pid in pids:
            if found := cpu_ticks(pid):
                self.ticks[pid, found[0]] = found[1]

    def finish(self) -> float:
        self.stop()
        return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
