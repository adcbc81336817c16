"""Whose an output folder is, and what of an earlier run is in it (its layout is in layout.py).

A run that finds the work folder of the same recipe goes on with it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenmill.beginning import begin, refuse_other_recipe, taken_up
from tokenmill.errors import OutputError
from tokenmill.inputs import Identity, identities, refuse_other_inputs
from tokenmill.journal import Journal, State
from tokenmill.layout import JOURNAL, RECIPE, WORK, is_a_strangers, output_files
from tokenmill.lock import Lock, take_lock
from tokenmill.manifest import MANIFEST, Manifest, load_manifest
from tokenmill.plan import Plan
from tokenmill.recipe import Recipe
from tokenmill.removal import discard_output, discard_work, remove_empty
from tokenmill.scatter import pieces_path
from tokenmill.segments import segment_path
from tokenmill.shares import refuse_shares_at_work, take_in_shares
from tokenmill.sources import Input
from tokenmill.storage.addresses import Address
from tokenmill.storage.local import TEMP_SUFFIX, is_whole

if TYPE_CHECKING:
    from tokenmill.home import Home


@dataclass(frozen=True)
class Workspace:
    """The work folder of a run, taken by this process."""

    home: Home
    out: Path
    work: Path
    desk: Path  # for what no other process may touch: notes of workers, downloads
    recipe: Recipe
    plan: Plan
    journal: Journal
    lock: Lock
    resumed: bool  # whether an earlier run left something


def finished_manifest(
    out: Path, recipe: Recipe, inputs: tuple[Input, ...], *, of_parents: bool = False
) -> Manifest | None:
    """Return the manifest if this very recipe was finished here already, from the same files, and is still whole.

    Where an output was made of others, it names their fingerprints, and lists their inputs and not them.
    """
    if not (out / MANIFEST).exists():
        return None
    manifest = load_manifest(out)
    refuse_changes(out, manifest, recipe, None if of_parents else inputs)
    for file in (*(file for shard in manifest.shards for file in shard.files), *manifest.closing_files):
        if not is_whole(out / file.file, file.n_bytes):
            message = f"`{file.file}` of `{out}` is missing or damaged"
            raise OutputError(message, hint="delete the folder and run again")
    return manifest


def refuse_changes(out: Path | Address, manifest: Manifest, recipe: Recipe, inputs: tuple[Input, ...] | None) -> None:
    """Say so if a finished output is of another recipe, or from other inputs."""
    refuse_other_recipe(out, manifest.recipe, recipe)
    if inputs is not None:
        then = tuple(Identity(entry.path, entry.n_bytes, entry.mtime_ns, entry.edges) for entry in manifest.inputs)
        refuse_other_inputs(out, then, identities(inputs))


def begun_recipe(out: Path) -> Recipe | None:
    """The recipe that this output was made with, finished or not; None if there is none, or none that can be read."""
    if (out / MANIFEST).exists():
        return load_manifest(out).recipe
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((out / WORK / RECIPE).read_bytes(), type=Recipe)
    return None


@contextmanager
def workspace(home: Home, recipe: Recipe, plan: Plan, *, retry_excluded: bool = False) -> Iterator[Workspace]:
    """Take the output folder for this process; take up what an unfinished run of the same recipe left in it."""
    out = home.folder
    made = not out.exists()
    work = made_work(out, recipe)
    lock = journal = None
    try:
        gone = refuse_shares_at_work(work, set())
        lock = take_lock(work)
        refuse_shares_at_work(work, gone)  # one may have begun in between, and not have seen the lock
        home.claim(recipe)
        resumed = (work / RECIPE).exists()
        if resumed:
            plan = taken_up(out, recipe, plan)
        else:
            begin(out, recipe, plan)
            home.begun()
        (work / "units").mkdir(exist_ok=True)
        journal = Journal(work / JOURNAL, lock.check)
        if resumed:
            drop_leftovers(home, recipe, journal.state, retry_excluded=retry_excluded)
            home.check(journal)
        take_in_shares(work, recipe, plan, journal)
        yield Workspace(home, out, work, work, recipe, plan, journal, lock, resumed)
    except OSError as error:
        if journal is None:
            raise unwritable(out, error) from None
        raise
    finally:
        if journal is not None:
            journal.close()
        if lock is not None:
            home.release()
            lock.release()
            if not (work / RECIPE).exists():  # finished, given up, or never begun
                remove_empty(out, also_out=made)


def made_work(out: Path, recipe: Recipe) -> Path:
    """Make the work folder, or say why this cannot be the output."""
    refuse_sources(out, recipe)
    work = out / WORK
    if is_a_strangers(work):
        raise OutputError(f"`{work}` is not tokenmill's", hint="pass another folder with `-o`, or move it away")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot make the folder `{error.filename}`: a file of that name is in the way") from None
    except OSError as error:
        raise unwritable(out, error) from None
    return work


def drop_leftovers(home: Home, recipe: Recipe, state: State, *, retry_excluded: bool) -> None:
    """Check what the journal promises, forget what is lost, and remove what was never finished."""
    out, work = home.folder, home.folder / WORK
    promised = {out / file.file: file.n_bytes for shard in state.shards[state.n_shards_put :] for file in shard.files}
    promised |= {pieces_path(work, number): group.n_bytes for number, group in state.groups.items()}
    for path, n_bytes in promised.items():
        if not home.has(path, n_bytes):
            message = f"`{path.relative_to(out)}` of the unfinished `{out}` is missing or damaged"
            raise OutputError(message, hint=f"delete `{out}`")
    settled = bool(state.groups) or (recipe.waits_for_all and bool(state.shards))
    for unit in units_to_do_again(home, state, recipe.is_shuffled, retry_excluded=retry_excluded and not settled):
        del state.units[unit]
    sealed = {out / file.file for shard in state.shards for file in shard.files}
    partial = [path for folder in ("units", "scattered") for path in (work / folder).glob(f"*{TEMP_SUFFIX}")]
    for path in [*output_files(out, recipe), *partial]:
        if path not in sealed:
            path.unlink(missing_ok=True)  # a station of a driver that was killed may just end too


def units_to_do_again(home: Home, state: State, shuffled: bool, *, retry_excluded: bool) -> list[int]:
    """Units whose segment is still needed, and is not there or not whole: after a crash of the machine, say.

    And those with documents in quarantine, where these are to be tried again and no token of the unit is in a shard:
    another document would move all that follow. Such a run is finished first, and then made again.
    """
    n_tokens_sealed = sum(shard.n_tokens + shard.n_dropped_tokens for shard in state.shards)
    n_documents_sealed = sum(shard.n_documents + shard.n_dropped_documents for shard in state.shards)
    scattered = {unit for group in state.groups.values() for unit in group.units}
    n_tokens = n_documents = n_before = 0  # the units from the first on that are all done, and what they hold
    again = []
    for unit in sorted(state.units):
        if unit in scattered:
            continue
        receipt = state.units[unit]
        in_shards = unit == n_before and (n_tokens < n_tokens_sealed or n_documents < n_documents_sealed)
        if unit == n_before:
            n_before, n_tokens, n_documents = unit + 1, n_tokens + receipt.n_tokens, n_documents + receipt.n_documents
            if not shuffled and n_tokens <= n_tokens_sealed and n_documents <= n_documents_sealed:
                continue
        whole = home.has(segment_path(home.folder / WORK, unit, cut=receipt.cut), receipt.n_segment_bytes)
        if not whole or (retry_excluded and receipt.excluded and not in_shards):
            again.append(unit)
    return again


def discard(space: Workspace) -> None:
    """Remove what this run made, and nothing else."""
    discard_output(space.out, space.recipe)
    space.home.discard(space.recipe)
    discard_work(space.work)


def refuse_sources(out: Path, recipe: Recipe) -> None:
    for source in recipe.sources:
        if Path(source).is_dir() and out.is_dir() and out.samefile(source):
            raise OutputError(f"the source `{source}` is also the output", hint="pass another folder with `-o`")


def unwritable(out: Path, error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return error
    return OutputError(f"cannot write to `{out}`: {str(error.strerror).lower()}")
