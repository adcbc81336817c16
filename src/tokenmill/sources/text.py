"""Plain text -> documents: by a separator, by line, by paragraph, or one document a file.

    separator   the text between two separators, to the byte; nothing before a leading or behind a trailing one
    line        each line without its line break (LF or CRLF); blank lines are skipped and counted
    paragraph   runs of lines between blank lines
    file        the whole file

`auto` takes `<|endoftext|>` where it stands in the first 16 MB, and the whole file where there is no more to it
than that; a larger file is refused, since nobody trains on a document of 40 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.batches import INVALID_UTF8, Documents
from tokenmill.errors import SourceError
from tokenmill.sources.ranges import (
    BLANK,
    LINE,
    PARAGRAPH,
    Block,
    Delimiter,
    opened,
    read_blocks,
    separator_delimiter,
    string_array,
    utf8_error,
)

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.sources import Input

AUTO_SEPARATOR = "<|endoftext|>"
AUTO_BYTES = 16_000_000
# What text shrinks by under gzip and zstd, about; only progress and unit sizes depend on it.
GUESSED_RATIO = 3


def with_splitting(entry: Input, recipe: Recipe) -> Input:
    """Return the entry with the way its text splits into documents, found out where the recipe says auto."""
    if recipe.documents != "auto":
        return msgspec.structs.replace(entry, documents=recipe.documents, separator=recipe.separator)
    with opened(entry) as file:
        head = file.read(AUTO_BYTES + 1)
    if AUTO_SEPARATOR.encode() in head[:AUTO_BYTES]:
        return msgspec.structs.replace(entry, documents="separator", separator=AUTO_SEPARATOR)
    if len(head) > AUTO_BYTES:
        raise SourceError(
            f"cannot tell where documents end in `{entry.path}`: no `{AUTO_SEPARATOR}` in its first 16 MB",
            hint="pass `--separator STRING`, or `--documents line`, `paragraph` or `file`",
        )
    return msgspec.structs.replace(entry, documents="file")


def delimiter_of(entry: Input) -> Delimiter | None:
    match entry.documents:
        case "separator":
            assert entry.separator
            return separator_delimiter(entry.separator)
        case "line":
            return LINE
        case "paragraph":
            return PARAGRAPH
        case _:
            return None


def atom_bytes(entry: Input, recipe: Recipe) -> list[int]:
    if entry.size == 0:  # list_inputs refuses compressed files without a byte
        return []
    return [entry.size * GUESSED_RATIO if entry.compression else entry.size]


def read(entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
    for block in read_blocks(entry, span, delimiter_of(entry), batch_bytes):
        error = utf8_error(block, entry)
        if error is None:
            yield split_block(block, entry)
        elif recipe.on_bad_document == "skip":
            yield split_bad_block(block, entry)
        else:
            raise error


def split_block(block: Block, entry: Input) -> Documents:
    """Split a block of whole documents at its delimiters, in Arrow: no Python object a document."""
    match entry.documents:
        case "separator":
            texts = pc.split_pattern(string_array(block.data), entry.separator).flatten()
            if block.first and texts[0].as_py() == "":
                texts = texts.slice(1)
            return all_rows(without_last_if_empty(texts))
        case "line":
            lines = without_last_if_empty(pc.split_pattern(string_array(block.data), "\n").flatten())
            if b"\r" in block.data:
                lines = pc.replace_substring_regex(lines, r"\r$", "")
            blank = pc.match_substring_regex(lines, r"^\s*$")
            is_blank = blank.to_numpy(zero_copy_only=False)
            rows = np.arange(len(lines), dtype=np.uint32)
            return Documents(
                lines.filter(pc.invert(blank)), rows[~is_blank], len(lines), {"blank line": rows[is_blank]}
            )
        case "paragraph":
            data = string_array(without_blank_lines_around(block.data))
            texts = pc.split_pattern_regex(data, PARAGRAPH.pattern.pattern.decode()).flatten()
            return all_rows(without_last_if_empty(texts))
        case _:
            return all_rows(without_last_if_empty(string_array(block.data)))


def split_bad_block(block: Block, entry: Input) -> Documents:
    """Split a block that is not all UTF-8, and leave out the documents that are not, counted and listed.

    A loop over documents, unlike `split_block`: only for a block that has such documents.
    """
    delimiter = delimiter_of(entry)
    data = without_blank_lines_around(block.data) if entry.documents == "paragraph" else block.data
    found = delimiter.pattern.split(data) if delimiter else [data]
    if entry.documents == "separator" and block.first and not found[0]:
        del found[0]
    if found and not found[-1]:
        found.pop()
    texts, rows, bad, blank = [], [], [], []
    for row, raw in enumerate(found):
        if entry.documents == "line" and not raw.strip(b" \t\n\f\r"):
            blank.append(row)
            continue
        try:
            texts.append((raw.removesuffix(b"\r") if entry.documents == "line" else raw).decode())
            rows.append(row)
        except UnicodeDecodeError:
            bad.append(row)
    skipped = {"blank line": np.array(blank, dtype=np.uint32), INVALID_UTF8: np.array(bad, dtype=np.uint32)}
    return Documents(pa.array(texts, pa.large_string()), np.array(rows, dtype=np.uint32), len(found), skipped)


def without_blank_lines_around(data: bytes) -> bytes:
    """Cut off the blank lines before the first and behind the last line that is not blank, and its line break."""
    first, last = len(data) - len(data.lstrip(BLANK)), len(data.rstrip(BLANK))
    if last == 0:
        return b""
    start, end = data.rfind(b"\n", 0, first) + 1, data.find(b"\n", last)
    return data[start:] if end < 0 else data[start:end].removesuffix(b"\r")


def without_last_if_empty(texts: Any) -> Any:
    """Drop what stands behind the last delimiter if that is nothing: the next document begins in the next block."""
    return texts.slice(0, len(texts) - 1) if len(texts) and texts[-1].as_py() == "" else texts


def all_rows(texts: Any) -> Documents:
    return Documents(texts, np.arange(len(texts), dtype=np.uint32), len(texts))
