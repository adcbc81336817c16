"""Named points between the steps of every commit, where the tests in `tests/faults/` and `tests/remote/` kill it.

`TOKENMILL_FAULT=shard.renamed` kills the whole process group by SIGKILL when it comes to that point for the first
time; `shard.renamed:3` the third time. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

_FILES = (
    "recipe", "plan", "segment", "pieces", "quarantine", "index", "shard", "side", "closing", "skipped", "sums",
    "manifest",
)  # fmt: skip
_RECEIPTS = ("unit", "scattered", "shard", "input", "checked")

# In about the order of a run. A point that is not listed here is a mistake, which a test finds.
POINTS = (
    "lock.written",
    "lock.taken",
    *(f"{role}.{step}" for role in _FILES for step in ("written", "synced", "renamed")),
    "sample.written",
    *(
        f"{kind}.{step}"
        for kind in _RECEIPTS
        for step in ("before-receipt", "half-receipt", "receipt-written", "receipt-synced")
    ),
    "segment.deleted",
    "stretch.deleted",
    "quarantine.swept",
    "work.before-removal",
    "work.folders-removed",
    "work.journal-removed",
    "work.plan.json-removed",
    "work.recipe.json-removed",
    "lock.released",
    "work.guard-removed",
    "over.begun",
    "over.file-removed",
    "over.done",
)

# Where something is elsewhere: tests/remote/ comes to these.
REMOTE_POINTS = (
    "download.part",
    "download.written",
    "download.removed",
    *(f"run.{step}" for step in ("written", "synced", "renamed", "put")),
    *(f"put.{step}" for step in ("before-receipt", "half-receipt", "receipt-written", "receipt-synced")),
    "shard.put",
    "shard.removed",
    "journal.put",
    "closing.put",
    "store.before-removal",
    "store.removed",
    "work.run-removed",
)

# Where several machines encode shares: tests/test_shares.py comes to these.
SHARE_POINTS = (*(f"share.{step}" for step in ("written", "synced", "renamed")), "shares.taken-in")

_wanted = ""
_n_left = 1


def arm(wanted: str) -> None:
    """Choose the point, `name` or `name:n`, at which this process is to die."""
    global _wanted, _n_left
    _wanted, _, times = wanted.partition(":")
    _n_left = int(times or 1)


def point(name: str) -> None:
    """Say that the process is between two steps of a commit."""
    if name == _wanted:
        _die()


def _die() -> None:
    global _n_left
    assert _wanted in POINTS + REMOTE_POINTS + SHARE_POINTS
    _n_left -= 1
    if _n_left == 0:
        os.killpg(0, signal.SIGKILL)


arm(os.environ.get("TOKENMILL_FAULT", ""))
