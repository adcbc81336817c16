"""How far a run is, how fast, and what holds it up. No output: whoever runs it decides what to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from tokenmill.encode import Beat
from tokenmill.executors import Mishap
from tokenmill.fetching import Fetched
from tokenmill.journal import State
from tokenmill.manifest import RunRecord, RunSample, now
from tokenmill.plan import Plan
from tokenmill.recipe import RunOptions
from tokenmill.segments import UnitReceipt
from tokenmill.shards.receipts import ShardReceipt

MAX_SAMPLES = 200
SAMPLE_SECONDS = 0.1  # at first; twice as long each time that there are too many


@dataclass
class NodeRecord:
    """What a node of a cluster has done."""

    host: str
    n_units: int = 0
    n_shards: int = 0

    def facts(self) -> dict[str, Any]:
        return {"host": self.host, "units": self.n_units, "shards": self.n_shards}


class Progress:
    """The state of a run, which any thread may read.

    `on_progress` is called with it after every change, and a few times a second when there is none. What it raises
    ends the run, as safely as a kill does.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        state: State,
        on_progress: Callable[[Progress], None] | None,
        *,
        assembles: bool = True,
    ) -> None:
        self.assembles = assembles  # or leaves that to another run
        self.n_files = len(plan.inputs)
        self.n_units = len(plan.units)
        self.n_planned_bytes = plan.n_bytes
        most = {"processes": self.n_units, "inline": 1}.get(options.executor, options.n_workers)
        self.n_workers = min(options.n_workers, most)
        self.nodes: dict[str, NodeRecord] = {}  # of a cluster
        self.n_units_done = 0
        self.shards = list(state.shards)
        self.mishaps: list[tuple[float, Mishap]] = []
        self.n_documents = 0
        self.n_scattered_tokens = 0  # into buckets, when the order is shuffled
        self.n_written_tokens = 0  # into shards
        self._units = plan.units
        self._first_unit = plan.units[0].index if plan.units else 0  # of a share, not the first of all
        self._n_bytes_done = 0  # as planned, of finished units
        self._n_text_bytes = 0
        self._n_tokens = 0
        self._beats: dict[int, Beat] = {}
        self._seconds = {"read": 0.0, "encode": 0.0, "write": 0.0}
        self._started = perf_counter()
        self._waited_seconds = 0.0  # of this process, for workers
        self._samples: list[RunSample] = []
        self._sample_seconds = SAMPLE_SECONDS
        self._on_progress = on_progress or (lambda progress: None)
        self.fetched: Callable[[], Fetched] = lambda: Fetched(0, 0, 0.0)  # how the downloads are
        for receipt in state.units.values():
            self._add(receipt)
        self.n_units_resumed = self.n_units_done
        self.n_bytes_resumed, self.n_tokens_resumed = self._n_text_bytes, self._n_tokens
        self.fraction_resumed = self.fraction
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        self.n_scattered_tokens = sum(state.bucket_tokens)
        self.n_written_tokens = sum(shard.n_tokens for shard in state.shards)
        self._changed()

    def beat(self, beat: Beat) -> None:
        self._beats[beat.unit] = beat
        self._changed()

    def tick(self) -> None:
        self._changed()

    def mishap(self, mishap: Mishap) -> None:
        self.mishaps.append((round(self.elapsed_seconds, 3), mishap))
        self._changed()

    def watched(self, receipts: Iterator[UnitReceipt]) -> Iterator[UnitReceipt]:
        """Pass receipts on and count them."""
        while True:
            began = perf_counter()
            receipt = next(receipts, None)
            self._waited_seconds += perf_counter() - began
            if receipt is None:
                return
            self.count(receipt)
            yield receipt

    def count(self, receipt: UnitReceipt) -> None:
        self._add(receipt)
        self._changed()

    def _changed(self) -> None:
        if not self._samples or self.elapsed_seconds >= self._samples[-1].seconds + self._sample_seconds:
            self._samples.append(self._sample())
            if len(self._samples) >= MAX_SAMPLES:
                self._samples = self._samples[::2]
                self._sample_seconds *= 2
        self._on_progress(self)

    def _sample(self) -> RunSample:
        # When nothing more is encoded, only writing is left.
        is_over = self.encoded and bool(self._samples) and self._samples[-1].n_text_bytes == self.n_text_bytes
        binding = "writing" if is_over else self.binding
        return RunSample(round(self.elapsed_seconds, 3), self.n_text_bytes, self.n_tokens, binding)

    def _add(self, receipt: UnitReceipt) -> None:
        self.n_units_done += 1
        self._beats.pop(receipt.unit, None)
        self._n_bytes_done += self._unit_bytes(receipt.unit)
        self._n_text_bytes += receipt.n_text_bytes
        self._n_tokens += receipt.n_tokens
        self.n_documents += receipt.n_documents
        for stage in self._seconds:
            self._seconds[stage] += getattr(receipt.seconds, stage)

    def _unit_bytes(self, unit: int) -> int:
        return self._units[unit - self._first_unit].n_bytes

    def scattered(self, n_tokens: int) -> None:
        self.n_scattered_tokens += n_tokens
        self._changed()

    def written(self, n_tokens: int) -> None:
        self.n_written_tokens += n_tokens
        self._changed()

    def shard_sealed(self, shard: ShardReceipt) -> None:
        self.shards.append(shard)
        self._changed()

    @property
    def n_tokens(self) -> int:
        return self._n_tokens + sum(beat.n_tokens for beat in list(self._beats.values()))

    @property
    def n_text_bytes(self) -> int:
        return self._n_text_bytes + sum(beat.n_text_bytes for beat in list(self._beats.values()))

    @property
    def elapsed_seconds(self) -> float:
        return perf_counter() - self._started

    @property
    def encoded(self) -> bool:
        """Whether the last unit is done, and only shards are left to write."""
        return self.n_units_done == self.n_units

    @property
    def fraction(self) -> float:
        """How much of the text is encoded, as far as the listing tells."""
        if self.encoded:
            return 1.0
        begun = sum(min(beat.n_text_bytes, self._unit_bytes(beat.unit)) for beat in list(self._beats.values()))
        return (self._n_bytes_done + begun) / max(1, self.n_planned_bytes)

    @property
    def written_fraction(self) -> float:
        """How much of the tokens is in shards; on the way through buckets they count half."""
        if not self.n_scattered_tokens:
            return self.n_written_tokens / max(1, self.n_tokens)
        return (self.n_scattered_tokens + self.n_written_tokens) / max(1, 2 * self.n_tokens)

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the last unit is encoded, at the speed so far; None while there is no telling."""
        done = self.fraction - self.fraction_resumed
        return self.elapsed_seconds * (1 - self.fraction) / done if done > 0 else None

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Where the time went: of all workers together, and of this process for `assemble`."""
        return {**self._seconds, "assemble": self.elapsed_seconds - self._waited_seconds}

    @property
    def binding(self) -> str | None:
        """The stage that takes the most time: downloading, reading, encoding or writing; None at the beginning."""
        if not self.n_units_done:
            return "downloading" if self.fetched().n_bytes_wanted else None
        seconds, n = self.stage_seconds, self.n_workers
        loads = {
            "reading": seconds["read"] / n,
            "encoding": seconds["encode"] / n,
            "writing": seconds["write"] / n + seconds["assemble"],
            "downloading": self.fetched().waited_seconds,
        }
        return max(loads, key=lambda stage: loads[stage])

    def facts(self) -> dict[str, Any]:
        """How far the run is, as plain values."""
        elapsed, eta = max(self.elapsed_seconds, 1e-9), self.eta_seconds
        return {
            "units": f"{self.n_units_done}/{self.n_units}",
            "percent": round(self.fraction * 100, 1),
            "workers": self.n_workers,
            "tokens": self.n_tokens,
            "tokens_in_shards": self.n_written_tokens,
            "text_mb": round(self.n_text_bytes / 1e6, 1),
            "text_mb_per_second": round((self.n_text_bytes - self.n_bytes_resumed) / elapsed / 1e6, 1),
            "tokens_per_second": round((self.n_tokens - self.n_tokens_resumed) / elapsed),
            "elapsed_seconds": round(elapsed, 1),
            "eta_seconds": None if eta is None else round(eta, 1),
            "binding": self.binding,
            **self.fetched_facts(),
            **({"nodes": {name: node.facts() for name, node in list(self.nodes.items())}} if self.nodes else {}),
        }

    def fetched_facts(self) -> dict[str, Any]:
        fetched = self.fetched()
        if not fetched.n_bytes_wanted:
            return {}
        return {
            "fetched_mb": round(fetched.n_bytes / 1e6, 1),
            "to_fetch_mb": round(fetched.n_bytes_wanted / 1e6, 1),
            "fetched_mb_per_second": round(fetched.n_bytes / max(self.elapsed_seconds, 1e-9) / 1e6, 1),
        }

    def record(self, check_seconds: float) -> RunRecord:
        return RunRecord(
            finished=now(),
            elapsed_seconds=round(self.elapsed_seconds, 3),
            workers=self.n_workers,
            n_units=self.n_units,
            n_units_resumed=self.n_units_resumed,
            mishaps=tuple((seconds, mishap.what) for seconds, mishap in self.mishaps[:1000]),
            seconds={
                stage: round(seconds, 3) for stage, seconds in [*self.stage_seconds.items(), ("check", check_seconds)]
            },
            samples=(*self._samples, self._sample()),
        )
