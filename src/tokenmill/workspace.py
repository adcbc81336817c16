"""The output folder: whose it is, and what of an earlier run is in it.

OUT/train.bin ...     shards, each under its name only when it is whole
OUT/index/            the document index of each shard
OUT/manifest.json     last of all: without it the run is not done
OUT/SHA256SUMS
OUT/.work/            recipe.json, segments and buckets of an unfinished run; gone when it is done
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.errors import OutputError
from tokenmill.manifest import MANIFEST, SUMS, Manifest, load_manifest
from tokenmill.recipe import Recipe
from tokenmill.shards import format_named
from tokenmill.storage.local import TEMP_SUFFIX, write_whole

WORK = ".work"
RECIPE = "recipe.json"


def finished_manifest(out: Path, recipe: Recipe) -> Manifest | None:
    """Return the manifest if this very recipe was finished here already; refuse an output of another one."""
    if not (out / MANIFEST).exists():
        return None
    manifest = load_manifest(out)
    refuse_other_recipe(out, manifest.recipe, recipe)
    return manifest


def claim(out: Path, recipe: Recipe) -> Path:
    """Make the output folder ours, and return its empty work folder. What an unfinished run left is cleared away."""
    work = out / WORK
    if (work / RECIPE).exists():
        earlier = msgspec.json.decode((work / RECIPE).read_bytes(), type=Recipe)
        refuse_other_recipe(out, earlier, recipe)
        discard(out, recipe)
    strangers = shard_files(out, recipe)
    if strangers:
        raise OutputError(
            f"`{out}` holds `{strangers[0].name}`, which tokenmill would overwrite",
            hint="pass another folder with `-o`, or move these files away",
        )
    try:
        (work / "units").mkdir(parents=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot make the folder `{error.filename}`: a file of that name is in the way") from None
    except PermissionError as error:
        raise OutputError(f"cannot write to `{out}`: {error.strerror}") from None
    write_whole(work / RECIPE, msgspec.json.encode(recipe))
    return work


def discard(out: Path, recipe: Recipe) -> None:
    """Remove what an unfinished run of this recipe made."""
    for path in [*shard_files(out, recipe), out / MANIFEST, out / SUMS]:
        path.unlink(missing_ok=True)
    shutil.rmtree(out / "index", ignore_errors=True)
    shutil.rmtree(out / WORK)
    with suppress(OSError):  # not empty: somebody else's files are in it
        out.rmdir()


def shard_files(out: Path, recipe: Recipe) -> list[Path]:
    """The files in the folder that are named as this recipe's shards are, finished or not."""
    pattern = re.compile(format_named(recipe.format).shard_pattern(recipe.name) + f"({re.escape(TEMP_SUFFIX)})?")
    return sorted(path for path in out.glob("*") if pattern.fullmatch(path.name))


def refuse_other_recipe(out: Path, earlier: Recipe, recipe: Recipe) -> None:
    if earlier == recipe:
        return
    differences = [
        f"  {field.name}: {shown(getattr(earlier, field.name))} there, {shown(getattr(recipe, field.name))} now"
        for field in msgspec.structs.fields(Recipe)
        if getattr(earlier, field.name) != getattr(recipe, field.name)
    ]
    raise OutputError(
        "\n".join([f"`{out}` holds the output of another recipe", *differences]),
        hint="pass another folder with `-o`, or delete this one",
    )


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value[:3]) + (" ..." if len(value) > 3 else "")
    return f"`{value}`"
