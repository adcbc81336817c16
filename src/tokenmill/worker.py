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

import msgspec

from tokenmill.encode import Beat, Job, encode_unit
from tokenmill.errors import TokenmillError
from tokenmill.plan import Unit
from tokenmill.segments import UnitReceipt


class Done(msgspec.Struct, frozen=True, tag=True):
    receipt: UnitReceipt


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a unit could not be encoded; `error` is the name of a class in errors.py, or None for a bug of ours."""

    error: str | None
    message: str
    hint: str | None = None


Message = Beat | Done | Failed


def main() -> None:
    # The parent decides what an interrupt means; a terminal sends it to all of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints must not get into the protocol.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0) as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        job: Job | None = None

        def send(message: Message) -> None:
            out.write(msgspec.json.encode(message) + b"\n")

        for line in sys.stdin.buffer:
            if job is None:
                job = msgspec.json.decode(line, type=Job)
                continue
            try:
                send(Done(encode_unit(job, msgspec.json.decode(line, type=Unit), send)))
            except TokenmillError as error:
                send(Failed(type(error).__name__, error.message, error.hint))
            except BaseException:  # a panic in a Rust library is no Exception
                send(Failed(None, traceback.format_exc()))


if __name__ == "__main__":
    main()
