"""One share of a corpus -> its segments: the part of a run that each of several machines does, told by `--node I/N`.

The same command without `--node` takes over what all shares did, encodes what is missing, assembles and seals.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import msgspec

from tokenmill.beginning import joined, plan_record
from tokenmill.calibrate import EngineChoice
from tokenmill.errors import DataError, RecipeError, SourceError
from tokenmill.fetching import DOWNLOADS
from tokenmill.home import Home
from tokenmill.journal import Journal, State, read_state
from tokenmill.layout import JOURNAL, SHARES
from tokenmill.lock import LOCK, guarded
from tokenmill.manifest import MANIFEST
from tokenmill.means import LocalMeans, job_for, recorded, units_to_do
from tokenmill.plan import Plan
from tokenmill.progress import Progress
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.removal import remove_empty
from tokenmill.segments import is_segment_whole
from tokenmill.shares import (
    RECORD,
    Share,
    ShareRecord,
    found_shares,
    new_events,
    parsed_share,
    read_record,
    share_events,
    take_share_lock,
)
from tokenmill.space import check_space, space_error
from tokenmill.storage.local import write_whole
from tokenmill.workspace import Workspace, discard, made_work, units_to_do_again, unwritable


class ShareDone(msgspec.Struct, frozen=True):
    """What a share came to. The output is not finished: the same run without `node` does that."""

    share: str  # 2/8
    n_units: int  # of this share
    n_units_before: int  # of those, the ones that were done when this run began
    n_units_in_all: int  # of all shares
    n_documents: int
    n_tokens: int
    n_text_bytes: int
    n_excluded: int  # documents that no engine could take, kept in quarantine
    elapsed_seconds: float
    workers: int


def encode_share(
    home: Home,
    recipe: Recipe,
    plan: Plan,
    engine: EngineChoice,
    options: RunOptions,
    on_progress: Callable[[Progress], None] | None,
) -> ShareDone:
    """Encode the units of the share that the options name, as far as nobody has yet."""
    share = parsed_share(str(options.node))
    with share_workspace(home, recipe, plan, share) as space:
        part = msgspec.structs.replace(space.plan, units=share.units(space.plan))
        of_part = replace(space, plan=part)
        try:
            if part.units:
                check_space(of_part, engine, options)
            return encoded_share(space, share, part, engine, options, on_progress)
        except (RecipeError, SourceError, DataError):  # nothing to go on with: leave the folder to the next try
            if not space.journal.state.units:
                withdraw(space)
            raise
        except OSError as error:
            raise space_error(error, of_part) from error


def encoded_share(
    space: Workspace,
    share: Share,
    part: Plan,
    engine: EngineChoice,
    options: RunOptions,
    on_progress: Callable[[Progress], None] | None,
) -> ShareDone:
    """Encode, check and hash: whatever of it the journal does not have yet."""
    progress = Progress(part, options, space.journal.state, on_progress, assembles=False)
    space.lock.progress = progress.facts
    to_do = units_to_do(space, part.units)
    with closing(LocalMeans(space, job_for(space, engine, options), to_do, options, progress)) as means:
        for receipt in recorded(space, means):
            means.fetcher.release(space.plan.units[receipt.unit])
        for event in means.finish(all_inputs=False):
            space.journal.record(event)
    for name in ("workers", DOWNLOADS):
        shutil.rmtree(space.desk / name, ignore_errors=True)
    write_record(space, progress)
    own = space.journal.state.units
    return ShareDone(
        share=str(share),
        n_units=len(part.units),
        n_units_before=progress.n_units_resumed,
        n_units_in_all=len(space.plan.units),
        n_documents=progress.n_documents,
        n_tokens=progress.n_tokens,
        n_text_bytes=progress.n_text_bytes,
        n_excluded=sum(len(receipt.excluded) for receipt in own.values()),
        elapsed_seconds=round(progress.elapsed_seconds, 3),
        workers=progress.n_workers,
    )


@contextmanager
def share_workspace(home: Home, recipe: Recipe, plan: Plan, share: Share) -> Iterator[Workspace]:
    """Take a share for this process; take up what an earlier one left of it, and what others know of its units."""
    out = home.folder
    work = made_work(out, recipe)
    folder = share.folder(work)
    lock = journal = None
    try:
        lock = take_share_lock(work, share)
        home.claim(recipe)
        plan = joined(out, recipe, plan)
        (work / "units").mkdir(exist_ok=True)
        resumed = is_of(read_record(folder), recipe, plan)
        if not resumed:
            (folder / JOURNAL).unlink(missing_ok=True)
        journal = Journal(folder / JOURNAL, lock.check)
        space = Workspace(home, out, work, folder, recipe, plan, journal, lock, resumed)
        write_record(space)
        take_up_units(space, share)
        yield space
    except OSError as error:
        if journal is None:
            raise unwritable(out, error) from None
        raise
    finally:
        if journal is not None:
            journal.close()
        if lock is not None:
            lock.release()
            if (out / MANIFEST).exists():  # finished while this share began: nobody needs it any more
                shutil.rmtree(work / SHARES, ignore_errors=True)
                remove_empty(out, also_out=False)


def is_of(record: ShareRecord | None, recipe: Recipe, plan: Plan) -> bool:
    """Whether what is in the folder of a share is of this recipe and plan."""
    return record is not None and (record.fingerprint, record.plan) == (recipe.fingerprint, plan_record(plan).digest)


def write_record(space: Workspace, progress: Progress | None = None) -> None:
    record = ShareRecord(
        fingerprint=space.recipe.fingerprint,
        plan=plan_record(space.plan).digest,
        host=space.lock.holder.host,
        progress=progress.facts() if progress else {},
    )
    write_whole(space.desk / RECORD, msgspec.json.encode(record), "share")


def take_up_units(space: Workspace, share: Share) -> None:
    """Bring the state of a share up to date: without its units that are lost, and with those that others have done."""
    state = space.journal.state
    for unit in [unit for unit, receipt in state.units.items() if not is_segment_whole(space.work, receipt)]:
        del state.units[unit]
    first, behind = share.edges(len(space.plan.units))
    elsewhere = known_elsewhere(space)
    for unit in range(first, behind):
        if unit in elsewhere.units and unit not in state.units:
            state.units[unit] = elsewhere.units[unit]
            if unit in elsewhere.n_checked:
                state.n_checked[unit] = elsewhere.n_checked[unit]
    state.input_sha256 |= elsewhere.input_sha256


def known_elsewhere(space: Workspace) -> State:
    """What the run that finishes has done, if it ever began, and all shares together."""
    state = read_state(space.work / JOURNAL)
    for unit in units_to_do_again(space.home, state, space.recipe.is_shuffled, retry_excluded=False):
        del state.units[unit]
    for event in list(new_events(share_events(space.work, space.recipe, space.plan), state, space.work)):
        state.add(event)
    return state


def withdraw(space: Workspace) -> None:
    """Remove a share that came to nothing, and all that was begun if nobody else is there."""
    with guarded(space.work):
        space.lock.check()
        space.lock.rest()
        space.journal.close()  # NFS keeps a file under another name as long as somebody has it open
        shutil.rmtree(space.desk, ignore_errors=True)
        if not found_shares(space.work) and not any((space.work / name).exists() for name in (LOCK, JOURNAL)):
            discard(space)
