"""One file from elsewhere to this disk: resumed where it stopped, and checked before it has its name."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill import faults
from tokenmill.errors import DamageError
from tokenmill.storage.addresses import parsed
from tokenmill.storage.local import TEMP_SUFFIX, sync_folder
from tokenmill.storage.remote import Hitch, Patience, RemoteFile, store_of

READ_BYTES = 1 << 22
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
