"""Where a run works whose output is in a store."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tokenmill.layout import WORK
from tokenmill.lock import LOCK


def scratch_folder(out: str, scratch: str | None) -> Path:
    """The folder that stands in for an output in a store: always the same one for the same output."""
    return scratch_root(scratch) / hashlib.sha256(out.encode()).hexdigest()[:24]


def scratch_root(scratch: str | None) -> Path:
    """Where scratch folders are: as asked, by variable, or in the user's cache folder."""
    root = scratch or os.environ.get("TOKENMILL_SCRATCH")
    if root is None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        root = str(Path(cache).expanduser() / "tokenmill")
    return Path(root).absolute()


def empty_scratch(folder: Path) -> None:
    """Forget what is in a scratch folder; its lock is ours already."""
    for path in folder.iterdir():
        if path.name != WORK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (folder / WORK).iterdir():
        if not path.name.startswith(LOCK):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
