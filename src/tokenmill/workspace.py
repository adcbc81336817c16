"""The output folder: whose it is, and what of an earlier run is in it.

OUT/train.bin ...     shards, each under its name only when it is whole
OUT/index/            the document index of each shard
OUT/manifest.json     last of all: without it the run is not done
OUT/SHA256SUMS
OUT/.work/            recipe.json, segments and buckets of an unfinished run; gone when it is done
"""

from __future__ import annotations

import errno
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.errors import OutputError
from tokenmill.manifest import MANIFEST, SKIPPED, SUMS, Manifest, load_manifest
from tokenmill.recipe import Recipe
from tokenmill.shards import format_named
from tokenmill.shards.index import INDEX
from tokenmill.sources import Input
from tokenmill.storage.local import TEMP_SUFFIX, write_whole

WORK = ".work"
RECIPE = "recipe.json"


def finished_manifest(out: Path, recipe: Recipe, inputs: tuple[Input, ...]) -> Manifest | None:
    """Return the manifest if this very recipe was finished here already, from the same files, and is still whole."""
    if not (out / MANIFEST).exists():
        return None
    manifest = load_manifest(out)
    refuse_other_recipe(out, manifest.recipe, recipe)
    then = [(entry.path, entry.n_bytes, entry.mtime_ns) for entry in manifest.inputs]
    now = [(entry.path, entry.size, entry.mtime_ns) for entry in inputs]
    if then != now:
        changed = sorted({path for path, *_ in set(then) ^ set(now)})
        raise OutputError(
            f"`{out}` was made from other inputs: {shown(tuple(changed)) if changed else 'their order changed'}",
            hint="pass another folder with `-o`, or delete this one",
        )
    for shard in manifest.shards:
        if not (out / shard.file).is_file() or (out / shard.file).stat().st_size != shard.n_bytes:
            message = f"shard `{shard.file}` of `{out}` is missing or damaged"
            raise OutputError(message, hint="delete the folder and run again")
    return manifest


def claim(out: Path, recipe: Recipe) -> Path:
    """Make the output folder ours, and return its empty work folder. What an unfinished run left is cleared away."""
    work = out / WORK
    for source in recipe.sources:
        if Path(source).is_dir() and out.is_dir() and out.samefile(source):
            raise OutputError(f"the source `{source}` is also the output", hint="pass another folder with `-o`")
    if (work / RECIPE).exists():
        try:
            earlier = msgspec.json.decode((work / RECIPE).read_bytes(), type=Recipe)
        except msgspec.MsgspecError as error:
            raise OutputError(f"`{work / RECIPE}` is damaged: {error}", hint=f"delete `{out}`") from None
        refuse_other_recipe(out, earlier, recipe)
        discard(out, recipe)
    elif work.exists() and any(work.iterdir()):
        raise OutputError(f"`{work}` is not tokenmill's", hint="pass another folder with `-o`, or move it away")
    strangers = [
        *output_files(out, recipe),
        *(path for path in (out / SUMS, out / SKIPPED, out / INDEX) if path.exists()),
    ]
    if strangers:
        raise OutputError(
            f"`{out}` holds `{strangers[0].name}`, which tokenmill did not make and would overwrite",
            hint="pass another folder with `-o`, or move it away",
        )
    try:
        work.mkdir(parents=True, exist_ok=True)
        write_whole(work / RECIPE, msgspec.json.encode(recipe))
        (work / "units").mkdir(exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot make the folder `{error.filename}`: a file of that name is in the way") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OutputError(f"cannot write to `{out}`: {str(error.strerror).lower()}") from None
    return work


def discard(out: Path, recipe: Recipe) -> None:
    """Remove what an unfinished run of this recipe made, and nothing else."""
    for path in [*output_files(out, recipe), out / SUMS, out / SKIPPED, out / MANIFEST]:
        path.unlink(missing_ok=True)
    for name in ("units", "buckets"):
        shutil.rmtree(out / WORK / name, ignore_errors=True)
    (out / WORK / RECIPE).unlink()  # last: whoever is killed in between is known for what it is
    for folder in (out / WORK, out / INDEX, out):
        with suppress(OSError):  # not there, or somebody else's files are in it
            folder.rmdir()


def output_files(out: Path, recipe: Recipe) -> list[Path]:
    """The files in the folder that are named as this recipe's shards and their indexes are, finished or not."""
    shard_pattern = format_named(recipe.format).shard_pattern(str(recipe.name))
    pattern = re.compile(rf"({shard_pattern}|{INDEX}/\d{{6,}}\.arrow)({re.escape(TEMP_SUFFIX)})?")
    found = [*out.glob("*"), *(out / INDEX).glob("*")]
    return sorted(path for path in found if pattern.fullmatch(path.relative_to(out).as_posix()))


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
