"""The driver of a cluster at the size of FineWeb's 15 trillion tokens, on one machine.

    python -m benchmarks.simulate                      25,000 files, 1.4 million units, 512 nodes; some minutes
    python -m benchmarks.simulate --quick              a thousandth of it: does it work?
    python -m benchmarks.simulate --parts plan,crew --nodes 64

What the driver does is real: planner, journal, ledger, crew, cutting, manifest. What nodes would do is made up
(simulated.py). Each part is a process of its own, so that its peak of memory is its own. The figures go to stdout.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import msgspec
import numpy as np

from benchmarks.machine import machine_facts
from benchmarks.simulated import FINEWEB, QUICK, Corpus, MadeUpCluster, Scale, shard_receipt
from tokenmill import __version__
from tokenmill.beginning import plan_record
from tokenmill.calibrate import EngineChoice, engine_choice
from tokenmill.cluster.crew import Crew
from tokenmill.cluster.cutting import shard_tasks
from tokenmill.cluster.means import ClusterMeans
from tokenmill.cluster.station import About, versions
from tokenmill.errors import RecipeError
from tokenmill.executors import Mishap
from tokenmill.executors.ledger import Ledger
from tokenmill.fetching import AllHere
from tokenmill.home import LocalHome
from tokenmill.journal import Journal, UnitDone
from tokenmill.manifest import MANIFEST, SUMS, seal
from tokenmill.means import job_for, recorded
from tokenmill.progress import Progress
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt
from tokenmill.shuffle import keyed_permutation, numpy_permutation
from tokenmill.storage.objects import PART_BYTES, WHOLE_BYTES
from tokenmill.workspace import workspace

Figures = dict[str, Any]
COLUMNS = ("seconds", "wall seconds", "peak MB")  # those with a column of their own
BATCH_UNITS = 1_000  # recorded together: what comes in one turn of a driver with some thousand stations
PERMUTED, PERMUTED_RUNS = 4_000_000, 64  # documents whose positions are asked for, and in how many calls
HERE = About("driver", 1, sees_out=True, missing_input=None, versions={"tokenmill": __version__})


class Clock:
    """CPU seconds by stage: who else works on the machine does not count."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = process_time()

    def lap(self, stage: str, *, less: float = 0.0) -> None:
        now = process_time()
        self.seconds[stage] = round(now - self._last - less, 2)
        self._last = now


class Quiet:
    """Hears what a crew says, and counts it."""

    def __init__(self) -> None:
        self.n_mishaps = Counter[str]()

    def beat(self, beat: Any) -> None: ...
    def tick(self) -> None: ...
    def mishap(self, mishap: Mishap) -> None:
        self.n_mishaps[mishap.kind] += 1


def plan(corpus: Corpus, folder: Path) -> Figures:
    """A listing is cut into units, and the plan recorded as at the start of a run."""
    inputs, clock = corpus.inputs(), Clock()
    made = corpus.plan
    clock.lap("cut")
    record = msgspec.json.encode(plan_record(made))
    clock.lap("record")
    return {"files": len(inputs), "units": len(made.units), "plan.json MB": mb(len(record)), "seconds": clock.seconds}


def journal(corpus: Corpus, folder: Path) -> Figures:
    """Every unit's receipt goes to the journal, a turn's together."""
    corpus.counts  # noqa: B018 - made before the clock runs
    kept, seconds = Journal(folder / "journal"), 0.0
    for receipts in batches(corpus.receipt(unit.index) for unit in corpus.plan.units):
        began = process_time()
        kept.record(*map(UnitDone, receipts))
        seconds += process_time() - began
    kept.close()
    n_bytes = (folder / "journal").stat().st_size
    return {"units": len(kept.state.units), "journal MB": mb(n_bytes), "seconds": {"record": round(seconds, 2)}}


def resume(corpus: Corpus, folder: Path) -> Figures:
    """The journal of the part before is read, as by a run that goes on."""
    clock = Clock()
    kept = Journal(folder / "journal")
    clock.lap("read")
    n_tokens = sum(receipt.n_tokens for receipt in kept.state.units.values())
    clock.lap("go through")
    kept.close()
    return {"units": len(kept.state.units), "tokens": n_tokens, "seconds": clock.seconds}


def crew(corpus: Corpus, folder: Path) -> Figures:
    """Units are handed to stations and their receipts taken; some nodes are slow, and some go and come again."""
    corpus.counts  # noqa: B018
    cluster, heard = MadeUpCluster(corpus, HERE), Quiet()
    n_stations = len(cluster.names)
    ledger = Ledger(corpus.plan.units, AllHere(), n_stations, use_reference=False)
    clock, n_tokens, n_units = Clock(), 0, 0
    driver = Crew(cluster, ledger, heard, HERE, cluster.now)
    for receipt in driver.encode():
        n_tokens += receipt.n_tokens
        n_units += 1
        driver.hashed.clear()  # as whoever records them does
    pretending = cluster.seconds
    clock.lap("hand out and take", less=pretending)
    return {
        "units": n_units,
        "tokens": n_tokens,
        "stations": n_stations,
        "turns": cluster.n_turns,
        "units a second": round(n_units / max(clock.seconds["hand out and take"], 0.01)),
        "answers lost": cluster.n_lost,
        "units asked for": cluster.n_asked["encode"],
        "inputs fetched, each time counted": round(len(cluster.fetched) / len(corpus.plan.inputs), 2),
        "seconds": clock.seconds | {"pretending": round(pretending, 2)},
    }


def cutting(corpus: Corpus, folder: Path) -> Figures:
    """Units, as they come, are cut into shards; without val, and with the first shard as val."""
    corpus.counts  # noqa: B018
    figures: Figures = {}
    clock = Clock()
    for val, n_val_documents in (("none", 0), ("shard", None)):
        recipe, n_shards, n_tokens, n_bytes, n_stretches = corpus.recipe(val), 0, 0, 0, 0
        for task in shard_tasks(corpus.stretches(), recipe, n_val_documents, no_lengths):
            n_shards += 1
            n_stretches += len(task.segments)
            n_bytes += len(msgspec.json.encode(task))
            n_tokens += shard_receipt(task, corpus.scale.shard_tokens).n_tokens
        clock.lap(f"val {val}")
        figures |= {f"shards, val {val}": n_shards, f"tokens, val {val}": n_tokens}
    segments = round(n_stretches / n_shards, 2)
    return figures | {"segments a shard": segments, "task bytes": n_bytes // n_shards, "seconds": clock.seconds}


def no_lengths(stretch: Any) -> Any:
    raise AssertionError("shards of so many tokens are cut without the lengths of documents")


def permutation(corpus: Corpus, folder: Path) -> Figures:
    """Where some million documents of all of them go; and nanoGPT's own order, which is refused."""
    n, clock = corpus.scale.n_documents, Clock()
    positions, run = keyed_permutation(n, 42), np.arange(PERMUTED // PERMUTED_RUNS, dtype=np.uint64)
    starts = np.linspace(0, n - len(run), PERMUTED_RUNS).astype(np.uint64)
    taken = np.concatenate([positions(start + run) for start in starts])
    clock.lap("keyed")
    assert int(taken.max()) < n
    assert len(np.unique(taken)) == len(taken), "two documents at one position"
    refused = "no"
    try:
        if n > 10**8:  # less would be made
            numpy_permutation(n, 42)
    except RecipeError as error:
        refused = f"{error.message}; {error.hint}"
    rate = round(len(taken) / clock.seconds["keyed"] / 1e6, 2)
    return {"million documents a second": rate, "numpy refused": refused, "seconds": clock.seconds}


def whole(corpus: Corpus, folder: Path) -> Figures:
    """All of it together, as a run on a cluster does it: plan, workspace, means of a cluster, seal."""
    clock, recipe = Clock(), corpus.recipe()
    engine: EngineChoice = engine_choice(recipe, corpus.plan)
    made, options = corpus.plan, RunOptions(executor="ray", workers=corpus.scale.n_nodes * corpus.scale.n_stations)
    corpus.counts  # noqa: B018
    clock.lap("plan")
    out = folder / "out"
    with workspace(LocalHome(out), recipe, made) as space:
        job = job_for(space, engine, options)
        cluster = MadeUpCluster(corpus, replace_versions(HERE, versions(job)))
        progress = Progress(made, options, space.journal.state, None)
        means = ClusterMeans(space, job, list(made.units), options, progress, cluster)
        means.crew.now = cluster.now
        clock.lap("begin")
        receipts, shards = means.assemble(recorded(space, means))
        clock.lap("units and shards", less=cluster.seconds)
        if learned := means.finish():
            space.journal.record(*learned)
        means.close()
        n_journal_bytes = (space.work / "journal").stat().st_size
        manifest = seal(out, recipe, made, engine, space.journal.state, receipts, shards, progress.record(0.0))
        clock.lap("seal")
    n_job_bytes = len(msgspec.json.encode(job))
    return {
        "units": len(made.units),
        "shards": manifest.totals.n_shards,
        "tokens": manifest.totals.n_tokens,
        "documents": manifest.totals.n_documents,
        "journal MB": mb(n_journal_bytes),
        "manifest MB": mb((out / MANIFEST).stat().st_size),
        "SHA256SUMS MB": mb((out / SUMS).stat().st_size),
        "job MB": mb(n_job_bytes),
        "MB to stations": mb(cluster.n_bytes["tasks"]),
        "MB from stations": mb(cluster.n_bytes["answers"]),
        "mishaps": len(progress.mishaps),
        "inputs fetched, each time counted": round(len(cluster.fetched) / len(made.inputs), 2),
        "seconds": clock.seconds | {"pretending": round(cluster.seconds, 2)},
    }


def replace_versions(about: About, known: dict[str, str]) -> About:
    return msgspec.structs.replace(about, versions=known)


def requests(corpus: Corpus, folder: Path) -> Figures:
    """What the store is asked for, counted from the sizes: nothing of it is sent."""
    scale, n_units = corpus.scale, len(corpus.plan.units)
    n_shards = -(-scale.n_tokens // scale.shard_tokens)
    unit_bytes = (2 * scale.n_tokens + 8 * scale.n_documents) // n_units
    index_bytes = 29 * scale.n_documents // n_shards
    n_stations = scale.n_nodes * scale.n_stations
    segments_a_shard = scale.shard_tokens / (scale.n_tokens / n_units) + 1
    puts = {
        "segments": n_units * n_puts(unit_bytes),
        "shards": n_shards * n_puts(2 * scale.shard_tokens),
        "indexes": n_shards * n_puts(index_bytes),
        "journal parts, at most": n_shards,
        "stations": n_stations,
    }
    gets = {
        "inputs, once each": scale.n_files,
        "segments": round(n_shards * segments_a_shard),
        "stations": n_stations,
    }
    lists = {"inputs": -(-scale.n_files // 1000), "output, to go on": -(-(n_units + 3 * n_shards) // 1000)}
    figures: Figures = {f"PUT, {name}": n for name, n in puts.items()} | {f"GET, {name}": n for name, n in gets.items()}
    figures |= {f"LIST, {name}": n for name, n in lists.items()}
    return figures | {"PUT": sum(puts.values()), "GET": sum(gets.values()), "LIST": sum(lists.values()), "seconds": {}}


def n_puts(n_bytes: int) -> int:
    """Requests to put an object: one, or its parts with one to begin and one to end."""
    return 1 if n_bytes <= WHOLE_BYTES else -(-n_bytes // PART_BYTES) + 2


PARTS: dict[str, Callable[[Corpus, Path], Figures]] = {
    "plan": plan,
    "journal": journal,
    "resume": resume,
    "crew": crew,
    "cutting": cutting,
    "permutation": permutation,
    "whole": whole,
    "requests": requests,
}


def batches(receipts: Iterator[UnitReceipt]) -> Iterator[list[UnitReceipt]]:
    batch: list[UnitReceipt] = []
    for receipt in receipts:
        batch.append(receipt)
        if len(batch) == BATCH_UNITS:
            yield batch
            batch = []
    if batch:
        yield batch


def mb(n_bytes: int) -> float:
    return round(n_bytes / 1e6, 1)


def peak_mb() -> float:
    """The largest that this process has been in memory."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return round(int(found[1]) * 1024 / 1e6)


def measured(part: str, scale: Scale, folder: Path) -> Figures:
    """Run a part in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.simulate", "--part", part, "--folder", str(folder)]
    done = subprocess.run([*command, "--scale", json.dumps(asdict(scale))], stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def table_row(part: str, figures: Figures) -> str:
    said = "; ".join(f"{name} {shown(value)}" for name, value in figures.items() if name not in COLUMNS)
    seconds = ", ".join(f"{stage} {value:,.1f}" for stage, value in figures["seconds"].items())
    return f"| {part} | {seconds} | {figures['wall seconds']:,.0f} | {figures['peak MB']:,.0f} | {said} |"


def shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def main() -> None:
    given = parsed()
    if given.part:
        began = perf_counter()
        figures = PARTS[given.part](Corpus(Scale(**json.loads(given.scale))), given.folder)
        print(json.dumps(figures | {"wall seconds": round(perf_counter() - began, 1), "peak MB": peak_mb()}))
        return
    scale = QUICK if given.quick else FINEWEB
    named = {field.name: getattr(given, field.name) for field in fields(Scale)}
    scale = replace(scale, **{name: int(value) for name, value in named.items() if value is not None})
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['n_cores']} cores, Python {facts['python']}; {scale}\n")
    print("| part | CPU seconds | wall seconds | peak MB | figures |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tokenmill-simulate-", dir=given.work) as folder:
        for part in given.parts:
            print(table_row(part, measured(part, scale, Path(folder))), flush=True)


def parsed() -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description="Simulate a large run.")
    parser.add_argument("--quick", action="store_true", help="a thousandth of it")
    parser.add_argument("--files", dest="n_files", type=float)
    parser.add_argument("--units", dest="n_units", type=float)
    parser.add_argument("--documents", dest="n_documents", type=float)
    parser.add_argument("--tokens", dest="n_tokens", type=float)
    parser.add_argument("--shard-tokens", dest="shard_tokens", type=float)
    parser.add_argument("--nodes", dest="n_nodes", type=int)
    parser.add_argument("--workers", dest="n_stations", type=int, help="on each node")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--work", type=Path, default=None, help="a folder with room for the journal, 1 GB")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--scale", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
