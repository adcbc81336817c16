"""A run on a cluster: stations encode units, check them, hash inputs, and write shards; the driver keeps the books."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.assemble import (
    Used,
    in_unit_order,
    limited,
    n_val_documents,
    refuse_a_broken_tokenizer,
    scatter_groups,
)
from tokenmill.cluster.crew import Crew
from tokenmill.cluster.cutting import Held, shard_tasks
from tokenmill.cluster.link import Link, Task
from tokenmill.cluster.ray_link import RayLink
from tokenmill.cluster.reach import FolderReach, Reach, StoreReach
from tokenmill.cluster.sealer import Sealer
from tokenmill.cluster.station import About, StationJob, group_name, segment_name, segment_sizes, versions
from tokenmill.cluster.tasks import ShardTask
from tokenmill.encode import Job
from tokenmill.errors import RecipeError
from tokenmill.executors.ledger import Ledger
from tokenmill.fetching import DOWNLOADS, AllHere, Fetcher
from tokenmill.frames import read_lengths
from tokenmill.inputs import listed_digests
from tokenmill.journal import Event, InputHashed
from tokenmill.layout import STATION_JOB, WORK, output_files
from tokenmill.means import Assembled
from tokenmill.plan import Unit
from tokenmill.progress import Progress
from tokenmill.recipe import RunOptions, recipe_dtype, shuffle_kind_and_seed
from tokenmill.scatter import Bucket, GroupReceipt, ScatterTask, bucket_count, bucket_lengths, buckets, scatter_tasks
from tokenmill.segments import DOCUMENT, Segment, UnitReceipt, placed_segments
from tokenmill.shards.writer import refuse_nothing_to_train_on
from tokenmill.storage.addresses import full_url
from tokenmill.storage.local import TEMP_SUFFIX
from tokenmill.workspace import Workspace

KEEP_SECONDS = 30.0  # how much of the driver's work may be lost with its machine
MAX_OPEN = 10_000  # shards that are handed out and not sealed: what the driver holds of them stays small


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
        refuse_secret_links(space)
        if options.keep_downloads:
            raise RecipeError("a cluster keeps no downloads", hint="`tokenmill download` fetches sources to a folder")
        self.space, self.progress, self.options = space, progress, options
        self.job = msgspec.structs.replace(job, check_samples=True)
        self.dtype = np.dtype(recipe_dtype(job.recipe))
        self.reach = reach_of_driver(space)
        self._job_name = f"{WORK}/{STATION_JOB}{secrets.token_hex(8)}"
        out = str(space.home) if space.home.away else str(space.out.absolute())
        self.link = link or RayLink(options.ray_address, options.workers, out, self._job_name)
        given = StationJob(self.job, options.bucket_bytes, options.stall_seconds, options.disk_budget)
        self.reach.leave(self._job_name, msgspec.json.encode(given))
        self.hand_over()
        n_workers = options.workers or self.link.n_cpus()
        ledger = Ledger(to_do, AllHere(), n_workers, use_reference=job.use_reference)
        here = About("", 0, sees_out=True, missing_input=None, versions=versions(job))
        self.crew = Crew(self.link, ledger, progress, here)
        progress.nodes = self.crew.nodes
        progress.n_workers = n_workers
        # Only what a limit cuts is encoded here, and fetched for it.
        self.fetcher = Fetcher(space.plan, [], space.work / DOWNLOADS, options.disk_budget, keep=False)
        self._hashes_asked: set[int] = set()
        self._kept = monotonic()
        self._n_units_left = Counter(i for unit in space.plan.units for i in {span.input for span in unit.spans})

    def hand_over(self) -> None:
        """Have what an earlier run on one machine left in its scratch folder where all nodes can see it."""
        if not self.space.home.away:
            return
        self.space.home.settle(self.space.journal, self.progress.tick)  # shards that were sealed and not put
        state = self.space.journal.state
        segments = (segment_name(receipt.unit, cut=receipt.cut) for receipt in state.units.values())
        for name in (*segments, *map(group_name, state.groups)):
            if (self.reach.out / name).exists():
                self.reach.send([name])
                self.progress.tick()

    def encoded(self) -> Iterator[list[UnitReceipt]]:
        """All that have come at the same time are recorded together."""
        for first in self.progress.watched(self.crew.encode()):
            receipts = [first]
            while self.crew.receipts:
                receipts.append(self.crew.receipts.popleft())
                self.progress.count(receipts[-1])
            yield receipts
            self.keep_now_and_then()  # all that these led to is in the journal

    def follow_up(self, receipt: UnitReceipt) -> Sequence[Event]:
        """Have an input hashed when its last unit is done; return what has been hashed."""
        for i in {span.input for span in self.space.plan.units[receipt.unit].spans}:
            self._n_units_left[i] -= 1
            if self._n_units_left[i] == 0:
                self._have_hashed(i)
        return self._taken_hashes()

    def keep_now_and_then(self) -> None:
        """Have the journal where the output is. It goes there anyway when shards are sealed or segments removed."""
        if monotonic() - self._kept >= KEEP_SECONDS:
            self.space.home.keep_journal()
            self._kept = monotonic()

    def _have_hashed(self, index: int) -> None:
        entry = self.space.plan.inputs[index]
        asked = index in self._hashes_asked or index in self.space.journal.state.input_sha256
        if not asked and not entry.is_remote:
            self._hashes_asked.add(index)
            self.crew.add(Task("hash", ("hash", index), str(index).encode(), index, max(1, entry.size)))

    def _taken_hashes(self) -> list[InputHashed]:
        taken, self.crew.hashed = self.crew.hashed, []
        known = self.space.journal.state.input_sha256
        return [hashed for hashed in dict.fromkeys(taken) if hashed.input not in known]

    def assemble(self, receipts: Iterator[UnitReceipt]) -> Assembled:
        used = Used()
        recipe, plan, journal = self.job.recipe, self.space.plan, self.space.journal
        in_order = limited(in_unit_order(receipts), plan, self.job, self.dtype, journal, self.fetcher, self.bring)
        stream: Iterable[UnitReceipt] = used.counted(self.cut_ones_sent(in_order))
        n_documents = None
        if recipe.waits_for_all:
            stream = list(stream)
            n_documents = sum(receipt.n_documents for receipt in stream)
            stream = journal.state.units.first(used.n_units)
        n_val = None if recipe.val == "shard" else n_val_documents(recipe, n_documents)
        segments, sealer = placed_segments(stream, plan), Sealer(self.crew, self.reach, self.space, self.progress)
        stretches: Iterable[Held] = self.scattered(segments) if recipe.is_shuffled else sealer.noted(segments)
        sizes = tuple(group.n_bytes for _, group in sorted(journal.state.groups.items()))
        for task in shard_tasks(stretches, recipe, n_val, self.lengths, journal.state.shards, sizes):
            self.crew.add(shard_work(task))
            sealer.seal()
            while self.crew.n_open > MAX_OPEN:
                sealer.turn()
        self.crew.ledger.is_stopped = True  # what lies behind a limit
        went_in = journal.state.units.first(used.n_units)
        refuse_a_broken_tokenizer(went_in, recipe)
        while self.crew.n_open:
            sealer.turn()
        refuse_nothing_to_train_on(journal.state.shards)
        return went_in, list(journal.state.shards)

    def scattered(self, segments: Iterator[Segment]) -> list[Bucket]:
        """Have all documents sorted by where the shuffle puts them; return the buckets of the output, in order."""
        kind, seed = shuffle_kind_and_seed(str(self.job.recipe.shuffle))
        state, all_segments = self.space.journal.state, list(segments)
        n_tokens = sum(segment.n_tokens for segment in all_segments)
        n_buckets = len(state.bucket_tokens) or bucket_count(n_tokens, self.dtype, self.options.bucket_bytes)
        tasks = scatter_tasks(all_segments, kind, seed, n_buckets, self.dtype)
        scatter_groups(tasks, self.space.work, self.space.journal, self.scattered_by_stations, self.remove)
        return list(buckets(state.bucket_documents, state.bucket_tokens))

    def scattered_by_stations(self, tasks: list[ScatterTask]) -> Iterator[GroupReceipt]:
        for task in tasks:
            self.crew.add(scatter_work(task))
        while self.crew.n_open or self.crew.groups:
            while self.crew.groups:
                receipt = self.crew.groups.popleft()
                self.progress.scattered(sum(receipt.bucket_tokens))
                yield receipt
            if self.crew.n_open:
                self.crew.turn()

    def remove(self, paths: Iterable[Path]) -> None:
        """Segments go when the store knows of the group that has their documents now, and while the output is ours."""
        self.space.lock.check()
        self.space.home.keep_journal()
        self.space.home.settle(self.space.journal, self.progress.tick)
        self.reach.remove([path.relative_to(self.space.out).as_posix() for path in paths])

    def cut_ones_sent(self, receipts: Iterable[UnitReceipt]) -> Iterator[UnitReceipt]:
        """What a limit cuts is encoded here: have it where all can see it."""
        for receipt in receipts:
            name = segment_name(receipt.unit, cut=True)
            if receipt.cut and (self.reach.out / name).exists():
                self.reach.send([name])
            yield receipt

    def lengths(self, stretch: Held) -> npt.NDArray[np.integer]:
        """The tokens of each document of a segment or a bucket."""
        if isinstance(stretch, Bucket):
            return bucket_lengths(self.open_group, len(self.space.journal.state.groups), stretch)
        ((name, n_bytes),) = segment_sizes([stretch]).items()
        with self.reach.open(name, n_bytes) as file:
            return read_lengths(file, DOCUMENT, self.dtype)

    def open_group(self, group: int) -> BinaryIO:
        return self.reach.open(group_name(group), self.space.journal.state.groups[group].n_bytes)

    def bring(self, receipt: UnitReceipt) -> None:
        """Have a segment on the driver's own machine: of the unit that a limit falls into."""
        self.reach.bring({segment_name(receipt.unit): receipt.n_segment_bytes})

    def finish(self) -> Sequence[Event]:
        for index in range(len(self.space.plan.inputs)):
            self._have_hashed(index)
        while self.crew.n_open:
            self.crew.turn()
        found = [*self._taken_hashes(), *self.fetcher.taken_hashes()]
        known = self.space.journal.state.input_sha256.keys() | {hashed.input for hashed in found}
        return [*found, *(one for one in listed_digests(self.space.plan.inputs) if one.input not in known)]

    def close(self) -> None:
        try:
            self.link.close()
            self.fetcher.close()
        finally:
            self.reach.remove([self._job_name, *(f"{self._job_name}.{station}" for station in self.crew.asked)])
            for path in output_files(self.space.out, self.job.recipe):
                if path.name.endswith(TEMP_SUFFIX):  # of a station that was lost, or was one too many at a shard
                    path.unlink(missing_ok=True)


def shard_work(task: ShardTask) -> Task:
    n_tokens = sum(segment.n_tokens for segment in task.segments) + sum(bucket.n_tokens for bucket in task.buckets)
    return Task("shard", ("shard", task.number), msgspec.json.encode(task), task.number, max(1, n_tokens))


def scatter_work(task: ScatterTask) -> Task:
    n_tokens = sum(segment.n_tokens for segment in task.segments)
    return Task("scatter", ("scatter", task.group), msgspec.json.encode(task), task.group, max(1, n_tokens))


def refuse_secret_links(space: Workspace) -> None:
    """A key in a link is for this process alone: it is neither stored nor sent."""
    secret = [entry.path for entry in space.plan.inputs if entry.is_remote and full_url(entry.path) != entry.path]
    if secret:
        raise RecipeError(
            f"the link to `{secret[0]}` has a key in it, which is not sent to the nodes of a cluster",
            hint="`tokenmill download` it to storage that all nodes share",
        )


def reach_of_driver(space: Workspace) -> Reach:
    return StoreReach(str(space.home), space.out) if space.home.away else FolderReach(space.out)
