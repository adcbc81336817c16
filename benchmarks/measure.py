"""Cases -> what each took, round by round.

A case is a command and the source it works on, and maybe a small source, whose time is the case's start-up. The first
run of a case is not timed: its memory is polled and its output is checked. A case whose output is wrong, or that
fails, is not measured. Then the cases take turns, forward and backward, so that a noisy neighbor is everybody's; one
that takes seconds is run several times in its turn, for most of what it takes is start-up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).parent / "runner.py"
TURN_SECONDS = 8.0  # a case is run so long in its turn, or once
MAX_RUNS_A_TURN = 5
OWN_FIGURES = "own_figures.json"  # of a case that times a stretch of itself


class CaseError(Exception):
    """A command that failed: the end of what it said."""


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    command: Callable[[Path, Path], list[str]]  # source, out -> what to run
    source: Path
    n_bytes: int  # of text, or of whatever the case works on
    small_source: Path | None = None
    n_small_bytes: int = 0
    small_command: Callable[[Path, Path], list[str]] | None = None  # where it is not the same
    check: Callable[[Path], str | None] | None = None  # out -> what is wrong with it
    before: Callable[[Path, Path], None] | None = None  # source, out: what must be there already
    env: dict[str, str] = field(default_factory=dict)
    watched: bool = False  # its CPU time is looked at while it runs: not all of its processes are waited for


def measured(
    command: list[str], work: Path, out: Path, env: dict[str, str] | None = None, *, poll: str = "-"
) -> dict[str, Any]:
    """Run a command in an empty folder with empty caches, and return what its process tree took.

    `poll` is what runner.py looks at meanwhile.
    """
    scratch = work / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    report, log = work / "taken.json", work / "log.txt"
    report.unlink(missing_ok=True)
    given = os.environ | {"HF_HOME": str(scratch / "hf"), "TMPDIR": str(scratch), "HF_HUB_OFFLINE": "1"} | (env or {})
    os.sync()  # what the one before has not written yet is not this one's
    runner = [sys.executable, "-I", str(RUNNER), str(report), str(log), poll]
    # In a session of its own: some commands kill their process group.
    subprocess.run([*runner, *command], cwd=scratch, env=given, check=True, start_new_session=True)
    taken: dict[str, Any] = json.loads(report.read_text())
    shutil.rmtree(scratch, ignore_errors=True)
    if taken["exit_code"] != 0:
        tail = log.read_text(errors="replace").strip().splitlines()[-8:]
        raise CaseError("\n".join([f"exit code {taken['exit_code']} of {' '.join(command)}", *tail]))
    own = out / OWN_FIGURES
    return taken | (json.loads(own.read_text()) if own.exists() else {})


def measured_cases(
    cases: Iterable[Case], rounds: int, work: Path, say: Callable[[str], None] = lambda line: None
) -> dict[str, dict[str, Any]]:
    """Measure cases in turns; return for each its facts, its rounds, and its first run."""
    out = work / "out"

    def run(case: Case, source: Path, *, memory: bool = False, small: bool = False) -> dict[str, Any]:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        if case.before:
            case.before(source, out)
        command = (case.small_command if small else None) or case.command
        poll = "memory" if memory else "cpu" if case.watched else "-"
        return measured(command(source, out), work, out, case.env, poll=poll)

    records: dict[str, dict[str, Any]] = {}
    good = []
    for case in cases:
        record: dict[str, Any] = {
            "title": case.title,
            "n_bytes": case.n_bytes,
            "n_small_bytes": case.n_small_bytes,
            "rounds": [],
            "small_rounds": [],
        }
        records[case.name] = record
        try:
            record["first_run"] = run(case, case.source, memory=True)
            record["n_out_bytes"] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
            record["wrong"] = case.check(out) if case.check else None
            record["checked"] = case.check is not None
        except Exception as error:  # an output that cannot be read is wrong too
            record["wrong"] = f"{type(error).__name__}: {error}"
        if record["wrong"] is None:
            good.append(case)
        say(f"{case.name}: {record['wrong'] or 'checked'}" if case.check else f"{case.name}: ran")

    def take_turn(case: Case, number: int) -> None:
        record = records[case.name]
        for _ in range(runs_a_turn(record)):
            last = run(case, case.source)
            small = run(case, case.small_source, small=True) if case.small_source else None
            record["rounds"].append(last)
            record["small_rounds"] += [small] if small else []
            say(f"round {number}: {case.name} {last['wall_seconds']:.2f} s, {last['cpu_seconds']:.2f} CPU s")

    for number in range(1, rounds + 1):
        for case in good if number % 2 else reversed(good):
            record = records[case.name]
            if record["wrong"] is not None:
                continue
            try:
                take_turn(case, number)
            except CaseError as error:  # hours of other rounds are not lost for it
                record["wrong"] = f"round {number}: {error}"
                say(f"{case.name}: {record['wrong']}")
    shutil.rmtree(out, ignore_errors=True)
    return records


def runs_a_turn(record: dict[str, Any]) -> int:
    return max(1, min(MAX_RUNS_A_TURN, int(TURN_SECONDS / record["first_run"]["wall_seconds"])))
