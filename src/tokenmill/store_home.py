"""An output in a store: made in a scratch folder, put in its place shard by shard, the manifest last.

    s3://BUCKET/OUT/fineweb_train_000001.bin ...   each put whole, when it is sealed; its copy in scratch goes
    s3://BUCKET/OUT/manifest.json                  last of all: without it the run is not done
    s3://BUCKET/OUT/.work/                         an unfinished run; gone when it is done
        recipe.json plan.json run                  what it makes, from what, and which run it is
        journal/0000001 ...                        the journal, in parts: with each shard, and from a cluster oftener
        lock                                       who works on it

A run that is killed goes on from its scratch folder; on another machine, or without that folder, it goes on from the
last part of the journal. The store is right where the two differ.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tokenmill import faults
from tokenmill.errors import AccessError, BusyError, DamageError, OutputError, SourceError, TokenmillError
from tokenmill.journal import Journal, ScratchLost, ShardPut, journal_line, read_state_and_size
from tokenmill.layout import JOURNAL, PLAN, RECIPE, RUN, WORK, file_pattern
from tokenmill.lock import LOCK
from tokenmill.manifest import MANIFEST, SKIPPED, SUMS, Manifest, decoded_manifest
from tokenmill.recipe import Recipe
from tokenmill.scatter import pieces_path
from tokenmill.segments import QUARANTINE
from tokenmill.shards.index import INDEX
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.sources import Input
from tokenmill.storage import objects
from tokenmill.storage.addresses import STORES, Address, parsed
from tokenmill.storage.download import download
from tokenmill.storage.lease import Lease
from tokenmill.storage.local import is_whole, write_whole
from tokenmill.storage.parts import JournalParts, put_part
from tokenmill.storage.remote import RemoteFile
from tokenmill.storage.scratch import empty_scratch, scratch_folder
from tokenmill.storage.uploads import Uploads
from tokenmill.workspace import refuse_changes


class StoreHome:
    """A place in a store, and the scratch folder that stands in for it."""

    away = True

    def __init__(self, out: str, scratch: str | None) -> None:
        self.address = parsed(out)
        if self.address.scheme not in STORES:
            raise OutputError(
                f"tokenmill does not write to `{self.address.scheme}://`",
                hint="`-o` takes a folder, or s3://, gs:// or az://; `tokenmill push` uploads to the Hub",
            )
        if not self.address.path:
            raise OutputError(f"`{out}` is a whole bucket", hint=f"name a place in it, such as `{out}/tokens`")
        self.folder = scratch_folder(str(self.address), scratch)
        self._sizes = self._listed()
        self._read: Manifest | None = None
        self._lease: Lease | None = None
        self._uploads: Uploads | None = None
        self._parts = JournalParts(self.address, {})

    def __str__(self) -> str:
        return str(self.address)

    def begun_recipe(self) -> Recipe | None:
        if MANIFEST in self._sizes:
            return self._manifest().recipe
        data = self._get(f"{WORK}/{RECIPE}")
        return msgspec.json.decode(data, type=Recipe) if data else None

    def finished(self, recipe: Recipe, inputs: tuple[Input, ...]) -> Manifest | None:
        if MANIFEST not in self._sizes:
            return None
        manifest = self._manifest()
        refuse_changes(self.address, manifest, recipe, inputs)
        for file in (*(file for shard in manifest.shards for file in shard.files), *manifest.closing_files):
            if self._sizes.get(file.file) != file.n_bytes:
                message = f"`{self.at(file.file)}` is missing or damaged"
                raise OutputError(message, hint="delete what is there and run again")
        return manifest

    def sweep(self) -> None:
        if left := self._below(WORK):
            try:
                lease = Lease(self.at(f"{WORK}/{LOCK}"), str(self))
            except BusyError:  # whoever finished it is at that
                return
            self._remove(left)
            lease.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_over(self, recipe: Recipe) -> None:
        lease = Lease(self.at(f"{WORK}/{LOCK}"), str(self))
        begun = {f"{WORK}/{RECIPE}": msgspec.json.encode(recipe), f"{WORK}/{RUN}": secrets.token_hex(16).encode()}
        for name, data in begun.items():  # whoever is killed now is known
            objects.put(self.at(name), data)
        faults.point("over.begun")
        self._remove([MANIFEST])
        faults.point("over.file-removed")
        self._remove([*self._ours(recipe), *begun])
        faults.point("over.done")
        shutil.rmtree(self.folder, ignore_errors=True)
        lease.release()
        self._sizes = self._listed()

    @contextmanager
    def named(self) -> Iterator[None]:
        try:
            yield
        except TokenmillError as error:
            error.message = error.message.replace(str(self.folder), str(self))
            error.hint = error.hint and error.hint.replace(str(self.folder), str(self))
            raise

    def claim(self, recipe: Recipe) -> None:
        if any(f"{source}/".startswith(f"{self}/") for source in recipe.sources):
            raise OutputError(f"a source is in the output `{self}`", hint="pass another place with `-o`")
        self._lease = Lease(self.at(f"{WORK}/{LOCK}"), str(self))
        self._sizes = self._listed()
        if MANIFEST in self._sizes:
            raise BusyError(f"`{self}` was finished by another process just now", hint="run the same command again")
        run = self._get(f"{WORK}/{RUN}")
        self._parts = JournalParts(self.address, self._sizes)
        if run is None:
            empty_scratch(self.folder)
            if strangers := self._ours(recipe):
                raise OutputError(
                    f"`{self}` holds `{strangers[0]}`, which tokenmill did not make and would overwrite",
                    hint="pass another place with `-o`, or move it away",
                )
        elif not self._scratch_is_of(run):
            empty_scratch(self.folder)
            self._restore()
        for name in (MANIFEST, SUMS):  # sealed, and killed before they were put: they are made again
            (self.folder / name).unlink(missing_ok=True)
        self._uploads = Uploads()

    def watch(self, progress: Callable[[], dict[str, Any]]) -> None:
        assert self._lease is not None
        self._lease.progress = progress

    def begun(self) -> None:
        work = self.folder / WORK
        for name in (RECIPE, PLAN):
            objects.put(self.at(f"{WORK}/{name}"), (work / name).read_bytes())
        self._put_run()  # last: now there is something to go on with

    def _put_run(self) -> None:
        """Tie the run in the store to this scratch folder: no other one can be gone on with."""
        run = secrets.token_hex(16).encode()
        write_whole(self.folder / WORK / RUN, run, "run")
        objects.put(self.at(f"{WORK}/{RUN}"), run)
        faults.point("run.put")

    def check(self, journal: Journal) -> None:
        """What was put must be there; what was not must be put now."""
        if f"{WORK}/{PLAN}" not in self._sizes:  # killed at the very beginning
            objects.put(self.at(f"{WORK}/{PLAN}"), self.folder / WORK / PLAN)
        state = journal.state
        for shard in state.shards[: state.n_shards_put]:
            for file in shard.files:
                if self._sizes.get(file.file) != file.n_bytes:
                    raise OutputError(f"`{self.at(file.file)}` is missing or damaged", hint=f"delete `{self}`")
        for shard in state.shards[state.n_shards_put :]:
            self.shard_sealed(shard)

    def shard_sealed(self, shard: ShardReceipt) -> None:
        assert self._uploads is not None
        assert self._lease is not None
        lease, names = self._lease, [file.file for file in shard.files]

        def put() -> list[Path]:
            for name in names:
                lease.check()
                objects.put(self.at(name), self.folder / name)
                faults.point("shard.put")
            return [self.folder / name for name in names]

        self._uploads.add(put)

    def bring(self, path: Path, n_bytes: int) -> None:
        if is_whole(path, n_bytes):
            return
        path.parent.mkdir(exist_ok=True)
        address = self.at(path.relative_to(self.folder).as_posix())
        try:
            download(RemoteFile(str(address), n_bytes, ""), path, lambda n: None)
        except SourceError as error:
            raise OutputError(error.message, hint=error.hint or f"delete `{self}`") from None

    def has(self, path: Path, n_bytes: int) -> bool:
        return is_whole(path, n_bytes) or self._sizes.get(path.relative_to(self.folder).as_posix()) == n_bytes

    def settle(self, journal: Journal, on_wait: Callable[[], None] | None = None) -> None:
        assert self._lease is not None
        assert self._uploads is not None
        self._lease.check()
        while (paths := self._taken(on_wait)) is not None:
            if not paths:
                continue
            journal.record(ShardPut(journal.state.n_shards_put + 1))
            for path in paths:
                path.unlink(missing_ok=True)
                faults.point("shard.removed")
            self.keep_journal()

    def _taken(self, on_wait: Callable[[], None] | None) -> list[Path] | None:
        assert self._uploads is not None
        try:
            return self._uploads.taken(on_wait)
        except AccessError as error:  # it was there at the beginning: what is done stays
            hint = "run the same command again when it can be written: it goes on from here"
            raise OutputError(error.message, hint=hint) from None

    def publish(self) -> None:
        assert self._lease is not None
        self._lease.confirm()
        manifest = decoded_manifest((self.folder / MANIFEST).read_bytes(), MANIFEST)
        closing = (*(file.file for file in manifest.closing_files), SKIPPED)
        names = [name for name in closing if (self.folder / name).is_file()]
        for name in [*names, *self._quarantine(), SUMS, MANIFEST]:  # the manifest last
            objects.put(self.at(name), self.folder / name)
            faults.point("closing.put")
        self._sizes = self._listed()
        faults.point("store.before-removal")
        listed = {entry.text for entry in manifest.excluded}  # a station may have put them, and not this process
        taken_again = set(self._below(QUARANTINE)) - listed
        self._remove([*taken_again, *self._below(WORK)])
        faults.point("store.removed")

    def discard(self, recipe: Recipe) -> None:
        assert self._uploads is not None
        self._uploads.close()
        self._sizes = self._listed()
        self._remove([*self._ours(recipe), *self._below(WORK)])

    def release(self) -> None:
        if self._uploads is not None:
            self._uploads.close()
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if not (self.folder / WORK / RECIPE).exists():  # finished, given up, or never begun
            shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, name: str) -> Address:
        return self.address.below(name)

    def _listed(self) -> dict[str, int]:
        """The objects of this output by name, with their sizes: one listing."""
        return {name: file.size for name, file in objects.by_name(self.address).items()}

    def _below(self, folder: str) -> list[str]:
        return [name for name in self._sizes if name.startswith(f"{folder}/")]

    def _get(self, name: str) -> bytes | None:
        """A small object of this output, if it was there at the last listing."""
        return objects.get(self.at(name), self._sizes[name]) if name in self._sizes else None

    def _manifest(self) -> Manifest:
        if self._read is None:
            data = self._get(MANIFEST)
            if data is None:
                raise DamageError(f"`{self.at(MANIFEST)}` went away while it was read")
            self._read = decoded_manifest(data, str(self.at(MANIFEST)))
        return self._read

    def _ours(self, recipe: Recipe) -> list[str]:
        """What is there of an output of this recipe, finished or not, or would be overwritten by it."""
        pattern = file_pattern(recipe)
        return [
            name
            for name in self._sizes
            if pattern.fullmatch(name) or name in (SUMS, SKIPPED) or name.startswith((f"{INDEX}/", f"{QUARANTINE}/"))
        ]

    def _remove(self, names: list[str]) -> None:
        """Remove objects, all but the lease; what tells of a run goes last."""
        last = [name for name in names if name == f"{WORK}/{RUN}"]
        for some in ([name for name in names if name not in (f"{WORK}/{RUN}", f"{WORK}/{LOCK}")], last):
            objects.delete([self.at(name) for name in some])

    def _scratch_is_of(self, run: bytes) -> bool:
        """Whether the scratch folder holds this very run, and all of the journal that was put."""
        work = self.folder / WORK
        if not (work / RUN).is_file() or (work / RUN).read_bytes() != run or not (work / JOURNAL).is_file():
            return False
        return (work / JOURNAL).stat().st_size >= self._parts.n_bytes

    def _restore(self) -> None:
        """Bring the state of a run to this machine. Whatever was only in its scratch folder is lost."""
        work = self.folder / WORK
        (work / JOURNAL).write_bytes(self._parts.read())
        state, n_whole_bytes = read_state_and_size(work / JOURNAL)
        if n_whole_bytes != self._parts.n_bytes:
            raise DamageError(f"the journal in `{self.at(WORK)}` is damaged", hint=f"delete `{self}`")
        groups = state.groups.items()
        kept = all(self.has(pieces_path(work, number), group.n_bytes) for number, group in groups)
        with (work / JOURNAL).open("ab") as journal:
            journal.write(journal_line(ScratchLost(keeps_groups=kept)))
        for name in self._below(QUARANTINE):
            if "/" not in (file := name.removeprefix(f"{QUARANTINE}/")) and file not in ("", ".", ".."):
                (self.folder / QUARANTINE).mkdir(exist_ok=True)
                write_whole(self.folder / QUARANTINE / file, self._get(name) or b"", "quarantine")
        for name in (PLAN, RECIPE):
            if data := self._get(f"{WORK}/{name}"):
                write_whole(work / name, data, name.removesuffix(".json"))
        self._put_run()

    def keep_journal(self) -> None:
        """Put what it has gained since the last time; documents in quarantine before it."""
        assert self._uploads is not None
        assert self._lease is not None
        with (self.folder / WORK / JOURNAL).open("rb") as file:
            file.seek(self._parts.n_bytes)
            data = file.read()
        if not data:
            return
        part, quarantine, lease = self._parts.next_part(data), self._quarantine(), self._lease

        def put() -> list[Path]:
            lease.check()
            for name in quarantine:
                if name not in self._sizes:
                    objects.put(self.at(name), self.folder / name)
                    self._sizes[name] = -1
            put_part(part, data, conditional=lease.conditional)
            faults.point("journal.put")
            return []

        self._uploads.add(put)

    def _quarantine(self) -> list[str]:
        return [f"{QUARANTINE}/{path.name}" for path in sorted((self.folder / QUARANTINE).glob("*.txt"))]
