"""Frames: how documents lie on disk between encoding and shards, in segments and in the groups of a shuffle.

    offset      type           content
    0           uint64         D, the documents of the frame
    8           uint64         T, their tokens
    16          document[D]    what is known of each document; `length` is its tokens
    ...         id[T]          their token ids, end-of-text included

A file is one frame after another, so it is written and read in bounded memory, however long it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt


class Writable(Protocol):
    def write(self, data: Any, /) -> int: ...


def write_frame(file: Writable, documents: npt.NDArray[np.void], ids: npt.NDArray[np.unsignedinteger]) -> None:
    file.write(np.array([len(documents), len(ids)], dtype="<u8").data)
    file.write(np.ascontiguousarray(documents).view(np.uint8).data)
    file.write(np.ascontiguousarray(ids).data)


def read_frames(
    file: BinaryIO, document: np.dtype, id_dtype: np.dtype
) -> Iterator[tuple[npt.NDArray[np.void], npt.NDArray[np.unsignedinteger]]]:
    """Yield the documents and ids of each frame."""
    while head := file.read(16):
        n_documents, n_ids = np.frombuffer(head, dtype="<u8").tolist()
        yield np.fromfile(file, document, n_documents), np.fromfile(file, id_dtype, n_ids)


def read_lengths(file: BinaryIO, document: np.dtype, id_dtype: np.dtype) -> npt.NDArray[np.integer]:
    """The tokens of each document of all frames; their ids are passed over."""
    lengths = [np.empty(0, dtype=np.uint32)]
    while head := file.read(16):
        n_documents, n_ids = np.frombuffer(head, dtype="<u8").tolist()
        lengths.append(np.frombuffer(file.read(n_documents * document.itemsize), document)["length"])
        file.seek(n_ids * id_dtype.itemsize, 1)
    return np.concatenate(lengths)


def read_frame_into(
    file: BinaryIO, documents: npt.NDArray[np.void], ids: npt.NDArray[np.unsignedinteger]
) -> tuple[int, int]:
    """Read the next frame to the beginning of two arrays; return how many documents and ids were there for them."""
    n_documents, n_ids = np.frombuffer(file.read(16), dtype="<u8").tolist()
    return read_into(file, documents[:n_documents]), read_into(file, ids[:n_ids])


def read_into(file: BinaryIO, array: npt.NDArray[Any]) -> int:
    """Fill an array from a file; return how many of its items were there."""
    n_bytes: int = file.readinto(array.view(np.uint8).data)  # type: ignore[attr-defined]
    return n_bytes // array.itemsize
