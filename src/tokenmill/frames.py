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
from io import BufferedReader
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


def read_frame_into(
    file: BufferedReader, documents: npt.NDArray[np.void], ids: npt.NDArray[np.unsignedinteger]
) -> tuple[int, int]:
    """Read the next frame to the beginning of two arrays; return how many documents and ids were there for them."""
    n_documents, n_ids = np.frombuffer(file.read(16), dtype="<u8").tolist()
    n_document_bytes = file.readinto(documents[:n_documents].view(np.uint8).data)
    n_id_bytes = file.readinto(ids[:n_ids].view(np.uint8).data)
    return n_document_bytes // documents.itemsize, n_id_bytes // ids.itemsize
