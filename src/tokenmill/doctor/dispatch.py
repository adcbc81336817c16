"""Where a script starts processes, and what it sends to them.

A `Dispatch` is one such place: the call, the function that is to run in the other process, and the values that are
pickled on the way there.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from tokenmill.doctor.names import FUNCTIONS, Function, Script, is_main_guard

_MULTIPROCESSING = r"(multiprocessing|multiprocess|torch\.multiprocessing)"
# multiprocessing.dummy.Pool and ThreadPool are threads: they are not meant.
POOL = re.compile(_MULTIPROCESSING + r"(\.pool|\.get_context\(\))?\.Pool")
EXECUTOR = re.compile(r"concurrent\.futures(\.process)?\.ProcessPoolExecutor")
PROCESS = re.compile(_MULTIPROCESSING + r"(\.context|\.process|\.get_context\(\))?\.Process")
POOL_METHODS = {
    *("map", "imap", "imap_unordered", "starmap", "apply"),
    *("map_async", "starmap_async", "apply_async"),
}


class Dispatch(NamedTuple):
    call: ast.Call
    function: ast.expr | None
    carried: list[ast.expr]  # pickled values beside the function


def matches(script: Script, node: ast.expr, pattern: re.Pattern[str], ending: str = "") -> bool:
    """Whether the expression may stand for a path of this kind, followed by the ending."""
    paths = script.paths(node)
    return any(path.endswith(ending) and pattern.fullmatch(path[: len(path) - len(ending)]) for path in paths)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((entry.value for entry in call.keywords if entry.arg == name), None)


def is_pool(script: Script, node: ast.expr) -> bool:
    """Whether the expression is a `multiprocessing.Pool`."""
    return matches(script, node, POOL, "()")


def is_executor(script: Script, node: ast.expr) -> bool:
    return matches(script, node, EXECUTOR, "()")


def worker_count(script: Script, call: ast.Call) -> ast.expr | None:
    """The `num_proc` of a call to datasets that starts workers by it, or None."""
    count = keyword(call, "num_proc")
    if count is None or script.functions(call.func):
        return None
    values = script.values(count)
    if values and all(isinstance(value, ast.Constant) and value.value in (None, 0) for value in values):
        return None
    return count


def starters(script: Script) -> list[ast.Call]:
    """The calls that start processes."""
    found = []
    for call in script.calls:
        by_name = any(matches(script, call.func, kind) for kind in (POOL, EXECUTOR, PROCESS))
        if by_name or script.stands_for(call.func, {"tokenmill.imap"}) or worker_count(script, call) is not None:
            found.append(call)
    return found


def dispatches(script: Script) -> list[Dispatch]:
    """The calls that send a function, or values, to other processes."""
    found = []
    for call in script.calls:
        first = call.args[0] if call.args else None
        if isinstance(call.func, ast.Attribute) and worker_count(script, call) is not None:
            function = first or keyword(call, "function")
            found.append(Dispatch(call, function, [*_partial(script, function), *_each(keyword(call, "fn_kwargs"))]))
        elif isinstance(call.func, ast.Attribute) and _sends(script, call.func):
            function = first or keyword(call, "func") or keyword(call, "fn")
            alone = call.func.attr in ("submit", "apply", "apply_async")
            found.append(
                Dispatch(call, function, [*_partial(script, function), *(_all(call.args[1:]) if alone else [])])
            )
        elif script.stands_for(call.func, {"tokenmill.imap"}):
            found.append(Dispatch(call, first, _partial(script, first)))
        elif matches(script, call.func, PROCESS):
            function = keyword(call, "target")
            found.append(Dispatch(call, function, _each(keyword(call, "args"))))
        if any(matches(script, call.func, kind) for kind in (POOL, EXECUTOR)):
            found.append(Dispatch(call, None, _each(keyword(call, "initargs"))))
    return found


def _sends(script: Script, method: ast.Attribute) -> bool:
    if is_pool(script, method.value):
        return method.attr in POOL_METHODS
    return is_executor(script, method.value) and method.attr in ("map", "submit")


def _partial(script: Script, function: ast.expr | None) -> list[ast.expr]:
    """The values that `partial(f, value)` carries along."""
    for value in script.values(function) if function is not None else []:
        if isinstance(value, ast.Call) and script.stands_for(value.func, {"functools.partial"}):
            return [*value.args[1:], *(entry.value for entry in value.keywords)]
    return []


def _each(node: ast.expr | None) -> list[ast.expr]:
    """The elements of a tuple, list or dict that is written out."""
    if isinstance(node, ast.Tuple | ast.List):
        return node.elts
    return node.values if isinstance(node, ast.Dict) else []


def _all(nodes: list[ast.expr]) -> list[ast.expr]:
    return [element for node in nodes for element in (_each(node) or [node])]


def mapped_functions(script: Script) -> list[Function]:
    """The functions that run once for every document: given to a `map` of any kind."""
    given = [dispatch.function for dispatch in dispatches(script)]
    for call in script.calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else None
        if call.args and (method in ("map", "imap", "imap_unordered") or script.stands_for(call.func, {"map"})):
            given.append(call.args[0])
    found = dict.fromkeys(f for node in given if node is not None for f in script.functions(node))
    waiting = list(found)
    while waiting:  # and the functions that these call
        function = waiting.pop()
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            for callee in script.functions(call.func):
                if callee not in found:
                    found[callee] = None
                    waiting.append(callee)
    return list(found)


def runs_on_import(script: Script, node: ast.AST) -> ast.AST | None:
    """Return what sets the node off when the module is imported: itself, or the call of its function; else None."""
    waiting, seen = [node], {node}
    while waiting:
        place = waiting.pop()
        function = script.function_of(place)
        if function is None:
            if not any(is_main_guard(outer) for outer in script.ancestors(place)):
                return place
        else:
            callers = [call for call in script.calls_to(function) if call not in seen]
            waiting += callers
            seen.update(callers)
    return None


def free_names(script: Script, function: Function) -> list[ast.Name]:
    """The names in a nested function whose meaning comes from a function around it."""
    around = {outer for outer in script.ancestors(function) if isinstance(outer, FUNCTIONS)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return [name for name in names if script.home(name) in around]
