"""Outputs of tokenmill: the manifest says everything, and its index where documents begin and come from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from tokenmill.errors import OutputError, RecipeError
from tokenmill.manifest import MANIFEST, Manifest, load_manifest
from tokenmill.reading.containers import RowGroups
from tokenmill.reading.files import Ids, IndexPlaces, ShardFile
from tokenmill.reading.guessing import Told
from tokenmill.shards import format_named
from tokenmill.tokenizers import Tokenizer


def output_of(path: Path) -> tuple[Path, Manifest] | None:
    """The output of ours that a path is, or is a file of: its folder and manifest."""
    if path.is_dir():
        if (path / MANIFEST).is_file():
            return (path, load_manifest(path)) if is_ours(path / MANIFEST) else None
        return (path, load_manifest(path)) if (path / ".work").exists() else None  # not finished, which is said there
    for folder in (path.parent, path.parent.parent):
        if (folder / MANIFEST).is_file() and is_ours(folder / MANIFEST):
            manifest = load_manifest(folder)
            if any(folder / file.file == path for shard in manifest.shards for file in shard.files[:-1]):
                return folder, manifest
    return None


def is_ours(path: Path) -> bool:
    """Whether a manifest.json is one of ours: others write files of that name, too."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True  # damaged, which is said where it is read
    return isinstance(content, dict) and "tokenmill" in content


def our_files(path: Path, out: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """The shards of an output, or the one that a file belongs to."""
    record = manifest.tokenizer
    return tuple(
        ShardFile(
            out / shard.file,
            shard.split,
            our_ids(out, out / shard.file, manifest),
            IndexPlaces(out / shard.index.file, shard.n_documents),
            record.name,
            "its manifest",
            side_files=tuple(out / file.file for file in shard.side_files),
        )
        for shard in manifest.shards
        if path.is_dir() or any(out / file.file == path for file in shard.files)
    )


def size_warnings(files: tuple[ShardFile, ...], out: Path, manifest: Manifest) -> tuple[str, ...]:
    """Say which shards are not as long as the manifest has them."""
    expected = {out / shard.file: shard.n_bytes for shard in manifest.shards}
    return tuple(
        f"`{file.path.name}` is damaged: {n_bytes:,} bytes, and the manifest says {expected[file.path]:,}"
        for file in files
        if (n_bytes := file.path.stat().st_size) != expected[file.path]
    )


def our_ids(out: Path, file: Path, manifest: Manifest) -> Ids:
    try:
        if manifest.recipe.format == "parquet":
            return RowGroups(file)
        dtype = np.dtype(manifest.tokenizer.dtype).newbyteorder("<")
        return format_named(manifest.recipe.format).read_ids(file, dtype)
    except FileNotFoundError:
        raise OutputError(f"shard `{file}` is missing", hint=f"`tokenmill verify {out}` lists all damage") from None


def our_tokenizer(manifest: Manifest, wanted: str | None) -> Told:
    """The tokenizer of the recipe, if it is still where it was."""
    recipe, name = manifest.recipe, manifest.tokenizer.name
    if wanted is not None:
        return Told(Tokenizer(wanted), wanted, "you")
    try:
        return Told(Tokenizer(recipe.tokenizer, recipe.pattern), name, "its manifest")
    except RecipeError as error:
        return Told(None, name, f"its manifest, and cannot be opened: {error.message}")
