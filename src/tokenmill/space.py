"""Room on the disk: told before the work begins, and when it is used up after all."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np

from tokenmill.calibrate import EngineChoice
from tokenmill.errors import NO_ROOM, SpaceError
from tokenmill.fetching import checked_budget
from tokenmill.forecasting import peak_disk_bytes
from tokenmill.recipe import RunOptions, recipe_dtype
from tokenmill.workspace import Workspace

NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)  # a file system that went read-only, say
# Tokens are estimated from a sample: only what is short by more than the estimate may err is refused.
CERTAIN = 0.8


def check_space(space: Workspace, engine: EngineChoice, options: RunOptions) -> None:
    """Refuse to begin what cannot fit, on the disk or in the budgets."""
    if options.executor == "ray" and space.home.away:  # nothing large comes to this machine
        return
    downloads = checked_budget(space.plan, space.plan.units, options.disk_budget, keep=options.keep_downloads)
    downloads = min(downloads, sum(entry.size for entry in space.plan.inputs if entry.is_remote))
    free = shutil.disk_usage(space.out).free
    itemsize = np.dtype(recipe_dtype(space.recipe)).itemsize
    # A token is at least a byte of text, and it is written at most twice: nearly always that is answer enough.
    if options.scratch_budget is None and 2 * itemsize * space.plan.n_bytes + downloads < free:
        return
    away = space.home.away
    needed = peak_disk_bytes(space.recipe, space.plan, options, engine.use_reference, away=away)
    needed += downloads - used_bytes(space)
    if CERTAIN * needed > free:
        where, flag = (f"scratch for `{space.out}`", "--scratch") if away else (f"`{space.out}`", "-o")
        raise SpaceError(
            f"{where} needs about {in_gb(needed)} more on its disk, and {in_gb(free)} are free",
            hint=f"make room, or pass a folder on another disk with `{flag}`; `tokenmill plan` shows what is needed",
        )


def space_error(error: OSError, space: Workspace) -> Exception:
    """The error to raise for one of the system: a full disk with what is needed and how to go on."""
    if error.errno in NOT_WRITABLE and str(error.filename or "").startswith(str(space.out)):
        return SpaceError(
            f"cannot write to `{space.out}` any more: {str(error.strerror).lower()}",
            hint="run the same command again when it can be written: it goes on from here",
        )
    if error.errno not in NO_ROOM:
        return error
    what = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}.get(
        error.errno, "a file grew larger than the system allows"
    )
    n_done = sum(receipt.n_text_bytes for receipt in space.journal.state.units.values())
    n_tokens = sum(receipt.n_tokens for receipt in space.journal.state.units.values())
    rest = ""
    if n_done:
        itemsize = np.dtype(recipe_dtype(space.recipe)).itemsize
        copies = 2 if space.recipe.shard_tokens is None or space.recipe.is_shuffled else 1
        total = copies * itemsize * n_tokens * max(1.0, space.plan.n_bytes / n_done)
        rest = f"; about {in_gb(max(0, total - used_bytes(space)))} more are needed"
    free = shutil.disk_usage(space.out).free
    where = f"scratch for `{space.out}`" if space.home.away else f"`{space.out}`"
    return SpaceError(
        f"{what}: {where} holds {in_gb(used_bytes(space))}, {in_gb(free)} are free{rest}",
        hint="make room and run the same command again: it goes on from here, and nothing half-done has a final name",
    )


def used_bytes(space: Workspace) -> int:
    """What the run has on the disk so far."""
    n_bytes = 0
    for folder, _, names in os.walk(space.out):
        for name in names:
            with suppress(FileNotFoundError):  # another share has just renamed it
                n_bytes += Path(folder, name).stat().st_size
    return n_bytes


def in_gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"
