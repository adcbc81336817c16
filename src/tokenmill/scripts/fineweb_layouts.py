"""Where FineWeb's shards lie on disk: in which of the known layouts a folder holds a sample of it.

DIR/*.parquet, DIR/*.arrow                                            a plain folder of shards
DIR/sample/10BT/*.parquet, DIR/10BT/*.parquet                         the Hub repository, or its folder `sample`
DIR/snapshots/REVISION/sample/10BT/*.parquet                          one repository in the Hub's cache
DIR/[hub/]datasets--HuggingFaceFW--fineweb[-edu]/snapshots/...        the Hub's cache, or the folder above it
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from tokenmill.errors import SourceError

FinewebType = Literal["edu", "classic"]
VERSIONS = {"10B": "10BT", "100B": "100BT", "350B": "350BT"}
REPOSITORIES: dict[FinewebType, str] = {"edu": "fineweb-edu", "classic": "fineweb"}
SHARD_ENDINGS = (".parquet", ".pq", ".arrow")


class Shards(NamedTuple):
    folder: Path
    type: FinewebType


def fineweb_shards(folder: Path, version: str, wanted: FinewebType | None) -> Shards:
    """Return the folder that holds the shards of a sample, and of which FineWeb it is."""
    if folder.is_file():
        raise SourceError(f"`{folder}` is a file", hint=f"pass the folder that holds it: `--input {folder.parent}`")
    if not folder.is_dir():
        raise SourceError(f"no such folder: `{folder}`", hint="`--input` names the folder that holds the shards")
    sample = VERSIONS[version]
    if has_shards(folder):
        return Shards(folder, settled(folder, sample, type_in_name(folder), wanted))
    for place in (folder / "sample" / sample, folder / sample):
        if has_shards(place):
            return Shards(place, settled(folder, sample, type_in_name(folder), wanted))
    if (folder / "snapshots").is_dir():
        found = snapshot(folder, sample)
        if found is not None:
            return Shards(found, settled(folder, sample, type_in_name(folder), wanted))
    cached = cached_samples(folder, sample)
    if wanted is not None and wanted in cached:
        return Shards(cached[wanted], wanted)
    if wanted is None and len(cached) > 1:
        raise SourceError(
            f"`{folder}` holds sample {sample} of both FineWeb-Edu and FineWeb", hint="pass `--type edu` or `classic`"
        )
    if wanted is None and cached:
        return next(Shards(found, kind) for kind, found in cached.items())
    raise SourceError(not_found(folder, sample, wanted), hint=what_is_there(folder, cached))


def has_shards(folder: Path) -> bool:
    """Whether shards lie in the folder itself."""
    return folder.is_dir() and any(path.suffix.lower() in SHARD_ENDINGS and path.is_file() for path in folder.iterdir())


def type_in_name(folder: Path) -> FinewebType | None:
    """Which FineWeb the path of a folder says it is, if it does."""
    for part in reversed(folder.absolute().parts):
        for kind, repository in REPOSITORIES.items():
            if part in (repository, f"datasets--HuggingFaceFW--{repository}"):
                return kind
    return None


def settled(folder: Path, sample: str, named: FinewebType | None, wanted: FinewebType | None) -> FinewebType:
    """What was asked for, if the path does not say otherwise; what the path says; or FineWeb-Edu."""
    if named and wanted and named != wanted:
        raise SourceError(
            f"`{folder}` is {REPOSITORIES[named]}, and `--type {wanted}` asks for {REPOSITORIES[wanted]}",
            hint=f"pass `--type {named}`, or another `--input`",
        )
    other = [name for name in VERSIONS.values() if name != sample and folder.name == name]
    if other:
        raise SourceError(f"`{folder}` is sample {other[0]}, and sample {sample} is asked for")
    return wanted or named or "edu"


def snapshot(repository: Path, sample: str) -> Path | None:
    """Return the sample in the snapshot that `main` points to, or in the only one that has it."""
    found = {
        path.name: path / "sample" / sample
        for path in sorted((repository / "snapshots").iterdir())
        if has_shards(path / "sample" / sample)
    }
    main = repository / "refs" / "main"
    if main.is_file() and (revision := main.read_text().strip()) in found:
        return found[revision]
    if len(found) > 1:
        raise SourceError(
            f"`{repository}` holds sample {sample} in several snapshots: {', '.join(found)}",
            hint=f"name one of them: `--input {next(iter(found.values())).parents[1]}`",
        )
    return next(iter(found.values()), None)


def cached_samples(folder: Path, sample: str) -> dict[FinewebType, Path]:
    """Return the sample of each FineWeb that a cache of the Hub holds."""
    found: dict[FinewebType, Path] = {}
    for root in (folder, folder / "hub"):
        for kind, repository in REPOSITORIES.items():
            place = root / f"datasets--HuggingFaceFW--{repository}"
            if (place / "snapshots").is_dir() and kind not in found and (path := snapshot(place, sample)) is not None:
                found[kind] = path
    return found


def not_found(folder: Path, sample: str, wanted: FinewebType | None) -> str:
    cache = f"datasets--HuggingFaceFW--{REPOSITORIES[wanted] if wanted else 'fineweb[-edu]'}"
    looked_for = [
        "*.parquet or *.arrow",
        f"sample/{sample}/*.parquet",
        f"snapshots/*/sample/{sample}/*.parquet",
        f"{cache}/snapshots/*/sample/{sample}/*.parquet",
    ]
    return "\n  ".join([f"no shards of sample {sample} in `{folder}`; looked for", *looked_for])


def what_is_there(folder: Path, cached: dict[FinewebType, Path]) -> str | None:
    """A hint that names what is there instead."""
    if cached:
        return f"`--type {next(iter(cached))}` is there"
    others = [version for version, sample in VERSIONS.items() if any(folder.glob(f"**/sample/{sample}"))]
    return f"`--version {others[0]}` is there" if others else None
