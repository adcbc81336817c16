"""Runs that are ended by SIGKILL and started again: `python killed.py SPEC FOLDER`, for test_formats.py.

Each run is a fork of this process, which has everything imported. FOLDER/whole is the output of a run that nobody
disturbed, FOLDER/killed that of the others together.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import tokenmill.executors.inline
import tokenmill.shuffle
import tokenmill.verification  # noqa: F401
from tokenmill import faults
from tokenmill.mill import prepare_recipe
from tokenmill.recipe import RunOptions, recipe_from_mapping

# At the end of a shard's files in each order that they come in, and at the end of the run; None: at a random moment.
POINTS = ["index.renamed:2", "shard.renamed:2", "side.renamed", None, "closing.renamed"]


def started(spec: dict, out: Path, fault: str = "") -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    faults.arm(fault)
    code = 1
    try:
        prepare_recipe(recipe_from_mapping(spec["recipe"], where="spec"), out, RunOptions(**spec["options"]))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(spec: dict, folder: Path) -> None:
    began = time.monotonic()
    assert ended(started(spec, folder / "whole")) == 0
    seconds = time.monotonic() - began
    rng = random.Random()  # noqa: S311 - any moment will do
    n_killed = 0
    for fault in POINTS:
        if fault is None:
            pid = started(spec, folder / "killed")
            time.sleep(rng.random() * seconds)
            os.kill(pid, signal.SIGKILL)
        else:
            pid = started(spec, folder / "killed", fault)
        code = ended(pid)
        assert code in (0, -9), (fault, code)
        n_killed += code == -9
        if code == 0:  # the format has no such file, or it was done by then
            shutil.rmtree(folder / "killed")
    assert ended(started(spec, folder / "killed")) == 0
    sys.stdout.write(json.dumps({"n_killed": n_killed}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
