"""How to know that the inputs are still the files the run was begun with.

A file is known by its size, its time and its edges (a digest of its first and last bytes, where a Parquet file has its
footer): cheap enough to be asked of every file at every start. When all units of a file are done, a thread of the
parent hashes it whole, while it is still in the system's cache. `verify` compares that SHA-256.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from tokenmill.errors import OutputError, SourceError
from tokenmill.journal import InputHashed
from tokenmill.plan import Plan
from tokenmill.segments import UnitReceipt
from tokenmill.sources import Input
from tokenmill.storage.addresses import Address
from tokenmill.storage.local import file_sha256


class Identity(msgspec.Struct, frozen=True):
    """By what a file is known to be the same."""

    path: str
    n_bytes: int
    mtime_ns: int
    edges: str


def identities(inputs: tuple[Input, ...]) -> tuple[Identity, ...]:
    return tuple(Identity(entry.path, entry.size, entry.mtime_ns, entry.edges) for entry in inputs)


def refuse_other_inputs(out: Path | Address, then: tuple[Identity, ...], now: tuple[Identity, ...]) -> None:
    """Say which files of an output are not what they were."""
    if then == now:
        return
    before, after = {entry.path: entry for entry in then}, {entry.path: entry for entry in now}
    lines = []
    for path in dict.fromkeys([*before, *after]):
        if path not in after:
            lines.append(f"  `{path}` is gone")
        elif path not in before:
            lines.append(f"  `{path}` is new")
        elif before[path] != after[path]:
            a, b = before[path], after[path]
            what = f"{a.n_bytes:,} bytes then, {b.n_bytes:,} now" if a.n_bytes != b.n_bytes else "was written since"
            lines.append(f"  `{path}`: {what}")
    more = [f"  and {len(lines) - 5:,} more"] if len(lines) > 5 else []
    raise OutputError(
        "\n".join([f"`{out}` was made from other inputs", *(lines[:5] or ["  their order changed"]), *more]),
        hint="put the files back as they were, pass another folder with `-o`, or delete this one",
    )


class InputHasher:
    """Hashes each input when its last unit is done."""

    def __init__(self, plan: Plan, done: dict[int, str]) -> None:
        self._inputs = plan.inputs
        self._inputs_of = {unit.index: {span.input for span in unit.spans} for unit in plan.units}
        self._n_units_left = Counter(i for inputs in self._inputs_of.values() for i in inputs)
        self._done = done
        # Those from elsewhere are hashed as they come; for those that a limit kept from coming, the listing may know.
        self._elsewhere = {i: entry for i, entry in enumerate(plan.inputs) if entry.is_remote}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenmill-hash")
        self._hashes: list[tuple[int, Future[str]]] = []
        self._stopping = threading.Event()

    def unit_done(self, receipt: UnitReceipt) -> list[InputHashed]:
        """Take a receipt into account, and return what was hashed in the meantime."""
        for i in self._inputs_of[receipt.unit]:
            self._n_units_left[i] -= 1
            if self._n_units_left[i] == 0 and i not in self._done and i not in self._elsewhere:
                self._hashes.append((i, self._thread.submit(self._hash, self._inputs[i])))
        return self._taken(len([None for _, future in self._hashes if future.done()]))

    def finish(self) -> list[InputHashed]:
        """Wait for the rest, those included that a limit has kept from being read to the end."""
        waiting = {i for i, _ in self._hashes} | self._done.keys() | self._elsewhere.keys()
        for i, entry in enumerate(self._inputs):
            if i not in waiting:
                self._hashes.append((i, self._thread.submit(self._hash, entry)))
        hashed = self.wait()
        rest = [listed for listed in listed_digests(self._inputs) if listed.input not in self._done]
        return [*hashed, *rest]

    def wait(self) -> list[InputHashed]:
        """Wait for those whose units are all done."""
        return self._taken(len(self._hashes))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    def _taken(self, n: int) -> list[InputHashed]:
        taken, self._hashes = self._hashes[:n], self._hashes[n:]
        return [InputHashed(i, future.result()) for i, future in taken]

    def _hash(self, entry: Input) -> str:
        return input_sha256(entry, self._stopping)


def listed_digests(inputs: tuple[Input, ...]) -> list[InputHashed]:
    """What the listing says of the inputs that are elsewhere; an empty digest where it does not."""
    return [InputHashed(i, entry.edges.partition("sha256:")[2]) for i, entry in enumerate(inputs) if entry.is_remote]


def input_sha256(entry: Input, stopping: threading.Event | None = None) -> str:
    """The digest of an input on this machine, if it is still what it was when the run was planned."""
    digest = file_sha256(Path(entry.path), stopping)
    status = Path(entry.path).stat()
    if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
        raise SourceError(f"`{entry.path}` changed while it was read", hint="run again when nobody writes it")
    return digest
