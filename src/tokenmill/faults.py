"""Named points between the steps of every commit, where the tests of `tests/faults/` end the process.

`TOKENMILL_FAULT=shard.renamed` kills the whole process group by SIGKILL when it comes to that point for the first
time; `shard.renamed:3` the third time. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

_WANTED, _, _TIMES = os.environ.get("TOKENMILL_FAULT", "").partition(":")
_n_passed = 0


def point(name: str) -> None:
    """Say that the process is between two steps of a commit."""
    if name == _WANTED:
        _die()


def _die() -> None:
    global _n_passed
    _n_passed += 1
    if _n_passed >= int(_TIMES or 1):
        os.killpg(0, signal.SIGKILL)
