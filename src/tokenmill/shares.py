"""Shares: what each of several machines encodes of a corpus, all of them in one folder.

A share is a run of consecutive units, so that a file's units stay together. Its segments go where all segments go, and
the rest is its own:

OUT/.work/shares/2-of-8/
    share.json            of which recipe and plan it is, and who had it last
    lock                  who encodes it
    journal               its units that are done and checked, its inputs that are hashed
    workers/ downloads/   as in every work folder

The run that finishes takes these journals into its own. It and a share each take their own lock first, and look at the
other's then: where both begin at the same moment, one of them goes away, or both do.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tokenmill import faults
from tokenmill.beginning import plan_record
from tokenmill.errors import BusyError, RecipeError
from tokenmill.journal import Checked, Event, InputHashed, Journal, State, UnitDone, read_events
from tokenmill.layout import JOURNAL, SHARES
from tokenmill.lock import LOCK, Lock, guarded, one_alive, take_lock
from tokenmill.plan import Plan, Unit
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.segments import is_segment_whole

RECORD = "share.json"


@dataclass(frozen=True, order=True)
class Share:
    """One of so many, counted from 1."""

    n_shares: int
    number: int

    def __str__(self) -> str:
        return f"{self.number}/{self.n_shares}"

    def units(self, plan: Plan) -> tuple[Unit, ...]:
        return plan.units[slice(*self.edges(len(plan.units)))]

    def edges(self, n_units: int) -> tuple[int, int]:
        """The first of its units, and the first behind them."""
        return n_units * (self.number - 1) // self.n_shares, n_units * self.number // self.n_shares

    def folder(self, work: Path) -> Path:
        return work / SHARES / f"{self.number}-of-{self.n_shares}"


class ShareRecord(msgspec.Struct, frozen=True):
    """What a share is of, and who had it last."""

    fingerprint: str  # of the recipe
    plan: str  # its digest
    host: str
    progress: dict[str, Any] = {}  # how far it was when it ended by itself


def parsed_share(text: str) -> Share:
    """The share that `2/8` stands for."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise RecipeError(
            f"`{text}` is no share of a corpus",
            hint="the second of eight is `--node 2/8`; they are counted from 1",
        )
    return Share(int(match[2]), int(match[1]))


def check_share(node: str, options: RunOptions) -> None:
    """Refuse what is no share, and options that make no sense for one."""
    parsed_share(node)
    if options.executor == "ray":
        raise RecipeError("a share is encoded on one machine", hint="leave out `--node`, or `--executor ray`")
    if options.keep_downloads:
        raise RecipeError("a share keeps no downloads", hint="`tokenmill download` fetches sources to a folder")
    if options.retry_excluded:
        raise RecipeError(
            "a share does not try excluded documents again",
            hint="pass `--retry-excluded` to the run without `--node`, when all shares are done",
        )


def found_shares(work: Path) -> list[Share]:
    """The shares that somebody has begun."""
    try:
        names = [folder.name for folder in (work / SHARES).iterdir()]
    except FileNotFoundError:
        return []
    matches = (re.fullmatch(r"(\d{1,9})-of-(\d{1,9})", name) for name in names)
    return sorted(Share(int(match[2]), int(match[1])) for match in matches if match)


def read_record(folder: Path) -> ShareRecord | None:
    """What a share says of itself; None if it had no time to."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=ShareRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def take_share_lock(work: Path, share: Share) -> Lock:
    """Take the lease of a share, unless the run that finishes is at work."""
    out, folder = work.parent, share.folder(work)
    gone = refuse_the_finishing_run(work, set())
    try:
        with guarded(work):  # a share that withdraws looks who else is there, and removes all if nobody is
            folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder, what=f"share {share} of `{out}`", out=out)
    except FileNotFoundError:
        raise BusyError(f"`{out}` is being finished by another process", hint="see `tokenmill status`") from None
    try:
        refuse_the_finishing_run(work, gone)  # it may have begun in between, and not have seen our lock
    except BusyError:
        if not (folder / JOURNAL).exists():
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()
        raise
    return lock


def refuse_the_finishing_run(work: Path, gone: set[str]) -> set[str]:
    """Say so if a run without `--node` is at work; return whose locks are known to be left behind."""
    if (alive := one_alive([work / LOCK], gone)) is not None:
        raise BusyError(
            f"`{work.parent}` is being finished by {alive[1]}, which encodes whatever no share has done",
            hint=f"wait for it: `tokenmill status {work.parent}` tells how far it is",
        )
    return gone


def refuse_shares_at_work(work: Path, gone: set[str]) -> set[str]:
    """Say so if a share is being encoded; return whose locks are known to be left behind."""
    by_path = {share.folder(work) / LOCK: share for share in found_shares(work)}
    if (alive := one_alive(by_path, gone)) is not None:
        raise BusyError(
            f"share {by_path[alive[0]]} of `{work.parent}` is being encoded by {alive[1]}",
            hint=f"wait for all shares: `tokenmill status {work.parent}` tells how far they are",
        )
    return gone


def take_in_shares(work: Path, recipe: Recipe, plan: Plan, journal: Journal) -> None:
    """Take what the shares have done into the journal of the run, and remove them. No share is at work.

    A kill in between is harmless: what is in the journal is not taken twice.
    """
    if not (work / SHARES).exists():
        return
    journal.take_in(new_events(share_events(work, recipe, plan), journal.state, work))
    faults.point("shares.taken-in")
    shutil.rmtree(work / SHARES, ignore_errors=True)


def share_events(work: Path, recipe: Recipe, plan: Plan) -> Iterator[Event]:
    """What the journals of all shares say. Those of another recipe or plan, which nobody can use, say nothing."""
    digest = plan_record(plan).digest
    for share in found_shares(work):
        record = read_record(share.folder(work))
        if record is not None and (record.fingerprint, record.plan) == (recipe.fingerprint, digest):
            for event, _ in read_events(share.folder(work) / JOURNAL):
                yield event


def new_events(events: Iterable[Event], state: State, work: Path) -> Iterator[Event]:
    """Those events that say something new, of units whose segments are whole.

    Two shares may have done the same unit, where somebody cut the corpus into another number of them.
    """
    units, n_checked, inputs = set(state.units), set(state.n_checked), set(state.input_sha256)
    for event in events:
        match event:
            case UnitDone(receipt) if receipt.unit not in units and is_segment_whole(work, receipt):
                units.add(receipt.unit)
                yield event
            case Checked(unit, _) if unit in units and unit not in n_checked:
                n_checked.add(unit)
                yield event
            case InputHashed(index, _) if index not in inputs:
                inputs.add(index)
                yield event
