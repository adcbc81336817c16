"""How far a run is, told from outside: by its journals, its plan and its locks, or by the manifest when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from tokenmill.beginning import PlanRecord
from tokenmill.errors import OutputError
from tokenmill.journal import State, read_state
from tokenmill.layout import JOURNAL, PLAN, WORK
from tokenmill.lock import LOCK, Holder, is_here, lives_here, read_holder
from tokenmill.manifest import MANIFEST, Manifest, load_manifest
from tokenmill.shares import Share, found_shares, read_record
from tokenmill.storage.mirror import state_here


class ShareStatus(msgspec.Struct, frozen=True):
    """One share of the work, which somebody has begun."""

    share: str  # 2/8
    state: Literal["done", "running", "stopped"]
    host: str | None  # that has it, or had it last
    n_units: int
    n_units_done: int  # of those, whoever did them
    progress: dict[str, Any] | None  # in the words of the process that runs, or of the last one


class Status(msgspec.Struct, frozen=True):
    """`running` is what the locks say: from another host it may be up to 20 seconds out of date."""

    state: Literal["finished", "running", "stopped"]
    owner: str | None  # who works on it; shares have owners of their own
    n_units: int
    n_units_done: int
    n_documents: int
    n_tokens: int
    n_text_bytes: int
    n_shards: int
    n_tokens_in_shards: int
    n_excluded: int
    progress: dict[str, Any] | None  # in the words of the process that runs: rate, time left, what binds
    shares: tuple[ShareStatus, ...] = ()


def read_status(out: str | Path) -> Status:
    """Return how far the run in this folder is, or at this address: there, up to the last shard that was put."""
    with state_here(out) as folder:
        return status_in(folder, str(out))


def status_in(out: Path, name: str) -> Status:
    status = None if (out / MANIFEST).exists() else unfinished(out / WORK)
    if (status is None or status.state == "stopped") and (out / MANIFEST).exists():  # it may be since just now
        return finished(load_manifest(out))
    if status is None:
        raise OutputError(f"`{name}` is no output of tokenmill, finished or not")
    return status


def finished(manifest: Manifest) -> Status:
    totals = manifest.totals
    return Status(
        state="finished",
        owner=None,
        n_units=manifest.run.n_units,
        n_units_done=manifest.run.n_units,
        n_documents=totals.n_documents,
        n_tokens=totals.n_tokens,
        n_text_bytes=totals.n_text_bytes,
        n_shards=totals.n_shards,
        n_tokens_in_shards=totals.n_tokens,
        n_excluded=len(manifest.excluded),
        progress=None,
    )


def unfinished(work: Path) -> Status | None:
    """How far a run is by what is in its work folder; None if there is none."""
    try:
        plan = msgspec.json.decode((work / PLAN).read_bytes(), type=PlanRecord)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    state = read_state(work / JOURNAL)
    for share in found_shares(work):
        for unit, receipt in read_state(share.folder(work) / JOURNAL).units.items():
            state.units.setdefault(unit, receipt)
    shares = tuple(share_status(work, share, plan, state) for share in found_shares(work))
    owner = living_holder(work / LOCK)
    receipts = state.units.values()
    return Status(
        state="running" if owner or any(share.state == "running" for share in shares) else "stopped",
        owner=str(owner) if owner else None,
        n_units=plan.n_units,
        n_units_done=len(receipts),
        n_documents=sum(receipt.n_documents for receipt in receipts),
        n_tokens=sum(receipt.n_tokens for receipt in receipts),
        n_text_bytes=sum(receipt.n_text_bytes for receipt in receipts),
        n_shards=len(state.shards),
        n_tokens_in_shards=sum(shard.n_tokens for shard in state.shards),
        n_excluded=sum(len(receipt.excluded) for receipt in receipts),
        progress=owner.progress if owner else None,
        shares=shares,
    )


def share_status(work: Path, share: Share, plan: PlanRecord, state: State) -> ShareStatus:
    folder = share.folder(work)
    owner, left, record = living_holder(folder / LOCK), read_holder(folder / LOCK), read_record(folder)
    last = left or record
    first, behind = share.edges(plan.n_units)
    n_done = sum(unit in state.units for unit in range(first, behind))
    return ShareStatus(
        share=str(share),
        state="running" if owner else "done" if n_done == behind - first else "stopped",
        host=last.host if last else None,
        n_units=behind - first,
        n_units_done=n_done,
        progress=last.progress if last else None,
    )


def living_holder(path: Path) -> Holder | None:
    """Who has a lock and, as far as can be seen from here, is alive."""
    holder = read_holder(path)
    return holder if holder and (not is_here(holder) or lives_here(holder)) else None
