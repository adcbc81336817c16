"""Facts about the machine, as far as a run depends on them: cores, memory, the limits of control groups.

In: a file system, `/` by default. Out: numbers, or None for what is not known here (other systems than Linux have
neither /proc nor /sys). Nothing is judged: that is `doctor/machine.py`.

A process is in one control group of each hierarchy, and every group above it limits it too:

    /proc/self/cgroup   0::/user.slice/job-7              version 2
                        4:memory:/docker/0a1b             version 1
    files below         /sys/fs/cgroup/user.slice/job-7   up to /sys/fs/cgroup
                        /sys/fs/cgroup/memory/docker/0a1b up to /sys/fs/cgroup/memory

Inside a container the path may be that of the host; what is not there is passed over, and the root of the hierarchy
is then the container's own group.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
# Measured with gpt2 on 109 MB of English: 0.48 GB with two workers.
PARENT_BYTES = 160_000_000
WORKER_BYTES = 160_000_000
# What a worker may grow to: an engine's cache grows with the variety of words, up to half a gigabyte.
WORKER_MAX_BYTES = 500_000_000
# Version 1 writes "no limit" as the largest multiple of a page; no machine has an exabyte.
NO_LIMIT = 1 << 60


def usable_cores() -> int:
    """Cores this process may run on: all, or those of its affinity (taskset, cpuset, Slurm)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPU time that the control groups allow, in cores: 1.5 is one core and a half; None where nothing limits it."""
    quotas = []
    for folder in group_folders("cpu", root):
        quota, _, period = (first_line(folder / "cpu.max") or "").partition(" ")
        if not quota:
            quota = first_line(folder / "cpu.cfs_quota_us") or ""
            period = first_line(folder / "cpu.cfs_period_us") or ""
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):  # not `max`, not -1
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def cpu_count(root: Path = ROOT) -> int:
    """Processes that can work at the same time: usable cores, bounded by the CPU quota rounded up."""
    quota = cpu_quota(root)
    return usable_cores() if quota is None else min(usable_cores(), math.ceil(quota))


def physical_memory(root: Path = ROOT) -> int | None:
    """Bytes of memory of the machine."""
    kilobytes = keyed_number(root / "proc/meminfo", "MemTotal:")
    return None if kilobytes is None else kilobytes * 1024


def available_memory(root: Path = ROOT) -> int | None:
    """Bytes of memory that could be taken now without swapping, by the kernel's estimate."""
    kilobytes = keyed_number(root / "proc/meminfo", "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def memory_limit(root: Path = ROOT) -> int | None:
    """The smallest memory limit of the control groups this process is in; None where there is none."""
    limits: list[int | None] = []
    for folder in group_folders("memory", root):
        limits += [number(first_line(folder / name)) for name in ("memory.max", "memory.limit_in_bytes")]
        # Version 1 tells here of groups above that a container does not see.
        limits.append(keyed_number(folder / "memory.stat", "hierarchical_memory_limit"))
    return min((limit for limit in limits if limit is not None and limit < NO_LIMIT), default=None)


def oom_kills(root: Path = ROOT) -> int | None:
    """Processes of this control group that the kernel killed for memory, so far; None where no group counts them."""
    for folder in group_folders("memory", root):
        for name in ("memory.events", "memory.oom_control"):
            if (killed := keyed_number(folder / name, "oom_kill")) is not None:
                return killed
    return None


def system_oom_kills(root: Path = ROOT) -> int | None:
    """Processes of the whole machine that the kernel killed for memory since it started."""
    return keyed_number(root / "proc/vmstat", "oom_kill")


def shared_memory(root: Path = ROOT) -> tuple[int, int] | None:
    """Size and free bytes of /dev/shm."""
    folder = root / "dev/shm"
    if not folder.is_dir():
        return None
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free


def open_file_limit() -> int | None:
    """Files that a process may have open at a time (the soft limit); None where there is no limit or none is known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def installed_version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # it takes a while, and few ask

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def group_folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups this process is in, innermost first."""
    for line in lines_of(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":  # version 2, alone or beside version 1
            mounts = ["", "unified"]
        elif controller in controllers.split(","):
            mounts = list(dict.fromkeys([controllers, controller]))  # `cpu,cpuacct`, and its link `cpu`
        else:
            continue
        parts = [part for part in path.split("/") if part]
        if ".." in parts:  # outside of what this namespace sees
            parts = []
        for mount in mounts:
            for n_parts in range(len(parts), -1, -1):
                folder = root.joinpath("sys/fs/cgroup", mount, *parts[:n_parts])
                if folder.is_dir():
                    yield folder


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not there, or not ours to read: not known
        return []


def first_line(path: Path) -> str | None:
    return next(iter(lines_of(path)), None)


def number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def keyed_number(path: Path, key: str) -> int | None:
    """The number behind a key, in a file of lines like `oom_kill 3` or `MemTotal: 16384 kB`."""
    for line in lines_of(path):
        words = line.split()
        if len(words) > 1 and words[0] == key:
            return number(words[1])
    return None
