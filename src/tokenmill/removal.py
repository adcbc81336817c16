"""Removing what a run made, in an order in which a kill leaves nothing that looks like something else."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from tokenmill import faults
from tokenmill.errors import BusyError
from tokenmill.layout import JOURNAL, PLAN, RECIPE, RUN, SHARES, STATION_JOB, WORK, is_a_strangers, output_files
from tokenmill.lock import LOCK, guarded, take_lock
from tokenmill.manifest import MANIFEST, SKIPPED, SUMS
from tokenmill.recipe import Recipe
from tokenmill.segments import QUARANTINE
from tokenmill.shards.index import INDEX
from tokenmill.storage.local import TEMP_SUFFIX, write_whole


def discard_output(out: Path, recipe: Recipe) -> None:
    files = output_files(out, recipe)
    for path in [out / MANIFEST, *files, out / SUMS, out / SKIPPED]:  # the manifest first
        path.unlink(missing_ok=True)
        faults.point("over.file-removed")
    shutil.rmtree(out / QUARANTINE, ignore_errors=True)
    for folder in {out / INDEX, *(path.parent for path in files)} - {out}:
        with suppress(OSError):  # not there, or somebody else's files are in it
            folder.rmdir()


def start_over(out: Path, recipe: Recipe) -> None:
    """Remove a finished output, to make it again."""
    (out / WORK).mkdir(exist_ok=True)
    lock = take_lock(out / WORK)
    write_whole(out / WORK / RECIPE, msgspec.json.encode(recipe), "recipe")  # whoever is killed now is known
    faults.point("over.begun")
    discard_output(out, recipe)
    faults.point("over.done")
    lock.release()


def discard_work(work: Path) -> None:
    faults.point("work.before-removal")
    for name in ("units", "scattered", "workers", "downloads", SHARES):
        shutil.rmtree(work / name, ignore_errors=True)
    for path in (*work.glob(f"*{TEMP_SUFFIX}"), *work.glob(f"{STATION_JOB}*")):
        path.unlink(missing_ok=True)
    faults.point("work.folders-removed")
    for name in (JOURNAL, RUN, PLAN, RECIPE):  # the recipe last: whoever is killed in between is known for what it is
        (work / name).unlink(missing_ok=True)
        faults.point(f"work.{name}-removed")


def sweep(out: Path) -> None:
    """Remove the work folder of a finished output, if the run was killed before it could."""
    work = out / WORK
    if not work.exists() or is_a_strangers(work):
        return
    try:
        lock = take_lock(work)
    except BusyError:  # whoever finished it is at that
        return
    discard_work(work)
    lock.release()
    remove_empty(out, also_out=False)


def remove_empty(out: Path, *, also_out: bool) -> None:
    with suppress(FileNotFoundError), guarded(out / WORK):
        for path in sorted((out / WORK).glob(f"{LOCK}.*")):  # the guard last
            path.unlink(missing_ok=True)
    faults.point("work.guard-removed")
    for folder in (out / WORK, out / INDEX, *([out] if also_out else [])):
        with suppress(OSError):  # not there, or somebody else's files are in it
            folder.rmdir()
