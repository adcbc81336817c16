"""By what means a run is carried out: what encodes, checks, hashes, fetches and writes shards.

On one machine that is this module: workers encode, and this process does the rest. cluster/means.py is for many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tokenmill import __version__
from tokenmill.assemble import assemble
from tokenmill.calibrate import EngineChoice
from tokenmill.encode import Job, import_paths
from tokenmill.executors import executor_named
from tokenmill.fetching import DOWNLOADS, Fetcher
from tokenmill.inputs import InputHasher
from tokenmill.journal import Event, UnitDone
from tokenmill.plan import Unit
from tokenmill.progress import Progress
from tokenmill.recipe import RunOptions
from tokenmill.segments import FirstReceipts, UnitReceipt
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.sampling import SampleChecker
from tokenmill.workspace import Workspace

Assembled = tuple[FirstReceipts, list[ShardReceipt]]  # the receipts of the units that went into shards, and theirs


class Means(Protocol):
    @property
    def check_seconds(self) -> float:
        """What the checking of samples took."""

    def encoded(self) -> Iterator[list[UnitReceipt]]:
        """Yield the receipts of all units that are to do, a few at a time."""

    def follow_up(self, receipt: UnitReceipt) -> Sequence[Event]:
        """A unit is done, now or by an earlier run: return what was learned in the meantime."""

    def assemble(self, receipts: Iterator[UnitReceipt]) -> Assembled:
        """Write the shards."""

    def finish(self) -> Sequence[Event]:
        """Wait for what goes on in the background, and return what was learned."""

    def close(self) -> None:
        """End whatever was started. Called however the run ended."""


def job_for(space: Workspace, engine: EngineChoice, options: RunOptions) -> Job:
    return Job(
        tokenmill=__version__,
        recipe=space.recipe,
        inputs=space.plan.inputs,
        work=str(space.work),
        desk=str(space.desk),
        batch_bytes=options.batch_bytes,
        n_units=len(space.plan.units),
        import_paths=import_paths(),
        use_reference=engine.use_reference,
    )


def units_to_do(space: Workspace, units: Sequence[Unit]) -> list[Unit]:
    """Those that the journal does not have; none behind one that a limit falls into."""
    done = space.journal.state.units
    n_units = next((receipt.unit + 1 for receipt in done.values() if receipt.cut), len(space.plan.units))
    return [unit for unit in units if unit.index < n_units and unit.index not in done]


def recorded(space: Workspace, means: Means) -> Iterator[UnitReceipt]:
    """Yield the receipts of units: those of the journal, and new ones as soon as they are in it."""
    units = space.journal.state.units
    for unit in list(units):
        receipt = units[unit]
        follow_up(receipt, space, means)
        yield receipt
    for receipts in means.encoded():
        space.journal.record(*map(UnitDone, receipts))
        for receipt in receipts:
            follow_up(receipt, space, means)
            yield receipt


def follow_up(receipt: UnitReceipt, space: Workspace, means: Means) -> None:
    space.lock.check()
    space.home.settle(space.journal)
    if learned := means.follow_up(receipt):
        space.journal.record(*learned)


class LocalMeans:
    """One machine: this one."""

    def __init__(self, space: Workspace, job: Job, to_do: list[Unit], options: RunOptions, progress: Progress) -> None:
        self.space, self.job, self.options, self.progress = space, job, options, progress
        plan, journal = space.plan, space.journal
        tokenizer = Tokenizer(job.recipe.tokenizer, job.recipe.pattern)
        self.checker = None if job.use_reference else SampleChecker(tokenizer, space.work)
        self.hasher = InputHasher(plan, journal.state.input_sha256)
        downloads = space.out / DOWNLOADS if options.keep_downloads else space.desk / DOWNLOADS
        self.fetcher = Fetcher(plan, to_do, downloads, options.disk_budget, keep=options.keep_downloads)
        progress.fetched = self.fetcher.fetched
        self.executor = executor_named(options.executor)(job, to_do, options, progress, self.fetcher)

    @property
    def check_seconds(self) -> float:
        return self.checker.seconds if self.checker else 0.0

    def encoded(self) -> Iterator[list[UnitReceipt]]:
        for receipt in self.progress.watched(self.executor):
            yield [receipt]

    def follow_up(self, receipt: UnitReceipt) -> Sequence[Event]:
        learned: list[Event] = [*self.fetcher.taken_hashes(), *self.hasher.unit_done(receipt)]
        if self.checker and not receipt.cut and receipt.unit not in self.space.journal.state.n_checked:
            learned += self.checker.submit(receipt.unit)
        return learned

    def assemble(self, receipts: Iterator[UnitReceipt]) -> Assembled:
        space = self.space
        return assemble(
            receipts, space.plan, self.job, self.options, space.home, space.journal, self.progress, self.fetcher
        )

    def finish(self, *, all_inputs: bool = True) -> Sequence[Event]:
        """See Means: of all inputs, those included that a limit kept from being read to the end, or of those done."""
        checked = self.checker.finish() if self.checker else []
        hashed = self.hasher.finish() if all_inputs else self.hasher.wait()
        return [*checked, *self.fetcher.taken_hashes(), *hashed]

    def close(self) -> None:
        self.executor.close()
        self.fetcher.close()
        self.hasher.stop()
        if self.checker:
            self.checker.stop()
