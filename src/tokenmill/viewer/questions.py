"""What the page asks, and the answers: plain values, each found in a moment whatever the size of the output.

What takes longer (counting documents without an index, search, lengths, a row of a source file) is done for a
fraction of a second at a time; the answer says how far it came, and the page asks again until it is done or stopped.
"""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np

from tokenmill.reading import AnyShards
from tokenmill.reading.files import IndexPlaces
from tokenmill.reading.finding import decoded, needed_tokenizer
from tokenmill.reading.locating import Located, Locator
from tokenmill.reading.shown import character_edge, shown_pieces
from tokenmill.shards.index import BATCH_ROWS
from tokenmill.tokenizers import Tokenizer
from tokenmill.viewer.lengths import LengthScan
from tokenmill.viewer.search import Searcher
from tokenmill.viewer.server import AskedWronglyError

STEP_SECONDS = 0.3
BROWSE_SECONDS = 0.03  # for counting on while somebody looks at documents
WINDOW_TOKENS = 2_000
MAX_COMPARED_TOKENS = 100_000
MAX_HITS = 10
MAX_SOURCES = 500


class Questions:
    """Answers for one output. Threads take turns: nothing below is made for several at once."""

    def __init__(self, shards: AnyShards, tokenizers: tuple[str, ...] = ()) -> None:
        self.shards, self.tokenizers = shards, tokenizers  # others to compare with
        self.locator = Locator(shards)
        self._turn = Lock()
        self._answers = {
            "overview": self.overview,
            "document": self.document,
            "tokens": self.tokens,
            "source": self.source,
            "search": self.search,
            "lengths": self.lengths,
            "compare": self.compare,
        }

    def __call__(self, name: str, query: dict[str, str]) -> Any:
        if name not in self._answers:
            raise AskedWronglyError(f"there is no `{name}`")
        with self._turn:
            return self._answers[name](query)

    def overview(self, query: dict[str, str]) -> dict[str, Any]:
        shards, manifest = self.shards, self.shards.manifest
        return {
            "path": str(shards.path.absolute()),
            "format": shards.format,
            "tokenizer": shards.told.name,
            "tokenizer_told_by": shards.told.how,
            "can_decode": shards.tokenizer is not None,
            "eot": shards.eot,
            "n_tokens": shards.n_tokens,
            "n_documents": self.locator.n_documents,
            "n_files": len(shards.files),
            "splits": {name: sum(file.n_tokens for file in shards.files_of(name)) for name in shards.splits},
            "n_sources": len(manifest.inputs) if manifest else 0,
            "sources": list(dict.fromkeys(entry.path for entry in manifest.inputs[:MAX_SOURCES])) if manifest else [],
            "tokenizers": [name for name in self.tokenizers if name != shards.told.name],
            "warnings": shards.warnings,
        }

    def document(self, query: dict[str, str]) -> dict[str, Any]:
        """A document by `number` or by the `token` in it; where numbers must be counted, how far that is."""
        if "token" in query:
            place = whole(query, "token")
            self.locator.count(BROWSE_SECONDS)
            try:
                found = self.locator.document_at(place)
            except IndexError:
                raise AskedWronglyError(
                    f"there is no token {place:,}: the last is {self.shards.n_tokens - 1:,}"
                ) from None
            return self.facts(found)
        number = whole(query, "number", least=-1)
        located = self.numbered(number)
        if located is None:
            self.locator.count(STEP_SECONDS)
            located = self.numbered(number)
        if located is None:
            return {"share": self.locator.n_counted_tokens / max(1, self.shards.n_tokens)}
        self.locator.count(BROWSE_SECONDS)
        return self.facts(located)

    def numbered(self, number: int) -> Located | None:
        """A document by its number, -1 for the last; None if there is need to count on."""
        n_documents = self.locator.n_documents
        if number < 0 and n_documents is None:
            return None
        try:
            return self.locator.document((n_documents or 0) - 1 if number < 0 else number)
        except IndexError:
            last = f": the last is {n_documents - 1:,}" if n_documents else ""
            raise AskedWronglyError(f"there is no document {number:,}{last}") from None

    def facts(self, found: Located) -> dict[str, Any]:
        file = self.shards.files[found.file]
        entry, manifest = self.locator.source(found), self.shards.manifest
        facts: dict[str, Any] = {
            "number": found.number,
            "n_documents": self.locator.n_documents,
            "start": found.start,
            "stop": found.stop,
            "split": file.split,
            "shard": file.path.name,
            "shard_start": found.start - self.locator.edges[found.file],
        }
        if entry is not None and manifest is not None:
            is_cut = entry["length"] > found.stop - found.start
            facts |= {"source": manifest.inputs[entry["input"]].path, "row": entry["row"]}
            facts |= {"is_rest": bool(entry["continued"]), "is_cut": is_cut}
        return facts

    def tokens(self, query: dict[str, str]) -> dict[str, Any]:
        """The tokens of a document from a place of the stream on, a window of them."""
        document = self.locator.document_at(self.place(query, "document"))
        first = min(max(whole(query, "start"), document.start), document.stop)
        start = character_edge(self.shards, first, document.start)
        stop = min(first + WINDOW_TOKENS, document.stop)
        if stop < document.stop:
            stop = max(character_edge(self.shards, stop, document.start), start + 1)
        ids = self.shards.tokens(start, stop)
        return {"start": start, "stop": stop, "pieces": list(shown_pieces(self.shards.tokenizer, ids, self.shards.eot))}

    def source(self, query: dict[str, str]) -> dict[str, Any]:
        """The document that came from a row of a source file; looked for in the index from batch `next` on."""
        inputs, row, until = self.inputs_named(query.get("file", "")), whole(query, "row"), monotonic() + STEP_SECONDS
        places = [file.places for file in self.shards.files]
        batches = [
            (i, j)
            for i, each in enumerate(places)
            if isinstance(each, IndexPlaces)
            for j in range(each.index.n_batches)
        ]
        for n in range(whole(query, "next") if "next" in query else 0, len(batches)):
            i, j = batches[n]
            table = places[i]
            assert isinstance(table, IndexPlaces)
            batch = table.index.batch(j)
            hits = np.flatnonzero(
                (batch.column("row").to_numpy() == row) & np.isin(batch.column("input").to_numpy(), inputs)
            )
            if len(hits):
                located = self.locator.document(self.locator.firsts[i] + j * BATCH_ROWS + int(hits[0]))
                assert located is not None  # an index needs no counting
                return self.facts(located)
            if monotonic() >= until:
                return {"next": n + 1, "share": (n + 1) / len(batches)}
        raise AskedWronglyError(
            f"no document came from row {row:,} of `{query.get('file')}`: it was skipped, or there is no such row"
        )

    def inputs_named(self, name: str) -> list[int]:
        """The sources of a name, or whose paths end with it."""
        manifest = self.shards.manifest
        if manifest is None:
            raise AskedWronglyError("there is no manifest, and nothing else tells where documents came from")
        exact = [i for i, entry in enumerate(manifest.inputs) if entry.path == name]
        ending = [i for i, entry in enumerate(manifest.inputs) if name and entry.path.endswith(name)]
        if not (found := exact or ending):
            raise AskedWronglyError(f"no source is called `{name}`")
        if len({manifest.inputs[i].path for i in found}) > 1:
            raise AskedWronglyError(f"{len(found):,} sources end with `{name}`: write more of the path")
        return found

    def search(self, query: dict[str, str]) -> Any:
        if not query.get("text"):
            raise AskedWronglyError("nothing to look for")
        self.locator.count(BROWSE_SECONDS)
        return self.searcher.search(query["text"], self.place(query, "start"), STEP_SECONDS, MAX_HITS)

    @cached_property
    def searcher(self) -> Searcher:
        return Searcher(self.locator)

    def lengths(self, query: dict[str, str]) -> dict[str, Any]:
        self.length_scan.go_on(STEP_SECONDS)
        return self.length_scan.facts()

    @cached_property
    def length_scan(self) -> LengthScan:
        return LengthScan(self.shards)

    def compare(self, query: dict[str, str]) -> dict[str, Any]:
        """A document by its own tokenizer and by another: counts of all of it, the first tokens of both."""
        name = query.get("tokenizer", "")
        if name not in self.tokenizers:
            raise AskedWronglyError(f"`{name}` is not offered: name it with `tokenmill view --compare`")
        document = self.locator.document_at(self.place(query, "document"))
        stop = min(document.stop, document.start + MAX_COMPARED_TOKENS)
        stop = character_edge(self.shards, stop, document.start) if stop < document.stop else stop
        ids = self.shards.text_ids(self.shards.tokens(document.start, stop))
        tokenizer, other = needed_tokenizer(self.shards), Tokenizer(name)
        text = decoded(tokenizer, ids)
        others = np.array(other.encode_ordinary(text), dtype=np.int64)
        return {
            "n_bytes": len(text.encode()),
            "is_whole": stop == document.stop,
            "sides": [
                {"tokenizer": called, "n_tokens": len(tokens), "pieces": list(shown_pieces(by, tokens[:WINDOW_TOKENS]))}
                for called, by, tokens in ((self.shards.told.name, tokenizer, ids), (name, other, others))
            ],
        }

    def place(self, query: dict[str, str], name: str) -> int:
        place = whole(query, name)
        if place >= self.shards.n_tokens:
            raise AskedWronglyError(f"there is no token {place:,}")
        return place


def whole(query: dict[str, str], name: str, least: int = 0) -> int:
    """A whole number of a query."""
    try:
        number = int(query[name].replace(",", "").replace("_", ""))
    except (KeyError, ValueError):
        raise AskedWronglyError(f"`{name}` is not a whole number: `{query.get(name, '')[:40]}`") from None
    if not least <= number < 2**62:
        raise AskedWronglyError(f"`{name}` is out of range: {number}")
    return number
