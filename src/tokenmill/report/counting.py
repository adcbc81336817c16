"""Shards -> how often each token occurs, and how many bytes of text a token has along the stream.

All tokens are read where there are up to 256 million; of more, that many in seeded stretches from all over the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.reading import AnyShards
from tokenmill.reading.files import Array
from tokenmill.reading.finding import decoded, token_bytes
from tokenmill.tokenizers import Tokenizer

STRETCH_TOKENS = 1 << 20
MAX_STRETCHES = 256
MAX_POINTS = 200
POINT_TOKENS = 4096  # fewer make a noisy picture
DECODED_TOKENS = 1024  # at each point, where text must be decoded to be measured
MAX_ID = 1 << 22
SEED = 0


@dataclass(frozen=True)
class Point:
    """A stretch of the stream: where it begins, its tokens, and the bytes of their text."""

    start: int
    n_tokens: int
    n_bytes: int


@dataclass(frozen=True)
class TokenCounts:
    counts: npt.NDArray[np.int64]  # by id
    n_read: int
    n_strange: int  # ids that no vocabulary has: below 0, or beyond 4 million
    points: tuple[Point, ...]  # empty where the tokenizer is not known

    @property
    def n_used(self) -> int:
        return int(np.count_nonzero(self.counts))

    def most_frequent(self, n: int) -> list[tuple[int, int]]:
        """Ids and their counts, the most frequent first."""
        order = np.lexsort((np.arange(len(self.counts)), -self.counts))[:n]
        return [(int(i), int(self.counts[i])) for i in order if self.counts[i]]


def count_tokens(shards: AnyShards) -> TokenCounts:
    counts, n_read, n_strange, points = np.zeros(0, np.int64), 0, 0, list[Point]()
    measure, n_point = measure_of(shards), max(POINT_TOKENS, -(-shards.n_tokens // MAX_POINTS))
    for start, stop in chosen_stretches(shards):
        ids = shards.tokens(start, stop)
        n_read += len(ids)
        known = ids[(ids >= 0) & (ids < MAX_ID)]
        n_strange += len(ids) - len(known)
        found = np.bincount(known.astype(np.int64, copy=False))
        if len(found) > len(counts):
            counts = np.concatenate([counts, np.zeros(len(found) - len(counts), np.int64)])
        counts[: len(found)] += found
        if measure is not None:
            points += [
                measure(ids[at : at + n_point], start + at)
                for at in range(0, len(ids), n_point)
                if at == 0 or len(ids) - at >= POINT_TOKENS // 2
            ]
    return TokenCounts(counts, n_read, n_strange, tuple(thinned(points)))


def chosen_stretches(shards: AnyShards) -> list[tuple[int, int]]:
    """All of the stream in stretches, or a seeded choice of them, in order."""
    starts = np.arange(0, shards.n_tokens, STRETCH_TOKENS)
    if len(starts) > MAX_STRETCHES:
        starts = np.sort(np.random.default_rng(SEED).choice(starts, MAX_STRETCHES, replace=False))
    return [(start, min(start + STRETCH_TOKENS, shards.n_tokens)) for start in starts.tolist()]


def measure_of(shards: AnyShards) -> Callable[[Array, int], Point] | None:
    """A function from ids and their place to the bytes of their text; special tokens have none."""
    tokenizer = shards.tokenizer
    if tokenizer is None:
        return None
    lengths = byte_lengths(tokenizer, shards.eot)
    if lengths is None:
        return lambda ids, start: decoded_point(tokenizer, ids[:DECODED_TOKENS], start, shards.eot)

    def measured(ids: Array, start: int) -> Point:
        return Point(start, len(ids), int(np.take(lengths, ids, mode="clip").sum(dtype=np.int64)))

    return measured


def byte_lengths(tokenizer: Tokenizer, eot: int | None) -> npt.NDArray[np.int32] | None:
    """The bytes of each token; None if the tokenizer's tokens are no bytes."""
    of_token = token_bytes(tokenizer)
    if of_token is None:
        return None
    special = {*tokenizer.special_tokens.values(), eot}
    each = (0 if token in special else len(of_token(token)) for token in range(tokenizer.vocab_size))
    return np.array([*each, 0], np.int32)  # what is beyond the vocabulary has no text


def decoded_point(tokenizer: Tokenizer, ids: Array, start: int, eot: int | None) -> Point:
    return Point(start, len(ids), len(decoded(tokenizer, ids[ids != eot] if eot is not None else ids).encode()))


def thinned(points: list[Point]) -> list[Point]:
    """At most 200 points, neighbors put together."""
    step = -(-len(points) // MAX_POINTS) or 1
    return [
        Point(some[0].start, sum(point.n_tokens for point in some), sum(point.n_bytes for point in some))
        for some in (points[i : i + step] for i in range(0, len(points), step))
    ]
