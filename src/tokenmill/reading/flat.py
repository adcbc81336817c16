"""Files that are an array of ids, with or without a header and an index beside it: six of the formats."""

from __future__ import annotations

import struct
from pathlib import Path
from tokenize import TokenError

import numpy as np

from tokenmill.errors import OutputError
from tokenmill.reading.dtypes import guessed_dtype
from tokenmill.reading.files import ArrayPlaces, LaterPlaces, ShardFile, checked_starts, damaged, mapped
from tokenmill.shards.llmc import HEADER_BYTES, MAGIC_AND_VERSION
from tokenmill.shards.megatron import MAGIC

NEMO_MAGIC = 278895051  # NeMo-Automodel: llm.c's header, the bytes of an id in its fourth word
EVAL_MAGIC = 20240522  # llm.c's HellaSwag file: no stream of tokens
MEGATRON_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
LLMC_MAGICS = {magic for magic, _ in MAGIC_AND_VERSION.values()} | {NEMO_MAGIC}


def header_words(path: Path) -> tuple[int, ...] | None:
    """The 256 words of a header like llm.c's: nearly all zero, which no text is. None: there is no such header."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    if len(head) < 12:
        return None
    words = struct.unpack(f"<{len(head) // 4}i", head[: len(head) // 4 * 4])
    if words[0] in LLMC_MAGICS:
        return words
    return words if len(words) == 256 and sum(word == 0 for word in words) >= 240 and words[0] > 2**20 else None


def llmc_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    words = header_words(path)
    if words is None:
        raise damaged(path, "does not begin with a header of llm.c", "`--format nanogpt` reads ids without a header")
    magic, version, n_tokens = words[:3]
    itemsizes = {pair: itemsize for itemsize, pair in MAGIC_AND_VERSION.items()}
    if magic == NEMO_MAGIC and len(words) > 3 and words[3] in (2, 4):
        itemsize = words[3]
    elif (magic, version) in itemsizes:
        itemsize = itemsizes[magic, version]
    elif magic == EVAL_MAGIC:
        raise damaged(path, "holds the questions of an evaluation (llm.c, magic 20240522), not a stream of tokens")
    else:
        known = ", ".join(f"{m} version {v}" for m, v in itemsizes)
        what = f"begins with a header that is not known: magic {magic}, version {version}\n  known: {known}"
        raise damaged(path, what)
    dtype = dtype or np.dtype(f"<u{itemsize}")
    if n_tokens < 0:
        raise damaged(path, f"has a header of llm.c that counts {n_tokens:,} tokens")
    expected = HEADER_BYTES + n_tokens * dtype.itemsize
    ids, warnings = mapped(path, dtype, HEADER_BYTES, n_tokens), []
    if (size := path.stat().st_size) != expected:
        warnings.append(f"`{path.name}` has {size:,} bytes, and its header says {expected:,}: llm.c refuses it")
    tokenizer = {20240520: "gpt2", 20240801: "llama-3"}.get(magic)
    return ShardFile(path, split, ids, None, tokenizer, "the header", tuple(warnings))


def npy_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    from numpy.lib import format as npy

    with path.open("rb") as file:
        try:
            read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, is_fortran, found = read(file)
        except (ValueError, SyntaxError, TokenError, EOFError) as error:
            hint = "`--format olmo` reads ids without a header"
            raise damaged(path, f"does not begin with a header of numpy: {error}", hint) from None
        n_header_bytes = file.tell()
    if found.kind not in "iu" or (is_fortran and len(shape) > 1):
        raise damaged(path, f"holds an array of {found}, not of token ids")
    return ShardFile(
        path, split, mapped(path, dtype or found, n_header_bytes, int(np.prod(shape))), dtype_told_by="the header"
    )


def nanogpt_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    return bare_file(path, split, dtype)


def bare_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    """Ids and nothing else. What does not fill an id at the end is told."""
    found = dtype or guessed_dtype(path)
    return ShardFile(path, split, mapped(path, found), None, None, told_by(dtype), rest_warnings(path, found))


def told_by(dtype: np.dtype | None) -> str:
    return "a look at the ids" if dtype is None else "you"


def rest_warnings(path: Path, dtype: np.dtype) -> tuple[str, ...]:
    rest = path.stat().st_size % dtype.itemsize
    return (f"`{path.name}` ends with {rest} bytes that are no {dtype.name}: is it truncated?",) if rest else ()


def datatrove_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    sides = {ending: path.with_name(path.name + ending) for ending in (".index", ".metadata", ".loss")}
    size = path.stat().st_size
    tokenizer, how = None, told_by(dtype)
    if dtype is None and sides[".metadata"].is_file():
        name, _, itemsize = sides[".metadata"].read_text(errors="replace").partition("\n")[0].rpartition("|")
        tokenizer = name or None
        if itemsize in ("2", "4"):
            dtype, how = np.dtype(f"<u{itemsize}"), "its .metadata"
    places = None
    if sides[".index"].is_file():
        ends = mapped(sides[".index"], np.dtype("<u8"))
        n_tokens = int(ends[-1]) if len(ends) else 0
        if dtype is None and n_tokens and size % n_tokens == 0 and size // n_tokens in (2, 4):
            dtype, how = np.dtype(f"<u{size // n_tokens}"), "its .index"
        dtype = dtype or guessed_dtype(path)
        if n_tokens * dtype.itemsize != size:
            raise damaged(path, f"has {size:,} bytes, and its .index ends at {n_tokens:,} tokens of {dtype.name}")

        def starts() -> np.ndarray:
            begun = np.concatenate([np.zeros(1, np.int64), ends[:-1].astype(np.int64)])
            return checked_starts(sides[".index"], begun, n_tokens)

        places = LaterPlaces(len(ends), starts)
    dtype = dtype or guessed_dtype(path)
    there = tuple(side for side in sides.values() if side.is_file())
    return ShardFile(path, split, mapped(path, dtype), places, tokenizer, how, rest_warnings(path, dtype), there)


def olmo_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    listing = path.with_name(path.name.removesuffix(".npy") + ".csv.gz")
    if not listing.is_file():
        return bare_file(path, split, dtype)
    starts, end = olmo_starts(listing)
    size, how = path.stat().st_size, told_by(dtype)
    if dtype is None and end and size % end == 0 and size // end in (2, 4, 8):
        dtype, how = np.dtype({2: "<u2", 4: "<u4", 8: "<i8"}[size // end]), "its .csv.gz"
    dtype = dtype or guessed_dtype(path)
    if end > size // dtype.itemsize:
        raise damaged(path, f"has room for {size // dtype.itemsize:,} {dtype.name}, and its .csv.gz ends at {end:,}")
    warnings = rest_warnings(path, dtype)
    return ShardFile(path, split, mapped(path, dtype), ArrayPlaces(starts), None, how, warnings, (listing,))


def olmo_starts(listing: Path) -> tuple[np.ndarray, int]:
    """Where documents begin by a .csv.gz, and where the last one ends."""
    import pyarrow as pa
    from pyarrow import csv

    names = ["start", "end", "id", "src", "loc"]
    options = csv.ReadOptions(column_names=names)
    try:
        columns = csv.ConvertOptions(
            include_columns=["start", "end"], column_types={"start": pa.int64(), "end": pa.int64()}
        )
        table = csv.read_csv(listing, options, convert_options=columns)
    except (pa.ArrowException, OSError) as error:
        if listing.stat().st_size and "Empty CSV" not in str(error):
            raise damaged(listing, f"is no list of documents: {error}") from None
        return np.empty(0, np.int64), 0
    starts, ends = table.column("start").to_numpy(), table.column("end").to_numpy()
    if len(starts) and (starts[0] != 0 or (ends[:-1] != starts[1:]).any()):
        raise damaged(listing, "lists documents that overlap or leave a gap")
    return starts, int(ends[-1]) if len(ends) else 0


def megatron_file(path: Path, split: str, dtype: np.dtype | None) -> ShardFile:
    index = path.with_suffix(".idx")
    if not index.is_file():
        raise OutputError(
            f"`{index}` is missing: it tells the documents of the .bin beside it",
            hint="`--format nanogpt` reads the .bin without it",
        )
    n_bytes = index.stat().st_size
    with index.open("rb") as file:
        head = file.read(34)
    if len(head) < 34 or not head.startswith(MAGIC):
        raise damaged(index, "is no index of Megatron")
    version, code, n_sequences, n_entries = struct.unpack_from("<QBQQ", head, 9)
    if version != 1 or code not in MEGATRON_TYPES:
        raise damaged(index, f"is of version {version} with ids of type {code}: that is not known, or holds no ids")
    if n_bytes < 34 + 12 * n_sequences + 8 * n_entries:
        raise damaged(index, f"is truncated: {n_bytes:,} bytes for {n_sequences:,} sequences")
    dtype = dtype or np.dtype(MEGATRON_TYPES[code])
    lengths = mapped(index, np.dtype("<i4"), 34, n_sequences)
    n_tokens = int(lengths.sum(dtype=np.int64))
    entries = mapped(index, np.dtype("<i8"), 34 + 12 * n_sequences, n_entries)
    if n_entries and (int(entries[0]) != 0 or int(entries[-1]) > n_sequences):
        raise damaged(index, f"has documents up to sequence {int(entries[-1]):,} of {n_sequences:,}")

    def starts() -> np.ndarray:
        edges = np.zeros(n_sequences + 1, np.int64)
        np.cumsum(lengths, out=edges[1:])
        pointers = mapped(index, np.dtype("<i8"), 34 + 4 * n_sequences, n_sequences)
        if not np.array_equal(pointers, edges[:-1] * dtype.itemsize):
            raise damaged(index, "lists sequences that do not follow one another in the .bin")
        return edges[checked_starts(index, entries[:-1].astype(np.int64), n_sequences)]

    warnings = () if path.stat().st_size == n_tokens * dtype.itemsize else (extra(path, n_tokens * dtype.itemsize),)
    ids = mapped(path, dtype, 0, n_tokens)
    places = LaterPlaces(max(0, n_entries - 1), starts)
    return ShardFile(path, split, ids, places, None, "its .idx", warnings, (index,))


def extra(path: Path, expected: int) -> str:
    return f"`{path.name}` has {path.stat().st_size:,} bytes, and its .idx tells of {expected:,}"
