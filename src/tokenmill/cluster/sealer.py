"""Shards that stations have written, taken into the journal in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tokenmill.cluster.crew import Crew
from tokenmill.cluster.reach import Reach
from tokenmill.cluster.station import segment_sizes
from tokenmill.journal import Event, ShardPut, ShardSealed
from tokenmill.progress import Progress
from tokenmill.segments import Segment
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.workspace import Workspace


class Sealer:
    """Records shards, and removes the segments that no later shard needs."""

    def __init__(self, crew: Crew, reach: Reach, space: Workspace, progress: Progress) -> None:
        self.crew, self.reach, self.space, self.progress = crew, reach, space, progress
        self.journal = space.journal
        self._needed: deque[tuple[int, int, str]] = deque()  # where in the stream each segment ends
        self._n_tokens = self._n_documents = 0
        for shard in self.journal.state.shards:
            self._count(shard)

    def noted(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        n_tokens = n_documents = 0
        for segment in segments:
            n_tokens += segment.n_tokens
            n_documents += segment.n_documents
            (name,) = segment_sizes([segment])
            self._needed.append((n_tokens, n_documents, name))
            yield segment

    def turn(self) -> None:
        self.crew.turn()
        self.seal()

    def seal(self) -> None:
        """Record the shards that have come and whose predecessors have."""
        come, shards, n_before = self.crew.shards, list[ShardReceipt](), len(self.journal.state.shards)
        while (shard := come.pop(n_before + len(shards), None)) is not None:
            shards.append(shard)
        if shards:  # together: to sync the disk takes long, and to put a part of the journal in a store too
            events: list[Event] = [ShardSealed(shard) for shard in shards]
            if self.space.home.away:  # the stations have put them
                events.insert(0, ShardPut(n_before + len(shards)))
            self.journal.record(*events)
            self.space.home.keep_journal()
        for shard in shards:
            self._count(shard)
            self.progress.written(shard.n_tokens)
            self.progress.shard_sealed(shard)
        covered = []
        # One that ends with the last sealed token may be named by the next task: for documents without a token.
        while self._needed and self._needed[0][0] < self._n_tokens and self._needed[0][1] <= self._n_documents:
            covered.append(self._needed.popleft()[2])
        # Segments go when the store knows of their shards, and while the output is ours.
        self.space.lock.check()
        self.space.home.settle(self.journal, self.progress.tick if covered else None)
        self.reach.remove(covered)

    def _count(self, shard: ShardReceipt) -> None:
        self._n_tokens += shard.n_tokens + shard.n_dropped_tokens
        self._n_documents += shard.n_documents + shard.n_dropped_documents
