"""A `__main__` guard for a script that has none.

Under spawn and forkserver a worker imports the script to find the function it is to run. So definitions, imports,
and the globals that this function uses stay where they are; everything else runs in the main process alone, and is
indented below a guard where it stands. The order of what the main process does is unchanged.
"""

from __future__ import annotations

import ast

from tokenmill.doctor.dispatch import dispatches, keyword, runs_on_import, starters
from tokenmill.doctor.edits import Edit, edited, first_line, lines_edit, shifted, untellable, with_comments
from tokenmill.doctor.names import FUNCTIONS, Function, Script, is_main_guard

GUARD = 'if __name__ == "__main__":\n'
# Calls without effect, that may as well be made in every process.
_PLAIN = {"int", "float", "str", "max", "min", "len", "dict", "list", "tuple", "set", "range", "round", "os.cpu_count"}


def with_main_guard(script: Script) -> str:
    """Return the source with the work of the module below a guard, if anything starts processes on import."""
    places = [place for call in starters(script) if (place := runs_on_import(script, call)) is not None]
    if not places:
        return script.source
    kept = _kept(script, places)
    edits: list[Edit] = []
    run: list[ast.stmt] = []
    for statement in [*script.tree.body, None]:
        if statement is not None and statement not in kept:
            run.append(statement)
        elif run:
            edits += _guarded(script, run)
            run = []
    return edited(script.source, edits)


def _guarded(script: Script, run: list[ast.stmt]) -> list[Edit]:
    before = [s.end_lineno or 0 for s in script.tree.body if s.lineno < run[0].lineno]
    first = with_comments(script.source, first_line(run[0]), after=max(before, default=0))
    assert run[-1].end_lineno is not None
    return [
        lines_edit(script.source, first, first - 1, GUARD),
        *shifted(script.source, first, run[-1].end_lineno, 4),
    ]


def _kept(script: Script, places: list[ast.AST]) -> set[ast.stmt]:
    """The statements of the module that a worker needs, or that do no harm in it."""
    body = script.tree.body
    working = {_statement_of(script, place) for place in places}
    kept = {statement for statement in body if _is_definition(statement)}
    # Not the imports: os.makedirs(...) does not change os.
    variables = {n for n, found in script.bindings[script.tree].items() if any(b.how != "import" for b in found)}
    needed = _globals_of_workers(script)
    grown = True
    while grown:
        grown = False
        for statement in body:
            if statement not in kept and assigned(statement) & needed & variables:
                if statement in working:
                    raise untellable(script, statement, "a worker's function needs what this line makes with workers")
                kept.add(statement)
                needed |= used(statement)
                grown = True
    for statement in body:  # constants above the work stay where they are
        if statement in kept:
            continue
        if statement in working or not _is_plain(script, statement):
            break
        kept.add(statement)
    return kept


def _statement_of(script: Script, node: ast.AST) -> ast.AST:
    chain = [node, *script.ancestors(node)]
    return chain[-2]


def _is_definition(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.If(ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
        case ast.Try(body):
            return all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in body)
    return is_main_guard(statement)


def _is_plain(script: Script, statement: ast.stmt) -> bool:
    """Whether it only gives names to constants and what follows from them."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    paths = [path for call in calls for path in script.paths(call.func)] if calls else []
    return len(paths) >= len(calls) and all(
        path in _PLAIN or path.startswith(("os.path.", "pathlib.", "tokenmill.Tokenizer")) for path in paths
    )


def _globals_of_workers(script: Script) -> set[str]:
    """The names of the module that the functions sent to workers use, and those that these call."""
    given = [dispatch.function for dispatch in dispatches(script)]
    given += [keyword(call, "initializer") for call in script.calls]
    waiting: list[Function] = [f for node in given if node is not None for f in script.functions(node)]
    if not waiting:  # what is sent cannot be told: any function may be
        waiting = [node for node in script.nodes if isinstance(node, FUNCTIONS)]
    seen, names = set(waiting), set()
    while waiting:
        function = waiting.pop()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and script.home(node) is script.tree:
                names.add(node.id)
                new = [f for f in script.functions(node) if f not in seen]
                seen.update(new)
                waiting += new
    return names


def used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def assigned(statement: ast.stmt) -> set[str]:
    """The names of the module that a statement gives a value, or changes: `x = 1`, `x[0] = 1`, `x.append(1)`."""
    names = set()
    for node in ast.walk(statement):
        match node:
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                names.update(part.id for part in ast.walk(node.value) if isinstance(part, ast.Name))
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name)))):
                names.add(name)
    return names
