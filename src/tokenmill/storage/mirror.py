"""An output in a store, as a folder of this machine for as long as it is looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tokenmill.errors import OutputError
from tokenmill.layout import JOURNAL, PLAN, WORK
from tokenmill.lock import LOCK
from tokenmill.manifest import MANIFEST
from tokenmill.storage import objects
from tokenmill.storage.addresses import STORES, Address, parsed
from tokenmill.storage.download import download_all
from tokenmill.storage.lease import read_lease
from tokenmill.storage.names import safe_path
from tokenmill.storage.parts import JournalParts
from tokenmill.storage.remote import RemoteFile

OnBytes = Callable[[int, int], None]  # how many of how many


@contextmanager
def output_here(out: str | Path, on_bytes: OnBytes | None = None) -> Iterator[Path]:
    """A finished output as a folder of this machine: itself, or a copy for as long as it is looked at."""
    from tokenmill.storage.addresses import is_address

    if not is_address(str(out)):
        yield Path(out)
        return
    files = output_files(out_address(str(out)))
    with tempfile.TemporaryDirectory(prefix="tokenmill-", dir=copies_folder()) as folder:
        places = {safe_path(Path(folder), name): file for name, file in files.items()}
        download_all(places, on_bytes or (lambda done, total: None))
        yield Path(folder)


@contextmanager
def state_here(out: str | Path) -> Iterator[Path]:
    """What tells how far a run is, as a folder of this machine: the manifest, or plan, journal and lock."""
    from tokenmill.storage.addresses import is_address

    if not is_address(str(out)):
        yield Path(out)
        return
    address = out_address(str(out))
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        names = {name: file.size for name, file in objects.by_name(address).items()}
        (Path(folder) / WORK).mkdir()
        for name in (MANIFEST, f"{WORK}/{PLAN}"):
            if name in names:
                (Path(folder) / name).write_bytes(objects.get(address.below(name), names[name]) or b"")
        if f"{WORK}/{LOCK}" in names:  # which may have another size by now
            holder = read_lease(address.below(f"{WORK}/{LOCK}"))
            (Path(folder) / WORK / LOCK).write_bytes(msgspec.json.encode(holder))
        (Path(folder) / WORK / JOURNAL).write_bytes(JournalParts(address, names).read())
        yield Path(folder)


def out_address(out: str) -> Address:
    address = parsed(out)
    if address.scheme not in STORES:
        raise OutputError(
            f"`{address}` is no output in a store", hint="fetch it first with `tokenmill download ADDRESS --to DIR`"
        )
    return address


def output_files(address: Address) -> dict[str, RemoteFile]:
    """The files of a finished output by name."""
    files = objects.by_name(address)
    if MANIFEST not in files:
        unfinished = any(name.startswith(f"{WORK}/") for name in files)
        what = "is not finished" if unfinished else "is no output of tokenmill"
        raise OutputError(f"`{address}` {what}: it has no {MANIFEST}")
    return {name: file for name, file in files.items() if not name.startswith(".")}


def copies_folder() -> Path:
    from tokenmill.storage.scratch import scratch_root

    folder = scratch_root(None)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
