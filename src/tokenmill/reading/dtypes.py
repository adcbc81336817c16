"""The type of ids in a file that does not say it.

Ids of vocabularies in use are below 327,680, so in a file of uint32 every second 16-bit half is below 5, which no text
in uint16 brings about; and of int64 every second 32-bit half is zero.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.errors import RecipeError
from tokenmill.reading.files import Array, damaged

WINDOWS, WINDOW_BYTES = 16, 1 << 16
# Halves below this are the upper ones of ids below 327,680: the largest vocabularies have 262,208.
SMALL = 5
NAMES = ("uint16", "uint32", "int32", "int64", "uint8", "int16", "uint64")


def dtype_named(name: str) -> np.dtype:
    """The type of ids that a user names."""
    if name not in NAMES:
        raise RecipeError(f"unknown dtype `{name}`", hint=f"choose one of {', '.join(NAMES)}")
    return np.dtype(name).newbyteorder("<")


def guessed_dtype(path: Path, n_header_bytes: int = 0) -> np.dtype:
    """The type of the ids behind a header, by what they look like."""
    n_bytes = path.stat().st_size - n_header_bytes
    if n_bytes % 2:
        hint = "is the file truncated? `--dtype uint8` reads it nevertheless"
        raise damaged(path, f"has an odd size, {n_bytes:,} bytes: no ids of 16 or 32 bits fill it", hint)
    halves = sampled(path, n_header_bytes, n_bytes)
    if n_bytes % 4 == 0 and are_wide(halves):
        words = halves.view("<u4")
        wider = n_bytes % 8 == 0 and len(words) > 1 and not words[1::2].any() and bool(words[::2].any())
        return np.dtype("<i8") if wider else np.dtype("<u4")
    return np.dtype("<u2")


def sampled(path: Path, n_header_bytes: int, n_bytes: int) -> npt.NDArray[np.uint16]:
    """Windows all over a file, as 16-bit halves."""
    if n_bytes < 2:
        return np.empty(0, "<u2")
    data = np.memmap(path, np.uint8, mode="r", offset=n_header_bytes, shape=(n_bytes // 8 * 8 or n_bytes,))
    if len(data) <= WINDOWS * WINDOW_BYTES:
        return np.array(data).view("<u2")
    places = np.linspace(0, len(data) - WINDOW_BYTES, WINDOWS).astype(np.int64) // 8 * 8
    return np.concatenate([data[place : place + WINDOW_BYTES] for place in places]).view("<u2")


def are_wide(halves: Array) -> bool:
    """Whether these 16-bit halves are those of wider ids."""
    if len(halves) < 4:
        return False
    lower, upper = (halves[i::2] < SMALL for i in (0, 1))
    return bool(upper.mean() > 0.99 and lower.mean() < 0.5)


def dtype_warning(ids: Array) -> str | None:
    """Say if ids cannot be of the type they are read as."""
    if ids.dtype.itemsize == 2 and are_wide(ids):
        n_zero = float((ids == 0).mean())
        return f"{n_zero:.0%} of the {ids.dtype} ids are 0, in every second place: they are 32-bit ids"
    if ids.dtype.itemsize == 2 and len(ids) >= 4 and are_wide(ids[1:]) and not are_wide(ids):
        return f"every second {ids.dtype} id is below {SMALL}: they are 32-bit ids, big-endian or out of step"
    if ids.dtype.itemsize >= 4 and len(ids) and float((ids.astype(np.int64) >> 20 != 0).mean()) > 0.5:
        return f"most {ids.dtype} ids are above 2^20: they are ids of 16 bits, or no ids"
    return None
