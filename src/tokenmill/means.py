"""By what means a run is carried out: what encodes, checks, hashes, fetches and writes shards.

On one machine that is this module: workers encode, and this process does the rest. cluster/means.py is for many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tokenmill.assemble import assemble
from tokenmill.encode import Job
from tokenmill.executors import executor_named
from tokenmill.fetching import DOWNLOADS, Fetcher
from tokenmill.inputs import InputHasher
from tokenmill.journal import Event
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


class LocalMeans:
    """One machine: this one."""

    def __init__(self, space: Workspace, job: Job, to_do: list[Unit], options: RunOptions, progress: Progress) -> None:
        self.space, self.job, self.options, self.progress = space, job, options, progress
        plan, journal = space.plan, space.journal
        tokenizer = Tokenizer(job.recipe.tokenizer, job.recipe.pattern)
        self.checker = None if job.use_reference else SampleChecker(tokenizer, space.work)
        self.hasher = InputHasher(plan, journal.state.input_sha256)
        downloads = space.out / DOWNLOADS if options.keep_downloads else space.work / DOWNLOADS
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

    def finish(self) -> Sequence[Event]:
        checked = self.checker.finish() if self.checker else []
        return [*checked, *self.fetcher.taken_hashes(), *self.hasher.finish()]

    def close(self) -> None:
        self.executor.close()
        self.fetcher.close()
        self.hasher.stop()
        if self.checker:
            self.checker.stop()
