"""The units of a run -> their receipts, in the journal before anybody else has them.

What belongs to encoding and goes on beside it is held together here: downloads, the check of a sample by the reference,
the hashes of inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill import __version__
from tokenmill.calibrate import EngineChoice
from tokenmill.encode import Job, import_paths
from tokenmill.executors import executor_named
from tokenmill.fetching import DOWNLOADS, Fetcher
from tokenmill.inputs import InputHasher
from tokenmill.journal import UnitDone
from tokenmill.plan import Unit
from tokenmill.progress import Progress
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.sampling import SampleChecker
from tokenmill.workspace import Workspace


class Encoding:
    """Units while they are encoded: all those of the plan, or of a share of it."""

    def __init__(
        self, space: Workspace, units: Sequence[Unit], engine: EngineChoice, options: RunOptions, progress: Progress
    ) -> None:
        recipe, plan, state = space.recipe, space.plan, space.journal.state
        self.space, self.progress = space, progress
        self.job = Job(
            tokenmill=__version__,
            recipe=recipe,
            inputs=plan.inputs,
            work=str(space.work),
            desk=str(space.desk),
            batch_bytes=options.batch_bytes,
            n_units=len(plan.units),
            import_paths=import_paths(),
            use_reference=engine.use_reference,
        )
        self._done = list(state.units.values())
        limit = next((receipt.unit + 1 for receipt in self._done if receipt.cut), len(plan.units))  # one falls there
        to_do = [unit for unit in units if unit.index < limit and unit.index not in state.units]
        self._checker = None
        if not engine.use_reference:
            self._checker = SampleChecker(Tokenizer(recipe.tokenizer, recipe.pattern), space.work)
        self._hasher = InputHasher(plan, state.input_sha256)
        downloads = space.out / DOWNLOADS if options.keep_downloads else space.desk / DOWNLOADS
        self.fetcher = Fetcher(plan, to_do, downloads, options.disk_budget, keep=options.keep_downloads)
        progress.fetched = self.fetcher.fetched
        self._encode = executor_named(options.executor)(self.job, to_do, options, progress, self.fetcher)

    @property
    def check_seconds(self) -> float:
        return self._checker.seconds if self._checker else 0.0

    def receipts(self) -> Iterator[UnitReceipt]:
        """Yield the receipts of units: those of the journal, and new ones as soon as they are in it."""
        for receipt in self._done:
            self._follow_up(receipt)
            yield receipt
        for receipt in self.progress.watched(self._encode):
            self.space.journal.record(UnitDone(receipt))
            self._follow_up(receipt)
            yield receipt

    def _follow_up(self, receipt: UnitReceipt) -> None:
        """Have a sample of the unit encoded again by the reference, and an input hashed whose last unit this was."""
        space, journal = self.space, self.space.journal
        space.lock.check()
        space.home.settle(journal)
        for hashed in [*self.fetcher.taken_hashes(), *self._hasher.unit_done(receipt)]:
            journal.record(hashed)
        if self._checker and not receipt.cut and receipt.unit not in journal.state.n_checked:
            for checked in self._checker.submit(receipt.unit):
                journal.record(checked)

    def finish(self, *, all_inputs: bool) -> None:
        """Wait for the checks and the hashes: of all inputs, or of those whose units were all encoded here."""
        journal = self.space.journal
        for checked in self._checker.finish() if self._checker else []:
            journal.record(checked)
        for hashed in self.fetcher.taken_hashes():
            journal.record(hashed)
        for hashed in self._hasher.finish() if all_inputs else self._hasher.wait():
            journal.record(hashed)

    def close(self) -> None:
        self._encode.close()
        self.fetcher.close()
        self._hasher.stop()
        if self._checker:
            self._checker.stop()
