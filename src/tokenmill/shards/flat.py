"""What most formats are made of: a file with a header, if any, and then ids, little-endian, nothing after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.shards.receipts import FileReceipt
from tokenmill.storage.local import PartialFile

if TYPE_CHECKING:
    from tokenmill.shards import Beginnings, Ids


def smallest_unsigned(largest_id: int) -> str:
    """uint16 where all ids fit, else uint32."""
    return "<u2" if largest_id < 2**16 else "<u4"


def no_header(n_tokens: int) -> bytes:
    return b""


class FlatShard:
    """A file of ids being written. `header` makes the bytes before them, whose number does not depend on N."""

    def __init__(
        self,
        out: Path,
        name: str,
        dtype: np.dtype,
        header: Callable[[int], bytes] = no_header,
        n_expected: int = 0,
    ) -> None:
        self.out, self.name, self.dtype, self.header, self.n_expected = out, name, dtype, header, n_expected
        self.n_tokens = 0
        (out / name).parent.mkdir(exist_ok=True)
        self.file = PartialFile(out / name, "shard")
        self.file.write(header(n_expected))

    def append(self, ids: Ids, documents: Beginnings) -> None:
        self.file.write(ids.astype(self.dtype, copy=False))
        self.n_tokens += len(ids)

    def commit(self) -> list[FileReceipt]:
        head = self.header(self.n_tokens)
        if head != self.header(self.n_expected):
            self.file.replace_head(head)
        self.file.commit()
        return [FileReceipt(self.name, self.file.n_bytes, self.file.sha256)]

    def abandon(self) -> None:
        self.file.abandon()


class Starts:
    """Where the documents of a shard begin, collected while it is written: 8 bytes a document."""

    def __init__(self) -> None:
        self._arrays: list[npt.NDArray[np.int64]] = []

    def append(self, documents: Beginnings) -> None:
        if len(documents.starts):
            self._arrays.append(documents.starts)

    def edges(self, n_tokens: int) -> npt.NDArray[np.int64]:
        """n + 1 places: where each document begins, and the end."""
        return np.concatenate([*self._arrays, np.array([n_tokens], dtype=np.int64)])


def mapped_ids(path: Path, dtype: np.dtype, n_header_bytes: int = 0) -> Ids:
    """The ids of a file behind its header, memory-mapped."""
    n_tokens = (path.stat().st_size - n_header_bytes) // dtype.itemsize
    if n_tokens <= 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=n_header_bytes, shape=(n_tokens,))
