"""Runs on the cluster and on this machine, and what came of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from tokenmill.mill import prepare_recipe
from tokenmill.recipe import Recipe, RunOptions, recipe_from_mapping

UNIT_BYTES = 30_000
SHARDS = {"format": "llmc", "val": "none", "shard_tokens": 20_000}
DRIVER = """
import os, signal, sys, msgspec
from tokenmill.mill import prepare_recipe
from tokenmill.cluster import means
from tokenmill.recipe import Recipe, RunOptions
means.KEEP_SECONDS = 0
recipe, options, out, n_units = sys.argv[1:5]
def on_progress(progress):
    if progress.n_units_done >= int(n_units):
        os.kill(os.getpid(), signal.SIGKILL)
recipe, options = msgspec.json.decode(recipe, type=Recipe), msgspec.json.decode(options, type=RunOptions)
prepare_recipe(recipe, out, options, on_progress)
"""


def recipe_for(corpus: Path, **fields) -> Recipe:
    return recipe_from_mapping({"sources": [str(corpus)], **SHARDS, **fields}, where="the test")


def ray_options(cluster, **fields) -> RunOptions:
    return RunOptions(executor="ray", ray_address=cluster.address, unit_bytes=UNIT_BYTES, **fields)


def local_digests(recipe: Recipe, out: Path) -> dict[str, str]:
    prepare_recipe(recipe, out, RunOptions(workers=2, unit_bytes=UNIT_BYTES))
    return digests(out)


def digests(out: Path) -> dict[str, str]:
    """The SHA-256 of every file but the manifest, which says how the run went."""
    lines = (out / "SHA256SUMS").read_text().splitlines()
    pairs = (line.split("  ", 1) for line in lines)
    return {name: digest for digest, name in pairs if name != "manifest.json"}


def killed_driver(recipe: Recipe, out: Path | str, options: RunOptions, n_units: int, fault: str = "") -> None:
    """Run a driver that dies by SIGKILL when so many units are done, or at a point of `faults.py`."""
    given = [msgspec.json.encode(one).decode() for one in (recipe, options)]
    env = os.environ | ({"TOKENMILL_FAULT": fault} if fault else {})
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *given, str(out), str(n_units)], env=env, timeout=240, start_new_session=True
    )
    assert done.returncode == -signal.SIGKILL


def stations() -> list[int]:
    """The processes of stations on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::RayStation" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def fetched(s3, name: str, to: Path) -> Path:
    """A finished output of the S3 server, as files."""
    shutil.copytree(s3.folder / "bucket" / name, to)
    return to
