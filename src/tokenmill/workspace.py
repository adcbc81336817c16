"""Whose an output folder is, and what of an earlier run is in it (its layout is in layout.py).

A run that finds the work folder of the same recipe goes on with it.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tokenmill import __version__
from tokenmill.errors import OutputError
from tokenmill.inputs import Identity, identities, refuse_other_inputs
from tokenmill.journal import Journal, State
from tokenmill.layout import JOURNAL, PLAN, RECIPE, WORK, is_ours, output_files
from tokenmill.lock import Lock, take_lock
from tokenmill.manifest import MANIFEST, SKIPPED, SUMS, Manifest, load_manifest
from tokenmill.plan import Plan, plan_units
from tokenmill.recipe import Recipe
from tokenmill.removal import discard_output, discard_work, remove_empty
from tokenmill.segments import QUARANTINE, segment_path
from tokenmill.shards.index import INDEX
from tokenmill.shards.receipts import FileReceipt
from tokenmill.sources import Input
from tokenmill.storage.addresses import Address
from tokenmill.storage.local import TEMP_SUFFIX, write_whole

if TYPE_CHECKING:
    from tokenmill.home import Home

T = TypeVar("T")


class PlanRecord(msgspec.Struct, frozen=True):
    """What a plan depends on, to make it again and to see that it is the same."""

    tokenmill: str
    unit_bytes: int
    n_units: int
    digest: str
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class Workspace:
    """The work folder of a run, taken by this process."""

    home: Home
    out: Path
    work: Path
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
        if not is_whole(out, file):
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


def is_whole(out: Path, file: FileReceipt) -> bool:
    path = out / file.file
    return path.is_file() and path.stat().st_size == file.n_bytes


@contextmanager
def workspace(home: Home, recipe: Recipe, plan: Plan, *, retry_excluded: bool = False) -> Iterator[Workspace]:
    """Take the output folder for this process; take up what an unfinished run of the same recipe left in it."""
    out = home.folder
    refuse_sources(out, recipe)
    work = out / WORK
    if work.exists() and any(work.iterdir()) and not is_ours(work):
        raise OutputError(f"`{work}` is not tokenmill's", hint="pass another folder with `-o`, or move it away")
    made = not out.exists()
    try:
        work.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot make the folder `{error.filename}`: a file of that name is in the way") from None
    except OSError as error:
        raise unwritable(out, error) from None
    lock = journal = None
    try:
        lock = take_lock(work)
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
        yield Workspace(home, out, work, recipe, plan, journal, lock, resumed)
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


def begin(out: Path, recipe: Recipe, plan: Plan) -> None:
    """Make the folder this recipe's, if nothing of somebody else's is in the way."""
    strangers = [
        *output_files(out, recipe),
        *(path for path in (out / SUMS, out / SKIPPED, out / INDEX, out / QUARANTINE) if path.exists()),
    ]
    if strangers:
        raise OutputError(
            f"`{out}` holds `{strangers[0].name}`, which tokenmill did not make and would overwrite",
            hint="pass another folder with `-o`, or move it away",
        )
    write_whole(out / WORK / RECIPE, msgspec.json.encode(recipe), "recipe")
    write_whole(out / WORK / PLAN, msgspec.json.encode(plan_record(plan)), "plan")


def taken_up(out: Path, recipe: Recipe, plan: Plan) -> Plan:
    """Check that the run in this folder is ours to go on with, and return its plan."""
    work = out / WORK
    refuse_other_recipe(out, damaged_or(work / RECIPE, Recipe), recipe)
    if not (work / PLAN).exists():  # killed at the very beginning
        write_whole(work / PLAN, msgspec.json.encode(plan_record(plan)), "plan")
        return plan
    record = damaged_or(work / PLAN, PlanRecord)
    refuse_other_inputs(out, identities(record.inputs), identities(plan.inputs))
    if record.unit_bytes != plan.unit_bytes:
        plan = plan_units(recipe, record.unit_bytes)
    if plan_record(plan).digest != record.digest:
        raise OutputError(
            f"`{out}` was begun by tokenmill {record.tokenmill}, which cut the inputs in another way than"
            f" {__version__} does",
            hint=f"finish it with tokenmill {record.tokenmill}, or delete it",
        )
    return plan


def plan_record(plan: Plan) -> PlanRecord:
    digest = hashlib.sha256(msgspec.json.encode(plan.units)).hexdigest()
    return PlanRecord(__version__, plan.unit_bytes, len(plan.units), digest, plan.inputs)


def drop_leftovers(home: Home, recipe: Recipe, state: State, *, retry_excluded: bool) -> None:
    """Check what the journal promises, forget what is lost, and remove what was never finished."""
    out = home.folder
    for file in (file for shard in state.shards[state.n_shards_put :] for file in shard.files):
        if not is_whole(out, file):
            message = f"`{file.file}` of the unfinished `{out}` is missing or damaged"
            raise OutputError(message, hint=f"delete `{out}`")
    depends_on_all = recipe.shuffle != "none" or isinstance(recipe.val, float)
    settled = state.scattered is not None or (depends_on_all and bool(state.shards))
    shuffled = recipe.shuffle != "none"
    for unit in units_to_do_again(home, state, shuffled, retry_excluded=retry_excluded and not settled):
        del state.units[unit]
    sealed = {out / file.file for shard in state.shards for file in shard.files}
    for path in [*output_files(out, recipe), *(out / WORK / "units").glob(f"*{TEMP_SUFFIX}")]:
        if path not in sealed:
            path.unlink()


def units_to_do_again(home: Home, state: State, shuffled: bool, *, retry_excluded: bool) -> list[int]:
    """Units whose segment is still needed, and is not there or not whole: after a crash of the machine, say.

    And those with documents in quarantine, where these are to be tried again and no token of the unit is in a shard:
    another document would move all that follow. Such a run is finished first, and then made again.
    """
    n_tokens_sealed = sum(shard.n_tokens + shard.n_dropped_tokens for shard in state.shards)
    n_documents_sealed = sum(shard.n_documents + shard.n_dropped_documents for shard in state.shards)
    n_scattered = state.scattered.n_units if state.scattered else 0
    n_tokens = n_documents = n_before = 0  # the units from the first on that are all done, and what they hold
    again = []
    for unit in sorted(state.units):
        receipt = state.units[unit]
        in_shards = unit == n_before and (n_tokens < n_tokens_sealed or n_documents < n_documents_sealed)
        if unit == n_before:
            n_before, n_tokens, n_documents = unit + 1, n_tokens + receipt.n_tokens, n_documents + receipt.n_documents
            in_order = not shuffled or n_scattered  # else the shards are made of buckets that are lost
            if unit < n_scattered or (in_order and n_tokens <= n_tokens_sealed and n_documents <= n_documents_sealed):
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


def refuse_other_recipe(out: Path | Address, earlier: Recipe, recipe: Recipe) -> None:
    if earlier == recipe:
        return
    differences = [
        f"  {field.name}: {shown(getattr(earlier, field.name))} there, {shown(getattr(recipe, field.name))} now"
        for field in msgspec.structs.fields(Recipe)
        if getattr(earlier, field.name) != getattr(recipe, field.name)
    ]
    raise OutputError(
        "\n".join([f"`{out}` holds the output of another recipe", *differences]),
        hint="pass another folder with `-o`, or delete this one",
    )


def damaged_or(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise OutputError(f"`{path}` is damaged: {error}", hint=f"delete `{path.parent.parent}`") from None


def unwritable(out: Path, error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return error
    return OutputError(f"cannot write to `{out}`: {str(error.strerror).lower()}")


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value[:3]) + (" ..." if len(value) > 3 else "")
    return f"`{value}`"
