"""The journal of a run whose output is in a store: parts, each put once, that follow one another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tokenmill.errors import BusyError
from tokenmill.layout import JOURNAL, WORK
from tokenmill.storage import objects
from tokenmill.storage.addresses import Address

FOLDER = f"{WORK}/{JOURNAL}/"
READ_AT_ONCE = 8


class JournalParts:
    """The parts that are there, by the sizes of a listing, and those that come behind them."""

    def __init__(self, out: Address, sizes: Mapping[str, int]) -> None:
        self._out = out
        self._sizes = {name: sizes[name] for name in sorted(sizes) if name.startswith(FOLDER)}
        self.n_bytes = sum(self._sizes.values())
        self._n_parts = len(self._sizes)

    def read(self) -> bytes:
        """What the parts of the listing hold; less than `n_bytes` where some have gone since."""
        with ThreadPoolExecutor(READ_AT_ONCE) as threads:
            found = threads.map(lambda part: objects.get(self._out.below(part[0]), part[1]), self._sizes.items())
            return b"".join(data or b"" for data in found)

    def next_part(self, data: bytes) -> Address:
        """Where to put what the journal has gained."""
        self._n_parts += 1
        self.n_bytes += len(data)
        return self._out.below(f"{FOLDER}{self._n_parts:07d}")


def put_part(part: Address, data: bytes, *, conditional: bool) -> None:
    """Put a part; where the store has conditions, never in the place of another's."""
    try:
        objects.put(part, data, mode="create" if conditional else "overwrite")
    except FileExistsError:
        if objects.get_tagged(part)[0] != data:  # it is ours where the answer to an earlier try was lost
            raise BusyError(f"`{part}` was written by another process", hint="see `tokenmill status`") from None
