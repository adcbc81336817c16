"""A corpus -> the documents in it that kill whoever reads or encodes them.

In: the recipe of a corpus. Out: findings with file, row and reason, in the order of the corpus, a batch at a time.
Nothing grows with the corpus. Every search goes over a whole batch; a document is looked at only on a hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.batches import INVALID_JSON, INVALID_UTF8, LONE_SURROGATE, WRONG_RECORD, Documents
from tokenmill.errors import DataError
from tokenmill.plan import MAX_UNIT_BYTES, cut_spans
from tokenmill.recipe import Recipe
from tokenmill.sources import Input, source_for
from tokenmill.tokenizers.special import SpelledWords

BATCH_BYTES = 4_000_000
# From here on tiktoken panics: its pattern's backtracking ends at 1,000,000 steps. Whether it does depends on the
# vocabulary and on what follows (o200k_base: at the end of a text too, gpt2: only before more text).
WHITESPACE_CHARS = 999_999
# The property White_Space, which \s means to tiktoken; Python's \s has four control characters more.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WHITESPACE_RUN = re.compile(f"[{WHITE_SPACE}]+")
_WHITESPACE_BYTES = bytes(
    sorted({byte for c in map(chr, range(0x3001)) if re.match(f"[{WHITE_SPACE}]", c) for byte in c.encode()})
)

WHITESPACE, LARGE, NUL, SPECIAL, UNREADABLE = "whitespace run", "large", "NUL", "special token", "unreadable file"
# What each kind does, and to whom. tokenmill itself takes the first four as they are.
CONSEQUENCES = {
    WHITESPACE: "tiktoken panics on most of them, the worker dies, a Pool hangs; `tokenmill prepare` encodes it",
    LARGE: "tiktoken takes six times its size in memory and more; `--max-chars` leaves such documents out",
    SPECIAL: "tiktoken's `encode` raises, others put the special id in its place; `tokenmill prepare` keeps it text",
    NUL: "kills nothing, but C programs and databases end the text there",
    INVALID_UTF8: "readers raise; `--on-bad-document skip` leaves it out, `iconv` converts a file",
    LONE_SURROGATE: "no Unicode text, and encoders raise; `--on-bad-document skip` leaves it out",
    INVALID_JSON: "readers raise; `--on-bad-document skip` leaves it out",
    WRONG_RECORD: "no text where it should be; another `--text-column`, or `--on-bad-document skip`",
    UNREADABLE: "truncated or damaged as a whole: get it again",
}
HARMLESS = (NUL,)


class Finding(msgspec.Struct, frozen=True):
    """One document, or a whole file (then without a row), and what is wrong with it."""

    file: str
    row: int | None  # counted from 0
    line: int | None  # counted from 1, where rows are lines
    kind: str
    what: str

    @property
    def kills(self) -> bool:
        return self.kind not in HARMLESS


class Scanned(msgspec.Struct, frozen=True):
    """What a stretch of the corpus held."""

    n_documents: int
    n_text_bytes: int
    n_file_bytes: int  # passed so far, of the sizes of all files
    findings: list[Finding]


def scan_corpus(
    recipe: Recipe, inputs: list[Input], special_tokens: Iterable[str], max_document_bytes: int
) -> Iterator[Scanned]:
    """Yield what each batch of the inputs holds. A file that cannot be read is a finding, and the scan goes on."""
    words, n_passed = SpelledWords(special_tokens), 0
    for index, entry in enumerate(inputs):
        n_rows = 0
        try:
            sizes = source_for(entry).atom_bytes(entry, recipe)
            spans = cut_spans(index, sizes, MAX_UNIT_BYTES, divisible=entry.divisible)
            for i, span in enumerate(spans):
                for documents in source_for(entry).read(entry, span, recipe, BATCH_BYTES):
                    findings = batch_findings(documents, entry, n_rows, words, max_document_bytes)
                    n_file_bytes = n_passed + entry.size * i // len(spans)
                    yield Scanned(len(documents), documents.n_text_bytes, n_file_bytes, findings)
                    n_rows += documents.n_rows
        except DataError as error:
            finding = Finding(entry.path, None, None, UNREADABLE, error.message)
            yield Scanned(0, 0, n_passed, [finding])
        n_passed += entry.size


def batch_findings(
    documents: Documents, entry: Input, first_row: int, words: SpelledWords, max_document_bytes: int
) -> list[Finding]:
    """Return what is wrong with documents of a batch, in order of rows."""
    found = [
        (int(row), kind, kind)
        for kind in (INVALID_UTF8, INVALID_JSON, LONE_SURROGATE, WRONG_RECORD)
        for row in documents.skipped.get(kind, ())
    ]
    if len(documents):
        found += [
            (int(documents.rows[i]), kind, what) for i, kind, what in text_faults(documents, words, max_document_bytes)
        ]
    by_line = entry.kind == "jsonl" or entry.documents == "line"
    return [
        Finding(entry.path, first_row + row, first_row + row + 1 if by_line else None, kind, what)
        for row, kind, what in sorted(found)
    ]


def text_faults(documents: Documents, words: SpelledWords, max_document_bytes: int) -> Iterator[tuple[int, str, str]]:
    """Yield index, kind and reason for each document of a batch whose text kills."""
    offsets = documents.text_offsets
    lengths = np.diff(offsets)
    for i in np.flatnonzero(lengths > max_document_bytes).tolist():
        yield i, LARGE, f"{lengths[i] / 1e6:,.1f} MB in one document"
    for i in np.flatnonzero(lengths >= WHITESPACE_CHARS).tolist():
        n_chars = longest_whitespace(documents.text_bytes[offsets[i] : offsets[i + 1]])
        if n_chars >= WHITESPACE_CHARS:
            yield i, WHITESPACE, f"{n_chars:,} whitespace characters in a row"
    for i, word in words.spelled(documents):
        yield i, SPECIAL, f"spells {word}"
    data = documents.text_bytes[offsets[0] : offsets[-1]]
    if len(data) and data.min() == 0:
        places = np.flatnonzero(data == 0)
        indices, counts = np.unique(np.searchsorted(offsets - offsets[0], places, side="right") - 1, return_counts=True)
        for i, n in zip(indices.tolist(), counts.tolist(), strict=True):
            yield i, NUL, f"{n:,} NUL character{'s' if n > 1 else ''}"


def longest_whitespace(text: npt.NDArray[np.uint8]) -> int:
    """Return the length of the longest run of whitespace characters; 0 if none is too long for tiktoken.

    A run that long covers two of any places that are half its length apart, and all between them: only where a whole
    such stretch is made of bytes that whitespace has is the text decoded.
    """
    step = WHITESPACE_CHARS // 2
    for start in range(0, len(text) - step, step):
        # Nearly always decided by the first few bytes.
        for n_bytes in (64, step):
            stretch = text[start : start + n_bytes].tobytes()
            if stretch.translate(None, _WHITESPACE_BYTES):
                break
        else:
            runs = _WHITESPACE_RUN.finditer(text.tobytes().decode())
            return max((run.end() - run.start() for run in runs), default=0)
    return 0
