"""The journal of a run: every receipt, on disk before anything relies on it.

`OUT/.work/journal` has one line an event: the CRC-32 of the rest, a space, JSON. A line counts when it is whole; what
follows the first one that is not was being written when the run was killed, and is cut off. One process writes it,
the owner of the lock; anybody may read it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenmill import faults
from tokenmill.errors import OutputError
from tokenmill.scatter import GroupReceipt
from tokenmill.segments import Receipts, UnitReceipt
from tokenmill.shards.receipts import ShardReceipt


class UnitDone(msgspec.Struct, frozen=True, tag="unit"):
    receipt: UnitReceipt


class ShardSealed(msgspec.Struct, frozen=True, tag="shard"):
    receipt: ShardReceipt


class Scattered(msgspec.Struct, frozen=True, tag="scattered"):
    """A group of units is scattered, for a shuffle; their segments may go."""

    receipt: GroupReceipt


class InputHashed(msgspec.Struct, frozen=True, tag="input"):
    """All units of an input are done, and this is its SHA-256."""

    input: int
    sha256: str


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """So many documents of a unit were encoded again by the reference, and found equal."""

    unit: int
    n_documents: int


class ShardPut(msgspec.Struct, frozen=True, tag="put"):
    """The first so many shards are in the store where the output is to be, and not in scratch any more."""

    n_shards: int


class ScratchLost(msgspec.Struct, frozen=True, tag="lost"):
    """The scratch folder is gone, and with it all that was not in the store yet: segments, groups and shards."""

    keeps_groups: bool = False  # stations of a cluster put them into the store


Event = UnitDone | ShardSealed | Scattered | InputHashed | Checked | ShardPut | ScratchLost
_decoder = msgspec.json.Decoder(Event)


class ScatteredGroup(NamedTuple):
    """What is kept in memory of the receipt of a group; its counts are added up."""

    units: range
    n_bytes: int
    n_documents_in_all: int


class State:
    """What the journal says: what is done, and need not be done again."""

    def __init__(self) -> None:
        self.units = Receipts()
        self.shards: list[ShardReceipt] = []
        self.groups: dict[int, ScatteredGroup] = {}
        self.bucket_documents: list[int] = []  # in all groups that are scattered
        self.bucket_tokens: list[int] = []
        self.input_sha256: dict[int, str] = {}
        self.n_checked: dict[int, int] = {}
        self.n_shards_put = 0

    def add(self, event: Event) -> None:
        match event:
            case UnitDone(receipt):
                self.units[receipt.unit] = receipt  # one cut short by a limit comes behind the whole one
                if receipt.n_checked is not None:
                    self.n_checked[receipt.unit] = receipt.n_checked
            case ShardSealed(receipt):
                self.shards.append(receipt)
            case Scattered(receipt):
                self._add_group(receipt)
            case InputHashed(index, sha256):
                self.input_sha256[index] = sha256
            case Checked(unit, n_documents):
                self.n_checked[unit] = n_documents
            case ShardPut(n_shards):
                self.n_shards_put = n_shards
            case ScratchLost(keeps_groups):
                del self.shards[self.n_shards_put :]
                if not keeps_groups:
                    self.groups, self.bucket_documents, self.bucket_tokens = {}, [], []

    def _add_group(self, receipt: GroupReceipt) -> None:
        units = range(receipt.first_unit, receipt.first_unit + receipt.n_units)
        self.groups[receipt.group] = ScatteredGroup(units, receipt.n_bytes, receipt.n_documents_in_all)
        none = [0] * len(receipt.bucket_tokens)
        documents, tokens = self.bucket_documents or none, self.bucket_tokens or none
        self.bucket_documents = [a + b for a, b in zip(documents, receipt.bucket_documents, strict=True)]
        self.bucket_tokens = [a + b for a, b in zip(tokens, receipt.bucket_tokens, strict=True)]


class Journal:
    """The journal of the run that this process owns, and the state that it amounts to."""

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self.state, n_bytes = read_state_and_size(path)
        self._file = path.open("ab", buffering=0)
        self._file.truncate(n_bytes)
        if self.state.n_shards_put > len(self.state.shards):
            # A shard that a station put is said to be there before it is said to be sealed, and that was cut off.
            self.record(ShardPut(len(self.state.shards)))

    def record(self, event: Event, *more: Event) -> None:
        """Put events on disk, and only then into the state; raise if the folder is not ours any more."""
        self._check()
        kind = event.__struct_config__.tag
        faults.point(f"{kind}.before-receipt")
        line = b"".join(map(journal_line, (event, *more)))
        self._write(line[: len(line) // 2])
        faults.point(f"{kind}.half-receipt")
        self._write(line[len(line) // 2 :])
        faults.point(f"{kind}.receipt-written")
        os.fsync(self._file.fileno())
        faults.point(f"{kind}.receipt-synced")
        for one in (event, *more):
            self.state.add(one)

    def take_in(self, events: Iterable[Event]) -> None:
        """Put events of other journals on disk, all of them together."""
        self._check()
        events = list(events)
        self._write(b"".join(map(journal_line, events)))
        os.fsync(self._file.fileno())
        for event in events:
            self.state.add(event)

    def _write(self, data: bytes) -> None:
        while data:  # a disk that is nearly full takes less than it is given
            data = data[self._file.write(data) :]

    def close(self) -> None:
        self._file.close()


def journal_line(event: Event) -> bytes:
    data = msgspec.json.encode(event)
    return b"%08x %s\n" % (zlib.crc32(data), data)


def read_events(path: Path) -> Iterator[tuple[Event, int]]:
    """Yield the events of a journal up to the first line that is not whole, each with where its line ends."""
    end = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            crc, _, data = line.partition(b" ")
            data = data.removesuffix(b"\n")
            if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(data):
                return
            end += len(line)
            yield decoded_event(data, path), end


def decoded_event(data: bytes, path: Path) -> Event:
    try:
        event: Event = _decoder.decode(data)
    except msgspec.ValidationError as error:  # the line is whole
        raise OutputError(
            f"`{path}` was written by another version of tokenmill: {error}",
            hint=f"finish the run with that version, or delete `{path.parent.parent}`",
        ) from None
    return event


def read_state(path: Path) -> State:
    """What a journal says at this moment, whoever writes it."""
    return read_state_and_size(path)[0]


def read_state_and_size(path: Path) -> tuple[State, int]:
    """What a journal says, and how many of its bytes are whole lines."""
    state, n_bytes = State(), 0
    for event, end in read_events(path):
        state.add(event)
        n_bytes = end
    return state, n_bytes
