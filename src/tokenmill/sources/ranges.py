r"""Plain and compressed files, cut between documents.

Where a document ends is a `Delimiter`. A plain file may be cut at any byte: a span owns the documents that begin
in it, so it is read from `boundary(start)` to `boundary(stop)`, the first beginnings of a document from there on.
Neighbors call the same function on the same byte: every document is read once, whatever the cuts.

    bytes      ...one document<|endoftext|>another<|endoftext|>a third...
    cut                    ^ start of a span
    boundary                               ^ its first document

Compressed files are read whole, by pyarrow, which raises on a truncated stream and goes on over several gzip
members or zstd frames; a reader that stops there would lose documents silently.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokenmill.errors import DataError, cannot_read

if TYPE_CHECKING:
    from tokenmill.plan import Span
    from tokenmill.sources import Input

BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"
SEARCH_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Delimiter:
    """What stands between two documents. Matches are taken from left to right and do not overlap."""

    pattern: re.Pattern[bytes]
    literal: bytes | None  # the pattern's only match, where it has only one

    def in_phase(self, file: Any, position: int) -> int:
        """Return a place at or before `position` where no match is under way, that still sees one ending there."""
        if self.literal is None:  # paragraphs: go back over the blank run
            while position:
                step = min(position, SEARCH_BYTES)
                kept = len(pread(file, position - step, step).rstrip(BLANK))
                position -= step - kept
                if kept:
                    break
            return position
        length = len(self.literal)
        position = max(0, position - length)
        # A separator like "\n\n" overlaps itself, and which matches count depends on where the run began.
        low, window = position, b""
        while True:
            if low and position - low < length:
                low = max(0, position - SEARCH_BYTES)
                window = pread(file, low, position - low + length)
            begin = max(low, position - length + 1)
            overlapping = window.find(self.literal, begin - low, position - low + length - 1)
            if overlapping < 0:
                return position
            position = low + overlapping

    def is_whole(self, match: re.Match[bytes]) -> bool:
        """Whether a match ends where it does whatever comes behind the text searched: blank runs may go on."""
        return self.literal is not None or bool(match.string[match.end() :].strip(BLANK))

    def n_settled(self, window: bytes) -> int:
        """How many bytes at the beginning of a window can have no share in a match that goes on behind it."""
        if self.literal is None:
            return len(window.rstrip(BLANK))
        return max(0, len(window) - len(self.literal) + 1)

    def last_end(self, data: bytes) -> int:
        """Return the end of the last match in `data`, which begins where a document begins; 0 if there is none."""
        if self.literal is None:
            end = 0
            for match in self.pattern.finditer(data):  # 3.5 us for a paragraph of 300 bytes
                end = match.end()
            return end
        if self.overlaps_itself:
            return len(data) - len(data.split(self.literal)[-1])
        found = data.rfind(self.literal)
        return found + len(self.literal) if found >= 0 else 0

    @property
    def overlaps_itself(self) -> bool:
        literal = self.literal or b""
        return any(literal.endswith(literal[:i]) for i in range(1, len(literal)))


LINE = Delimiter(re.compile(rb"\n"), b"\n")
# A line break and at least one blank line, with all that follow.
PARAGRAPH = Delimiter(re.compile(rb"\r?\n(?:[ \t\r]*\n)+"), None)


def separator_delimiter(separator: str) -> Delimiter:
    return Delimiter(re.compile(re.escape(separator.encode())), separator.encode())


def pread(file: Any, position: int, n_bytes: int) -> bytes:
    file.seek(position)
    data: bytes = file.read(n_bytes)
    return data


def boundary(file: Any, size: int, position: int, delimiter: Delimiter) -> int:
    """Return the first beginning of a document at or after `position`; `size` where there is none."""
    if position == 0 or position >= size:
        return min(position, size)
    start, want = delimiter.in_phase(file, position), SEARCH_BYTES
    while True:
        window = pread(file, start, want)
        at_end = start + len(window) >= size
        n_done = delimiter.n_settled(window)
        for match in delimiter.pattern.finditer(window):
            if not at_end and not delimiter.is_whole(match):
                break
            if start + match.end() >= position:
                return start + match.end()
            n_done = max(n_done, match.end())
        if at_end:
            return size
        start += n_done
        want = SEARCH_BYTES if n_done else 2 * want


@contextmanager
def opened(entry: Input) -> Iterator[Any]:
    """Open for reading what the file holds, unpacked."""
    try:
        if entry.compression is None:
            with entry.opened() as file:
                yield file
        else:
            with (
                entry.opened() as file,
                pa.CompressedInputStream(pa.BufferedInputStream(file, 1 << 20), entry.compression) as stream,
            ):
                yield stream
    except OSError as error:
        raise cannot_read(entry.path, error) from None


@dataclass(frozen=True, slots=True)
class Block:
    """Whole documents: `data` begins where one begins, and ends behind a delimiter or at the end of the file."""

    data: bytes
    position: int  # in the (unpacked) file
    first: bool  # whether it begins the file

    @classmethod
    def at(cls, position: int, data: bytes) -> Block:
        """A byte order mark at the beginning of a file is no text."""
        if position == 0 and data.startswith(BOM):
            return cls(data[len(BOM) :], len(BOM), first=True)
        return cls(data, position, first=position == 0)


def read_blocks(entry: Input, span: Span, delimiter: Delimiter | None, block_bytes: int) -> Iterator[Block]:
    """Yield the documents of a span in blocks of about `block_bytes`. Without a delimiter: the file in one block."""
    with opened(entry) as file:
        start, stop = 0, None
        if delimiter is not None and entry.compression is None:
            start = boundary(file, entry.size, span.start, delimiter)
            stop = boundary(file, entry.size, span.stop, delimiter)
            file.seek(start)
        rest, position, want = b"", start, block_bytes
        while True:
            if stop is not None:
                want = min(want, stop - position - len(rest))
            new = file.read(want)
            rest += new
            cut = len(rest) if not new else delimiter.last_end(rest) if delimiter else 0
            if cut:
                yield Block.at(position, rest[:cut])
                rest, position, want = rest[cut:], position + cut, block_bytes
            else:
                want = max(block_bytes, len(rest))  # doubling: a document of n bytes costs O(n)
            if not new:
                return


def utf8_error(block: Block, entry: Input) -> DataError | None:
    """Return None for a block that is UTF-8, or else an error that names the first byte that is not."""
    try:
        string_array(block.data).validate(full=True)
        return None
    except pa.ArrowInvalid:
        try:
            block.data.decode()
        except UnicodeDecodeError as error:
            place = f"byte {block.position + error.start:,}"
            return DataError(
                f"invalid UTF-8 in `{entry.path}` at {place}: 0x{block.data[error.start]:02x}",
                hint="convert the file to UTF-8, for example with `iconv`, or pass `--on-bad-document skip`",
            )
        raise


def string_array(data: bytes) -> Any:
    """A large_string array of one value over `data`, without a copy."""
    offsets = pa.py_buffer(struct.pack("<qq", 0, len(data)))
    return pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
