"""A corpus, and a cluster that works on it, of which only the driver is real.

The listing, the receipts and the stations are made up, with a seed; the shares of units and shards add up to the
totals of the corpus. Whoever asks gets the same answer each time.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from time import process_time

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.cluster.link import Ended
from tokenmill.cluster.station import About, Encoded, Written
from tokenmill.cluster.tasks import ShardTask
from tokenmill.journal import InputHashed
from tokenmill.plan import MAX_UNIT_BYTES, Plan, Unit, planned
from tokenmill.recipe import Recipe
from tokenmill.segments import Segment, SpanReceipt, StageSeconds, UnitReceipt
from tokenmill.shards.receipts import FileReceipt, ShardReceipt
from tokenmill.sources import Input
from tokenmill.sources.parquet import GUESSED_RATIO
from tokenmill.worker import Done, UnitRequest

SEED = 1
TEXT_BYTES_PER_TOKEN = 4.6
DIGEST = "0123456789abcdef" * 4
DUMPS = 110  # folders of the listing
TURN_SECONDS = 0.1  # of the time that stations live in; a unit takes them 2 to 12 turns


@dataclass(frozen=True)
class Scale:
    """How large the corpus is, and the cluster."""

    n_files: int
    n_units: int  # about: files are cut, each by itself
    n_documents: int
    n_tokens: int
    shard_tokens: int
    n_nodes: int
    n_stations: int  # on each node


FINEWEB = Scale(25_000, 1_400_000, 26_000_000_000, 15 * 10**12, 100_000_000, 512, 32)
QUICK = Scale(25, 1_400, 26_000_000, 15 * 10**9, 100_000_000, 8, 4)


class Corpus:
    """The listing, the plan, and what each unit comes to."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale

    def recipe(self, val: str = "none") -> Recipe:
        given = Recipe(
            sources=("s3://crawl/data",), format="llmc", val=val, shuffle="none", shard_tokens=self.scale.shard_tokens
        )
        return given.resolve()

    def inputs(self) -> list[Input]:
        """Files of about the same size, as a listing of a store tells of them."""
        mean = self.scale.n_units / self.scale.n_files * MAX_UNIT_BYTES / GUESSED_RATIO
        sizes = (mean * np.random.default_rng(SEED).uniform(0.9, 1.1, self.scale.n_files)).astype(int).tolist()
        per_dump = -(-len(sizes) // DUMPS)
        paths = [
            f"s3://crawl/data/CC-MAIN-{1000 + i // per_dump}/{i:03d}_{i % per_dump:05d}.parquet"
            for i in range(len(sizes))
        ]
        return [Input(path, size, 0, f"etag:{DIGEST[:32]}", "parquet") for path, size in zip(paths, sizes, strict=True)]

    @cached_property
    def plan(self) -> Plan:
        return planned(self.inputs(), self.recipe(), MAX_UNIT_BYTES)

    @cached_property
    def counts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The documents and the tokens of each unit."""
        n, random = len(self.plan.units), np.random.default_rng(SEED)
        return shares(self.scale.n_documents, n, random), shares(self.scale.n_tokens, n, random)

    def receipt(self, unit: int) -> UnitReceipt:
        n_documents, n_tokens = (int(counts[unit]) for counts in self.counts)
        span = SpanReceipt(n_documents, n_documents, n_tokens, round(n_tokens * TEXT_BYTES_PER_TOKEN))
        seconds = StageSeconds(0.1234567 + unit % 7, 0.4567891 + unit % 5, 0.0123456)
        return UnitReceipt(unit, (span,), {}, 0, seconds, 2 * n_tokens + 8 * n_documents + 64, n_checked=4)

    def stretches(self) -> Iterator[Segment]:
        rows = Counter[int]()
        for unit in self.plan.units:
            receipt = self.receipt(unit.index)
            (span,) = unit.spans
            yield Segment(unit, receipt, (rows[span.input],))
            rows[span.input] += receipt.spans[0].n_rows


def shares(total: int, n: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """`n` numbers around their mean whose sum is the total."""
    edges = np.sort(random.uniform(-0.3, 0.3, n)[: n - 1] + np.arange(1, n)) / n * total
    return np.diff(edges.astype(np.int64), prepend=0, append=total)


def n_documents_before(task: ShardTask, token: int) -> int:
    """How many documents begin before a token of the stream, where those of a stretch are of one length."""
    n_tokens, n_documents = task.n_tokens_before, task.n_documents_before
    for stretch in task.segments:
        if token < n_tokens + stretch.n_tokens:
            return n_documents + stretch.n_documents * (token - n_tokens) // stretch.n_tokens
        n_tokens += stretch.n_tokens
        n_documents += stretch.n_documents
    return n_documents


def shard_receipt(task: ShardTask, shard_tokens: int) -> ShardReceipt:
    """What a station would say when it has written a shard of the llm.c format."""
    end = task.start + shard_tokens
    if task.last:
        end = task.n_tokens_before + sum(stretch.n_tokens for stretch in task.segments)
    n_tokens = end - task.start
    n_documents = n_documents_before(task, end) - n_documents_before(task, task.start)
    split = "val" if task.rule == "by shard" and task.number == 0 else "train"
    index = FileReceipt(f"index/{task.number:06d}.arrow", 64 + 29 * n_documents, DIGEST)
    name = f"crawl_{split}_{task.number:06d}.bin"
    return ShardReceipt(name, split, n_tokens, n_documents, 1024 + 2 * n_tokens, DIGEST, index)  # type: ignore[arg-type]


class MadeUpCluster:
    """Stations that answer without working, after some turns of the driver; nodes that are slow, or go and come again.

    `seconds` is the CPU time that the pretending took: it is not the driver's.
    """

    def __init__(self, corpus: Corpus, about: About) -> None:
        self.corpus, self.about, self.scale = corpus, msgspec.json.encode(about), corpus.scale
        self.random = np.random.default_rng(SEED)
        n = self.scale.n_nodes * self.scale.n_stations
        self.names: list[Hashable] = [f"station-{i}" for i in range(n)]
        self.nodes = {name: f"10.0.{i % self.scale.n_nodes}" for i, name in enumerate(self.names)}
        nodes = sorted(set(self.nodes.values()))
        self.slow, self.to_lose = set(nodes[1::64]), set(nodes[2::64])
        self.n_turns = self.n_lost = 0
        self.seconds = 0.0
        self.n_asked = Counter[str]()
        self.n_bytes = Counter[str]()  # of tasks and answers
        self.fetched: set[tuple[str, int]] = set()  # which node has to have which input
        self._due: list[tuple[int, int, Hashable, Callable[[], bytes] | None]] = []
        self._delays = iter(())
        self._decode_unit = msgspec.json.Decoder(UnitRequest).decode
        self._decode_shard = msgspec.json.Decoder(ShardTask).decode

    def now(self) -> float:
        return self.n_turns * TURN_SECONDS

    def stations(self) -> list[Hashable]:
        return self.names

    def n_nodes(self) -> int:
        return self.scale.n_nodes

    def n_cpus(self) -> int:
        return len(self.names)

    def node_of(self, station: Hashable) -> str:
        return self.nodes[station]

    def submit(self, station: Hashable, kind: str, task: bytes) -> None:
        began = process_time()
        self.n_asked[kind] += 1
        self.n_bytes["tasks"] += len(task)
        node = self.nodes[station]
        delay = next(self._delays, None)
        if delay is None:
            self._delays = iter(self.random.integers(2, 12, 10_000).tolist())
            delay = next(self._delays)
        if kind != "about" and node in self.slow:
            delay *= 10
        due = (self.n_turns + delay, self.n_asked.total(), station, lambda: self.answer(kind, task, node))
        heapq.heappush(self._due, due)
        self.seconds += process_time() - began

    def answer(self, kind: str, task: bytes, node: str) -> bytes:
        if kind == "about":
            return self.about
        if kind == "shard":
            return msgspec.json.encode(Written(shard_receipt(self._decode_shard(task), self.scale.shard_tokens)))
        unit: Unit = self._decode_unit(task).unit
        hashed = tuple(InputHashed(i, DIGEST) for i in dict.fromkeys(span.input for span in unit.spans))
        self.fetched.update((node, one.input) for one in hashed)
        return msgspec.json.encode(Encoded(Done(self.corpus.receipt(unit.index)), hashed))

    def wait(self, seconds: float) -> list[Ended]:
        began = process_time()
        self.n_turns += 1
        if self.n_turns == 40:  # some nodes go, in the middle of their work
            self._lose()
        ended = []
        while self._due and self._due[0][0] <= self.n_turns:
            _, _, station, answer = heapq.heappop(self._due)
            data = answer() if answer else None
            self.n_bytes["answers"] += len(data or b"")
            ended.append(Ended(station, data, "" if answer else "the node went away"))
        self.seconds += process_time() - began
        return ended

    def _lose(self) -> None:
        for i, (due, number, station, _) in enumerate(self._due):
            if self.nodes[station] in self.to_lose:
                self._due[i] = (due, number, station, None)
                self.n_lost += 1

    def dismiss(self, station: Hashable) -> None:
        self.names.remove(station)

    def close(self) -> None:
        pass
