"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def machine_facts() -> dict[str, Any]:
    return {
        "cpu": cpu_name(),
        "n_cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],  # above a few tenths, somebody else was working too
    }


def cpu_name() -> str:
    found = re.search(r"^(?:model name|CPU part)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"
