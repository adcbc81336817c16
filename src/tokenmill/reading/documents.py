"""Files of a split -> runs of whole documents, in bounded memory.

Where documents begin comes from places (an index) or from end-of-text. What lies before the first beginning of a split
is the rest of a document that began elsewhere: it comes as the first document of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun
from tokenmill.errors import RecipeError
from tokenmill.reading.files import Array, Beginning, IndexPlaces, ShardFile
from tokenmill.reading.guessing import Told, windows

EotPlace = Literal["first", "last", "none"]
Unsigned = npt.NDArray[np.unsignedinteger]


def runs(
    files: list[ShardFile], eot: int | None, place: EotPlace, max_bytes: int, begins_in: tuple[int, int] = (0, 0)
) -> Iterator[TokenRun]:
    """Yield whole documents of consecutive files, about `max_bytes` of ids at a time.

    `begins_in` is input and row of the document that the first file goes on with, if it does.
    """
    parts: list[Unsigned] = []  # of the document that is not ended yet
    head: tuple[int, int] | None = None  # its input and row
    n_documents = 0
    for ids, begun in stretches(files, eot, place, max_bytes):
        starts = begun.starts
        if head is None and len(ids) and (not len(starts) or starts[0] > 0):
            head = begins_in
            n_documents += 1
        if not len(starts):
            parts.append(ids)
            continue
        numbers = np.arange(n_documents, n_documents + len(starts), dtype=np.uint64)
        n_documents += len(starts)
        inputs = np.zeros(len(starts), np.uint32) if begun.inputs is None else begun.inputs
        rows = numbers if begun.rows is None else begun.rows
        last = int(starts[-1])
        open_before = [] if head is None else [head]
        n_before = sum(map(len, parts))
        edges = np.concatenate([[0] if open_before else [], starts + n_before]).astype(np.int64)
        yield TokenRun(
            np.concatenate([*parts, ids[:last]]) if parts else ids[:last],
            np.diff(edges),
            np.concatenate([[i for i, _ in open_before], inputs[:-1]]).astype(np.uint32),
            np.concatenate([np.array([row for _, row in open_before], np.uint64), rows[:-1]]),
        )
        parts, head = [ids[last:]], (int(inputs[-1]), int(rows[-1]))
    if head is not None:
        ids = np.concatenate(parts) if len(parts) > 1 else parts[0]
        lengths = np.array([len(ids)], np.int64)
        yield TokenRun(ids, lengths, np.array([head[0]], np.uint32), np.array([head[1]], np.uint64))


def stretches(
    files: list[ShardFile], eot: int | None, place: EotPlace, max_bytes: int
) -> Iterator[tuple[Unsigned, Beginning]]:
    """Yield ids, and which documents begin in them, counted from their first."""
    previous = eot  # a split begins as a document does
    for file in files:
        step = max(1, max_bytes // file.ids.dtype.itemsize)
        # Documents without a token may begin at the very end.
        for start in range(0, max(1, file.n_tokens), step):
            is_end = start + step >= file.n_tokens
            ids = unsigned(np.asarray(file.ids[start : start + step]))
            if file.places is not None:
                begun = file.places.between(start, start + step + 1 if is_end else start + step)
                yield ids, Beginning(begun.starts - start, begun.inputs, begun.rows)
            else:
                yield ids, Beginning(scanned(ids, eot, place, previous))
            previous = int(ids[-1]) if len(ids) else previous


def unsigned(ids: Array) -> Unsigned:
    """The same ids, as runs have them: none is below 0, whatever the type."""
    found: Unsigned = ids.view(ids.dtype.str.replace("i", "u"))
    return found


def scanned(ids: Array, eot: int | None, place: EotPlace, previous: int | None) -> npt.NDArray[np.int64]:
    """Where documents begin, by end-of-text before or behind each; without it, there is one."""
    if not len(ids):
        return np.empty(0, np.int64)
    if eot is None or place == "none":
        return np.empty(0, np.int64)
    if place == "first":
        return np.flatnonzero(ids == eot)
    behind = np.flatnonzero(ids[:-1] == eot) + 1
    return np.concatenate([[0], behind]).astype(np.int64) if previous == eot else behind


def eot_place(splits: list[list[ShardFile]], eot: int | None, default: EotPlace) -> EotPlace:
    """Whether end-of-text comes first or last: by the first documents, or by the ends of the splits.

    The format's own way, if they do not tell; "none" if there is none in a sample.
    """
    full = [files for split in splits if (files := [file for file in split if file.n_tokens])]
    if eot is None or not full:
        return "none"
    n_first, n_last = (sum(counts) for counts in zip(*(ends_with_eot(files, eot) for files in full), strict=True))
    if n_first != n_last:
        return "first" if n_first > n_last else "last"
    sample = windows([file for files in full for file in files], n_windows=64, n_tokens=16_384)
    return default if any((ids == eot).any() for ids in sample) else "none"


def ends_with_eot(files: list[ShardFile], eot: int) -> tuple[int, int]:
    """How many documents begin, and how many end with end-of-text, among the first or at the ends of a split."""
    first, last = files[0], files[-1]
    if first.places is None:
        ends = first.ids[0:1], last.ids[last.n_tokens - 1 : last.n_tokens]
        return int(ends[0][0] == eot), int(ends[1][0] == eot)
    n_tokens = min(first.n_tokens, 100_000)
    ids, starts = np.asarray(first.ids[0:n_tokens]), first.places.between(0, n_tokens).starts
    ends_at = np.append(starts[1:], [n_tokens] if n_tokens == first.n_tokens else []).astype(np.int64) - 1
    return int((ids[starts] == eot).sum()), int((ids[ends_at[ends_at >= 0]] == eot).sum())


def continues(files: list[ShardFile], eot: int | None, place: EotPlace) -> bool:
    """Whether the first file of a split begins inside a document."""
    first = next((file for file in files if file.n_tokens), None)
    if first is None:
        return False
    if first.places is not None:
        return len(first.places.between(0, 1).starts) == 0
    return place == "first" and int(first.ids[0:1][0]) != eot


def last_source(files: list[ShardFile]) -> tuple[int, int]:
    """Input and row of the last document that begins in some files of ours."""
    for file in reversed(files):
        if isinstance(file.places, IndexPlaces) and (found := file.places.last()) is not None:
            return found
    return (0, 0)


def eot_of(files: list[ShardFile], told: Told, eot: int | None) -> tuple[int | None, str]:
    """The id of end-of-text: said, the tokenizer's, or one that stands at the ends of all files."""
    if eot is not None:
        return eot, f"{eot} as you say"
    if told.tokenizer is not None:
        try:
            return told.tokenizer.eot_token, str(told.tokenizer.eot_token)
        except RecipeError:  # none is obvious
            pass
    full = [file for file in files if file.n_tokens]
    for what, at in (("ends", -1), ("begins", 0)):
        found = {int(np.asarray(file.ids[max(0, at % file.n_tokens) : at % file.n_tokens + 1])[0]) for file in full}
        if len(found) == 1:
            (candidate,) = found
            n_times = sum(int((ids == candidate).sum()) for ids in windows(full, n_windows=64, n_tokens=4096))
            largest = max(int(ids.max()) for ids in windows(full))
            if n_times > len(full) and candidate >= largest - 256:  # special tokens have the largest ids
                return candidate, f"{candidate}, since every file {what} with it"
    return None, ""


def without_samples(file: ShardFile, eot: int | None) -> ShardFile:
    """The file without its places, where these are of samples packed full and not of documents.

    They are if all have one length and end-of-text stands inside them.
    """
    if file.places is None or eot is None or isinstance(file.places, IndexPlaces) or len(file.places) < 2:
        return file
    step = -(-file.n_tokens // len(file.places))
    starts = file.places.between(0, min(file.n_tokens, 64 * step)).starts
    lengths = np.diff(starts)
    if not len(lengths) or (lengths != lengths[0]).any() or lengths[0] < 2:
        return file
    ids = np.asarray(file.ids[0 : int(starts[-1])]).reshape(-1, int(lengths[0]))
    is_inside = bool((ids[:, 1:-1] == eot).any())
    return replace(file, places=None) if is_inside else file
