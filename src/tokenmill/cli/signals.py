"""What SIGINT and SIGTERM mean to a run: stop soon, and safely.

While the run is planned, a signal ends it at once. Later it is noted, and the next word of progress ends the run
between two steps; if none comes within a few seconds (a disk that takes long to sync), the process ends all the same:
every commit is safe against that. A second SIGINT does not wait.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from tokenmill.cli.errors import say
from tokenmill.errors import TokenmillError

if TYPE_CHECKING:
    from tokenmill.mill import OnProgress
    from tokenmill.progress import Progress

PATIENCE_SECONDS = 4.0


class StoppedError(TokenmillError):
    """A signal asked the run to stop."""

    def __init__(self, signum: int) -> None:
        word = "interrupted" if signum == signal.SIGINT else f"stopped by {signal.Signals(signum).name}"
        super().__init__(f"{word}; what is done is kept", hint="run the same command again to go on from here")
        self.exit_code = 128 + signum


@contextmanager
def stoppable(on_progress: OnProgress | None) -> Iterator[OnProgress]:
    """Give a callback for progress that ends the run after a signal."""
    began, asked = threading.Event(), [0]

    def handle(signum: int, frame: FrameType | None) -> None:
        if asked[0]:
            if signum == signal.SIGINT:
                end_now(signum)
            return
        asked[0] = signum
        if not began.is_set():
            raise StoppedError(signum)
        timer = threading.Timer(PATIENCE_SECONDS, end_now, [signum])
        timer.daemon = True
        timer.start()

    def watch(progress: Progress) -> None:
        began.set()
        if asked[0]:
            raise StoppedError(asked[0])
        if on_progress:
            on_progress(progress)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield watch
        return
    before = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield watch
    finally:
        if not asked[0]:  # else a second one may come while the process ends
            for signum, handler in before.items():
                signal.signal(signum, handler)


def end_now(signum: int) -> None:
    """End without waiting for anybody. Workers end with us."""
    if sys.stderr and sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h\n")  # the live display hides the cursor
    stopped = StoppedError(signum)
    say(stopped.message, stopped.hint)
    os._exit(stopped.exit_code)
