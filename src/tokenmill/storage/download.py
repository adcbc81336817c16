"""One file from elsewhere to this disk: resumed where it stopped, and checked before it has its name."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill import faults
from tokenmill.errors import DamageError
from tokenmill.storage.addresses import parsed
from tokenmill.storage.local import TEMP_SUFFIX, file_sha256, sync_folder
from tokenmill.storage.remote import Hitch, Patience, RemoteFile, store_of

READ_BYTES = 1 << 22
FILES_AT_ONCE = 4
MAX_DAMAGED = 3  # times that a file arrives with another digest, before we believe it


class Stopped(Exception):  # noqa: N818 - nobody sees it
    """The run is over, so the download is."""


def download(
    file: RemoteFile, path: Path, on_bytes: Callable[[int], None], stopping: threading.Event | None = None
) -> str:
    """Fetch a file to `path` and return its SHA-256. What an earlier try left is gone on with."""
    stopping = stopping or threading.Event()
    for _ in range(MAX_DAMAGED):
        sha256 = fetched(file, path.with_name(path.name + TEMP_SUFFIX), on_bytes, stopping)
        found = digest_of(path.with_name(path.name + TEMP_SUFFIX), file, sha256)
        if found == file.digest:
            faults.point("download.written")
            path.with_name(path.name + TEMP_SUFFIX).replace(path)
            sync_folder(path.parent)
            return sha256
        path.with_name(path.name + TEMP_SUFFIX).unlink()
        on_bytes(-file.size)
    raise DamageError(
        f"`{file.address}` arrived damaged {MAX_DAMAGED} times: {found}, expected {file.digest}",
        hint="run again later; if it stays so, the file is broken where it is",
    )


def fetched(file: RemoteFile, partial: Path, on_bytes: Callable[[int], None], stopping: threading.Event) -> str:
    """Bring a partial file to its full size, however often the connection breaks; return its SHA-256."""
    patience = Patience(f"fetch `{file.address}`", wait=stopping.wait)
    with partial.open("a+b", buffering=0) as out:
        n_bytes, digest = hashed_part(out, file.size)
        on_bytes(n_bytes)
        while n_bytes < file.size:
            try:
                for data in store_of(parsed(file.address)).stream(file, n_bytes):
                    if stopping.is_set():
                        raise Stopped
                    if n_bytes + len(data) > file.size:
                        raise Hitch(f"more than its {file.size:,} bytes came")
                    out.write(data)
                    digest.update(data)
                    on_bytes(len(data))
                    n_bytes += len(data)
                    patience.n_tries = 0
                    faults.point("download.part")
                if n_bytes < file.size:
                    raise Hitch(f"{n_bytes:,} of {file.size:,} bytes came")
            except Hitch as hitch:
                patience.after(hitch)
                if stopping.is_set():
                    raise Stopped from None
        os.fsync(out.fileno())
    return str(digest.hexdigest())


def hashed_part(out: BinaryIO, size: int) -> tuple[int, Any]:
    """How much of a file is there, and the digest of it so far; what is longer than it cannot be its beginning."""
    digest = hashlib.sha256()
    if out.seek(0, os.SEEK_END) > size:
        out.truncate(0)
    out.seek(0)
    n_bytes = 0
    while data := out.read(READ_BYTES):
        digest.update(data)
        n_bytes += len(data)
    return n_bytes, digest


def digest_of(path: Path, file: RemoteFile, sha256: str) -> str:
    """The digest of what is here, of the kind that the listing gave; an ETag was compared by the request itself."""
    kind = file.digest.partition(":")[0]
    if kind == "sha256":
        return f"sha256:{sha256}"
    if kind == "git":
        digest = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        with path.open("rb") as content:
            while data := content.read(READ_BYTES):
                digest.update(data)
        return f"git:{digest.hexdigest()}"
    return file.digest


def download_all(files: dict[Path, RemoteFile], on_bytes: Callable[[int, int], None]) -> int:
    """Fetch files to their places, a few at a time; return how many were there already."""
    return _Downloads(files, on_bytes).fetch()


class _Downloads:
    """Files on their way, a few at a time; the first thing that goes wrong ends all."""

    def __init__(self, files: dict[Path, RemoteFile], on_bytes: Callable[[int, int], None]) -> None:
        self.files, self.on_bytes = files, on_bytes
        self.total, self.n_bytes, self.n_there = sum(file.size for file in files.values()), 0, 0
        self.lock, self.stopping = threading.Lock(), threading.Event()

    def fetch(self) -> int:
        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            futures = [threads.submit(self.fetch_one, path, file) for path, file in self.files.items()]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self.stopping.set()
                threads.shutdown(cancel_futures=True)
                raise
        return self.n_there

    def fetch_one(self, path: Path, file: RemoteFile) -> None:
        if is_here(path, file, self.stopping):
            self.count(file.size)
            with self.lock:
                self.n_there += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        download(file, path, self.count, self.stopping)

    def count(self, n_bytes: int) -> None:
        with self.lock:
            self.n_bytes += n_bytes
            self.on_bytes(self.n_bytes, self.total)


def is_here(path: Path, file: RemoteFile, stopping: threading.Event) -> bool:
    """Whether a path holds this very file."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    return digest_of(path, file, file_sha256(path, stopping)) == file.digest
