"""Open a finished output: documents by number, tokens by position, text again.

Files are memory-mapped and nothing is scanned: opening an output of any size is instant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.errors import OutputError
from tokenmill.manifest import Manifest, load_manifest
from tokenmill.shards import Split, format_named
from tokenmill.shards.index import BATCH_ROWS, Index
from tokenmill.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Document:
    """One document of an output, with end-of-text where the recipe puts it."""

    number: int
    tokens: npt.NDArray[np.integer]
    split: Split
    shard: str
    start: int  # position of its first token in the shard
    source: str
    row: int
    is_cut: bool  # its last tokens are not here: dropped, or in another split of a converted output
    is_rest: bool  # its first tokens are in another split of a converted output


class Shards:
    """A finished output. `len()` counts documents; documents are numbered through all shards, in order."""

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.manifest: Manifest = load_manifest(self.out)
        self.tokenizer = Tokenizer(self.manifest.recipe.tokenizer, self.manifest.recipe.pattern)
        # Documents before each shard, and behind the last.
        self._firsts = [0, *accumulate(shard.n_documents for shard in self.manifest.shards)]
        self.ids = lru_cache(maxsize=64)(self._map_ids)  # of a shard, by its number
        self._index = lru_cache(maxsize=64)(self._map_index)

    def __len__(self) -> int:
        return self._firsts[-1]

    @property
    def n_tokens(self) -> int:
        return self.manifest.totals.n_tokens

    def __getitem__(self, number: int) -> Document:
        if not -len(self) <= number < len(self):
            raise IndexError(f"document {number} of {len(self)}")
        number %= len(self)
        shard = bisect_right(self._firsts, number) - 1
        entry = self._index(shard).row(number - self._firsts[shard])
        return self._document(shard, number, entry)

    def number_at(self, place: int) -> int | None:
        """The number of the document at a place of the whole stream; None if it was dropped at the end of a split."""
        n_before = n_dropped = n_continued = 0
        for shard in self.manifest.shards:
            n_before += shard.n_documents - shard.n_continued
            n_continued += shard.n_continued
            if place < n_before + n_dropped:
                return place - n_dropped + n_continued
            n_dropped += shard.n_dropped_documents
            if place < n_before + n_dropped:
                return None
        raise IndexError(place)

    def __iter__(self) -> Iterator[Document]:
        return self.documents()

    def documents(self, split: Split | None = None) -> Iterator[Document]:
        """Yield the documents, in order; of one split if it is named."""
        for shard, receipt in enumerate(self.manifest.shards):
            if split not in (None, receipt.split):
                continue
            index = self._index(shard)
            for i in range(index.n_batches):
                first = self._firsts[shard] + i * BATCH_ROWS
                for number, entry in enumerate(index.batch(i).to_pylist(), first):
                    yield self._document(shard, number, entry)

    def tokens(self, split: Split | None = None) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the token ids of each shard, memory-mapped; of one split if it is named."""
        for shard, receipt in enumerate(self.manifest.shards):
            if split in (None, receipt.split):
                yield self.ids(shard)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of token ids, special tokens spelled out."""
        return self.tokenizer.decode(tokens)

    def text(self, document: Document) -> str:
        """Return the text of a document, without end-of-text."""
        tokens = document.tokens
        match self.manifest.recipe.eot:
            case "first":
                tokens = tokens if document.is_rest else tokens[1:]
            case "last":
                tokens = tokens if document.is_cut else tokens[:-1]
        return self.decode(tokens.tolist())

    def _document(self, shard: int, number: int, entry: dict[str, int]) -> Document:
        receipt = self.manifest.shards[shard]
        tokens = self._tokens_from(shard, entry["start"], entry["length"])
        return Document(
            number=number,
            tokens=tokens,
            split=receipt.split,
            shard=receipt.file,
            start=entry["start"],
            source=self.manifest.inputs[entry["input"]].path,
            row=entry["row"],
            is_cut=len(tokens) < entry["length"] or (receipt.ends_cut and number == self._firsts[shard + 1] - 1),
            is_rest=bool(entry["continued"]),
        )

    def _tokens_from(self, shard: int, start: int, length: int) -> npt.NDArray[np.integer]:
        """The tokens of a document, which may run on into following shards."""
        shards = self.manifest.shards
        ids = self.ids(shard)[start : start + length]
        # Behind the last shard of a split there may be nothing: a tail that filled no sample was dropped.
        while len(ids) < length and shard + 1 < len(shards) and not shards[shard].n_dropped_tokens:
            shard += 1
            ids = np.concatenate([ids, self.ids(shard)[: length - len(ids)]])
        return ids

    def _map_ids(self, shard: int) -> npt.NDArray[np.integer]:
        path = self.out / self.manifest.shards[shard].file
        dtype = np.dtype(self.manifest.tokenizer.dtype).newbyteorder("<")
        try:
            return format_named(self.manifest.recipe.format).read_ids(path, dtype)
        except FileNotFoundError:
            raise OutputError(
                f"shard `{path}` is missing", hint=f"`tokenmill verify {self.out}` lists all damage"
            ) from None

    def _map_index(self, shard: int) -> Index:
        return Index(self.out / self.manifest.shards[shard].index.file)


def open_shards(out: str | Path) -> Shards:
    """Open a finished output of tokenmill."""
    return Shards(out)
