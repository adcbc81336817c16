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
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from tokenmill.errors import DataError, SourceError, did_you_mean
from tokenmill.sources.catalog import CATALOG, corpora
from tokenmill.storage.addresses import is_address

if TYPE_CHECKING:
    from tokenmill.batches import Documents
    from tokenmill.plan import Span
    from tokenmill.recipe import Recipe
    from tokenmill.storage.remote import RemoteFile

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
# By what an output of tokenmill is known, unfinished and finished.
OUTPUT_MARK, OUTPUT_FILES = ".work/recipe.json", ("manifest.json", "SHA256SUMS")
# What Hugging Face datasets puts beside the data.
SIDE_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


class Input(msgspec.Struct, frozen=True):
    """One input file, as the listing found it."""

    path: str  # or address
    size: int
    mtime_ns: int
    edges: str  # a digest of its first and last bytes, or what the listing of a store calls its digest
    kind: Kind
    compression: str | None = None
    # Plain text only: what ends a document. None: the whole file is one.
    documents: Literal["separator", "line", "paragraph", "file"] | None = None
    separator: str | None = None
    local: str | None = None  # of an address: where its copy on this machine is, while there is one

    @property
    def is_remote(self) -> bool:
        return is_address(self.path)

    @property
    def divisible(self) -> bool:
        """Whether a span may begin at any byte: its reader looks for the next beginning of a document itself.

        A Parquet file elsewhere is cut by shares: its row groups are known when it is here (see `share_of`).
        """
        if self.is_remote and self.kind == "parquet":
            return True
        return self.compression is None and self.kind in ("jsonl", "text") and self.documents != "file"

    def opened(self) -> Any:
        """The file as pyarrow reads one: the copy on this machine, or stretches of it where there is none."""
        import pyarrow as pa

        if self.is_remote and self.local is None:
            from tokenmill.storage.remote import RangeFile, RemoteFile

            return pa.PythonFile(RangeFile(RemoteFile(self.path, self.size, self.edges)), mode="r")
        return pa.OSFile(self.local or self.path)


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
        if is_address(source):
            entries += [remote_input(file, recipe) for file in remote_files(source)]
        else:
            entries += [input_at(path, recipe) for path in source_paths(source)]
    return entries


def remote_files(source: str) -> list[RemoteFile]:
    """The files at an address that we read, sorted; a file that is named itself is taken whatever it is called."""
    from tokenmill.storage.addresses import glob_prefix, has_magic, parsed
    from tokenmill.storage.remote import list_files

    address = parsed(source)
    found = {parsed(file.address).path: file for file in list_files(address)}
    if list(found) == [address.path]:
        return list(found.values())
    if has_magic(address.path):
        if not found:
            raise SourceError(f"no file matches `{address}`")
        return list(found.values())
    below = len(glob_prefix(address.path).split("/")) if address.path else 0
    paths = {PurePosixPath(path): found[path] for path in outside_outputs(found)}
    visible = [path for path in paths if not any(part.startswith((".", "_")) for part in path.parts[below:])]
    return [paths[path] for path in readable_files(visible, str(address))]


def outside_outputs(paths: Iterable[str]) -> list[str]:
    """Those of a listing's paths that are in no output of tokenmill: see `is_output`."""
    known = set(paths)
    marks = {path.removesuffix(OUTPUT_MARK) for path in known if path.endswith(f"/{OUTPUT_MARK}")}
    marks |= {
        path.removesuffix(OUTPUT_FILES[0])
        for path in known
        if path.endswith(f"/{OUTPUT_FILES[0]}") and path.removesuffix(OUTPUT_FILES[0]) + OUTPUT_FILES[1] in known
    }
    return [path for path in paths if not path.startswith(tuple(marks))]


def remote_input(file: RemoteFile, recipe: Recipe) -> Input:
    """What there is to know of a file elsewhere before it is fetched."""
    from tokenmill.storage.addresses import parsed

    if {"", ".", ".."} & set(parsed(file.address).path.split("/")):
        raise SourceError(f"the name {file.address!r} leads somewhere else", hint="rename it where it is")
    entry = Input(file.address, file.size, 0, file.digest, *kind_of(PurePosixPath(file.address), file.address))
    return completed(entry, recipe)


def input_at(path: Path, recipe: Recipe) -> Input:
    """What there is to know of a file before it is read."""
    status = path.stat()
    entry = Input(str(path), status.st_size, status.st_mtime_ns, edges_of(path), *kind_of(path))
    return completed(entry, recipe)


def completed(entry: Input, recipe: Recipe) -> Input:
    """Return the entry with the way its text splits into documents, where it is plain text."""
    if entry.size == 0 and entry.compression:
        raise DataError(f"`{entry.path}` is empty, not even a compressed nothing: it is truncated")
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
    return readable_files(sorted(files_below(folder, set()), key=Path.as_posix), str(folder))


AnyPath = TypeVar("AnyPath", bound=PurePath)


def readable_files(paths: Iterable[AnyPath], folder: str) -> list[AnyPath]:
    """Those of a folder's files that we read; they must be of one kind."""
    found = []
    for path in paths:
        inner, _ = suffixes(path)
        if path.suffix.lower() in UNREAD_COMPRESSIONS and PurePath(path.stem).suffix.lower() in KINDS:
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
    return (folder / OUTPUT_MARK).exists() or all((folder / name).exists() for name in OUTPUT_FILES)


def suffixes(path: PurePath) -> tuple[str, str]:
    """Return the ending that tells the kind and the one that tells the compression: (".jsonl", ".gz")."""
    outer = path.suffix.lower()
    if outer in COMPRESSIONS:
        return PurePath(path.stem).suffix.lower(), outer
    return outer, ""


def kind_of(path: PurePath, address: str = "") -> tuple[Kind, str | None]:
    """Return kind and compression by the file's ending."""
    inner, outer = suffixes(path)
    if inner not in KINDS:
        raise SourceError(f"cannot tell what `{address or path}` is by its ending", hint=endings_hint())
    kind, compression = KINDS[inner], COMPRESSIONS.get(outer)
    if compression and kind in ("parquet", "arrow"):
        raise SourceError(
            f"`{address or path}` is a compressed {kind} file: it cannot be read in parts",
            hint=f"unpack it first; {kind} compresses inside the file",
        )
    return kind, compression


def share_of(span: Span, n_bytes: int, n: int) -> range:
    """Which of `n` row groups belong to a span of a file that was cut by shares of `n_bytes`: each to one span."""
    return range(-(-span.start * n // n_bytes), -(-span.stop * n // n_bytes))


def endings_hint() -> str:
    return "known endings: " + ", ".join(KINDS) + "; jsonl and text also with .gz or .zst"
