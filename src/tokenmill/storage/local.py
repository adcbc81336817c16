"""Files that are either whole or not there: temp name, write, fsync, rename."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

TEMP_SUFFIX = ".partial"


class HashedFile:
    """A file under construction: a temp name, its length and its SHA-256 so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temp_path = path.with_name(path.name + TEMP_SUFFIX)
        self.n_bytes = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = self.temp_path.open("wb", buffering=0)

    def write(self, data: Any) -> int:
        """Append a bytes-like object."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        n_bytes = view.nbytes
        while view.nbytes:
            view = view[self._file.write(view) :]
        self.n_bytes += n_bytes
        return n_bytes

    def replace_head(self, head: bytes) -> None:
        """Write over the first bytes. The file is hashed again, so this is for the end."""
        self._file.seek(0)
        self._file.write(head)
        self._hash = file_sha256(self.temp_path)

    def commit(self) -> str:
        """Give the file its name, now that all of it is on disk, and return its SHA-256."""
        os.fsync(self._file.fileno())
        self._file.close()
        self.temp_path.replace(self.path)
        sync_folder(self.path.parent)
        return self._hash.hexdigest()

    # What pyarrow asks of a file it writes to.
    closed = False

    def flush(self) -> None:
        pass

    def abandon(self) -> None:
        """Close without a name. The temp file goes."""
        self._file.close()
        self.temp_path.unlink(missing_ok=True)


@contextmanager
def hashed_file(path: Path) -> Iterator[HashedFile]:
    """Open a file to be committed by the caller; if that does not happen, nothing is left."""
    file = HashedFile(path)
    try:
        yield file
    finally:
        if file.temp_path.exists():
            file.abandon()


def write_whole(path: Path, data: bytes) -> str:
    """Write a small file so that it is there whole or not at all; return its SHA-256."""
    with hashed_file(path) as file:
        file.write(data)
        return file.commit()


def file_sha256(path: Path) -> Any:
    """Return the hash object over a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def sync_folder(folder: Path) -> None:
    """Make a rename durable. Windows has no such call, and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
