"""`multiprocessing.Pool` taken out of a script: for `map` in the main process, or for `tokenmill.imap`."""

from __future__ import annotations

import ast

from tokenmill.doctor.dispatch import EXECUTOR, POOL, PROCESS, is_executor, is_pool, matches
from tokenmill.doctor.edits import Edit, edited, line_of, lines_edit, replaced, shifted, statement_removed, untellable
from tokenmill.doctor.names import Script

_ENDINGS = ("close", "join", "terminate", "shutdown")
_POOL_ARGUMENTS = ("processes", "initializer", "initargs")
_EXECUTOR_ARGUMENTS = ("max_workers", "mp_context", "initializer", "initargs")


def without_pools(script: Script, *, processes: bool) -> str:
    """Return the source without pools. With `processes` their work goes to tokenmill.imap, else to the main process."""
    # A ProcessPoolExecutor does not hang when a worker dies: it stays where processes are wanted.
    for call in script.calls:
        if not processes and matches(script, call.func, PROCESS):
            raise untellable(
                script, call, "what this process does cannot be moved to the main process", "choose way 2 or 3"
            )
    calls = [call for call in script.calls if _owner_is_pool(script, call, processes)]
    edits = []
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr not in _ENDINGS:
            edits.append(replaced(script.source, call, map_call(script, call, processes)))
    script = Script(edited(script.source, edits), script.filename)
    while (ending := _first_ending(script, processes)) is not None:
        script = Script(edited(script.source, [statement_removed(script, ending)]), script.filename)
    while (constructor := _first_pool(script, processes)) is not None:  # one at a time: they may stand in one another
        script = Script(edited(script.source, _unmade(script, constructor, processes)), script.filename)
    return script.source


def _first_pool(script: Script, processes: bool) -> ast.Call | None:
    kinds = [POOL] if processes else [POOL, EXECUTOR]
    return next((call for call in script.calls if any(matches(script, call.func, kind) for kind in kinds)), None)


def _first_ending(script: Script, processes: bool) -> ast.stmt | None:
    """The first `pool.close()` or its like."""
    for call in script.calls:
        statement = script.parents[call]
        if _owner_is_pool(script, call, processes) and isinstance(statement, ast.Expr):
            return statement
    return None


def _owner_is_pool(script: Script, call: ast.Call, processes: bool) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    return is_pool(script, call.func.value) or (not processes and is_executor(script, call.func.value))


def map_call(script: Script, call: ast.Call, processes: bool) -> str:
    """What to write for `pool.imap(f, items, chunksize=16)` and its like."""
    assert isinstance(call.func, ast.Attribute)
    method = call.func.attr
    constructors = [v for v in script.values(call.func.value) if isinstance(v, ast.Call)]
    by_position = {"func": 0, "iterable": 1, "chunksize": 2}
    given = {name: call.args[i] for name, i in by_position.items() if i < len(call.args)}
    given |= {entry.arg: entry.value for entry in call.keywords if entry.arg}
    text = {name: script.text(node) for name, node in given.items()}
    lazy = method in ("imap", "imap_unordered") or is_executor(script, call.func.value)
    if method == "apply" and not processes and "func" in given:
        rest = [f"*{script.text(call.args[1])}"] if len(call.args) > 1 else []
        return f"{text['func']}({', '.join(rest)})"
    if method == "starmap" and not processes and {"func", "iterable"} <= given.keys():
        return f"[{text['func']}(*item) for item in {text['iterable']}]"
    if method not in ("map", "imap", "imap_unordered") or not {"func", "iterable"} <= given.keys() or not constructors:
        raise untellable(
            script, call, f"`{script.text(call.func)}` has no counterpart", "write it as `pool.imap(function, items)`"
        )
    if not processes:
        mapped = f"map({text['func']}, {text['iterable']})"
    else:
        # A name that is used again stands for the pool made last.
        constructor = max(constructors, key=lambda made: (made.lineno <= call.lineno, made.lineno))
        options = _pool_options(script, constructor, call)
        if "chunksize" in text:
            options["chunksize"] = text["chunksize"]
        arguments = [text["func"], text["iterable"], *(f"{name}={value}" for name, value in options.items())]
        mapped = f"tokenmill.imap({', '.join(arguments)})"
    return mapped if lazy else f"list({mapped})"


def _pool_options(script: Script, constructor: ast.Call, call: ast.Call) -> dict[str, str]:
    """The arguments of a Pool that tokenmill.imap takes as well, as they can be written where the pool is used."""
    names = _POOL_ARGUMENTS
    given = dict(zip(names, constructor.args, strict=False))
    given |= {entry.arg: entry.value for entry in constructor.keywords if entry.arg in names}
    texts = {name: _text_at(script, given[name], call) for name in names if name in given}
    return {name: text for name, text in texts.items() if text != "None"}


def _text_at(script: Script, value: ast.expr, call: ast.Call) -> str:
    """The expression as it is written, or its one value where its names mean nothing."""
    known = (None, *script.ancestors(call))
    if all(script.home(name) in known for name in ast.walk(value) if isinstance(name, ast.Name)):
        return script.text(value)
    values = script.values(value)
    if len(values) == 1 and isinstance(values[0], ast.Constant):
        return script.text(values[0])
    what = f"`{script.text(value)}` of the pool is not known where it is used"
    raise untellable(script, call, what, "make the pool there: `with Pool(n) as pool:`")


def _unmade(script: Script, constructor: ast.Call, processes: bool) -> list[Edit]:
    """Take out a pool that nothing uses any more: the `with` around its work, or the assignment."""
    source, holder = script.source, script.parents[constructor]
    edits = []
    start = "" if processes else _initialization(script, constructor)
    if isinstance(holder, ast.withitem) and isinstance(script.parents[holder], ast.With):
        statement = script.parents[holder]
        assert isinstance(statement, ast.With)
        edits += _without_with(script, statement, constructor, start)
    elif isinstance(holder, ast.Assign):
        edits.append(replaced(source, holder, start) if start else statement_removed(script, holder))
    else:
        raise untellable(
            script, constructor, "what is done with this pool cannot be told", "write `with Pool(n) as pool:`"
        )
    for node in script.nodes:
        is_use = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        if is_use and constructor in script.values(node):  # type: ignore[arg-type]
            raise untellable(script, node, "what is done with the pool here cannot be told")
    return edits


def _initialization(script: Script, constructor: ast.Call) -> str:
    """The call that each worker would have begun with, or nothing."""
    names = _POOL_ARGUMENTS if matches(script, constructor.func, POOL) else _EXECUTOR_ARGUMENTS
    given = dict(zip(names, constructor.args, strict=False))
    given |= {entry.arg: entry.value for entry in constructor.keywords if entry.arg}
    if "initializer" not in given or script.text(given["initializer"]) == "None":
        return ""
    arguments = f"*{script.text(given['initargs'])}" if "initargs" in given else ""
    return f"{script.text(given['initializer'])}({arguments})"


def _without_with(script: Script, statement: ast.With, constructor: ast.Call, start: str) -> list[Edit]:
    source, body = script.source, statement.body
    text = " " * statement.col_offset + start + "\n" if start else ""
    if len(statement.items) > 1 or body[0].lineno == statement.lineno:
        # The other items stay as they are.
        above = lines_edit(source, statement.lineno, statement.lineno - 1, text)
        return [above, replaced(source, constructor, "contextlib.nullcontext()")]
    last_of_header = constructor.end_lineno or statement.lineno
    while not line_of(source, last_of_header).split("#")[0].rstrip().endswith(":"):
        last_of_header += 1
    assert statement.end_lineno is not None
    header = lines_edit(source, statement.lineno, last_of_header, text)
    return [
        header,
        *shifted(source, last_of_header + 1, statement.end_lineno, statement.col_offset - body[0].col_offset),
    ]
