"""What we want to reach, and whether it is: a row for each target. Pure; nothing fails for a target that is missed."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any, NamedTuple

from benchmarks.figures import Record, is_measured, rate, taken

OURS = "tokenmill-2"
# Held against what is alike: nanoGPT's recipe against the same shuffled files, one thread against one worker.
OURS_AGAINST = {"nanogpt-2": "tokenmill-nanogpt", "engine": "tokenmill-1"}
# Rates per CPU second, start-up set apart: ours over theirs.
AT_LEAST = {
    "nanogpt-2": 30,
    "llmc": 18,
    "datatrove": 50,
    "megatron": 50,
    "litdata": 15,
    "streaming": 15,
    "dolma": 15,
    "encode-batch": 15,
    "encode-files": 0.9,
    "engine": 0.6,
}
FLAT_WITHIN = 1.1  # times: what counts as flat, noise included


class Check(NamedTuple):
    target: str
    wanted: str
    measured: str
    met: bool | None  # None: not measured


def checks(results: dict[str, Any]) -> list[Check]:
    """All targets, with what a benchmark measured."""
    sections = results["sections"]
    field, sizes = sections.get("field", {}), sections.get("sizes", {})
    rows = [against(field, name, least) for name, least in AT_LEAST.items()]
    rows += [
        at_least("2 workers against 1, wall time", 1.7, sections.get("workers", {}), "2 workers", "1 worker", wall),
        at_most("CPU per MB, 8 times the files against 1", FLAT_WITHIN, sizes, "8x", "1x", cost),
        at_most("peak memory, 8 times the files against 1", FLAT_WITHIN, sizes, "8x", "1x", peak_bytes),
        at_most("shuffled against corpus order", 1.4, sections.get("shuffle", {}), "shuffled", "corpus order", cost),
        at_most("JSONL against Parquet", 1.25, sections.get("formats", {}), "JSONL", "Parquet, zstd", cost),
        at_most("Ray against worker processes, both with 2", 1.3, sections.get("ray", {}), "ray", "processes", cost),
        one_mb(sections.get("start", {})),
        at_least(
            "`verify --checksums-only` against `sha256sum`",
            0.8,
            sections.get("verify", {}),
            "verify",
            "sha256sum",
            rate,
        ),
    ]
    return rows


def wall(record: Record) -> float:
    return rate(record, "wall_seconds")


def cost(record: Record) -> float:
    return 1 / rate(record)


def peak_bytes(record: Record) -> float:
    return float(record["first_run"]["peak_bytes"])


def ratio(section: dict[str, Record], name: str, other: str, what: Callable[[Record], float]) -> float | None:
    if not (is_measured(section.get(name)) and is_measured(section.get(other))):
        return None
    found = what(section[name]) / what(section[other])
    return None if isnan(found) else found


def at_least(
    target: str, least: float, section: dict[str, Record], name: str, other: str, what: Callable[[Record], float]
) -> Check:
    found = ratio(section, name, other, what)
    return Check(target, f"at least {least:g} times", times(found), None if found is None else found >= least)


def at_most(
    target: str, most: float, section: dict[str, Record], name: str, other: str, what: Callable[[Record], float]
) -> Check:
    found = ratio(section, name, other, what)
    return Check(target, f"at most {most:g} times", times(found), None if found is None else found <= most)


def against(field: dict[str, Record], name: str, least: float) -> Check:
    """Ours over theirs."""
    title = field[name]["title"] if name in field else name
    return at_least(title, least, field, OURS_AGAINST.get(name, OURS), name, rate)


def one_mb(section: dict[str, Record]) -> Check:
    record = section.get("2 workers")
    if record is None or not is_measured(record):
        return Check("a 1 MB job, wall time", "under 2 s", "not measured", None)
    seconds = taken(record, "wall_seconds").median
    return Check("a 1 MB job, wall time", "under 2 s", f"{seconds:.2f} s", seconds < 2)


def times(found: float | None) -> str:
    return "not measured" if found is None else f"{found:.3g} times"
