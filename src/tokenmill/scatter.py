"""Segments -> groups of documents sorted by bucket -> buckets: a shuffle, carried out in bounded memory.

A bucket is the documents of a range of positions in the output, few enough to be put in order in memory. The units
are put together into groups, and a group is scattered by itself: its documents are read run by run, each run is
sorted by bucket, and all goes to one file. Whoever has the work folder can do any group, before or after any other,
and twice: the same task gives the same bytes. Then a bucket is read, a piece from each run of each group.

`work/scattered/000000.pieces`, of group 0, with R runs and B buckets:

    offset        type                content
    0             frame[]             of each run the documents of bucket 0, of bucket 1, ... B - 1; none, no frame
    T             uint64[B + 1][R]    where the frame of each bucket begins in each run; at the end, where the runs end
    size - 16     uint64              T
    size - 8      uint64              R
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun, joined_runs
from tokenmill.errors import OutputError
from tokenmill.frames import read_frame_into, write_frame
from tokenmill.segments import Segment, Stretch, UnitReceipt, read_segment
from tokenmill.shuffle import check_permutation, permutation
from tokenmill.storage.local import PartialFile, partial_file

# Tokens of a group. Its segments are deleted when it is on disk: of so much there are two copies at a time.
GROUP_BYTES = 1_000_000_000
# What is known of a document in a frame.
DOCUMENT = np.dtype([("position", "<u8"), ("row", "<u8"), ("length", "<u4"), ("input", "<u4")])
# That of the last task: all groups of a run have the same one, and numpy's is a table of all documents.
kept_permutation = lru_cache(maxsize=1)(permutation)


class ScatterTask(msgspec.Struct, frozen=True):
    """A group to scatter: all that is needed beside the work folder."""

    group: int
    segments: tuple[Segment, ...]  # of consecutive units
    n_documents_before: int  # in the groups before it
    n_documents: int  # in all groups
    permutation: str
    seed: int
    n_buckets: int

    @property
    def units(self) -> range:
        first = self.segments[0].unit.index
        return range(first, first + len(self.segments))

    def paths(self, work: Path) -> list[Path]:
        return [segment.path(work) for segment in self.segments]


class GroupReceipt(msgspec.Struct, frozen=True):
    """The record that a group is scattered: its file is on disk, and this is what is in it."""

    group: int
    first_unit: int
    n_units: int
    n_bytes: int
    bucket_documents: tuple[int, ...]
    bucket_tokens: tuple[int, ...]
    n_documents_in_all: int = 0  # in all groups: the places of its documents depend on that


def pieces_path(work: Path, group: int) -> Path:
    return work / "scattered" / f"{group:06d}.pieces"


def bucket_count(n_tokens: int, dtype: np.dtype, bucket_bytes: int) -> int:
    """How many buckets of about `bucket_bytes` hold so many tokens."""
    return max(1, -(-n_tokens * dtype.itemsize // bucket_bytes))


def scatter_tasks(
    segments: Iterable[Segment], kind: str, seed: int, n_buckets: int, dtype: np.dtype
) -> list[ScatterTask]:
    """A task for each group of the corpus. The groups depend on the segments alone, not on who works."""
    groups = list(grouped(segments, dtype.itemsize))
    counts = [sum(segment.receipt.n_documents for segment in group) for group in groups]
    n_documents, n_before = sum(counts), 0
    check_permutation(kind, n_documents, seed)
    tasks = []
    for number, (group, count) in enumerate(zip(groups, counts, strict=True)):
        tasks.append(ScatterTask(number, group, n_before, n_documents, kind, seed, n_buckets))
        n_before += count
    return tasks


def grouped(segments: Iterable[Segment], itemsize: int) -> Iterator[tuple[Segment, ...]]:
    """Consecutive segments, put together until they have `GROUP_BYTES` of tokens."""
    group: list[Segment] = []
    n_bytes = 0
    for segment in segments:
        group.append(segment)
        n_bytes += segment.receipt.n_tokens * itemsize
        if n_bytes >= GROUP_BYTES:
            yield tuple(group)
            group, n_bytes = [], 0
    if group:
        yield tuple(group)


def scattered_group(
    task: ScatterTask, work: Path, dtype: np.dtype, bucket_bytes: int, on_scattered: Callable[[int], None]
) -> GroupReceipt:
    """Write the documents of a group, sorted by bucket in runs of about `bucket_bytes`."""
    positions_of = kept_permutation(task.permutation, task.n_documents, task.seed)
    path, n_before = pieces_path(work, task.group), task.n_documents_before
    path.parent.mkdir(exist_ok=True)
    n_documents, n_tokens = np.zeros((2, task.n_buckets), dtype=np.int64)
    offsets: list[npt.NDArray[np.uint64]] = []
    frames = (run for segment in task.segments for run in read_segment(segment, work, dtype))
    with partial_file(path, "pieces", hashed=False, shared=True) as file:
        for run in joined_runs(frames, bucket_bytes):
            positions = positions_of(np.arange(n_before, n_before + len(run), dtype=np.uint64))
            pieces = sorted_by_bucket(run, positions, task)
            offsets.append(write_pieces(file, pieces))
            n_documents += np.diff(pieces.document_edges)
            n_tokens += np.diff(pieces.id_edges)
            n_before += len(run)
            on_scattered(len(run.ids))
            del run, pieces  # before the next are made
        write_table(file, offsets, task.n_buckets)
        file.commit()
    units = task.units
    counts = tuple(n_documents.tolist()), tuple(n_tokens.tolist())
    return GroupReceipt(task.group, units.start, len(units), file.n_bytes, *counts, task.n_documents)


def scattered_here(
    work: Path,
    dtype: np.dtype,
    bucket_bytes: int,
    on_scattered: Callable[[int], None],
    bring: Callable[[UnitReceipt], None],
    tasks: list[ScatterTask],
) -> Iterator[GroupReceipt]:
    """Do one task after another in this process. `bring` has a segment on this machine."""
    try:
        for task in tasks:
            for segment in task.segments:
                bring(segment.receipt)
            yield scattered_group(task, work, dtype, bucket_bytes, on_scattered)
    finally:
        kept_permutation.cache_clear()


class Pieces(NamedTuple):
    """The documents of a run, sorted by bucket, and where each bucket begins among them, and the end."""

    documents: npt.NDArray[np.void]
    ids: npt.NDArray[np.unsignedinteger]
    document_edges: npt.NDArray[np.int64]
    id_edges: npt.NDArray[np.int64]


def sorted_by_bucket(run: TokenRun, positions: npt.NDArray[np.uint64], task: ScatterTask) -> Pieces:
    per_bucket = -(-task.n_documents // task.n_buckets)
    buckets = (positions // np.uint64(per_bucket)).astype(np.int64)
    order = np.argsort(buckets, kind="stable")
    run = run.reordered(order)
    documents = np.empty(len(run), dtype=DOCUMENT)
    documents["position"] = positions[order]
    documents["row"] = run.doc_rows
    documents["length"] = run.doc_lengths
    documents["input"] = run.doc_inputs
    edges = np.zeros(task.n_buckets + 1, dtype=np.int64)
    np.cumsum(np.bincount(buckets, minlength=task.n_buckets), out=edges[1:])
    return Pieces(documents, run.ids, edges, run.doc_offsets[edges])


def write_pieces(file: PartialFile, pieces: Pieces) -> npt.NDArray[np.uint64]:
    """Append a frame for each bucket that has documents; return where each begins, and the end."""
    offsets = []
    of_documents, of_ids = pairwise(pieces.document_edges.tolist()), pairwise(pieces.id_edges.tolist())
    for (start, stop), (first_id, last_id) in zip(of_documents, of_ids, strict=True):
        offsets.append(file.n_bytes)
        if start < stop:
            write_frame(file, pieces.documents[start:stop], pieces.ids[first_id:last_id])
    return np.array([*offsets, file.n_bytes], dtype="<u8")


def write_table(file: PartialFile, offsets: list[npt.NDArray[np.uint64]], n_buckets: int) -> None:
    """Append where the pieces are, so that those of one bucket are found by one read, and where this begins."""
    trailer = np.array([file.n_bytes, len(offsets)], dtype="<u8")
    table = np.array(offsets, dtype="<u8").reshape(len(offsets), n_buckets + 1)
    file.write(table.T.ravel().data)
    file.write(trailer.data)


def piece_offsets(file: BinaryIO, bucket: int) -> list[int]:
    """Where the frames of a bucket are in the file of a group."""
    file.seek(-16, os.SEEK_END)
    table, n_runs = np.frombuffer(file.read(16), dtype="<u8").tolist()
    file.seek(table + bucket * n_runs * 8)
    begins, ends = np.frombuffer(file.read(2 * n_runs * 8), dtype="<u8").reshape(2, n_runs)
    found: list[int] = begins[begins < ends].tolist()
    return found


class Bucket(msgspec.Struct, frozen=True):
    """The documents of a range of positions, across all groups."""

    number: int
    n_documents: int
    n_tokens: int


OpenGroup = Callable[[int], BinaryIO]  # the file of a group, by its number


def buckets(bucket_documents: list[int], bucket_tokens: list[int]) -> Iterator[Bucket]:
    """Those that have documents, in their order."""
    for number, (n_documents, n_tokens) in enumerate(zip(bucket_documents, bucket_tokens, strict=True)):
        if n_documents:
            yield Bucket(number, n_documents, n_tokens)


def bucket_stretches(
    open_group: OpenGroup, n_groups: int, bucket_documents: list[int], bucket_tokens: list[int], dtype: np.dtype
) -> Iterator[Stretch]:
    """The output in its order: a stretch for each bucket, which reads some of the file of every group."""
    for bucket in buckets(bucket_documents, bucket_tokens):
        runs = partial(bucket_runs, open_group, n_groups, bucket, dtype)
        yield Stretch((), bucket.n_tokens, bucket.n_documents, runs)


def bucket_runs(open_group: OpenGroup, n_groups: int, bucket: Bucket, dtype: np.dtype) -> Iterator[TokenRun]:
    yield gathered(open_group, n_groups, bucket, dtype)  # from a call: what it was made of is gone by now


def bucket_lengths(open_group: OpenGroup, n_groups: int, bucket: Bucket) -> npt.NDArray[np.integer]:
    """The tokens of each document of a bucket, in order; their ids are passed over."""
    documents, n_read = np.empty(bucket.n_documents, dtype=DOCUMENT), 0
    for group in range(n_groups):
        with open_group(group) as file:
            for offset in piece_offsets(file, bucket.number):
                file.seek(offset)
                n_read += read_frame_into(file, documents[n_read:], np.empty(0, dtype=np.uint8))[0]
    lengths: npt.NDArray[np.integer] = documents["length"][np.argsort(documents["position"])]
    return lengths


def gathered(open_group: OpenGroup, n_groups: int, bucket: Bucket, dtype: np.dtype) -> TokenRun:
    """Read a bucket and put its documents in order."""
    n_documents, n_tokens = bucket.n_documents, bucket.n_tokens
    documents, ids = np.empty(n_documents, dtype=DOCUMENT), np.empty(n_tokens, dtype=dtype)
    n_read = n_ids_read = 0
    for group in range(n_groups):
        with open_group(group) as file:
            for offset in piece_offsets(file, bucket.number):
                file.seek(offset)
                n_more, n_more_ids = read_frame_into(file, documents[n_read:], ids[n_ids_read:])
                n_read, n_ids_read = n_read + n_more, n_ids_read + n_more_ids
    if (n_read, n_ids_read) != (n_documents, n_tokens):
        raise OutputError(
            f"the groups of a shuffle are damaged: {n_read:,} of {n_documents:,} documents and {n_ids_read:,} of"
            f" {n_tokens:,} tokens of bucket {bucket.number} are there",
            hint="delete the output and run again",
        )
    run = TokenRun(ids, documents["length"].astype(np.int64), documents["input"], documents["row"])
    return run.reordered(np.argsort(documents["position"]))
