"""A worker: a long-lived process that encodes units, one after another.

Started as `python -m tokenmill.worker NOTES`. One JSON object a line: the job and then units come in on standard
input; beats, receipts and failures go out on standard output. What crosses is small and plain: no text, no tokens, no
encoder, no pickle. Before each batch it notes in the file NOTES which documents the engine is given, so that after a
death the parent knows where to look. It ends when its input does, which is when the parent ends, however it ended.
"""

from __future__ import annotations

import mmap
import os
import queue
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from tokenmill import __version__
from tokenmill.care import Care, Note
from tokenmill.encode import Beat, Job, encode_unit
from tokenmill.errors import BY_NAME, TokenmillError, WorkerError
from tokenmill.plan import Unit
from tokenmill.segments import UnitReceipt

# The count of notes so far, and the last one; a count of 0 is no note.
NOTE = struct.Struct("<6q")


class UnitRequest(msgspec.Struct, frozen=True):
    unit: Unit
    care: Care
    paths: dict[int, str] = {}  # copies on this machine of inputs that are elsewhere


class Done(msgspec.Struct, frozen=True, tag=True):
    receipt: UnitReceipt


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a unit could not be encoded: an error of errors.py by name, an error of the system by number, or a bug."""

    message: str
    error: str | None = None
    hint: str | None = None
    errno: int | None = None
    filename: str | None = None
    out_of_memory: bool = False

    def as_error(self) -> Exception:
        """The error as it was in the worker."""
        if self.error is not None:
            return BY_NAME[self.error](self.message, hint=self.hint)
        if self.errno is not None:
            return OSError(self.errno, self.message, self.filename)
        return RuntimeError(f"in a worker:\n{self.message}")


Message = Beat | Done | Failed


class Notebook:
    """The file in which a worker notes what it is at: a mapping, so that a note costs no call of the system."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), NOTE.size)
        self._n_notes = 0

    def write(self, note: Note) -> None:
        self._n_notes += 1
        NOTE.pack_into(self._map, 0, self._n_notes, *note)


def read_note(path: Path) -> tuple[int, Note | None]:
    """How many notes a worker has made, and the last one."""
    try:
        n_notes, *fields = NOTE.unpack(path.read_bytes())
    except FileNotFoundError:  # somebody took the run over, and has cleared up
        return 0, None
    return n_notes, Note(*fields) if n_notes else None


def main() -> None:
    # The parent decides what an interrupt means; a terminal sends it to all of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    # Where memory runs out, the kernel is to take a worker and not the parent: a unit is lost then, and not the run.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    notebook = Notebook(Path(sys.argv[1]))
    # Whatever a library prints must not get into the protocol.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as out:  # a broken pipe: the parent is gone
        os.dup2(2 if sys.stderr else os.open(os.devnull, os.O_WRONLY), 1)
        serve(requests_from(sys.stdin.buffer), out, notebook)


def die_with_parent() -> None:
    """Have Linux kill this process with the thread that started it, even while it holds Python's lock."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        with suppress(OSError, AttributeError):  # another C library: the end of the input has to do
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def requests_from(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of standard input, and end the process at once when there are no more.

    They are read by a thread of their own: a worker in the middle of a unit must not outlive its parent.
    """
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> NoReturn:
        for line in stream:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def serve(requests: Iterator[bytes], out: BinaryIO, notebook: Notebook) -> None:
    """Answer each unit with beats and then a receipt or a failure."""

    def send(message: Message) -> None:
        out.write(msgspec.json.encode(message) + b"\n")
        out.flush()

    job = msgspec.json.decode(next(requests), type=Job)
    # Behind our own: a tokenizer of the user's is found, and a stray numpy.py beside it is not.
    sys.path += [path for path in job.import_paths if path not in sys.path]
    for line in requests:
        try:
            if job.tokenmill != __version__:
                raise WorkerError(f"tokenmill {job.tokenmill} started a worker of tokenmill {__version__}")
            request = msgspec.json.decode(line, type=UnitRequest)
            receipt = encode_unit(
                job, request.unit, care=request.care, on_beat=send, on_note=notebook.write, paths=request.paths
            )
            answer: Message = Done(receipt)
        except BrokenPipeError:
            raise
        except BaseException as error:  # a panic in a Rust library is no Exception
            answer = failure(error)
        send(answer)


def failure(error: BaseException) -> Failed:
    """An error as it crosses to whoever asked."""
    match error:
        case TokenmillError():
            return Failed(error.message, error=type(error).__name__, hint=error.hint)
        case MemoryError():
            return Failed(str(error), out_of_memory=True)
        case OSError():  # a full disk, most likely
            return Failed(error.strerror or str(error), errno=error.errno, filename=error.filename)
    return Failed("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main()
