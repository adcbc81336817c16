"""Read shards of any format, ours or not, with or without a manifest.

`open_any` tells what is there (format, type of the ids, splits, files, tokenizer, where documents begin) and who says
so; `AnyShards.runs` yields the documents of a split in bounded memory. With our manifest, all of it comes from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.batches import TokenRun
from tokenmill.manifest import Manifest
from tokenmill.reading import documents
from tokenmill.reading.detect import OPENERS, found_files, missing_warnings
from tokenmill.reading.documents import EotPlace, eot_of, without_samples
from tokenmill.reading.dtypes import dtype_named
from tokenmill.reading.files import Array, IndexPlaces, ShardFile
from tokenmill.reading.guessing import Told, told_tokenizer
from tokenmill.reading.ours import our_files, our_tokenizer, output_of, size_warnings
from tokenmill.shards import format_named
from tokenmill.tokenizers import Tokenizer

RUN_BYTES = 16_000_000


@dataclass(frozen=True, eq=False)
class AnyShards:
    """Shards that somebody wrote. Files are in order, validation first; a split is a stream of tokens."""

    path: Path
    format: str
    files: tuple[ShardFile, ...]
    told: Told  # the tokenizer, if it is known, and who says so
    eot: int | None
    eot_place: EotPlace
    documents_told_by: str
    manifest: Manifest | None = None
    warnings: tuple[str, ...] = ()  # what was seen while opening

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.told.tokenizer

    @property
    def dtype(self) -> np.dtype:
        return self.files[0].ids.dtype

    @property
    def splits(self) -> list[str]:
        return list(dict.fromkeys(file.split for file in self.files))

    @property
    def inputs(self) -> list[str]:
        """What the inputs of a run stand for: source files, or for shards without a manifest what was opened."""
        return [entry.path for entry in self.manifest.inputs] if self.manifest else [str(self.path)]

    @cached_property
    def n_tokens(self) -> int:
        return sum(file.n_tokens for file in self.files)

    @cached_property
    def n_documents(self) -> int | None:
        """How many documents there are; None if only a scan would tell (`count_documents`)."""
        if any(file.places is None for file in self.files):
            return None
        return sum(len(file.places) for file in self.files if file.places is not None)

    def files_of(self, split: str) -> list[ShardFile]:
        return [file for file in self.files if file.split == split]

    def runs(self, split: str, max_bytes: int = RUN_BYTES) -> Iterator[TokenRun]:
        """Yield the documents of a split, end-of-text included, in runs of about `max_bytes` of ids.

        Inputs and rows are those of the manifest; without one, input is 0 and rows count documents of the split.
        """
        files = self.files_of(split)
        source = (0, 0)
        if self.continues(split) and self.manifest is not None:
            source = documents.last_source(list(self.files[: self.files.index(files[0])]))
        return documents.runs(files, self.eot, self.eot_place, max_bytes, source)

    def continues(self, split: str) -> bool:
        """Whether the first document of a split is the rest of one that began in an earlier split or file."""
        return documents.continues(self.files_of(split), self.eot, self.eot_place)

    def numbered_runs(self, max_bytes: int = RUN_BYTES) -> Iterator[tuple[int, str, TokenRun]]:
        """Yield the runs of all splits, with the number of the first document of each.

        The rest of a document that began in the split before has that document's number.
        """
        number = 0
        for split in self.splits:
            is_rest = number > 0 and self.continues(split)
            for run in self.runs(split, max_bytes):
                number -= is_rest
                is_rest = False
                yield number, split, run
                number += len(run)

    def count_documents(self) -> int:
        """How many documents there are, if need be by a scan."""
        if self.n_documents is not None and not self.continues(self.splits[0]):
            return self.n_documents
        number, n_documents = 0, 0
        for number, _, run in self.numbered_runs():  # noqa: B007
            n_documents = len(run)
        return number + n_documents

    def lengths(self) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        """Yield split and tokens of documents, in order: by our index, or else by reading everything."""
        if self.manifest is not None and self.path.is_dir():
            for file in self.files:
                assert isinstance(file.places, IndexPlaces)
                yield from ((file.split, lengths) for lengths in file.places.lengths())
            return
        held: tuple[str, int] | None = None  # the last document of a run: the next split may have the rest of it
        end = 0
        for number, split, run in self.numbered_runs():
            lengths = run.doc_lengths
            if held is not None and number < end:
                held, lengths = (held[0], held[1] + int(lengths[0])), lengths[1:]
            end = number + len(run)
            if len(lengths):
                if held is not None:
                    yield held[0], np.array([held[1]], np.int64)
                yield split, lengths[:-1]
                held = split, int(lengths[-1])
        if held is not None:
            yield held[0], np.array([held[1]], np.int64)

    def tokens(self, start: int, stop: int) -> Array:
        """The ids from `start` to `stop` of the stream of all files, one behind another."""
        edges = [0, *accumulate(file.n_tokens for file in self.files)]
        start, stop = max(0, start), min(stop, edges[-1])
        parts: list[Array] = [np.empty(0, self.dtype)]
        while start < stop:
            i = bisect_right(edges, start) - 1
            end = min(stop, edges[i + 1])
            parts.append(np.asarray(self.files[i].ids[start - edges[i] : end - edges[i]]))
            start = end
        return np.concatenate(parts)

    def document(self, number: int) -> tuple[str, Array]:
        """Split and ids of a document, counted from 0 through all splits; raises IndexError."""
        parts: list[tuple[str, Array]] = []
        for first, split, run in self.numbered_runs():
            if parts and first > number:
                break
            if 0 <= number - first < len(run):
                parts.append((split, run.documents(number - first, number - first + 1).ids))
        if not parts:
            raise IndexError(number)
        return parts[0][0], np.concatenate([ids for _, ids in parts])

    def text_ids(self, ids: Array) -> Array:
        """The ids of a document without end-of-text at its ends."""
        if self.eot is None or not len(ids):
            return ids
        first = int(int(ids[0]) == self.eot)
        last = len(ids) - (len(ids) > first and int(ids[-1]) == self.eot)
        return ids[first:last]


def open_any(
    path: str | Path,
    tokenizer: str | None = None,
    dtype: str | None = None,
    eot: int | None = None,
    format: str | None = None,
) -> AnyShards:
    """Open a folder or a file of shards; what is said here goes before what the files say."""
    path = Path(path)
    if format is None and dtype is None and (found := output_of(path)) is not None:
        out, manifest = found
        recipe, end = manifest.recipe, manifest.tokenizer.eot_token if eot is None else eot
        told, ours = our_tokenizer(manifest, tokenizer), our_files(path, out, manifest)
        place: EotPlace = recipe.eot or "none"
        warnings = size_warnings(ours, out, manifest)
        return AnyShards(path, recipe.format, ours, told, end, place, "its manifest", manifest, warnings)
    name, paths = found_files(path, format)
    wanted = None if dtype is None else dtype_named(dtype)
    files = [OPENERS[name](file, split, wanted) for file, split in paths]
    told = told_tokenizer(files, tokenizer)
    eot, eot_how = eot_of(files, told, eot)
    files = [without_samples(file, eot) for file in files]
    splits = [[file for file in files if file.split == split] for split in dict.fromkeys(f.split for f in files)]
    default = format_named(name).defaults.eot
    place = documents.eot_place(splits, eot, default)
    if all(file.places is not None for file in files):
        how = "its own index" if name != "parquet" else "its rows"
    else:
        how = f"end-of-text, {eot_how}" if eot is not None else "nothing: there is no end-of-text that is known"
    warnings = (*missing_warnings([file for file, _ in paths], name), *(w for file in files for w in file.warnings))
    return AnyShards(path, name, tuple(files), told, eot, place, how, None, warnings)
