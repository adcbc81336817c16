"""SIGKILL of a whole run at random moments, again and again until it finishes; used by the tests and by torture.py."""

import hashlib
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    HangError,
    digests,
    journal_events,
    journal_of,
    leftovers,
    size_of,
    start,
    wait_until,
)

from tokenmill.journal import ShardSealed, UnitDone

SMALL = {"unit_bytes": 40_000, "batch_bytes": 10_000, "bucket_bytes": 200_000, "workers": 2}
RECIPES = {
    "nanogpt, shuffled": {"format": "nanogpt", "val": 0.01},
    "llmc": {"format": "llmc", "shard_tokens": 20_000},
    "npy": {"format": "npy", "shard_tokens": 30_000},
    "llmc up to a limit of tokens": {"format": "llmc", "shard_tokens": 20_000, "limit_tokens": 250_000},
    "llmc, shuffled by key": {"format": "llmc", "shard_tokens": 20_000, "shuffle": "keyed:7"},
    "npy with the first documents as val": {"format": "npy", "shard_tokens": 25_000, "val": 100},
    "npy without end-of-text": {"format": "npy", "shard_tokens": 25_000, "eot": "none"},
}


@dataclass
class Torture:
    """What happened to one output until it was done."""

    n_kills: int = 0
    seconds: float = 0.0
    killed_at: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)  # each begins with `difference`, `hang`, `orphan` or `leftover`


def torture(recipe: dict, out: Path, expected: dict[str, str], rng: random.Random, max_kills: int) -> Torture:
    """Kill a run until it finishes, at most so many times, and then compare it with an undisturbed one."""
    told, spec = Torture(), {"recipe": recipe, "out": str(out), "options": SMALL}
    began, journal_copy = time.monotonic(), out.with_name(out.name + ".journal")
    sealed: dict[str, tuple[int, int]] = {}
    while True:
        run = start(spec)
        try:
            if told.n_kills >= max_kills or not killed(run, out, rng, told):
                ended = run.wait()
                break
            ended = run.wait()
        except HangError as error:
            told.problems.append(f"hang: {error}")
            return told
        told.n_kills += 1
        told.problems += [f"orphan: {process}" for process in ended.orphans]
        told.problems += [f"difference: {what}" for what in half_done(out, expected)]
        if journal_of(out).exists():
            events = journal_events(journal_of(out))
            told.problems += [f"difference: {what}" for what in changed_shards(out, events, sealed)]
            if not journal_copy.exists():
                os.link(journal_of(out), journal_copy)  # the run deletes its own name of it at the end
    told.seconds = time.monotonic() - began
    told.problems += [f"orphan: {process}" for process in ended.orphans]
    if ended.code != 0:
        told.problems.append(f"difference: exit code {ended.code}: {ended.said}")
        return told
    events = journal_events(journal_copy) if journal_copy.exists() else []
    journal_copy.unlink(missing_ok=True)
    told.problems += [f"difference: {what}" for what in changed_shards(out, events, sealed)]
    n_encoded = Counter((e.receipt.unit, e.receipt.cut) for e in events if isinstance(e, UnitDone))
    told.problems += [f"difference: unit {unit} was encoded {n} times" for unit, n in n_encoded.items() if n > 1]
    found = digests(out)
    told.problems += [f"difference: {name}" for name in sorted(expected) if found.get(name) != expected[name]]
    told.problems += [f"leftover: {name}" for name in [*sorted(found.keys() - expected.keys()), *leftovers()]]
    told.problems += [f"leftover: {path}" for path in out.rglob("*") if path.is_dir() and path.name not in ("index",)]
    return told


def killed(run, out: Path, rng: random.Random, told: Torture) -> bool:
    """Kill a run at a random moment, chosen by what it has done: most of its life is the start of interpreters."""
    size = size_of(journal_of(out))
    moment = rng.choice(["start", "units", "units", "shards", "shards", "end"])
    if moment == "start":
        if not wait_until(lambda: (out / ".work").exists() or not run.running, run=run):
            return False
        time.sleep(rng.uniform(0, 0.8))
    elif moment == "units":
        wait_until(lambda: size_of(journal_of(out)) > size + rng.randrange(1, 4000), run=run)
        time.sleep(rng.uniform(0, 0.1))
    elif moment == "shards":
        n_files = len(list(out.glob("*.*")))
        wait_until(lambda: len(list(out.glob("*.*"))) > n_files, run=run)
        time.sleep(rng.uniform(0, 0.05))
    else:
        wait_until(lambda: (out / "SHA256SUMS.partial").exists() or (out / "SHA256SUMS").exists(), run=run)
        time.sleep(rng.uniform(0, 0.01))
    if not run.running:
        return False
    run.kill_group()
    told.killed_at[moment] += 1
    return True


def half_done(out: Path, expected: dict[str, str]) -> list[str]:
    """Files under a final name that are not what they will be."""
    wrong = []
    for path in [*out.glob("*.*"), *(out / "index").glob("*")]:
        name = path.relative_to(out).as_posix()
        if name in expected and hashlib.sha256(path.read_bytes()).hexdigest() != expected[name]:
            wrong.append(f"{name} was half-done under its final name")
    return wrong


def changed_shards(out: Path, events: list, sealed: dict[str, tuple[int, int]]) -> list[str]:
    """Sealed shards that were written again: another inode or time than at an earlier kill."""
    wrong = []
    for event in events:
        if isinstance(event, ShardSealed):
            status = (out / event.receipt.file).stat()
            now = status.st_ino, status.st_mtime_ns
            if sealed.setdefault(event.receipt.file, now) != now:
                wrong.append(f"{event.receipt.file} was sealed and written again")
    return wrong
