"""How far a run is, told from outside: by its journal, its plan and its lock, or by the manifest when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from tokenmill.errors import OutputError
from tokenmill.journal import read_state
from tokenmill.layout import JOURNAL, PLAN, WORK
from tokenmill.lock import LOCK, machine_id, process_born, read_holder
from tokenmill.manifest import MANIFEST, load_manifest
from tokenmill.storage.mirror import state_here
from tokenmill.workspace import PlanRecord


class Status(msgspec.Struct, frozen=True):
    """`running` is what the lock says: from another host it may be up to 20 seconds out of date."""

    state: Literal["finished", "running", "stopped"]
    owner: str | None  # who works on it
    n_units: int
    n_units_done: int
    n_documents: int
    n_tokens: int
    n_text_bytes: int
    n_shards: int
    n_tokens_in_shards: int
    n_excluded: int
    progress: dict[str, Any] | None  # in the words of the process that runs: rate, time left, what binds


def read_status(out: str | Path) -> Status:
    """Return how far the run in this folder is, or at this address: there, up to the last shard that was put."""
    with state_here(out) as folder:
        return status_in(folder, str(out))


def status_in(out: Path, name: str) -> Status:
    work = out / WORK
    if (out / MANIFEST).exists():
        manifest = load_manifest(out)
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
    try:
        plan = msgspec.json.decode((work / PLAN).read_bytes(), type=PlanRecord)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        raise OutputError(f"`{name}` is no output of tokenmill, finished or not") from None
    state = read_state(work / JOURNAL)
    holder = read_holder(work / LOCK)
    running = holder is not None and (holder.machine != machine_id() or process_born(holder.pid) == holder.born)
    receipts = state.units.values()
    return Status(
        state="running" if running else "stopped",
        owner=str(holder) if running else None,
        n_units=plan.n_units,
        n_units_done=len(receipts),
        n_documents=sum(receipt.n_documents for receipt in receipts),
        n_tokens=sum(receipt.n_tokens for receipt in receipts),
        n_text_bytes=sum(receipt.n_text_bytes for receipt in receipts),
        n_shards=len(state.shards),
        n_tokens_in_shards=sum(shard.n_tokens for shard in state.shards),
        n_excluded=sum(len(receipt.excluded) for receipt in receipts),
        progress=holder.progress if holder and running else None,
    )
