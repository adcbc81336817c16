"""Inputs from elsewhere, fetched ahead in the background while earlier ones are encoded.

Files come in the order in which units need them, a few at a time, and all that are here or on their way fit the disk
budget together. A file goes when the last unit that needs it is done. Each has a name of our own making: nothing of
what it is called elsewhere becomes a path here.

    listing ──► threads ──► downloads/ ──► workers ──► gone
                  ▲  wait for room  │
                  └─────────────────┘
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol

from tokenmill import faults
from tokenmill.errors import AccessError, DamageError, NetworkError, RecipeError
from tokenmill.journal import InputHashed
from tokenmill.plan import Plan, Unit
from tokenmill.sources import Input
from tokenmill.storage.addresses import parsed
from tokenmill.storage.download import Stopped, digest_of, download
from tokenmill.storage.local import TEMP_SUFFIX, file_sha256
from tokenmill.storage.remote import RemoteFile

DOWNLOADS = "downloads"
FILES_AT_ONCE = 4
MIN_BUDGET = 1_000_000_000


class Supply(Protocol):
    """Where the inputs of units are on this machine."""

    def paths(self, unit: Unit) -> dict[int, str] | None:
        """The copies of a unit's inputs that are elsewhere; None while they are not all here."""

    def release(self, unit: Unit) -> None:
        """A unit is done for good: inputs that no other needs may go."""

    def last_paths(self, unit: Unit) -> dict[int, str]:
        """The same for the last unit that anybody needs, however long it takes; the inputs of others may go."""


class AllHere:
    """Every input is a file of this machine."""

    def paths(self, unit: Unit) -> dict[int, str]:
        return {}

    def release(self, unit: Unit) -> None:
        pass

    def last_paths(self, unit: Unit) -> dict[int, str]:
        return {}


class Fetched(NamedTuple):
    """How the downloads are."""

    n_bytes: int  # so far
    n_bytes_wanted: int  # in all
    waited_seconds: float  # while workers had nothing to do


class Fetcher:
    """Fetches the inputs of units that are to be done. `release` each unit when nobody needs its inputs any more."""

    def __init__(self, plan: Plan, units: Sequence[Unit], folder: Path, budget: int | None, *, keep: bool) -> None:
        self.inputs, self.folder, self.keep = plan.inputs, folder, keep
        self._units = {unit.index for unit in units}
        self._uses = Counter(i for unit in units for i in remote_inputs(plan.inputs, unit))
        self._to_fetch = deque(self._uses)  # in the order of their first use
        self.budget = checked_budget(plan, units, budget, keep=keep)
        self._here: dict[int, Path] = {}
        self._n_here = 0  # so far
        self._reserved: dict[int, int] = {}
        self._hashed: list[InputHashed] = []
        self._error: Exception | None = None
        self._n_bytes = 0
        self._n_bytes_wanted = sum(self.inputs[i].size for i in self._uses)
        self._waited_seconds, self._waiting_since = 0.0, None if not self._uses else monotonic()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        n_threads = min(FILES_AT_ONCE, len(self._to_fetch))
        if n_threads:
            folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(n_threads)]
        for thread in self._threads:
            thread.start()

    def paths(self, unit: Unit) -> dict[int, str] | None:
        with self._changed:
            if self._error is not None:
                raise self._error
            wanted = set(remote_inputs(self.inputs, unit))
            if not wanted <= self._here.keys():
                self._waiting_since = self._waiting_since or monotonic()
                return None
            if self._waiting_since is not None:
                self._waited_seconds += monotonic() - self._waiting_since
                self._waiting_since = None
            return {i: str(self._here[i]) for i in wanted}

    def last_paths(self, unit: Unit) -> dict[int, str]:
        self.close()
        self._stopping.clear()
        wanted = set(remote_inputs(self.inputs, unit))
        with self._changed:
            for i in self._here.keys() - wanted:
                self._remove(i)
        for i in wanted - self._here.keys():
            self._reserved[i] = self.inputs[i].size
            self.folder.mkdir(parents=True, exist_ok=True)
            self._here[i], sha256 = self._fetch(i)
            self._hashed.append(InputHashed(i, sha256))
        return {i: str(self._here[i]) for i in wanted}

    def release(self, unit: Unit) -> None:
        if unit.index not in self._units:  # done by an earlier run, so it is in no count
            return
        with self._changed:
            for i in {span.input for span in unit.spans} & self._uses.keys():
                self._uses[i] -= 1
                if self._uses[i] == 0 and i in self._here:
                    self._remove(i)
            self._changed.notify_all()

    def _remove(self, index: int) -> None:
        """Delete a download; a file of the Hub's own cache took no room of ours, and stays."""
        path = self._here.pop(index)
        if self._reserved.get(index) and not self.keep:
            path.unlink(missing_ok=True)
            faults.point("download.removed")
            del self._reserved[index]

    def taken_hashes(self) -> list[InputHashed]:
        """The digests of the inputs that came since the last call."""
        with self._changed:
            taken, self._hashed = self._hashed, []
            return taken

    def fetched(self) -> Fetched:
        with self._changed:
            waiting = monotonic() - self._waiting_since if self._waiting_since and self._to_fetch else 0.0
            return Fetched(self._n_bytes, self._n_bytes_wanted, self._waited_seconds + waiting)

    def close(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            while (index := self._next()) is not None:
                path, sha256 = self._fetch(index)
                with self._changed:
                    self._here[index] = path
                    self._n_here += 1
                    self._hashed.append(InputHashed(index, sha256))
                    self._changed.notify_all()
        except Stopped:
            pass
        except Exception as error:
            if isinstance(error, AccessError) and self._n_here:  # a link that ran out on the way, say
                hint = "run the same command again when it can be read: what is done is kept"
                error = NetworkError(error.message, hint=hint)
            with self._changed:
                self._error = self._error or error
                self._stopping.set()
                self._changed.notify_all()

    def _next(self) -> int | None:
        """The next input to fetch, as soon as there is room for it."""
        with self._changed:
            while self._to_fetch and not self._stopping.is_set():
                size = self.inputs[self._to_fetch[0]].size
                if sum(self._reserved.values()) + size <= self.budget:
                    index = self._to_fetch.popleft()
                    self._reserved[index] = size
                    return index
                self._changed.wait()
            return None

    def _fetch(self, index: int) -> tuple[Path, str]:
        """Bring one input here: from the Hub's cache, from what an earlier run fetched, or from where it is."""
        file = remote_file(self.inputs[index])
        if (cached := cached_path(file)) is not None:
            with self._changed:
                self._reserved[index] = 0
            if (sha256 := self._adopted(cached, file)) is None:
                raise DamageError(f"`{cached}` is damaged: it is not `{file.address}`", hint="delete it")
            return cached, sha256
        path = self.folder / local_name(file, index)
        if path.exists():
            if (sha256 := self._adopted(path, file)) is not None:
                return path, sha256
            path.unlink()  # of our own making, and changed since
        return path, download(file, path, self._count, self._stopping)

    def _adopted(self, path: Path, file: RemoteFile) -> str | None:
        """The SHA-256 of a copy that is here already; None if it is not what it should be."""
        sha256 = file_sha256(path, self._stopping)
        if self._stopping.is_set():
            raise Stopped
        if path.stat().st_size != file.size or digest_of(path, file, sha256) != file.digest:
            return None
        self._count(file.size)
        return sha256

    def _count(self, n_bytes: int) -> None:
        with self._changed:
            self._n_bytes += n_bytes

    def _sweep(self) -> None:
        """Remove what an earlier run left and this one does not need next: it would count against the budget."""
        kept, room = set[str](), self.budget
        for index in self._to_fetch:
            room -= self.inputs[index].size
            if room < 0:
                break
            kept |= {(name := local_name(remote_file(self.inputs[index]), index)), name + TEMP_SUFFIX}
        for path in self.folder.iterdir():
            if path.name not in kept and not self.keep:
                path.unlink()


def remote_inputs(inputs: Sequence[Input], unit: Unit) -> list[int]:
    """Which inputs of a unit are elsewhere, each once."""
    return list(dict.fromkeys(span.input for span in unit.spans if inputs[span.input].is_remote))


def needed_bytes(plan: Plan, units: Sequence[Unit]) -> int:
    """What must be here at the same time for one unit."""
    return max((sum(plan.inputs[i].size for i in remote_inputs(plan.inputs, unit)) for unit in units), default=0)


def checked_budget(plan: Plan, units: Sequence[Unit], budget: int | None, *, keep: bool) -> int:
    """The disk that downloads may take. By default: four of the largest files, and at least 1 GB."""
    at_least = needed_bytes(plan, units)
    all_of_them = sum(plan.inputs[i].size for i in {i for unit in units for i in remote_inputs(plan.inputs, unit)})
    if keep:
        at_least = all_of_them
    if budget is None:
        largest = max((entry.size for entry in plan.inputs if entry.is_remote), default=0)
        return max(FILES_AT_ONCE * largest, at_least, min(MIN_BUDGET, all_of_them))
    if budget < at_least:
        why = "all downloads, which `--keep-downloads` keeps, take" if keep else "the files of one unit of work take"
        raise RecipeError(
            f"the disk budget of {budget:,} bytes is too small: {why} {at_least:,}",
            hint=f"pass `--disk-budget {at_least}` or more",
        )
    return budget


def remote_file(entry: Input) -> RemoteFile:
    return RemoteFile(entry.path, entry.size, entry.edges)


def cached_path(file: RemoteFile) -> Path | None:
    if parsed(file.address).scheme != "hf":
        return None
    from tokenmill.storage.hub import cached_path

    return cached_path(file)


def local_name(file: RemoteFile, index: int) -> str:
    """What a download is called here: a digest of what it is, and nothing that a stranger chose.

    A file that is an input twice comes twice: the first copy may be gone when the second is needed.
    """
    return hashlib.sha256(f"{index}\n{file.address}\n{file.size}\n{file.digest}".encode()).hexdigest()[:32]
