"""Names that strangers chose: what of them may become a path."""

from __future__ import annotations

from pathlib import Path

from tokenmill.errors import SourceError

MAX_NAME_BYTES = 200  # of one part of a path: file systems take 255, and a suffix comes behind it
MAX_DEPTH = 32


def safe_path(folder: Path, name: str) -> Path:
    """Where a file of this name goes below a folder; refuse names that would lead anywhere else."""
    parts = name.split("/")
    bad = any(
        part in ("", ".", "..")
        or len(part.encode()) > MAX_NAME_BYTES
        or not part.isprintable()
        or set(part) & set('\\:"<>|')
        for part in parts
    )
    if bad or len(parts) > 32:
        raise SourceError(f"the name {name[:300]!r} cannot be a file here", hint="rename it where it is")
    return folder.joinpath(*parts)
