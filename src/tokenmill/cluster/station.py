"""A station: one worker of a node, that does what the driver asks, a task at a time.

It encodes units in a worker process of its own (executors/seat.py), which may die without taking the station along,
and whose engine stays warm; and it writes shards. It knows nothing of Ray. What goes in and out is JSON.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from tokenmill import __version__
from tokenmill.cluster.pantry import Pantry
from tokenmill.cluster.reach import reach_of
from tokenmill.cluster.shards import written_shard
from tokenmill.cluster.tasks import ShardTask
from tokenmill.encode import Job
from tokenmill.executors.deaths import Death
from tokenmill.executors.seat import Seat
from tokenmill.inputs import input_sha256
from tokenmill.journal import InputHashed
from tokenmill.layout import WORK
from tokenmill.machine import installed_version
from tokenmill.recipe import recipe_dtype
from tokenmill.scatter import GroupReceipt, ScatterTask, pieces_path, scattered_group
from tokenmill.segments import QUARANTINE, Segment, quarantine_name, segment_path
from tokenmill.shards.receipts import ShardReceipt
from tokenmill.sources import Input
from tokenmill.storage.local import share_all_names
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.sampling import MISMATCH_FILE
from tokenmill.worker import Done, Failed, UnitRequest, failure

INPUTS_LOOKED_AT = 16
PACKAGES = ("gigatoken", "tiktoken", "tokenizers", "numpy", "pyarrow")


class StationJob(msgspec.Struct, frozen=True):
    """What a station needs to know once. It finds it in the output: one that does not is on the wrong storage."""

    job: Job
    bucket_bytes: int
    stall_seconds: float
    disk_budget: int | None


class About(msgspec.Struct, frozen=True, tag=True):
    """What a station says of itself before it gets work."""

    host: str
    pid: int
    sees_out: bool
    missing_input: str | None  # a source that this node does not see
    versions: dict[str, str]


class Encoded(msgspec.Struct, frozen=True, tag=True):
    answer: Done | Failed | Death
    hashed: tuple[InputHashed, ...] = ()  # of inputs that came from elsewhere


class Written(msgspec.Struct, frozen=True, tag=True):
    receipt: ShardReceipt


class GroupDone(msgspec.Struct, frozen=True, tag=True):
    receipt: GroupReceipt


class Over(msgspec.Struct, frozen=True, tag=True):
    """A station has left nothing behind."""


Result = Over | Encoded | GroupDone | Written | InputHashed | About | Failed


class Station:
    """`out` is the folder that all see, or the address in a store; `name` is where the driver left the job there."""

    def __init__(self, out: str, name: str) -> None:
        share_all_names()
        self.reach, self.name = reach_of(out), name
        self._folder = tempfile.TemporaryDirectory(prefix="tokenmill-station-")
        self._given: StationJob | None = None
        self._tasks: dict[str, Callable[[bytes], Result]] = {
            "about": self.about,
            "encode": self.encode,
            "scatter": self.scatter,
            "shard": self.write_shard,
            "hash": self.hash_input,
            "end": self.end,
        }

    def begin(self) -> bool:
        """Find the job; return whether it is there."""
        try:
            data = self.reach.found(self.name)
        except OSError:
            data = None
        if data is None:
            return False
        self._given = given = msgspec.json.decode(data, type=StationJob)
        self.job = msgspec.structs.replace(given.job, work=str(self.reach.work))
        self.bucket_bytes = given.bucket_bytes
        sys.path += [path for path in self.job.import_paths if path not in sys.path]  # a tokenizer of the user's
        self.pantry = Pantry(self.job.inputs, self.job.recipe.fingerprint, given.disk_budget)
        self.seat = Seat(Path(self._folder.name), 0, msgspec.json.encode(self.job) + b"\n")
        threading.Thread(target=self._watch, args=(given.stall_seconds,), daemon=True).start()
        return True

    def do(self, kind: str, task: bytes) -> bytes:
        """Carry out a task; whatever goes wrong is an answer too."""
        try:
            result = self._tasks[kind](task)
        except BaseException as error:  # a panic in a Rust library is no Exception
            result = failure(error)
        return msgspec.json.encode(result)

    def about(self, name: bytes) -> About:
        """Who this is, after a look at what it must see; it leaves a sign that it could write."""
        if self._given is None and not self.begin():
            return About(socket.gethostname(), os.getpid(), sees_out=False, missing_input=None, versions={})
        self.reach.leave(f"{self.name}.{name.decode()}", name)
        some = self.job.inputs[:: max(1, len(self.job.inputs) // INPUTS_LOOKED_AT)]
        missing = next((entry.path for entry in some if not is_seen(entry)), None)
        return About(socket.gethostname(), os.getpid(), True, missing, versions(self.job))

    def encode(self, task: bytes) -> Encoded:
        request = msgspec.json.decode(task, type=UnitRequest)
        with self.pantry.held(request.unit) as (paths, hashed):
            answer = self.seat.encode(msgspec.structs.replace(request, paths=paths), lambda beat: None)
        if isinstance(answer, Done):
            excluded = [f"{QUARANTINE}/{quarantine_name(request.unit.index, one)}" for one in answer.receipt.excluded]
            self.reach.send([segment_name(request.unit.index), *excluded])
        elif (self.reach.out / MISMATCH_FILE).exists():
            self.reach.send([MISMATCH_FILE])
        return Encoded(answer, tuple(hashed))

    def scatter(self, data: bytes) -> GroupDone:
        """Sort the documents of a group of units by where a shuffle puts them."""
        task = msgspec.json.decode(data, type=ScatterTask)
        segments = segment_sizes(task.segments)
        self.reach.bring(segments)
        dtype = np.dtype(recipe_dtype(self.job.recipe))
        receipt = scattered_group(task, self.reach.work, dtype, self.bucket_bytes, lambda n_tokens: None)
        self.reach.send([group_name(task.group)])
        self.reach.forget(segments)
        return GroupDone(receipt)

    def write_shard(self, data: bytes) -> Written:
        task = msgspec.json.decode(data, type=ShardTask)
        segments = segment_sizes(task.segments)
        self.reach.bring(segments)

        def open_group(group: int) -> BinaryIO:
            return self.reach.open(group_name(group), task.group_bytes[group])

        paths = [entry.path for entry in self.job.inputs]
        receipt = written_shard(task, self.job.recipe, paths, self.reach.out, self.reach.work, open_group)
        self.reach.send(file.file for file in receipt.files)
        self.reach.forget(segments)
        return Written(receipt)

    def hash_input(self, data: bytes) -> InputHashed:
        index = int(data)
        return InputHashed(index, input_sha256(self.job.inputs[index]))

    def end(self, data: bytes) -> Over:
        """Leave nothing on this node: the run is over."""
        if self._given is not None:
            self.seat.close()
            self.pantry.clear()
        self.reach.leave_nothing()
        self._folder.cleanup()
        return Over()

    def _watch(self, stall_seconds: float) -> None:
        """End the worker when it makes no progress for too long."""
        while True:
            time.sleep(min(1.0, stall_seconds / 4))
            with suppress(OSError, struct.error):  # its notes are just being begun, or gone with the run
                self.seat.end_stalled(lambda note: stall_seconds)


def segment_name(unit: int, *, cut: bool = False) -> str:
    return segment_path(Path(WORK), unit, cut=cut).as_posix()


def group_name(group: int) -> str:
    return pieces_path(Path(WORK), group).as_posix()


def segment_sizes(segments: Iterable[Segment]) -> dict[str, int]:
    """The files of segments, by their names in the output."""
    return {segment.path(Path(WORK)).as_posix(): segment.receipt.n_segment_bytes for segment in segments}


def is_seen(entry: Input) -> bool:
    """Whether a source is here as the driver knows it, as far as its size tells."""
    path = Path(entry.path)
    return entry.is_remote or (path.is_file() and path.stat().st_size == entry.size)


def versions(job: Job) -> dict[str, str]:
    """What must be the same on all nodes."""
    found = {"tokenmill": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}
    found |= {name: installed_version(name) or "none" for name in PACKAGES}
    tokenizer = Tokenizer(job.recipe.tokenizer, job.recipe.pattern)
    return found | {f"the tokenizer {tokenizer.name}": tokenizer.identity[:16]}
