"""An ordered map over worker processes that reads no further ahead than it must, and never hangs.

`multiprocessing.Pool.imap` reads its whole input ahead, and waits forever for the work of a worker that died. Here
a death ends the map at once, with how it died and which items were being worked on.

    items ──chunks──► processes ──► results, in the order of the items
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from tokenmill.errors import RecipeError, WorkerError
from tokenmill.executors.deaths import exit_in_words
from tokenmill.recipe import RunOptions

Item = TypeVar("Item")
Result = TypeVar("Result")

# Chunks begun and not yet taken, per process: enough that nobody waits, few enough that memory stays bounded.
AHEAD_PER_PROCESS = 4


class _Begun(NamedTuple):
    future: Future[list[Any]]
    first: int  # position of the chunk's first item


def imap(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    processes: int | None = None,
    chunksize: int = 16,
    *,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
) -> Generator[Result]:
    """Yield `function(item)` for each item, in order, computed in worker processes.

    Takes the place of `multiprocessing.Pool(processes).imap(function, items, chunksize)`. Items are read as they are
    needed. A worker that dies raises WorkerError; an exception of the function is raised as it is. Closing the
    generator ends the processes. The function must be at the top level of a module, and the script needs a `__main__`
    guard where processes are not forked.
    """
    if chunksize < 1 or (processes is not None and processes < 1):
        raise RecipeError(f"imap needs at least one process and one item at a time, not {processes} and {chunksize}")
    n_processes = processes or RunOptions().n_workers
    return _results(function, items, n_processes, chunksize, initializer, initargs)


def _results(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_processes: int,
    chunksize: int,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
) -> Generator[Result]:
    executor = ProcessPoolExecutor(n_processes, initializer=initializer, initargs=initargs)
    crew: dict[int, Any] = {}
    source = iter(items)
    begun: deque[_Begun] = deque()
    n_begun = 0
    done = False
    try:
        while True:
            while len(begun) < AHEAD_PER_PROCESS * n_processes and (chunk := list(islice(source, chunksize))):
                begun.append(_Begun(executor.submit(_work, function, chunk, n_begun), n_begun))
                n_begun += len(chunk)
                crew.update(executor._processes or {})  # it grows as processes are started
            if not begun:
                done = True
                return
            first = begun[0].first
            yield from begun[0].future.result()
            begun.popleft()
    except BrokenProcessPool as error:
        executor.shutdown(wait=True)  # so that every exit code is known
        # Chunks are handed out in order: one to each process, and one more lies ready.
        n_finished = first // chunksize + sum(entry.future.exception() is None for entry in begun)
        last = min(n_begun, (n_finished + n_processes + 1) * chunksize) - 1
        raise _death(crew, first, last) from error
    finally:
        if not done:
            for process in crew.values():
                process.terminate()
        executor.shutdown(wait=True, cancel_futures=True)


def _work(function: Callable[[Item], Result], chunk: list[Item], first: int) -> list[Result]:
    """Run in the worker: one chunk."""
    results = []
    for position, item in enumerate(chunk, first):
        try:
            results.append(function(item))
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic in a Rust library is no Exception, and cannot be pickled
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            raise WorkerError(f"item {position} made a library panic: {name}: {error}") from None
    return results


def _death(crew: dict[int, Any], first: int, last: int) -> WorkerError:
    """Say how a worker died. The executor ends the others by SIGTERM: what differs from that is the cause."""
    ends = [(pid, process.exitcode) for pid, process in crew.items() if process.exitcode not in (None, 0)]
    ends.sort(key=lambda end: end[1] == -signal.SIGTERM)
    if not ends:
        return WorkerError(f"a worker process ended at one of the items {first} to {last}")
    pid, status = ends[0]
    hint = None
    if status == -signal.SIGKILL:
        hint = "when memory runs out the kernel kills so: pass fewer `processes`, or a smaller `chunksize`"
    elif status == 1:
        hint = 'put the work under `if __name__ == "__main__":` if the script has no such line'
    return WorkerError(
        f"worker process {pid} ended at one of the items {first} to {last}: {exit_in_words(status)}",
        hint=hint,
    )
