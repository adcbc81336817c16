"""Sources: files in, batches of documents out.

A source is a module with two functions. `atom_bytes` measures an input without reading its data: the text bytes
of each stretch that cannot be cut (row groups, record batches), or one size for an input that can be cut anywhere.
`read` yields the documents of one span of it. Order: sources as given, files sorted by path, documents in file
order.
"""

from __future__ import annotations

import glob
import hashlib
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from tokenmill.errors import DataError, SourceError, did_you_mean
from tokenmill.sources.catalog import CATALOG, corpora

if TYPE_CHECKING:
    from tokenmill.batches import Documents
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe

Kind = Literal["parquet", "arrow", "jsonl", "text", "shard"]  # a shard: of another output, for convert and merge

KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".text": "text",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
UNREAD_COMPRESSIONS = (".xz", ".bz2", ".lz4", ".br", ".lzma", ".zip")
EDGE_BYTES = 65_536
# What Hugging Face datasets puts beside the data.
SIDE_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


class Input(msgspec.Struct, frozen=True):
    """One input file, as the listing found it."""

    path: str
    size: int
    mtime_ns: int
    edges: str  # a digest of its first and last bytes
    kind: Kind
    compression: str | None = None
    # Plain text only: what ends a document. None: the whole file is one.
    documents: Literal["separator", "line", "paragraph", "file"] | None = None
    separator: str | None = None

    @property
    def divisible(self) -> bool:
        """Whether a span may begin at any byte: its reader looks for the next beginning of a document itself."""
        return self.compression is None and self.kind in ("jsonl", "text") and self.documents != "file"


class Source(Protocol):
    def atom_bytes(self, entry: Input, recipe: Recipe) -> list[int]:
        """The bytes of each indivisible stretch, in order; one size for a divisible input; empty if it has none."""

    def read(self, entry: Input, span: Span, recipe: Recipe, batch_bytes: int) -> Iterator[Documents]:
        """Yield the documents of a span, about `batch_bytes` of text at a time."""


def source_for(entry: Input) -> Source:
    module: Source = import_module(f"tokenmill.sources.{entry.kind}")
    return module


def list_inputs(recipe: Recipe) -> list[Input]:
    """List the files that the recipe's sources name."""
    entries = []
    for source in recipe.sources:
        entries += [input_at(path, recipe) for path in source_paths(source)]
    return entries


def input_at(path: Path, recipe: Recipe) -> Input:
    """What there is to know of a file before it is read."""
    status = path.stat()
    if status.st_size == 0 and suffixes(path)[1]:
        raise DataError(f"`{path}` is empty, not even a compressed nothing: it is truncated")
    entry = Input(str(path), status.st_size, status.st_mtime_ns, edges_of(path), *kind_of(path))
    if entry.kind == "text":
        from tokenmill.sources.text import with_splitting

        return with_splitting(entry, recipe)
    return entry


def edges_of(path: Path) -> str:
    """A digest of the first and last bytes of a file: a Parquet file ends with its footer."""
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(EDGE_BYTES))
        file.seek(-min(EDGE_BYTES, file.seek(0, 2)), 2)
        digest.update(file.read(EDGE_BYTES))
    return digest.hexdigest()[:16]


def source_paths(source: str) -> list[Path]:
    """Return the files behind one source: a name of the catalog, a file, a folder or a glob."""
    if source in CATALOG:
        return [CATALOG[source]]
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        return folder_paths(path)
    if glob.has_magic(source):
        # Sorted like the files of a folder; a set, since `**/**` finds files twice.
        found = sorted({Path(name) for name in glob.glob(source, recursive=True)}, key=Path.as_posix)
        if not any(path.is_file() for path in found):
            raise SourceError(f"no file matches `{source}`")
        return [path for path in found if path.is_file()]
    hint = "a source is a file, a folder, a glob, or the name of a known corpus"
    if path.suffix == "" and path.parent == Path.cwd():
        close = did_you_mean(path.name, list(corpora()))
        hint = close if close and close.startswith("did you mean") else f"{hint}: see `tokenmill datasets`"
    raise SourceError(f"no such file or folder: `{source}`", hint=hint)


def folder_paths(folder: Path) -> list[Path]:
    """Return the files of a folder that we read, at any depth, sorted by path."""
    found = []
    for path in sorted(files_below(folder, set()), key=Path.as_posix):
        inner, _ = suffixes(path)
        if path.suffix.lower() in UNREAD_COMPRESSIONS and Path(path.stem).suffix.lower() in KINDS:
            raise SourceError(f"`{path}` has a compression that tokenmill does not read", hint=endings_hint())
        if inner in KINDS and path.name not in SIDE_FILES:
            found.append(path)
    if not found:
        raise SourceError(f"no file in `{folder}` has an ending that tokenmill reads", hint=endings_hint())
    counts = Counter(KINDS[suffixes(path)[0]] for path in found)
    if len(counts) > 1:
        mix = ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common())
        raise SourceError(
            f"`{folder}` holds files of several kinds: {mix}",
            hint=f"name the ones you mean with a glob, such as `'{folder}/**/*{suffixes(found[0])[0]}'`",
        )
    return found


def files_below(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield files at any depth, through links too; hidden names, names with `_` in front and outputs are left out."""
    if folder.resolve() in seen or is_output(folder):
        return
    seen.add(folder.resolve())  # a link that leads back up must not be followed for ever
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            yield from files_below(path, seen)
        elif path.is_file():
            yield path


def is_output(folder: Path) -> bool:
    """Whether a folder is an output of tokenmill, finished or not: no source, even where it lies beside one."""
    return (folder / ".work" / "recipe.json").exists() or all(
        (folder / name).exists() for name in ("manifest.json", "SHA256SUMS")
    )


def suffixes(path: Path) -> tuple[str, str]:
    """Return the ending that tells the kind and the one that tells the compression: (".jsonl", ".gz")."""
    outer = path.suffix.lower()
    if outer in COMPRESSIONS:
        return Path(path.stem).suffix.lower(), outer
    return outer, ""


def kind_of(path: Path) -> tuple[Kind, str | None]:
    """Return kind and compression by the file's ending."""
    inner, outer = suffixes(path)
    if inner not in KINDS:
        raise SourceError(f"cannot tell what `{path}` is by its ending", hint=endings_hint())
    kind, compression = KINDS[inner], COMPRESSIONS.get(outer)
    if compression and kind in ("parquet", "arrow"):
        raise SourceError(
            f"`{path}` is a compressed {kind} file: it cannot be read in parts",
            hint=f"unpack it first; {kind} compresses inside the file",
        )
    return kind, compression


def endings_hint() -> str:
    return "known endings: " + ", ".join(KINDS) + "; jsonl and text also with .gz or .zst"
