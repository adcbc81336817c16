"""Files that are either whole or not there: temp name, write, sync, rename."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill import faults

TEMP_SUFFIX = ".partial"
READ_BYTES = 1 << 22

_all_shared = False


def share_all_names() -> None:
    """From now on every file that this process writes may be written by others too, at the same time."""
    global _all_shared
    _all_shared = True


class PartialFile:
    """A file under construction: a temp name, its length, and its SHA-256 so far unless that is not wanted.

    `role` is what the file is in the run; the points between the steps of its commit are named after it. A file that
    several processes may write at a time is `shared`: each has a temp name of its own, and the last rename counts.
    """

    def __init__(self, path: Path, role: str, *, hashed: bool = True, shared: bool = False) -> None:
        self.path, self.role = path, role
        own = f".{secrets.token_hex(8)}" if shared or _all_shared else ""
        self.temp_path = path.with_name(path.name + own + TEMP_SUFFIX)
        self.n_bytes = 0
        self._hash: Any = hashlib.sha256() if hashed else None
        self._file: BinaryIO = self.temp_path.open("wb", buffering=0)

    def write(self, data: Any) -> int:
        """Append a bytes-like object."""
        view = memoryview(data).cast("B")
        n_bytes = view.nbytes
        if self._hash is not None:
            self._hash.update(view)
        while view.nbytes:
            view = view[self._file.write(view) :]
        self.n_bytes += n_bytes
        return n_bytes

    def replace_head(self, head: bytes) -> None:
        """Write over the first bytes. The file is hashed again, so this is for the end."""
        self._file.seek(0)
        self._file.write(head)
        with self.temp_path.open("rb") as file:
            self._hash = hashlib.file_digest(file, "sha256")

    def commit(self, *, unless_there: bool = False) -> None:
        """Give the file its name, now that all of it is on disk; if asked, unless another has it already."""
        faults.point(f"{self.role}.written")
        os.fsync(self._file.fileno())
        faults.point(f"{self.role}.synced")
        self._file.close()
        if not (unless_there and linked(self.temp_path, self.path)):
            self.temp_path.replace(self.path)
        faults.point(f"{self.role}.renamed")
        sync_folder(self.path.parent)

    @property
    def sha256(self) -> str:
        return str(self._hash.hexdigest())

    def abandon(self) -> None:
        """Close without a name. The temp file goes."""
        self._file.close()
        self.temp_path.unlink(missing_ok=True)

    # What pyarrow asks of a file it writes to.
    closed = False

    def flush(self) -> None:
        pass


def linked(path: Path, name: Path) -> bool:
    """Give a file a second name, unless there is such a file; return False where the file system has no links."""
    try:
        with suppress(FileExistsError):
            os.link(path, name)
    except OSError:
        return False
    return True


@contextmanager
def partial_file(path: Path, role: str, *, hashed: bool = True, shared: bool = False) -> Iterator[PartialFile]:
    """Open a file that the caller commits; where that does not happen, nothing is left."""
    file = PartialFile(path, role, hashed=hashed, shared=shared)
    try:
        yield file
    finally:
        file.abandon()


def is_whole(path: Path, n_bytes: int) -> bool:
    """Whether a file is there, as long as its receipt says."""
    return path.is_file() and path.stat().st_size == n_bytes


def write_whole(path: Path, data: bytes, role: str, *, shared: bool = False) -> str:
    """Write a small file so that it is there whole or not at all; return its SHA-256."""
    with partial_file(path, role, shared=shared) as file:
        file.write(data)
        file.commit()
        return file.sha256


def write_first(path: Path, data: bytes, role: str) -> None:
    """Write a small file so that it is there whole; of several processes that do, the first one's stays."""
    with partial_file(path, role, shared=True) as file:
        file.write(data)
        file.commit(unless_there=True)


def sync_folder(folder: Path) -> None:
    """Make a rename durable. Windows has no such call, and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def existing_folder(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    path = path.absolute()
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def file_sha256(path: Path, stopping: threading.Event | None = None) -> str:
    """The SHA-256 of a file, as `sha256sum` gives it."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while (n := file.readinto(buffer)) and not (stopping and stopping.is_set()):
            digest.update(buffer[:n])
    return digest.hexdigest()
