"""Fetch a data set to a folder, and nothing else.

Files keep the paths that they have below the address, as far as these can be files here. A few are fetched at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenmill.errors import SourceError
from tokenmill.storage.addresses import glob_prefix, is_address, parsed
from tokenmill.storage.download import download_all
from tokenmill.storage.names import safe_path
from tokenmill.storage.remote import RemoteFile, list_files


class Downloaded(NamedTuple):
    n_files: int
    n_bytes: int
    n_there: int  # files that were there already


def download(
    sources: Sequence[str], folder: str | Path, on_bytes: Callable[[int, int], None] | None = None
) -> Downloaded:
    """Fetch everything at these addresses. `on_bytes` is told how many bytes of how many are here."""
    files = listed(sources, Path(folder))
    n_there = download_all(files, on_bytes or (lambda done, total: None))
    return Downloaded(len(files), sum(file.size for file in files.values()), n_there)


def listed(sources: Sequence[str], folder: Path) -> dict[Path, RemoteFile]:
    """The files behind the sources, by the place where they are to be."""
    files: dict[Path, RemoteFile] = {}
    for source in sources:
        if not is_address(source):
            raise SourceError(
                f"`{source}` is no address and no corpus that is known by name",
                hint="`tokenmill datasets` lists the names; an address looks like hf://datasets/OWNER/NAME/path",
            )
        address = parsed(source)
        if address.scheme == "hf":
            from tokenmill.storage.hub import pinned

            address = pinned(address)
        found = list_files(address)
        if not found:
            raise SourceError(f"there is nothing at `{address}`")
        for file in found:
            path = parsed(file.address).path
            above = glob_prefix(address.path)
            below = path.removeprefix(f"{above}/") if above and path != above else path
            place = safe_path(folder, below if path != above else path.rpartition("/")[2])
            if files.get(place, file) != file:
                raise SourceError(
                    f"two files would both be `{place}`", hint="fetch the sources to folders of their own"
                )
            files[place] = file
    return files
