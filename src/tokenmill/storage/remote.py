"""Files elsewhere: listed once, read as a stream from any place, with patience.

A store is a module with two functions, `list_files` and `stream`. Whatever may pass (a server that is busy, a
connection that breaks) it raises as `Hitch`; whatever will not is an error for the user. `patiently` tries again after
hitches, as late as the server asks, with growing waits and jitter.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, TypeVar

import msgspec

from tokenmill.errors import NetworkError
from tokenmill.storage.addresses import STORES, WEB, Address, parsed, redacted

T = TypeVar("T")
MAX_TRIES = 8  # in a row, without a byte in between: about a minute
FIRST_TRIES = 4  # of the first contact: nobody likes to wait a minute for a wrong name
FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 30.0
LONGEST_RETRY_AFTER = 600.0
MIN_AHEAD_BYTES, MAX_AHEAD_BYTES = 1 << 20, 1 << 24


class RemoteFile(msgspec.Struct, frozen=True):
    """A file elsewhere, as the listing tells it."""

    address: str
    size: int
    digest: str  # "sha256:...", "git:..." or "etag:...": another one is another file


class Hitch(Exception):  # noqa: N818 - not an error yet
    """Something that may pass by itself."""

    def __init__(self, what: str, retry_after: float | None = None) -> None:
        super().__init__(what)
        self.what, self.retry_after = redacted(what), retry_after


class Store(Protocol):
    def list_files(self, address: Address) -> list[RemoteFile]:
        """The file at an address, those below it, or those that its glob matches, sorted."""

    def stream(self, file: RemoteFile, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file from `start` on."""


def store_of(address: Address) -> Store:
    kind = "hub" if address.scheme == "hf" else "objects" if address.scheme in STORES else "web"
    assert kind != "web" or address.scheme in WEB
    store: Store = import_module(f"tokenmill.storage.{kind}")
    return store


def list_files(address: Address) -> list[RemoteFile]:
    return patiently(lambda: store_of(address).list_files(address), f"list `{address}`", FIRST_TRIES)


def read_range(file: RemoteFile, start: int, stop: int) -> bytes:
    """A stretch of a file, in one request."""

    def read() -> bytes:
        data = b"".join(store_of(parsed(file.address)).stream(file, start, stop))
        if len(data) != stop - start:
            raise Hitch(f"{len(data):,} bytes came, expected {stop - start:,}")
        return data

    return patiently(read, f"read `{file.address}`")


class Patience:
    """How often something was tried, and how long to wait before the next time."""

    def __init__(self, doing: str, max_tries: int = MAX_TRIES, wait: Callable[[float], object] = time.sleep) -> None:
        self.doing, self.max_tries, self.wait = doing, max_tries, wait
        self.n_tries = 0

    def after(self, hitch: Hitch) -> None:
        """Wait, or give up."""
        self.n_tries += 1
        asked = hitch.retry_after or 0.0
        if self.n_tries >= self.max_tries or asked > LONGEST_RETRY_AFTER:
            raise NetworkError(
                f"cannot {self.doing}: {hitch.what}" + (f" ({self.n_tries} times)" if self.n_tries > 1 else ""),
                hint="run the same command again when the network is there: nothing that was fetched is lost",
            ) from None
        backoff = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (self.n_tries - 1))
        self.wait(max(asked, 0.0) + backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


def patiently(call: Callable[[], T], doing: str, max_tries: int = MAX_TRIES) -> T:
    """Do something that may hit a hitch, again and again."""
    patience = Patience(doing, max_tries)
    while True:
        try:
            return call()
        except Hitch as hitch:
            patience.after(hitch)


def taken(chunks: Iterator[bytes], n_unwanted: int, start: int, stop: int | None) -> Iterator[bytes]:
    """Leave out the first bytes, and what comes behind the last one."""
    n_left = None if stop is None else stop - start
    for chunk in chunks:
        dropped = min(n_unwanted, len(chunk))
        n_unwanted -= dropped
        chunk = chunk[dropped:] if n_left is None else chunk[dropped : dropped + n_left]
        if n_left is not None:
            n_left -= len(chunk)
        if chunk:
            yield chunk
        if n_left == 0:
            return


class RangeFile(io.RawIOBase):
    """A file elsewhere, for a look at some of it: each stretch that is read is a request, a little ahead.

    Whoever goes on reading where the last stretch ended gets longer ones.
    """

    def __init__(self, file: RemoteFile) -> None:
        self.file, self.ahead_bytes = file, MIN_AHEAD_BYTES
        self.position = 0
        self._start, self._block = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.file.size}[whence]
        return self.position

    def read(self, n_bytes: int | None = -1) -> bytes:
        n_left = self.file.size - self.position
        n_bytes = n_left if n_bytes is None or n_bytes < 0 else min(n_bytes, n_left)
        if n_bytes <= 0:
            return b""
        at = self.position - self._start
        if not 0 <= at <= at + n_bytes <= len(self._block):
            goes_on = bool(self._block) and 0 < at <= len(self._block)
            self.ahead_bytes = min(2 * self.ahead_bytes, MAX_AHEAD_BYTES) if goes_on else MIN_AHEAD_BYTES
            self._start = min(self.position, max(0, self.file.size - self.ahead_bytes))
            stop = max(self.position + n_bytes, min(self._start + self.ahead_bytes, self.file.size))
            self._block = read_range(self.file, self._start, stop)
            at = self.position - self._start
        self.position += n_bytes
        return self._block[at : at + n_bytes]

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
