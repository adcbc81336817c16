"""What an output folder consists of, finished or not: names, and which files are whose.

OUT/train.bin ...     shards, each under its name only when it is whole
OUT/index/            the document index of each shard
OUT/quarantine/       documents that no engine could take
OUT/manifest.json     last of all: without it the run is not done
OUT/SHA256SUMS
OUT/.work/            an unfinished run; gone when it is done
    recipe.json       what it makes
    plan.json         from which files, and how they are cut
    journal           what is done: every receipt
    lock              who works on it
    units/ scattered/ segments of units, groups of a shuffle
    workers/          what each worker is at, and its last words
    shares/2-of-8/    what one machine of several does: a journal, a lock and workers of its own (shares.py)
"""

from __future__ import annotations

import re
from pathlib import Path

from tokenmill.lock import LOCK
from tokenmill.recipe import Recipe
from tokenmill.shards import format_named
from tokenmill.shards.index import INDEX
from tokenmill.storage.local import TEMP_SUFFIX

WORK = ".work"
RECIPE, PLAN, JOURNAL, RUN, SHARES = "recipe.json", "plan.json", "journal", "run", "shares"
STATION_JOB = "job-"  # what a driver leaves for the stations of a cluster, and each of these beside it


def is_a_strangers(work: Path) -> bool:
    """Whether a work folder is there that no run of tokenmill made: a lock or its guard is first in it, and last."""
    try:
        names = {path.name for path in work.iterdir()}  # at one look: others may come and go
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(names) and not any(name in (RECIPE, SHARES) or name.partition(".")[0] == LOCK for name in names)


def output_files(out: Path, recipe: Recipe) -> list[Path]:
    """The files in the folder that are named as this recipe's shards and their indexes are, finished or not."""
    found = [*out.glob("*"), *out.glob("*/*")]
    return sorted(path for path in found if file_pattern(recipe).fullmatch(path.relative_to(out).as_posix()))


def file_pattern(recipe: Recipe) -> re.Pattern[str]:
    """What shards of this recipe and their indexes are called, finished or not."""
    of_format = format_named(recipe.format).file_pattern(recipe)
    return re.compile(rf"({of_format}|{INDEX}/\d{{6,}}\.arrow)((\.[0-9a-f]{{16}})?{re.escape(TEMP_SUFFIX)})?")
