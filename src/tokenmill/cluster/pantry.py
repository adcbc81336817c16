"""Copies of inputs from elsewhere on a node, shared by all its stations.

A file comes once to a node, whichever station needs it first, and goes when room is wanted and nobody holds it.
Files are held by locks of the system, which go with the process that has them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tokenmill.errors import AccessError
from tokenmill.fetching import FILES_AT_ONCE, MIN_BUDGET, local_name, remote_file
from tokenmill.journal import InputHashed
from tokenmill.plan import Unit
from tokenmill.sources import Input
from tokenmill.storage.download import download
from tokenmill.storage.local import write_whole
from tokenmill.storage.remote import RemoteFile


class Pantry:
    """The folder of a run on this node."""

    def __init__(self, inputs: tuple[Input, ...], run: str, budget: int | None) -> None:
        self.inputs = inputs
        self.folder = Path(tempfile.gettempdir()) / f"tokenmill-inputs-{os.getuid()}-{run[:32]}"
        largest = max((entry.size for entry in inputs if entry.is_remote), default=0)
        self.budget = budget or max(FILES_AT_ONCE * largest, MIN_BUDGET)

    @contextmanager
    def held(self, unit: Unit) -> Iterator[tuple[dict[int, str], list[InputHashed]]]:
        """The inputs of a unit that are elsewhere, here for as long as they are needed, with their digests."""
        with ExitStack() as stack:
            paths, hashed = {}, []
            for i in dict.fromkeys(span.input for span in unit.spans if self.inputs[span.input].is_remote):
                path, sha256 = stack.enter_context(self._held(i))
                paths[i] = str(path)
                hashed.append(InputHashed(i, sha256))
            yield paths, hashed

    @contextmanager
    def _held(self, index: int) -> Iterator[tuple[Path, str]]:
        file = remote_file(self.inputs[index])
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_uid != os.getuid():
            raise AccessError(f"`{self.folder}` is somebody else's", hint="set TMPDIR on the nodes")
        path = self.folder / local_name(file, index)
        digest = path.with_suffix(".sha256")
        with path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            while not digest.exists():
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not digest.exists():
                    self._fetch(file, path, digest)
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield path, digest.read_text(encoding="ascii")

    def _fetch(self, file: RemoteFile, path: Path, digest: Path) -> None:
        with (self.folder / "room").open("ab") as room:
            fcntl.flock(room, fcntl.LOCK_EX)
            self._make_room(file.size)
        sha256 = download(file, path, lambda n_bytes: None, threading.Event())
        write_whole(digest, sha256.encode(), "digest")

    def clear(self) -> None:
        """Remove all copies: the run is over."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_room(self, n_bytes: int) -> None:
        """Remove the oldest copies that nobody holds until there is room; where there is none, go on without."""
        copies = sorted(self.folder.glob("*.sha256"), key=lambda path: path.stat().st_mtime)
        used = sum(copy.with_suffix("").stat().st_size for copy in copies if copy.with_suffix("").exists())
        for copy in copies:
            if used + n_bytes <= self.budget:
                return
            with suppress(OSError), copy.with_suffix(".lock").open("ab") as lock:
                used -= removed(copy, lock)


def removed(digest: Path, lock: BinaryIO) -> int:
    """Remove a copy, unless somebody holds it; return its size."""
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path = digest.with_suffix("")
    n_bytes = path.stat().st_size
    digest.unlink()
    path.unlink()
    return n_bytes
