"""What in a preparation script dies, and why: read by its syntax tree, never imported, never run.

    captured-encoder         a tiktoken encoder in a closure: no pickle before tiktoken 0.6
    unpicklable-engine       a bare CoreBPE or gigatoken.Tokenizer on its way to another process
    no-main-guard            processes started on import, under spawn or forkserver
    num-proc-one             num_proc=1, which is a worker process all the same
    pool-hangs               multiprocessing.Pool, which waits forever for a worker that died
    tokenizer-per-document   a tokenizer loaded inside the function that is mapped over documents
    tokens-to-list           .tolist() on an array of tokens

The figures in the reasons were measured on two aarch64 cores with Python 3.11, datasets 5.2 and tiktoken 0.14.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from tokenmill.doctor.dispatch import (
    POOL,
    dispatches,
    free_names,
    keyword,
    matches,
    runs_on_import,
    starters,
)
from tokenmill.doctor.engines import (
    ENCODER,
    ENGINE,
    LOADER,
    loading_call,
    loads_per_document,
    token_lists,
)
from tokenmill.doctor.names import Script, too_deep
from tokenmill.doctor.pool_patch import map_call
from tokenmill.doctor.tokenizer_patch import tokenizer_argument
from tokenmill.errors import RecipeError
from tokenmill.machine import installed_version


class Fault(msgspec.Struct, frozen=True):
    """One thing in a script that dies, or costs: where, why, and the line to write instead."""

    name: str
    line: int
    what: str
    why: str
    remedy: str


def script_faults(source: str, filename: str) -> list[Fault]:
    """Return what in the script dies, in the order of its lines; refuse a file that is no Python."""
    try:
        return faults_of(Script(source.removeprefix("\ufeff"), filename))
    except RecursionError:
        raise too_deep(filename) from None


def faults_of(script: Script) -> list[Fault]:
    checks = (
        _captured_encoders,
        _unpicklable_engines,
        _missing_guard,
        _num_proc_of_one,
        _pools,
        _loads_per_document,
        _tokens_to_lists,
    )
    found = {fault: None for check in checks for fault in check(script)}
    return sorted(found, key=lambda fault: (fault.line, fault.name))


def sent_values(script: Script, pattern: re.Pattern[str]) -> Iterator[ast.expr]:
    """The expressions of this kind that are pickled on their way to another process."""
    for dispatch in dispatches(script):
        yield from (value for value in dispatch.carried if matches(script, value, pattern))
        if dispatch.function is None:
            continue
        # A bound method goes with its object.
        for value in [dispatch.function, *script.values(dispatch.function)]:
            if isinstance(value, ast.Attribute) and matches(script, value.value, pattern):
                yield value.value
            if isinstance(value, ast.Attribute):
                for one in script.classes(value.value):
                    held = [given for values in script.attributes(one).values() for given in values]
                    yield from (given for given in held if matches(script, given, pattern))
        for function in script.functions(dispatch.function):
            # Names of the module are not pickled: the other process has the module. Those of a closure are.
            seen: set[str] = set()
            for name in free_names(script, function):
                if name.id not in seen and matches(script, name, pattern):
                    seen.add(name.id)
                    yield name


def _captured_encoders(script: Script) -> Iterator[Fault]:
    for value in sent_values(script, ENCODER):
        installed = installed_version("tiktoken")
        yield Fault(
            "captured-encoder",
            value.lineno,
            f"`{script.text(value)}` is a tiktoken encoder that is pickled and sent to the workers",
            "tiktoken before 0.6 cannot be pickled: `cannot pickle 'builtins.CoreBPE' object`, under fork, spawn and "
            "forkserver alike. It needs tiktoken < 0.6 and a closure or an argument; a global of the module is not "
            "pickled. "
            + (f"Installed here: tiktoken {installed}." if installed else "tiktoken is not installed here."),
            _tokenizer_line(script, value),
        )


def _unpicklable_engines(script: Script) -> Iterator[Fault]:
    for value in sent_values(script, ENGINE):
        kind = "gigatoken's tokenizer" if any("gigatoken" in path for path in script.paths(value)) else "a bare CoreBPE"
        yield Fault(
            "unpicklable-engine",
            value.lineno,
            f"`{script.text(value)}` is {kind} on its way to another process",
            "no version of it can be pickled: `cannot pickle 'builtins.CoreBPE' object`, or 'builtins.BPETokenizer'. "
            "tokenmill.Tokenizer goes as its name, and loads its engine over there",
            _tokenizer_line(script, value),
        )


def _missing_guard(script: Script) -> Iterator[Fault]:
    for call in starters(script):
        place = runs_on_import(script, call)
        if isinstance(place, ast.expr):
            yield Fault(
                "no-main-guard",
                place.lineno,
                "processes are started as soon as the module is imported",
                "under spawn (macOS, Windows) and forkserver (Linux from Python 3.14) a worker imports the module "
                'and starts workers, which import it: an endless loop of "bootstrapping phase" errors. Under fork '
                "it works",
                'if __name__ == "__main__":  # above the work, which is indented below it',
            )
            return  # one guard mends them all


def _num_proc_of_one(script: Script) -> Iterator[Fault]:
    for call in script.calls:
        count = keyword(call, "num_proc")
        # load_dataset and its like stay in the main process for 1.
        if count is None or not isinstance(call.func, ast.Attribute) or call.func.attr not in ("map", "filter"):
            continue
        if any(isinstance(value, ast.Constant) and value.value == 1 for value in script.values(count)):
            yield Fault(
                "num-proc-one",
                count.lineno,
                "num_proc=1 starts a worker process",
                "since datasets 4 (July 2025) only None and 0 mean the main process: with 1, a document that kills the "
                'worker still ends in "One of the subprocesses has abruptly died", without its cause',
                "num_proc=None",
            )


def _pools(script: Script) -> Iterator[Fault]:
    for call in script.calls:
        if matches(script, call.func, POOL):
            yield Fault(
                "pool-hangs",
                call.func.lineno,
                f"`{script.text(call.func)}` is multiprocessing's Pool",
                "when a worker dies (out of memory, or at 999,999 whitespace characters in a row, where "
                "tiktoken panics), the Pool starts another, the lost work never comes back, and the script hangs "
                "forever",
                _imap_line(script, call),
            )


def _loads_per_document(script: Script) -> Iterator[Fault]:
    for call in loads_per_document(script, LOADER):
        yield Fault(
            "tokenizer-per-document",
            call.lineno,
            f"`{script.text(call.func)}` is called once for every document",
            "transformers and tokenizers read their files each time, which takes longer than to encode a document. "
            "tiktoken reads its own in the first call of each process, and looks its encoding up in the others",
            _load_line(script, call) + "  # above the function",
        )


def _tokens_to_lists(script: Script) -> Iterator[Fault]:
    for call in token_lists(script):
        assert isinstance(call.func, ast.Attribute)
        yield Fault(
            "tokens-to-list",
            call.func.end_lineno or call.lineno,
            f"`{script.text(call)}` makes a Python object of every token",
            "+400 MB and 0.93 s for 10 million tokens: about 4 GB and 9 s of standstill for a shard of 100 million. "
            "numpy takes the array as it is",
            script.text(call.func.value),
        )


def _assigned_name(script: Script, call: ast.expr) -> str:
    parent = script.parents.get(call)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    return "enc"


def _bound_name(script: Script, node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else _assigned_name(script, node)


def _tokenizer_line(script: Script, value: ast.expr) -> str:
    """The line that makes the tokenizer which this expression stands for, as tokenmill's."""
    call = loading_call(script, value)
    name = tokenizer_argument(script, call) if call is not None else None
    return f"{_bound_name(script, value)} = tokenmill.Tokenizer({name or 'NAME'})"


def _load_line(script: Script, call: ast.Call) -> str:
    name = tokenizer_argument(script, call)
    if name is None:  # what it loads depends on the document, or is no file of ours: keep it after the first time
        return f"load_tokenizer = functools.lru_cache({script.text(call.func)})"
    return f"{_assigned_name(script, call)} = tokenmill.Tokenizer({name})"


def _imap_line(script: Script, pool: ast.Call) -> str:
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and pool in script.values(call.func.value):
            try:
                return map_call(script, call, True)
            except RecipeError:
                continue
    return "tokenmill.imap(function, items, processes=8, chunksize=16)"
