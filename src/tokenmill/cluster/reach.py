"""How a station gets at what others made of the output, and gives what it made itself.

In a folder that all nodes see there is nothing to do. From a store, what a task reads comes to a folder of the
station's own first, and what it writes is put there before anybody hears of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from tokenmill.layout import WORK
from tokenmill.storage import objects
from tokenmill.storage.addresses import is_address, parsed
from tokenmill.storage.local import is_whole, write_whole
from tokenmill.storage.remote import RangeFile, RemoteFile


class Reach(Protocol):
    out: Path  # where shards are written
    work: Path  # where segments are

    def bring(self, sizes: dict[str, int]) -> None:
        """Have files here, by their names in the output and their sizes."""

    def send(self, names: Iterable[str]) -> None:
        """Have files that were written here where all can see them."""

    def forget(self, names: Iterable[str]) -> None:
        """Copies that are not needed here any more may go."""

    def open(self, name: str, n_bytes: int) -> BinaryIO:
        """A file to read some of."""

    def leave(self, name: str, data: bytes) -> None:
        """Leave a small file for others to read."""

    def found(self, name: str) -> bytes | None:
        """A small file that others left."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files for everybody."""

    def leave_nothing(self) -> None:
        """The run is over: remove what is only here."""


class FolderReach:
    """A folder that all nodes see."""

    def __init__(self, out: Path) -> None:
        self.out, self.work = out, out / WORK

    def bring(self, sizes: dict[str, int]) -> None: ...
    def send(self, names: Iterable[str]) -> None: ...
    def forget(self, names: Iterable[str]) -> None: ...
    def open(self, name: str, n_bytes: int) -> BinaryIO:
        return (self.out / name).open("rb")

    def leave(self, name: str, data: bytes) -> None:
        write_whole(self.out / name, data, "job")

    def found(self, name: str) -> bytes | None:
        path = self.out / name
        return path.read_bytes() if path.is_file() else None

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.out / name).unlink(missing_ok=True)

    def leave_nothing(self) -> None: ...


class StoreReach:
    """A place in a store."""

    def __init__(self, out: str, folder: Path | None = None) -> None:
        self.address = parsed(out)
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="tokenmill-")
        self.out = folder or Path(cast("tempfile.TemporaryDirectory[str]", self._own).name)
        self.work = self.out / WORK
        (self.work / "units").mkdir(parents=True, exist_ok=True)

    def bring(self, sizes: dict[str, int]) -> None:
        for name, n_bytes in sizes.items():
            path = self.out / name
            if is_whole(path, n_bytes):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            data = objects.get(self.address.below(name), n_bytes)
            if data is None:
                raise FileNotFoundError(2, "No such file", str(self.address.below(name)))
            path.write_bytes(data)

    def send(self, names: Iterable[str]) -> None:
        for name in names:
            objects.put(self.address.below(name), self.out / name)
            (self.out / name).unlink()

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            (self.out / name).unlink(missing_ok=True)

    def open(self, name: str, n_bytes: int) -> BinaryIO:
        return cast(BinaryIO, RangeFile(RemoteFile(str(self.address.below(name)), n_bytes, "")))

    def leave(self, name: str, data: bytes) -> None:
        objects.put(self.address.below(name), data)

    def found(self, name: str) -> bytes | None:
        return objects.get_tagged(self.address.below(name))[0]

    def remove(self, names: Iterable[str]) -> None:
        objects.delete([self.address.below(name) for name in names])

    def leave_nothing(self) -> None:
        if self._own is not None:
            self._own.cleanup()


def reach_of(out: str) -> Reach:
    return StoreReach(out) if is_address(out) else FolderReach(Path(out))
