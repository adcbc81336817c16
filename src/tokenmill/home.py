"""Where an output is to be: a folder of this machine, or a place in a store that a folder stands in for meanwhile.

A run works in a folder in either case. What concerns a store is in these calls, and in store_home.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from tokenmill.errors import BusyError, RecipeError
from tokenmill.journal import Journal
from tokenmill.manifest import MANIFEST, Manifest
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.removal import start_over, sweep
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.sources import Input
from tokenmill.storage.addresses import is_address
from tokenmill.storage.local import is_whole
from tokenmill.workspace import begun_recipe, finished_manifest


class Home(Protocol):
    folder: Path  # where the run works
    away: bool  # whether the output is somewhere else

    def begun_recipe(self) -> Recipe | None:
        """The recipe that this output was begun with, finished or not."""

    def finished(self, recipe: Recipe, inputs: tuple[Input, ...]) -> Manifest | None:
        """The manifest, if this very recipe was finished here already, and is still whole."""

    def sweep(self) -> None:
        """Remove what a run left that was killed behind its end."""

    def start_over(self, recipe: Recipe) -> None:
        """Remove a finished output, to make it again."""

    def named(self) -> AbstractContextManager[None]:
        """Have errors name the output as the user does."""

    def watch(self, progress: Callable[[], dict[str, Any]]) -> None:
        """From whom to know how far the run is, for those who ask from outside."""

    def claim(self, recipe: Recipe) -> None:
        """Keep others away, and bring what there is of this run into the folder; called by the owner of the folder."""

    def begun(self) -> None:
        """Recipe and plan are in the folder."""

    def check(self, journal: Journal) -> None:
        """Compare with the journal of a run that is gone on with."""

    def shard_sealed(self, shard: ShardReceipt) -> None:
        """The files of a shard are in the folder, and in the journal."""

    def keep_journal(self) -> None:
        """Have all that is in the journal now where the output is: this machine may be lost."""

    def bring(self, path: Path, n_bytes: int) -> None:
        """Have a file of the work folder here that may be in the store only."""

    def has(self, path: Path, n_bytes: int) -> bool:
        """Whether a file of the work folder is there whole, here or in the store."""

    def settle(self, journal: Journal, on_wait: Callable[[], None] | None = None) -> None:
        """Take into the journal what has come to its place; with `on_wait`, wait until all of it has."""

    def publish(self) -> None:
        """The manifest is in the folder, so everything is."""

    def discard(self, recipe: Recipe) -> None:
        """Nothing of this run is to be kept: the folder is emptied already."""

    def release(self) -> None:
        """Let others in. Called however the run ended."""


class LocalHome:
    """The folder itself is the output."""

    away = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begun_recipe(self) -> Recipe | None:
        return begun_recipe(self.folder)

    def finished(self, recipe: Recipe, inputs: tuple[Input, ...]) -> Manifest | None:
        return finished_manifest(self.folder, recipe, inputs)

    def sweep(self) -> None:
        sweep(self.folder)

    def start_over(self, recipe: Recipe) -> None:
        start_over(self.folder, recipe)

    def named(self) -> AbstractContextManager[None]:
        return nullcontext()

    def watch(self, progress: Callable[[], dict[str, Any]]) -> None: ...
    def claim(self, recipe: Recipe) -> None:
        if (self.folder / MANIFEST).exists():  # it was not when this run was planned
            raise BusyError(
                f"`{self.folder}` was finished by another process just now", hint="run the same command again"
            )

    def begun(self) -> None: ...
    def check(self, journal: Journal) -> None: ...
    def shard_sealed(self, shard: ShardReceipt) -> None: ...
    def keep_journal(self) -> None: ...
    def bring(self, path: Path, n_bytes: int) -> None: ...
    def has(self, path: Path, n_bytes: int) -> bool:
        return is_whole(path, n_bytes)

    def settle(self, journal: Journal, on_wait: Callable[[], None] | None = None) -> None: ...
    def publish(self) -> None: ...
    def discard(self, recipe: Recipe) -> None: ...
    def release(self) -> None: ...


def home_of(out: str | Path, options: RunOptions) -> Home:
    """The home of an output, by its folder or its address."""
    if not is_address(str(out)):
        return LocalHome(Path(out))
    if options.keep_downloads:
        raise RecipeError(
            "`--keep-downloads` keeps them in the output folder, and this output is in a store",
            hint="leave it out; `tokenmill download` fetches sources to a folder",
        )
    if options.node is not None:
        raise RecipeError(
            "`--node` needs an output folder that all machines share, and this output is in a store",
            hint="pass a folder with `-o`",
        )
    from tokenmill.store_home import StoreHome

    return StoreHome(str(out), options.scratch)
