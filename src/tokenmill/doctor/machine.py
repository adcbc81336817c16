"""Facts about this machine -> a verdict on each, for a run with so many workers into such a folder.

`machine_facts` reads; `verdicts` judges, and is pure. "will bite" means that a run is going to die of it.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Literal

import msgspec

from tokenmill import machine
from tokenmill.machine import PARENT_BYTES, ROOT, WORKER_MAX_BYTES, installed_version
from tokenmill.storage.local import existing_folder

PACKAGES = ("tiktoken", "gigatoken", "tokenizers", "datasets", "pyarrow", "numpy")
# Of the memory, what is left to the file cache and to whatever else runs.
SPARE_SHARE = 0.25
# Pipes of a worker, and what a run has open besides.
FILES_PER_WORKER, FILES_OF_A_RUN = 4, 64
# What Docker gives a container that asks for nothing is 64 MB.
SMALL_SHARED_BYTES = 256_000_000
# The smallest corpus that people pre-train on, FineWeb's 10B sample, takes 20 GB.
LITTLE_DISK_BYTES, NO_DISK_BYTES = 20_000_000_000, 1_000_000_000
UNKNOWN = "not known here"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; None is what is not known here, or not limited."""

    cores: int
    usable_cores: int
    cpu_quota: float | None
    cpu_count: int
    memory_bytes: int | None
    available_memory_bytes: int | None
    memory_limit_bytes: int | None
    oom_kills: int | None
    system_oom_kills: int | None
    shared_memory_bytes: int | None
    shared_memory_free_bytes: int | None
    out: str
    disk_free_bytes: int
    out_writable: bool
    open_files: int | None
    start_method: str
    python: str
    versions: dict[str, str | None]
    required: dict[str, str]


class Verdict(msgspec.Struct, frozen=True):
    about: str
    found: str
    verdict: Literal["ok", "note", "will bite"] = "ok"
    remedy: str | None = None


def machine_facts(out: Path, root: Path = ROOT) -> Facts:
    """Read what there is to know; `out` is where shards would go, there or not."""
    folder = existing_folder(out)
    shared = machine.shared_memory(root) or (None, None)
    return Facts(
        cores=os.cpu_count() or 1,
        usable_cores=machine.usable_cores(),
        cpu_quota=machine.cpu_quota(root),
        cpu_count=machine.cpu_count(root),
        memory_bytes=machine.physical_memory(root),
        available_memory_bytes=machine.available_memory(root),
        memory_limit_bytes=machine.memory_limit(root),
        oom_kills=machine.oom_kills(root),
        system_oom_kills=machine.system_oom_kills(root),
        shared_memory_bytes=shared[0],
        shared_memory_free_bytes=shared[1],
        out=str(out),
        disk_free_bytes=shutil.disk_usage(folder).free,
        out_writable=os.access(folder, os.W_OK),
        open_files=machine.open_file_limit(),
        # The first one is the default; asking for the one in force would settle it for this process.
        start_method=multiprocessing.get_all_start_methods()[0],
        python=platform.python_version(),
        versions={name: installed_version(name) for name in PACKAGES},
        required=required_versions(),
    )


def verdicts(facts: Facts, workers: int | None = None) -> list[Verdict]:
    """Judge each fact, for a run with `workers`, or as many as a run takes by default."""
    n_workers = facts.cpu_count if workers is None else workers
    return [
        cores_verdict(facts, n_workers),
        memory_verdict(facts, n_workers),
        oom_verdict(facts),
        shared_memory_verdict(facts),
        disk_verdict(facts),
        open_files_verdict(facts, n_workers),
        start_method_verdict(facts),
        Verdict("Python", facts.python),
        *(version_verdict(name, facts.versions[name], facts.required.get(name)) for name in PACKAGES),
    ]


def cores_verdict(facts: Facts, n_workers: int) -> Verdict:
    found = f"{facts.cores}"
    if facts.usable_cores < facts.cores:
        found += f", of which this process may use {facts.usable_cores}"
    if facts.cpu_quota is not None:
        found += f", with a CPU quota of {facts.cpu_quota:.3g}"
    if n_workers > facts.cpu_count:
        remedy = f"{n_workers} workers only wait for each other: pass `--workers {facts.cpu_count}`"
        return Verdict("cores", found, "note", remedy)
    if facts.cpu_count < facts.cores:
        remedy = f"scripts that ask os.cpu_count() start {facts.cores} processes: give them {facts.cpu_count}"
        return Verdict("cores", found, "note", remedy)
    return Verdict("cores", found)


def memory_verdict(facts: Facts, n_workers: int) -> Verdict:
    sizes = [size for size in (facts.memory_bytes, facts.memory_limit_bytes) if size is not None]
    if not sizes:
        return Verdict("memory", UNKNOWN)
    room, each = min(sizes), WORKER_MAX_BYTES
    found = "" if facts.memory_bytes is None else gigabytes(facts.memory_bytes)
    if facts.memory_limit_bytes is not None:
        found += f", limited to {gigabytes(facts.memory_limit_bytes)} by a control group"
    if facts.available_memory_bytes is not None:
        found += f", {gigabytes(facts.available_memory_bytes)} free"
    found = found.removeprefix(", ")
    need = PARENT_BYTES + n_workers * each
    n_fitting = int((room * (1 - SPARE_SHARE) - PARENT_BYTES) // each)
    plural = "worker" if n_workers == 1 else "workers"
    if n_fitting < 1:
        remedy = f"not even 1 worker at {gigabytes(each)} is sure to fit in {gigabytes(room)}: give it more memory"
        return Verdict("memory", found, "will bite", remedy)
    if n_workers > n_fitting:
        remedy = (
            f"{n_workers} {plural} at {gigabytes(each)} do not fit in {gigabytes(room)},"
            f" a quarter of it left to the system: pass `--workers {min(n_fitting, facts.cpu_count)}`"
        )
        return Verdict("memory", found, "will bite", remedy)
    if facts.available_memory_bytes is not None and facts.available_memory_bytes < need:
        remedy = f"{n_workers} {plural} may take {gigabytes(need)}, and others use the memory now: wait, or pass fewer"
        return Verdict("memory", found, "note", remedy)
    return Verdict("memory", found)


def oom_verdict(facts: Facts) -> Verdict:
    group, system = facts.oom_kills, facts.system_oom_kills
    if group is None and system is None:
        return Verdict("out of memory", UNKNOWN)
    found = [] if group is None else [f"{group} killed in this control group"]
    found += [] if system is None else [f"{system} on this machine since it started"]
    if not group and not system:
        return Verdict("out of memory", "nothing was killed so far")
    remedy = 'the kernel killed processes for memory: that is what "abruptly died" hides; pass fewer `--workers`'
    return Verdict("out of memory", ", ".join(found), "note", remedy)


def shared_memory_verdict(facts: Facts) -> Verdict:
    if facts.shared_memory_bytes is None or facts.shared_memory_free_bytes is None:
        return Verdict("shared memory", UNKNOWN)
    found = f"{gigabytes(facts.shared_memory_bytes)} of /dev/shm, {gigabytes(facts.shared_memory_free_bytes)} free"
    if facts.shared_memory_free_bytes < SMALL_SHARED_BYTES:
        remedy = "tokenmill uses none, but workers of a PyTorch DataLoader do: `docker run --shm-size=2g`"
        return Verdict("shared memory", found, "note", remedy)
    return Verdict("shared memory", found)


def disk_verdict(facts: Facts) -> Verdict:
    n_tokens = facts.disk_free_bytes / 2
    found = f"{gigabytes(facts.disk_free_bytes)} free in {facts.out}, room for {n_tokens / 1e9:.3g}B GPT-2 tokens"
    if not facts.out_writable:
        return Verdict("disk", found, "will bite", f"`{facts.out}` cannot be written: pass another folder with `-o`")
    if facts.disk_free_bytes < NO_DISK_BYTES:
        return Verdict("disk", found, "will bite", "make room, or pass another folder with `-o`")
    if facts.disk_free_bytes < LITTLE_DISK_BYTES:
        return Verdict("disk", found, "note", "10B tokens take 20 GB; `tokenmill plan` says what a corpus takes")
    return Verdict("disk", found)


def open_files_verdict(facts: Facts, n_workers: int) -> Verdict:
    if facts.open_files is None:
        return Verdict("open files", "no limit known")
    need = FILES_OF_A_RUN + FILES_PER_WORKER * n_workers
    found = f"{facts.open_files:,} at a time"
    if facts.open_files < need:
        return Verdict("open files", found, "will bite", f"a run may need {need:,}: `ulimit -n {max(1024, need)}`")
    return Verdict("open files", found)


def start_method_verdict(facts: Facts) -> Verdict:
    found = f"{facts.start_method} (of multiprocessing; tokenmill does without)"
    if facts.start_method == "fork":
        return Verdict("start method", found)
    remedy = 'a script without `if __name__ == "__main__":` starts itself over and over: `tokenmill doctor SCRIPT.py`'
    return Verdict("start method", found, "note", remedy)


def version_verdict(name: str, version: str | None, required: str | None) -> Verdict:
    if version is None and required is None:
        return Verdict(name, "not installed, and not needed by `tokenmill prepare`")
    if version is None:
        return Verdict(name, "not installed", "will bite", f"tokenmill needs it: `pip install '{name}{required}'`")
    if required is not None and not satisfies(version, required):
        return Verdict(name, version, "will bite", f"tokenmill needs {required}: `pip install '{name}{required}'`")
    if name == "datasets" and numbers(version) >= (4, 1):
        remedy = "`num_proc=1` starts a worker too: leave `num_proc` out to stay in the main process"
        return Verdict(name, version, "note", remedy)
    return Verdict(name, version)


def required_versions() -> dict[str, str]:
    """What tokenmill asks of its packages, such as `>=0.10,<0.11`; extras are left out."""
    try:
        lines = importlib.metadata.requires("tokenmill") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that was never installed
        return {}
    matches = (re.match(r"([A-Za-z0-9_-]+)([<>=][^;]*)$", line.replace(" ", "")) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def satisfies(version: str, required: str) -> bool:
    """Whether a version is in a range like `>=0.10,<0.11`, the only kind that we write."""
    for bound in required.split(","):
        limit = numbers(bound.lstrip("<>="))
        if bound.startswith(">=") and numbers(version) < limit:
            return False
        if bound.startswith("<") and numbers(version) >= limit:
            return False
    return True


def numbers(version: str) -> tuple[int, ...]:
    """0.10.2rc1 -> (0, 10, 2)."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


def gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.3g} GB"
