"""Who works on an output folder: a lease with a heartbeat.

`OUT/.work/lock` names host, process and a counter that its owner raises every few seconds, with how far it is. On
the same host a lock counts while that very process lives. From another host (a shared folder) it counts until the
counter has stood still for `STALE_SECONDS`: watched, not computed from clocks, which may differ or go backwards.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tokenmill import faults
from tokenmill.errors import BusyError

LOCK = "lock"
BEAT_SECONDS = 2.0
STALE_SECONDS = 20.0


class Holder(msgspec.Struct, frozen=True):
    """What the lock says."""

    host: str
    machine: str  # this boot of this host, and the space its process numbers are in
    pid: int
    born: str  # when the process began, in the system's own count: a process number may come again
    token: str
    beat: int = 0
    progress: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lock:
    """The lease of this process. `check` raises when somebody else has taken it over."""

    def __init__(self, path: Path, holder: Holder, what: str) -> None:
        self.path, self.holder, self.what = path, holder, what
        self.progress: Callable[[], dict[str, Any]] = dict
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tokenmill-lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if not self._is_ours():
            raise BusyError(
                f"{self.what} was taken over by another process while this one did not answer",
                hint="see `tokenmill status`",
            )

    def _is_ours(self) -> bool:
        try:
            current = read_holder(self.path)
        except OSError:  # a server that does not answer just now: the run itself will say so
            return True
        return current is not None and current.token == self.holder.token

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS) and self._is_ours():
            self.holder = msgspec.structs.replace(self.holder, beat=self.holder.beat + 1, progress=self.progress())
            with suppress(OSError):  # a full disk: the run itself will say so
                write_holder(self.path, self.holder)

    def rest(self) -> None:
        """Write to the folder no more."""
        self._stop.set()
        self._thread.join()

    def release(self) -> None:
        self.rest()
        if self._is_ours():
            self.path.unlink(missing_ok=True)
        faults.point("lock.released")


def take_lock(
    folder: Path, wait: Callable[[float], None] = time.sleep, *, what: str | None = None, out: Path | None = None
) -> Lock:
    """Take the lease of a folder, or say who has it: of the work folder of an output, or `what` of the output `out`."""
    path, mine = folder / LOCK, holder_here()
    out = out or folder.parent
    what = what or f"`{out}`"
    try:
        with guarded(folder):
            current = read_holder(path)
            if current is not None and is_alive(lambda: read_holder(path), current, wait, STALE_SECONDS):
                raise BusyError(
                    f"{what} is being written by {current}",
                    hint=f"wait for it: `tokenmill status {out}` tells how far it is",
                )
            write_holder(path, mine)
    except FileNotFoundError:  # the folder went away with its last owner
        raise BusyError(f"{what} was left by another process just now", hint="run the same command again") from None
    faults.point("lock.taken")
    return Lock(path, mine, what)


def holder_here() -> Holder:
    """What this process says of itself in a lock."""
    pid = os.getpid()
    return Holder(socket.gethostname(), machine_id(), pid, process_born(pid), secrets.token_hex(8))


def is_alive(
    read: Callable[[], Holder | None],
    holder: Holder,
    wait: Callable[[float], None],
    stale_seconds: float,
) -> bool:
    """Whether the owner of a lock still works: by its process here, by its heartbeat elsewhere."""
    if is_here(holder):
        return lives_here(holder)
    for _ in range(20):
        wait(stale_seconds / 20)
        current = read()
        if current is None:
            return False
        if (current.token, current.beat) != (holder.token, holder.beat):
            return True
    return False


def one_alive(
    paths: Iterable[Path], gone: set[str], wait: Callable[[float], None] = time.sleep
) -> tuple[Path, Holder] | None:
    """One of these locks whose owner still works, and what it says; all are watched at the same time.

    `gone` has the tokens of owners that are known to be dead, and gets those that are found to be.
    """
    found = {path: holder for path in paths if (holder := read_holder(path)) and holder.token not in gone}
    for path, holder in found.items():
        if is_here(holder) and lives_here(holder):
            return path, holder
    elsewhere = {path: holder for path, holder in found.items() if not is_here(holder)}
    for _ in range(20 if elsewhere else 0):
        wait(STALE_SECONDS / 20)
        for path, holder in elsewhere.items():
            now = read_holder(path)
            if now is not None and (now.token, now.beat) != (holder.token, holder.beat):
                return path, now
    gone |= {holder.token for holder in found.values()}
    return None


def is_here(holder: Holder) -> bool:
    """Whether the process of a lock can be looked at; Windows has no such look that is harmless."""
    return holder.machine == machine_id() and os.name != "nt"


def lives_here(holder: Holder) -> bool:
    return process_born(holder.pid) == holder.born


def read_holder(path: Path) -> Holder | None:
    """What a lock says; None when there is none. One that was being written when its owner died says nothing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def write_holder(path: Path, holder: Holder) -> None:
    temp_path = path.with_name(f"{LOCK}.{holder.token}")
    temp_path.write_bytes(msgspec.json.encode(holder))
    faults.point("lock.written")
    temp_path.replace(path)


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Let one process at a time look at a lock and take it. Where the system has no file locks, chance decides."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    path = folder / f"{LOCK}.guard"
    while True:
        with path.open("wb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if is_still(file, path):  # and not removed by the one before: others would wait at another file
                yield
                return


def is_still(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def machine_id() -> str:
    """Name this boot of this machine and the space of its process numbers: two containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def process_born(pid: int) -> str:
    """When a process began, as the system counts; empty if there is no such process."""
    try:
        # The fields behind the command's name, which may hold anything. A dead child not yet waited for is dead.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    except OSError:
        pass
    try:  # no /proc: macOS
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
