"""tokenmill.imap: in order, not too far ahead, and over at once when a worker dies."""

import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import tokenmill
from tokenmill.errors import RecipeError, WorkerError


def square(n):
    return n * n


def killed_at_50(n):
    if n == 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def exits_at_50(n):
    if n == 50:
        os._exit(7)
    return n


def raises_at_50(n):
    if n == 50:
        raise ValueError("50 will not do")
    return n


class Panic(BaseException):
    """As pyo3's PanicException: no Exception, and not to be pickled."""

    def __reduce__(self):
        raise TypeError("cannot pickle a panic")


def panics_at_50(n):
    if n == 50:
        raise Panic("StackOverflow")
    return n


def sleeps(n):
    time.sleep(n)
    return n


_base = 0


def set_base(n):
    global _base
    _base = n


def add_base(n):
    return _base + n


def test_results_come_in_the_order_of_the_items():
    assert list(tokenmill.imap(square, range(1000), processes=2, chunksize=7)) == [n * n for n in range(1000)]
    assert list(tokenmill.imap(square, [], processes=2)) == []


def test_an_endless_input_is_read_only_as_far_as_needed():
    n_read = 0

    def items():
        nonlocal n_read
        for n in itertools.count():
            n_read += 1
            yield n

    results = tokenmill.imap(square, items(), processes=2, chunksize=4)
    assert list(itertools.islice(results, 100)) == [n * n for n in range(100)]
    results.close()
    assert n_read <= 100 + 4 * 2 * 4
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("function", "how"), [(killed_at_50, "killed by SIGKILL"), (exits_at_50, "exit code 7")])
def test_a_dead_worker_ends_the_map_with_how_it_died_and_where(function, how):
    taken = []
    with pytest.raises(WorkerError, match=how) as error:
        taken.extend(tokenmill.imap(function, range(200), processes=2, chunksize=8))
    first, last = map(int, re.search(r"items (\d+) to (\d+)", error.value.message).groups())
    assert first <= 50 <= last
    assert multiprocessing.active_children() == []


def test_an_exception_of_the_function_is_raised_as_it_is():
    results = tokenmill.imap(raises_at_50, range(200), processes=2, chunksize=8)
    with pytest.raises(ValueError, match="50 will not do"):
        list(results)
    assert multiprocessing.active_children() == []


def test_a_panic_that_cannot_be_pickled_names_its_item():
    with pytest.raises(WorkerError, match=r"item 50 made a library panic: test_pools\.Panic: StackOverflow"):
        list(tokenmill.imap(panics_at_50, range(200), processes=2, chunksize=8))


def test_closing_ends_processes_that_are_still_at_work():
    results = tokenmill.imap(sleeps, [0, 1000, 1000, 1000], processes=2, chunksize=1)
    assert next(results) == 0
    results.close()
    assert multiprocessing.active_children() == []


def test_an_initializer_runs_in_every_process():
    results = tokenmill.imap(add_base, range(5), processes=2, chunksize=1, initializer=set_base, initargs=(100,))
    assert list(results) == [100, 101, 102, 103, 104]


@pytest.mark.parametrize("options", [{"processes": 0}, {"chunksize": 0}])
def test_nobody_at_work_is_refused_at_once(options):
    with pytest.raises(RecipeError, match="at least one"):
        tokenmill.imap(square, [1], **options)


def test_a_script_without_a_guard_fails_with_the_remedy_instead_of_respawning_forever(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import multiprocessing, tokenmill\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        "def f(n):\n    return n\n"
        "try:\n    list(tokenmill.imap(f, range(3), processes=1))\n"
        "except tokenmill.TokenmillError as error:\n    print(error.hint)\n    raise SystemExit(error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert '`if __name__ == "__main__":`' in done.stdout
