"""Permutations of documents, and the buckets that carry one out in bounded memory.

A permutation says for each document of the corpus which position it takes in the output. Segments are read in
order and their documents scattered, by position, into bucket files; then one bucket after another is read, sorted
and passed on. Every file is written and read from front to back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill import faults
from tokenmill.batches import TokenRun
from tokenmill.errors import RecipeError
from tokenmill.frames import read_frames, write_frame
from tokenmill.journal import Journal, Scattered
from tokenmill.segments import Stretch
from tokenmill.storage.local import sync_folder

# document numbers -> positions in the output
Permutation = Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.uint64]]

# The numpy permutation holds 12 bytes a document while it is made: 6.4 GB here. nanoGPT's OpenWebText has 8 million.
MAX_NUMPY_DOCUMENTS = 2**29
ARANGE_ROWS = 2**20


def permutation(kind: str, n_documents: int, seed: int) -> Permutation:
    return numpy_permutation(n_documents, seed) if kind == "numpy" else keyed_permutation(n_documents, seed)


def numpy_permutation(n_documents: int, seed: int) -> Permutation:
    """nanoGPT's own order: document `default_rng(seed).permutation(n)[j]` takes position j."""
    if n_documents > MAX_NUMPY_DOCUMENTS:
        raise RecipeError(
            f"the numpy permutation of {n_documents:,} documents would need {n_documents * 12 / 1e9:.0f} GB of memory",
            hint=f"pass `--shuffle {seed}`, which needs none, or `--no-shuffle`",
        )
    order = np.random.default_rng(seed).permutation(n_documents)
    positions = np.empty(n_documents, dtype=np.uint32)
    for start in range(0, n_documents, ARANGE_ROWS):  # in slices: a third array of this length would be too many
        documents = order[start : start + ARANGE_ROWS]
        positions[documents] = np.arange(start, start + len(documents), dtype=np.uint32)
    del order
    return lambda documents: positions[documents].astype(np.uint64)


N_ROUNDS = 8


def keyed_permutation(n_documents: int, seed: int) -> Permutation:
    """A bijection of 0 .. n - 1, computed for each document by itself: no table, any number of documents.

    A Feistel network over the next even number of bits, with a keyed hash as its round function; a value that falls
    outside 0 .. n - 1 is put through again until it does not (at most four times on average).
    """
    half = max(1, (max(1, n_documents - 1).bit_length() + 1) // 2)
    half_bits, mask = np.uint64(half), np.uint64(2**half - 1)
    digests = (hashlib.sha256(f"tokenmill keyed {seed} {i}".encode()).digest() for i in range(N_ROUNDS))
    keys = [np.uint64(int.from_bytes(digest[:8], "little")) for digest in digests]

    def network(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = values >> half_bits, values & mask
        for key in keys:
            left, right = right, left ^ (mixed(right ^ key) >> np.uint64(64 - half))
        return left << half_bits | right

    def positions(documents: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        values = network(documents)
        outside = np.flatnonzero(values >= n_documents)
        while len(outside):
            values[outside] = network(values[outside])
            outside = outside[values[outside] >= n_documents]
        return values

    return positions


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every bit of a 64-bit value over all others (the finalizer of SplitMix64)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


# What a bucket knows of a document; buckets are files of frames.
DOCUMENT = np.dtype([("position", "<u8"), ("row", "<u8"), ("length", "<u4"), ("input", "<u4")])


# Segments are deleted when what was scattered of them is on disk for sure. Every so many bytes: syncing costs.
COMMIT_BYTES = 1_000_000_000


class Buckets:
    """Files that together hold all documents of the output, each the documents of a range of positions.

    Filled unit by unit; from time to time all buckets are synced and their lengths recorded. After a kill they are cut
    back to those lengths, and the units behind them scattered again.
    """

    def __init__(self, work: Path, n_documents: int, n_buckets: int, dtype: np.dtype, journal: Journal) -> None:
        self.folder, self.dtype, self.journal = work / "buckets", dtype, journal
        self.per_bucket = -(-n_documents // n_buckets) or 1
        self.paths = [self.folder / f"{i:06d}.bucket" for i in range(n_buckets)]
        scattered = journal.state.scattered
        if scattered is None:
            none = (0,) * n_buckets
            scattered = Scattered(0, none, none, none)
        assert len(scattered.bucket_bytes) == n_buckets, "the buckets of an earlier run have other sizes"
        self.n_units = scattered.n_units
        self.n_bytes = list(scattered.bucket_bytes)
        self.n_documents = list(scattered.bucket_documents)
        self.n_tokens = list(scattered.bucket_tokens)

    def fill(self, stretches: Iterable[Stretch], positions: Permutation, on_scattered: Callable[[int], None]) -> None:
        """Scatter the documents of all units that are not scattered yet."""
        self.folder.mkdir(exist_ok=True)
        for path, n_bytes in zip(self.paths, self.n_bytes, strict=True):
            if path.exists():
                os.truncate(path, n_bytes)
        done: list[Path] = []
        n_documents = n_uncommitted = 0
        for i, stretch in enumerate(stretches):
            if i < self.n_units:
                stretch.path.unlink(missing_ok=True)  # recorded and not deleted: the run was killed in between
                n_documents += stretch.n_documents
                continue
            for run in stretch.runs():
                documents = np.arange(n_documents, n_documents + len(run), dtype=np.uint64)
                self.scatter(run, positions(documents))
                n_documents += len(run)
                n_uncommitted += run.ids.nbytes
                on_scattered(len(run.ids))
            done.append(stretch.path)
            if n_uncommitted >= COMMIT_BYTES:
                self.commit(done)
                done, n_uncommitted = [], 0
        if done:
            self.commit(done)

    def scatter(self, run: TokenRun, positions: npt.NDArray[np.uint64]) -> None:
        """Append each document of a run to the bucket its position belongs to."""
        buckets = (positions // np.uint64(self.per_bucket)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        run = run.reordered(order)
        documents = np.empty(len(run), dtype=DOCUMENT)
        documents["position"] = positions[order]
        documents["row"] = run.doc_rows
        documents["length"] = run.doc_lengths
        documents["input"] = run.doc_inputs
        edges = np.searchsorted(buckets[order], np.arange(len(self.paths) + 1)).tolist()
        offsets = run.doc_offsets.tolist()
        for i, (start, stop) in enumerate(pairwise(edges)):
            if start < stop:
                with self.paths[i].open("ab") as file:
                    write_frame(file, documents[start:stop], run.ids[offsets[start] : offsets[stop]])
                    self.n_bytes[i] = file.tell()
                self.n_documents[i] += stop - start
                self.n_tokens[i] += offsets[stop] - offsets[start]

    def commit(self, segments: list[Path]) -> None:
        """Put what was scattered on disk, record it, and delete the segments it came from."""
        faults.point("buckets.written")
        for path in self.paths:
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(self.folder)
        faults.point("buckets.synced")
        self.n_units += len(segments)
        counts = (tuple(self.n_bytes), tuple(self.n_documents), tuple(self.n_tokens))
        self.journal.record(Scattered(self.n_units, *counts))
        for path in segments:
            path.unlink(missing_ok=True)
            faults.point("segment.deleted")

    def stretches(self) -> Iterator[Stretch]:
        """The output in its order: a stretch for each bucket."""
        for path, n_tokens, n_documents in zip(self.paths, self.n_tokens, self.n_documents, strict=True):
            if n_documents:
                yield Stretch(path, n_tokens, n_documents, partial(gathered, path, self.dtype))


def gathered(path: Path, dtype: np.dtype) -> Iterator[TokenRun]:
    """Read a bucket and put its documents in order."""
    with path.open("rb") as file:
        frames = list(read_frames(file, DOCUMENT, dtype))
    documents = np.concatenate([documents for documents, _ in frames])
    ids = np.concatenate([ids for _, ids in frames])
    del frames
    run = TokenRun(ids, documents["length"].astype(np.int64), documents["input"], documents["row"])
    yield run.reordered(np.argsort(documents["position"]))
