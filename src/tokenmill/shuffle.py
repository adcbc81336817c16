"""Permutations of documents, and the buckets that carry one out in bounded memory.

A permutation says for each document of the corpus which position it takes in the output. Segments are read in
order and their documents scattered, by position, into bucket files; then one bucket after another is read, sorted
and passed on. Every file is written and read from front to back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun
from tokenmill.errors import RecipeError
from tokenmill.frames import read_frames, write_frame

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


def shuffled_runs(
    runs: Iterable[TokenRun],
    positions: Permutation,
    n_documents: int,
    n_buckets: int,
    work: Path,
    dtype: np.dtype,
    on_scattered: Callable[[int], None],
) -> Iterator[TokenRun]:
    """Yield the documents of `runs` in the order of their positions, one bucket at a time."""
    folder = work / "buckets"
    folder.mkdir()
    paths = [folder / f"{i:06d}.bucket" for i in range(n_buckets)]
    per_bucket = -(-n_documents // n_buckets) or 1
    n_scattered = 0
    for run in runs:
        scatter(run, positions(np.arange(n_scattered, n_scattered + len(run), dtype=np.uint64)), per_bucket, paths)
        n_scattered += len(run)
        on_scattered(len(run.ids))
    assert n_scattered == n_documents, f"{n_scattered} documents, and the permutation has {n_documents}"
    for path in paths:
        if path.exists():
            yield gathered(path, dtype)
            path.unlink()


def scatter(run: TokenRun, positions: npt.NDArray[np.uint64], per_bucket: int, paths: list[Path]) -> None:
    """Append each document of a run to the bucket its position belongs to."""
    buckets = (positions // np.uint64(per_bucket)).astype(np.int64)
    order = np.argsort(buckets, kind="stable")
    run = run.reordered(order)
    documents = np.empty(len(run), dtype=DOCUMENT)
    documents["position"] = positions[order]
    documents["row"] = run.doc_rows
    documents["length"] = run.doc_lengths
    documents["input"] = run.doc_inputs
    edges = np.searchsorted(buckets[order], np.arange(len(paths) + 1)).tolist()
    offsets = run.doc_offsets
    for path, start, stop in zip(paths, edges, edges[1:], strict=False):
        if start < stop:
            with path.open("ab") as file:
                write_frame(file, documents[start:stop], run.ids[offsets[start] : offsets[stop]])


def gathered(path: Path, dtype: np.dtype) -> TokenRun:
    """Read a bucket and put its documents in order."""
    with path.open("rb") as file:
        frames = list(read_frames(file, DOCUMENT, dtype))
    documents = np.concatenate([documents for documents, _ in frames])
    ids = np.concatenate([ids for _, ids in frames])
    del frames
    run = TokenRun(ids, documents["length"].astype(np.int64), documents["input"], documents["row"])
    return run.reordered(np.argsort(documents["position"]))
