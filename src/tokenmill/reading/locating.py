"""Documents by number and by place, at once where an index tells them, and in bounded steps where only a scan does.

The files of shards, one behind another, are one stream of tokens; a document goes from its beginning to the next one.
Numbers are those of `AnyShards.numbered_runs`. In files without an index a document at a place is found by a look
around it, and its number is known as far as `count` has come.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from time import monotonic

import numpy as np
import numpy.typing as npt

from tokenmill.reading import AnyShards
from tokenmill.reading.documents import EotPlace, scanned
from tokenmill.reading.files import IndexPlaces, Places, ShardFile

BLOCK_TOKENS = 1 << 20
LOOK_TOKENS = 1 << 14


@dataclass(frozen=True, slots=True)
class Located:
    """Where a document is: its tokens from `start` to `stop` of the stream."""

    number: int | None  # None: not counted yet
    start: int
    stop: int
    file: int  # in which it begins
    ordinal: int | None  # of the documents that begin there; None: not counted, or it began before the first file


class ScannedStarts:
    """Beginnings that end-of-text tells, counted a block at a time from the first on."""

    def __init__(self, file: ShardFile, eot: int | None, place: EotPlace, before: ShardFile | None) -> None:
        self.file, self.eot, self.place = file, eot, place if eot is not None else "none"
        self.before = before  # of the same split; None: a split begins as a document does
        self.n_before = [0]  # beginnings before each block that was counted, and behind the last one

    @property
    def is_counted(self) -> bool:
        return self.n_counted >= self.file.n_tokens

    @property
    def n_counted(self) -> int:
        """Tokens that were counted."""
        return self.file.n_tokens if self.place == "none" else (len(self.n_before) - 1) * BLOCK_TOKENS

    def __len__(self) -> int:
        """How many documents begin in what was counted."""
        if self.place == "none":
            return int(self.before is None and self.file.n_tokens > 0)
        return self.n_before[-1]

    def count_block(self) -> None:
        start = self.n_counted
        self.n_before.append(self.n_before[-1] + len(self.starts(start, start + BLOCK_TOKENS)))

    def starts(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Where documents begin in a stretch of the file."""
        if self.place == "none":
            return np.zeros(int(start == 0 and len(self)), np.int64)
        ids = np.asarray(self.file.ids[start:stop])
        previous = self.eot
        if start > 0:
            previous = int(self.file.ids[start - 1 : start][0])
        elif self.before is not None and self.before.n_tokens:
            previous = int(self.before.ids[self.before.n_tokens - 1 : self.before.n_tokens][0])
        return scanned(ids, self.eot, self.place, previous) + start

    def start_of(self, i: int) -> int:
        block = max(0, bisect_right(self.n_before, i) - 1) if self.place != "none" else 0
        start = block * BLOCK_TOKENS
        return int(self.starts(start, start + BLOCK_TOKENS)[i - self.n_before[block]])

    def n_until(self, place: int) -> int | None:
        """How many begin at a place or before it; None if that is not counted."""
        if self.place == "none":
            return len(self)
        block = place // BLOCK_TOKENS
        if block >= len(self.n_before):
            return None
        return self.n_before[block] + len(self.starts(block * BLOCK_TOKENS, place + 1))

    def last_at(self, place: int) -> int | None:
        """The last beginning at a place or before it."""
        if self.place == "none":
            return 0 if len(self) else None
        stop, step = min(place + 1, self.file.n_tokens), LOOK_TOKENS
        while stop > 0:
            start = max(0, stop - step)
            if len(found := self.starts(start, stop)):
                return int(found[-1])
            stop, step = start, min(2 * step, BLOCK_TOKENS)
        return None

    def first_behind(self, place: int) -> int | None:
        """The first beginning behind a place."""
        if self.place == "none":
            return 0 if place < 0 and len(self) else None
        start, step = place + 1, LOOK_TOKENS
        while start < self.file.n_tokens:
            if len(found := self.starts(start, start + step)):
                return int(found[0])
            start, step = start + step, min(2 * step, BLOCK_TOKENS)
        return None


class Locator:
    """Finds the documents of shards. Opening one reads next to nothing."""

    def __init__(self, shards: AnyShards) -> None:
        self.shards = shards
        self.edges = [0, *accumulate(file.n_tokens for file in shards.files)]
        self.tables: list[Places | ScannedStarts] = []
        before: ShardFile | None = None
        for file in shards.files:
            same = before if before is not None and before.split == file.split else None
            scan = ScannedStarts(file, shards.eot, shards.eot_place, same)
            self.tables.append(scan if file.places is None else file.places)
            before = file
        # The stream may begin inside a document, which is number 0 then.
        self.n_heads = int(self.edges[-1] > 0 and self._begun_at(0) is None)
        self.firsts = [self.n_heads]  # the number of the first document that begins in each file, as far as known
        self.count(0)

    @property
    def n_tokens(self) -> int:
        return self.edges[-1]

    @property
    def n_documents(self) -> int | None:
        """How many there are; None before all are counted."""
        return self.firsts[-1] if len(self.firsts) > len(self.tables) else None

    @property
    def n_counted_tokens(self) -> int:
        """How much of the stream is counted, from its beginning."""
        i = len(self.firsts) - 1
        if i == len(self.tables):
            return self.n_tokens
        table = self.tables[i]
        assert isinstance(table, ScannedStarts)  # others need no counting
        return min(self.edges[i] + table.n_counted, self.edges[i + 1])

    def count(self, seconds: float) -> bool:
        """Count on for about so long; whether all is counted then."""
        until = monotonic() + seconds
        while self.n_documents is None:
            table = self.tables[len(self.firsts) - 1]
            while isinstance(table, ScannedStarts) and not table.is_counted:
                if monotonic() >= until:
                    return False
                table.count_block()
            self.firsts.append(self.firsts[-1] + len(table))
        return True

    def document(self, number: int) -> Located | None:
        """A document by its number; None if there is need to `count` on. Raises IndexError."""
        if number < 0 or (self.n_documents is not None and number >= self.n_documents):
            raise IndexError(number)
        if number < self.n_heads:
            return Located(number, 0, self._next_start(-1), 0, None)
        if number == 0 and self.n_tokens and isinstance(self.tables[0], ScannedStarts):
            return replace(self.document_at(0), number=0)  # nothing must be counted for the first
        i = bisect_right(self.firsts, number) - 1
        if i >= len(self.tables) or number - self.firsts[i] >= len(self.tables[i]):
            return None
        ordinal = number - self.firsts[i]
        start = self.tables[i].start_of(ordinal)
        return Located(number, self.edges[i] + start, self._stop(i, ordinal, start), i, ordinal)

    def document_at(self, place: int) -> Located:
        """The document that has the token at a place of the stream. Raises IndexError."""
        if not 0 <= place < self.n_tokens:
            raise IndexError(place)
        begun = self._begun_at(place)
        if begun is None:
            return Located(0, 0, self._next_start(-1), 0, None)
        i, start = begun
        n_until = self.tables[i].n_until(start)
        ordinal = None if n_until is None else n_until - 1
        number = self.firsts[i] + ordinal if ordinal is not None and i < len(self.firsts) else None
        return Located(number, self.edges[i] + start, self._stop(i, ordinal, start), i, ordinal)

    def source(self, found: Located) -> dict[str, int] | None:
        """The entry of a document in our index: input, row, length, continued. None without one."""
        table = self.tables[found.file]
        return table.index.row(found.ordinal) if isinstance(table, IndexPlaces) and found.ordinal is not None else None

    def file_at(self, place: int) -> int:
        """The file that has the token at a place."""
        return min(bisect_right(self.edges, place) - 1, len(self.tables) - 1)

    def _begun_at(self, place: int) -> tuple[int, int] | None:
        """File and place in it of the last beginning at a place of the stream or before; None: there is none."""
        for i in range(self.file_at(place), -1, -1):
            table, local = self.tables[i], min(place - self.edges[i], self.edges[i + 1] - self.edges[i])
            if isinstance(table, ScannedStarts):
                start = table.last_at(local)
            else:
                n_until = table.n_until(local)
                start = table.start_of(n_until - 1) if n_until else None
            if start is not None:
                return i, start
        return None

    def _stop(self, i: int, ordinal: int | None, start: int) -> int:
        table = self.tables[i]
        if isinstance(table, ScannedStarts):
            behind = table.first_behind(start)
        else:
            assert ordinal is not None
            behind = table.start_of(ordinal + 1) if ordinal + 1 < len(table) else None
        return self._next_start(i) if behind is None else self.edges[i] + behind

    def _next_start(self, i: int) -> int:
        """Where the first document begins behind a file; the end, if none does."""
        for later in range(i + 1, len(self.tables)):
            table = self.tables[later]
            if isinstance(table, ScannedStarts):
                start = table.first_behind(-1)
            else:
                start = table.start_of(0) if len(table) else None
            if start is not None:
                return self.edges[later] + start
        return self.n_tokens
