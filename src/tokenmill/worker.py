"""A worker: a long-lived process that encodes units, one after another.

Started as `python -m tokenmill.worker`. One JSON object a line: the job and then units come in on standard input;
beats, receipts and failures go out on standard output. It ends when its input does. What crosses is small and
plain: no text, no tokens, no encoder, no pickle.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import BinaryIO

import msgspec

from tokenmill import __version__
from tokenmill.encode import Beat, Job, encode_unit
from tokenmill.errors import BY_NAME, TokenmillError, WorkerError
from tokenmill.plan import Unit
from tokenmill.segments import UnitReceipt


class Done(msgspec.Struct, frozen=True, tag=True):
    receipt: UnitReceipt


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a unit could not be encoded: an error of errors.py by name, an error of the system by number, or a bug."""

    message: str
    error: str | None = None
    hint: str | None = None
    errno: int | None = None
    filename: str | None = None

    def as_error(self) -> Exception:
        """The error as it was in the worker."""
        if self.error is not None:
            return BY_NAME[self.error](self.message, hint=self.hint)
        if self.errno is not None:
            return OSError(self.errno, self.message, self.filename)
        return RuntimeError(f"in a worker:\n{self.message}")


Message = Beat | Done | Failed


def main() -> None:
    # The parent decides what an interrupt means; a terminal sends it to all of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One thread a worker: the tokenizers library would take all cores in each.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Whatever a library prints must not get into the protocol.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as out:  # a broken pipe: the parent is gone
        os.dup2(2 if sys.stderr else os.open(os.devnull, os.O_WRONLY), 1)
        serve(sys.stdin.buffer, out)


def serve(requests: BinaryIO, out: BinaryIO) -> None:
    """Answer each unit with beats and then a receipt or a failure."""

    def send(message: Message) -> None:
        out.write(msgspec.json.encode(message) + b"\n")
        out.flush()

    job = msgspec.json.decode(requests.readline(), type=Job)
    # Behind our own: a tokenizer of the user's is found, and a stray numpy.py beside it is not.
    sys.path += [path for path in job.import_paths if path not in sys.path]
    for line in requests:
        try:
            if job.tokenmill != __version__:
                raise WorkerError(f"tokenmill {job.tokenmill} started a worker of tokenmill {__version__}")
            answer: Message = Done(encode_unit(job, msgspec.json.decode(line, type=Unit), send))
        except BrokenPipeError:
            raise
        except TokenmillError as error:
            answer = Failed(error.message, error=type(error).__name__, hint=error.hint)
        except OSError as error:  # a full disk, most likely
            answer = Failed(error.strerror or str(error), errno=error.errno, filename=error.filename)
        except BaseException:  # a panic in a Rust library is no Exception
            answer = Failed(traceback.format_exc())
        send(answer)


if __name__ == "__main__":
    main()
