"""Text -> the documents that contain it, from a place of the stream on, for a while at a time.

The bytes of all tokens are in a table, and a stretch of ids becomes its bytes in one take: some 30 million tokens a
second. Special tokens become a byte that is in no text, so that nothing is found across them. Tokenizers whose tokens
are no bytes are decoded document by document.
"""

from __future__ import annotations

from functools import cached_property
from time import monotonic
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.reading.files import Array
from tokenmill.reading.finding import decoded, needed_tokenizer, token_bytes
from tokenmill.reading.locating import Located, Locator

STRETCH_TOKENS = 1 << 19
EXCERPT_BYTES = 60
NO_TEXT = b"\xff"


class Hit(msgspec.Struct, frozen=True):
    """A document, and where in it the text stands first."""

    number: int | None
    start: int  # of the document, in the stream
    first: int | None  # token of the stream; None where tokens are no bytes
    last: int | None
    before: str
    match: str
    after: str


class Found(msgspec.Struct, frozen=True):
    hits: list[Hit]
    next: int | None  # where to go on; None at the end


class Searcher:
    """Looks for text in the documents of shards."""

    def __init__(self, locator: Locator) -> None:
        self.locator, self.shards = locator, locator.shards
        self.tokenizer = needed_tokenizer(self.shards)

    def search(self, text: str, start: int, seconds: float, max_hits: int) -> Found:
        """Search from a place on until time is up, enough is found or the end is reached."""
        until, hits, place = monotonic() + seconds, list[Hit](), start
        while place < self.shards.n_tokens:
            found, place = self.by_bytes(text, place) if self.table is not None else self.by_document(text, place)
            hits += found
            if len(hits) >= max_hits:
                return Found(hits[:max_hits], self.behind(hits[max_hits - 1]))
            if monotonic() >= until:
                break
        return Found(hits, place if place < self.shards.n_tokens else None)

    def behind(self, hit: Hit) -> int | None:
        stop = self.locator.document_at(hit.start).stop
        return stop if stop < self.shards.n_tokens else None

    @cached_property
    def table(self) -> Any:
        """The bytes of each token; None if they have none."""
        import pyarrow as pa

        of_token = token_bytes(self.tokenizer)
        if of_token is None:
            return None
        special = {*self.tokenizer.special_tokens.values(), self.shards.eot}
        spelled = [NO_TEXT if token in special else of_token(token) for token in range(self.tokenizer.vocab_size)]
        return pa.array([*spelled, NO_TEXT], pa.large_binary())

    def text_bytes(self, ids: Array) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The bytes of ids, and where those of each end."""
        import pyarrow as pa

        known = (ids >= 0) & (ids < self.tokenizer.vocab_size)
        taken = self.table.take(pa.array(np.where(known, ids, self.tokenizer.vocab_size)))
        _, offsets, data = taken.buffers()
        return bytes(data or b""), np.frombuffer(offsets, np.int64, len(ids) + 1)[1:]

    def by_bytes(self, text: str, place: int) -> tuple[list[Hit], int]:
        """The documents of a stretch that contain a text, and where the next one begins."""
        needle, hits = text.encode(), list[Hit]()
        stop = min(place + STRETCH_TOKENS, self.shards.n_tokens)
        data, ends = self.text_bytes(self.shards.tokens(place, stop + len(needle)))
        at = data.find(needle)
        while at >= 0:
            first = place + int(np.searchsorted(ends, at, side="right"))
            last = place + int(np.searchsorted(ends, at + len(needle) - 1, side="right"))
            if first >= stop:
                break
            document = self.locator.document_at(first)
            if last >= document.stop:  # it runs into the next one, where nothing stands between them
                at = data.find(needle, at + 1)
                continue
            hits.append(self.hit(document, first, last, data, at, needle))
            if document.stop - place >= len(ends):
                return hits, max(stop, document.stop)
            at = data.find(needle, int(ends[document.stop - place - 1]))
        return hits, stop

    def hit(self, document: Located, first: int, last: int, data: bytes, at: int, needle: bytes) -> Hit:
        before = data[max(0, at - EXCERPT_BYTES) : at].rpartition(NO_TEXT)[2]
        behind = at + len(needle)
        after = data[behind : behind + EXCERPT_BYTES].partition(NO_TEXT)[0]
        words = (before.decode(errors="ignore"), needle.decode(), after.decode(errors="ignore"))
        return Hit(document.number, document.start, first, last, *words)

    def by_document(self, text: str, place: int) -> tuple[list[Hit], int]:
        """The same for one document, decoded."""
        document = self.locator.document_at(place)
        found = decoded(self.tokenizer, self.shards.text_ids(self.shards.tokens(document.start, document.stop)))
        at = found.find(text)
        if at < 0:
            return [], document.stop
        end = at + len(text)
        words = (found[max(0, at - EXCERPT_BYTES) : at], text, found[end : end + EXCERPT_BYTES])
        return [Hit(document.number, document.start, None, None, *words)], document.stop
