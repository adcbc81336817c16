"""A run on a cluster: stations encode units, check them, hash inputs, and write shards; the driver keeps the books."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.assemble import Used, in_unit_order, limited, n_val_documents, refuse_a_broken_tokenizer
from tokenmill.cluster.crew import Crew, Link, Task
from tokenmill.cluster.cutting import shard_tasks
from tokenmill.cluster.ray_link import RayLink
from tokenmill.cluster.reach import FolderReach, Reach, StoreReach
from tokenmill.cluster.station import About, StationJob, segment_name, versions
from tokenmill.cluster.tasks import UnitStretch
from tokenmill.encode import Job
from tokenmill.executors.ledger import Ledger
from tokenmill.fetching import DOWNLOADS, AllHere, Fetcher
from tokenmill.frames import read_lengths
from tokenmill.home import LocalHome
from tokenmill.inputs import listed_digests
from tokenmill.journal import Event, InputHashed, ShardPut, ShardSealed
from tokenmill.layout import WORK
from tokenmill.means import Assembled
from tokenmill.plan import Unit
from tokenmill.progress import Progress
from tokenmill.recipe import RunOptions, recipe_dtype
from tokenmill.segments import DOCUMENT, UnitReceipt
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.shards.writer import refuse_nothing_to_train_on
from tokenmill.workspace import Workspace

MAX_SHARDS_AHEAD = 10_000  # handed out and not sealed: what the driver holds of them stays small


class ClusterMeans:
    check_seconds: float = 0.0  # in the stations, as part of encoding

    def __init__(
        self,
        space: Workspace,
        job: Job,
        to_do: list[Unit],
        options: RunOptions,
        progress: Progress,
        link: Link | None = None,
    ) -> None:
        self.space, self.progress, self.options = space, progress, options
        self.job = msgspec.structs.replace(job, check_samples=True)
        self.dtype = np.dtype(recipe_dtype(job.recipe))
        self.reach = reach_of_driver(space)
        self._job_name = f"{WORK}/job-{secrets.token_hex(8)}"
        self.reach.leave(
            self._job_name, msgspec.json.encode(StationJob(self.job, options.stall_seconds, options.disk_budget))
        )
        out = str(space.out.absolute()) if isinstance(space.home, LocalHome) else str(space.home)
        self.link = link or RayLink(options.ray_address, options.workers, out, self._job_name)
        n_workers = options.workers or self.link.n_cpus()
        ledger = Ledger(to_do, AllHere(), n_workers, use_reference=job.use_reference)
        here = About("", 0, sees_out=True, missing_input=None, versions=versions(job))
        self.crew = Crew(self.link, ledger, progress, here)
        progress.nodes = self.crew.nodes
        progress.n_workers = n_workers
        # Only what a limit cuts is encoded here, and fetched for it.
        self.fetcher = Fetcher(space.plan, [], space.work / DOWNLOADS, options.disk_budget, keep=False)
        self._hashes_asked: set[int] = set()
        self._n_units_left = Counter(i for unit in space.plan.units for i in {span.input for span in unit.spans})

    def encoded(self) -> Iterator[list[UnitReceipt]]:
        """All that have come at the same time are recorded together."""
        for first in self.progress.watched(self.crew.encode()):
            receipts = [first]
            while self.crew.receipts:
                receipts.append(self.crew.receipts.popleft())
                self.progress.count(receipts[-1])
            yield receipts

    def follow_up(self, receipt: UnitReceipt) -> Sequence[Event]:
        """Have an input hashed when its last unit is done; return what has been hashed."""
        for i in {span.input for span in self.space.plan.units[receipt.unit].spans}:
            self._n_units_left[i] -= 1
            if self._n_units_left[i] == 0:
                self._have_hashed(i)
        return self._taken_hashes()

    def _have_hashed(self, index: int) -> None:
        known = self.space.journal.state.input_sha256
        asked = index in self._hashes_asked or index in known
        if not asked and not self.space.plan.inputs[index].is_remote:
            self._hashes_asked.add(index)
            self.crew.add(Task("hash", ("hash", index), str(index).encode(), index))

    def _taken_hashes(self) -> list[InputHashed]:
        taken, self.crew.hashed = self.crew.hashed, []
        known = self.space.journal.state.input_sha256
        return [hashed for hashed in dict.fromkeys(taken) if hashed.input not in known]

    def assemble(self, receipts: Iterator[UnitReceipt]) -> Assembled:
        used = Used()
        recipe, plan, journal = self.job.recipe, self.space.plan, self.space.journal
        in_order = limited(in_unit_order(receipts), plan, self.job, self.dtype, journal, self.fetcher, self.bring)
        stream: Iterable[UnitReceipt] = used.counted(in_order)
        n_documents = None
        if isinstance(recipe.val, float):
            n_documents = sum(receipt.n_documents for receipt in stream)
            stream = journal.state.units.first(used.n_units)
        n_val = None if recipe.val == "shard" else n_val_documents(recipe, n_documents)
        sealer = _Sealer(self)
        stretches = sealer.noted(self.stretches(stream))
        for task in shard_tasks(stretches, recipe, n_val, self.lengths, journal.state.shards):
            self.crew.add(Task("shard", ("shard", task.number), msgspec.json.encode(task), task.number))
            sealer.seal()
            while self.crew.n_open > MAX_SHARDS_AHEAD:
                self.turn(sealer)
        went_in = journal.state.units.first(used.n_units)
        refuse_a_broken_tokenizer(went_in, recipe)
        while self.crew.n_open:
            self.turn(sealer)
        refuse_nothing_to_train_on(journal.state.shards)
        return went_in, list(journal.state.shards)

    def turn(self, sealer: _Sealer) -> None:
        self.crew.turn()
        sealer.seal()

    def stretches(self, receipts: Iterable[UnitReceipt]) -> Iterator[UnitStretch]:
        n_rows_before: Counter[int] = Counter()
        for receipt in receipts:
            unit = self.space.plan.units[receipt.unit]
            first_rows = []
            for span, span_receipt in zip(unit.spans, receipt.spans, strict=True):
                first_rows.append(n_rows_before[span.input])
                n_rows_before[span.input] += span_receipt.n_rows
            if receipt.cut:  # encoded here, by the driver
                self.reach.send([segment_name(receipt.unit, cut=True)])
            yield UnitStretch(unit, receipt, tuple(first_rows))

    def lengths(self, stretch: UnitStretch) -> npt.NDArray[np.integer]:
        """The tokens of each document of a unit."""
        receipt = stretch.receipt
        with self.reach.open(segment_name(receipt.unit, cut=receipt.cut), receipt.n_segment_bytes) as file:
            return read_lengths(file, DOCUMENT, self.dtype)

    def bring(self, receipt: UnitReceipt) -> None:
        """Have a segment on the driver's own machine: of the unit that a limit falls into."""
        self.reach.bring({segment_name(receipt.unit): receipt.n_segment_bytes})

    def finish(self) -> Sequence[Event]:
        """Have the inputs hashed that a limit has kept from being read to the end."""
        for index in range(len(self.space.plan.inputs)):
            self._have_hashed(index)
        while self.crew.n_open:
            self.crew.turn()
        found = [*self._taken_hashes(), *self.fetcher.taken_hashes()]
        known = self.space.journal.state.input_sha256.keys() | {hashed.input for hashed in found}
        return [*found, *(one for one in listed_digests(self.space.plan.inputs) if one.input not in known)]

    def close(self) -> None:
        self.link.close()
        self.fetcher.close()
        signs = [f"{self._job_name}.{station}" for station in self.link.stations()]
        self.reach.remove([self._job_name, *signs])


class _Sealer:
    """Takes shards into the journal in their order, and removes the segments that no other shard needs."""

    def __init__(self, means: ClusterMeans) -> None:
        self.means, self.journal = means, means.space.journal
        self._needed: deque[tuple[int, int, str]] = deque()  # where in the stream each segment ends
        self._n_tokens = self._n_documents = 0
        for shard in self.journal.state.shards:
            self._count(shard)

    def noted(self, stretches: Iterable[UnitStretch]) -> Iterator[UnitStretch]:
        n_tokens = n_documents = 0
        for stretch in stretches:
            n_tokens += stretch.n_tokens
            n_documents += stretch.n_documents
            name = segment_name(stretch.receipt.unit, cut=stretch.receipt.cut)
            self._needed.append((n_tokens, n_documents, name))
            yield stretch

    def seal(self) -> None:
        """Record the shards that have come and whose predecessors have."""
        come, shards, n_before = self.means.crew.shards, list[ShardReceipt](), len(self.journal.state.shards)
        while (shard := come.pop(n_before + len(shards), None)) is not None:
            shards.append(shard)
        if shards:  # together: to sync the disk takes long, and to put a part of the journal in a store too
            events = [(ShardPut(number), ShardSealed(shard)) for number, shard in enumerate(shards, n_before + 1)]
            self.journal.record(*(event for pair in events for event in pair))
            self.means.space.home.shard_there()
        for shard in shards:
            self._count(shard)
            self.means.progress.written(shard.n_tokens)
            self.means.progress.shard_sealed(shard)
        covered = []
        while self._needed and self._needed[0][0] <= self._n_tokens and self._needed[0][1] <= self._n_documents:
            covered.append(self._needed.popleft()[2])
        self.means.reach.remove(covered)

    def _count(self, shard: ShardReceipt) -> None:
        self._n_tokens += shard.n_tokens + shard.n_dropped_tokens
        self._n_documents += shard.n_documents + shard.n_dropped_documents


def reach_of_driver(space: Workspace) -> Reach:
    if isinstance(space.home, LocalHome):
        return FolderReach(space.out)
    return StoreReach(str(space.home), Path(space.out))
