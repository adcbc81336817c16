"""Which format is a folder or a file, by names and by first bytes; and which files belong to it, in order."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokenmill.errors import OutputError, RecipeError, did_you_mean
from tokenmill.reading import containers, flat
from tokenmill.reading.files import ShardFile, damaged
from tokenmill.shards.index import INDEX
from tokenmill.shards.megatron import MAGIC

Opener = Callable[[Path, str, np.dtype | None], ShardFile]
OPENERS: dict[str, Opener] = {
    "nanogpt": flat.nanogpt_file,
    "llmc": flat.llmc_file,
    "npy": flat.npy_file,
    "megatron": flat.megatron_file,
    "datatrove": flat.datatrove_file,
    "olmo": flat.olmo_file,
    "litdata": containers.litdata_file,
    "mds": containers.mds_file,
    "parquet": containers.parquet_file,
}
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "dev"), "val"),
    "test": "test",
}
# Validation first, as our own outputs have it.
ORDER = {"val": 0, "test": 1, "train": 2}
ENDINGS = (".bin", ".npy", ".ds", ".mds", ".mds.zstd", ".mds.zst", ".parquet", ".idx")


def found_files(path: Path, wanted: str | None) -> tuple[str, list[tuple[Path, str]]]:
    """The format of a path, and its files with the split of each, in order."""
    if wanted is not None and wanted not in OPENERS:
        raise RecipeError(f"unknown format `{wanted}`", hint=did_you_mean(wanted, list(OPENERS)))
    if path.is_dir():
        return folder_files(path, wanted)
    prefix = path.with_name(path.name + ".bin")
    if not path.exists() and prefix.with_suffix(".idx").is_file():  # as Megatron is told a data set
        path = prefix
    if not path.exists():
        raise OutputError(f"no such file or folder: `{path}`")
    path = data_file(path)
    if path.is_dir():
        return folder_files(path, wanted)
    return wanted or format_of(path), [(path, split_of(path, path.parent))]


def data_file(path: Path) -> Path:
    """The file with the tokens, where the one that is named stands beside it."""
    for ending in (".index", ".metadata", ".loss"):
        if path.name.endswith(".ds" + ending):
            return path.with_name(path.name.removesuffix(ending))
    if path.name.endswith(".csv.gz"):
        return path.with_name(path.name.removesuffix(".csv.gz") + ".npy")
    if path.suffix == ".idx":
        return path.with_suffix(".bin")
    return path.parent if path.name == "index.json" else path


def format_of(path: Path) -> str:
    """The format of a file with tokens."""
    name = path.name
    with path.open("rb") as file:
        head = file.read(16)
    by_name = {".ds": "datatrove", ".mds": "mds", ".mds.zstd": "mds", ".mds.zst": "mds", ".parquet": "parquet"}
    for ending, found in by_name.items():
        if name.endswith(ending):
            return found
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if name.endswith(".npy"):
        return "olmo"
    if path.with_suffix(".idx").is_file() and path.suffix == ".bin":
        with path.with_suffix(".idx").open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return "megatron"
    if re.fullmatch(r"chunk-\d+-\d+(\.zstd)?\.bin", name) and is_chunk(path):
        return "litdata"
    if flat.header_words(path) is not None:
        return "llmc"
    if name.endswith(".bin"):
        return "nanogpt"
    raise damaged(path, "is of no format that is known by its name or its first bytes", "say it: `--format nanogpt`")


def is_chunk(path: Path) -> bool:
    """Whether a file is a chunk of litdata: its folder's index says so, or its own head does."""
    if containers.folder_index(path.parent, "chunks") is not None:
        return True
    try:
        containers.edges_of(path, containers.unpacked(path))
    except OutputError:
        return False
    return True


def folder_files(folder: Path, wanted: str | None) -> tuple[str, list[tuple[Path, str]]]:
    by_format: dict[str, list[Path]] = defaultdict(list)
    for path in candidates(folder):
        if path.suffix == ".idx":
            if not path.with_suffix(".bin").is_file():
                raise damaged(path, "has no .bin beside it, which holds the tokens")
            continue
        by_format[wanted or format_of(path)].append(path)
    if not by_format:
        endings = ", ".join(ENDINGS)
        raise OutputError(f"no shards in `{folder}`", hint=f"files are known by their endings: {endings}")
    if len(by_format) > 1:
        examples = [f"  {name}: {len(paths)}, `{paths[0].name}` ..." for name, paths in by_format.items()]
        raise OutputError(
            "\n".join([f"`{folder}` holds files of several formats", *examples]),
            hint="name one of the files, or a folder below",
        )
    ((name, paths),) = by_format.items()
    listed = [path for path in paths if is_listed(path, name)]
    files = [(path, split_of(path, folder)) for path in listed]
    files.sort(key=lambda file: (ORDER.get(file[1], 3), natural(str(file[0].relative_to(folder)))))
    return name, files


def candidates(folder: Path) -> list[Path]:
    """Files that may be shards, in a folder and those below, but for hidden ones and our index."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")) and name != INDEX)
        found += [Path(parent) / name for name in sorted(names) if name.endswith(ENDINGS) and not name.startswith(".")]
    return found


def is_listed(path: Path, name: str) -> bool:
    """Whether the index.json of the folder names a file; where there is none, every file counts."""
    listed = listed_names(path.parent, name)
    is_double = path.suffix in (".zstd", ".zst") and path.with_suffix("").is_file()  # it lies there unpacked, too
    return (listed is None or any(path.name in names for names in listed)) and not is_double


def listed_names(folder: Path, name: str) -> list[list[str]] | None:
    """What an index.json calls its files, packed and unpacked; None: there is no such index."""
    if name == "litdata" and (index := containers.folder_index(folder, "chunks")) is not None:
        return [[str(chunk.get("filename"))] for chunk in index["chunks"]]
    if name == "mds" and (index := containers.folder_index(folder, "shards")) is not None:
        kinds = ("raw_data", "zip_data")
        return [[str(shard[kind].get("basename")) for kind in kinds if shard.get(kind)] for shard in index["shards"]]
    return None


def missing_warnings(files: list[Path], name: str) -> list[str]:
    """Say which files an index.json names that are not there."""
    warnings = []
    for folder in dict.fromkeys(path.parent for path in files):
        listed = listed_names(folder, name) or []
        missing = [names[0] for names in listed if names and not any((folder / each).is_file() for each in names)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            warnings.append(f"`{folder / 'index.json'}` names `{missing[0]}`{more}, which is not there")
    return warnings


def split_of(path: Path, root: Path) -> str:
    """The split that a file belongs to, by its name or that of the nearest folder that says so.

    Below the root a word is enough (`train_small`); the root itself must be called so.
    """
    for part in reversed(path.relative_to(root).parts):
        for word in re.findall(r"[a-z]+", part.lower()):
            if word in SPLITS:
                return SPLITS[word]
    return SPLITS.get(root.absolute().name.lower(), "train")


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts chunk-0-10 behind chunk-0-9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
