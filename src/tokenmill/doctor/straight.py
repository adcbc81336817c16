"""Way 3: the work of a script replaced by one call of tokenmill.prepare.

What the call needs (arguments, folders, constants) stays as it is written; what only served the old work goes. A
statement goes if it reads the data, makes a tokenizer, starts processes or writes shards, or uses what such a
statement made; then whatever nothing uses any more.
"""

from __future__ import annotations

import ast

from tokenmill.doctor.dispatch import starters
from tokenmill.doctor.edits import Edit, edited, first_line, line_of, lines_edit, untellable, with_comments
from tokenmill.doctor.guard import assigned, used
from tokenmill.doctor.imports import with_imports
from tokenmill.doctor.intent import script_intent
from tokenmill.doctor.names import Function, Script, is_main_guard
from tokenmill.doctor.outputs import Value

_HINT = "tokenmill prepare FILES -o OUT"


def straight_from_shards(script: Script) -> str:
    """Return the source with its work replaced by tokenmill.prepare."""
    intent = script_intent(script)
    body, function = _driver(script, intent.anchor)
    texts = {name: _placed(script, value, function) for name, value in intent.arguments.items()}
    needed = {node.id for text in texts.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    statements = [*script.tree.body, *(body if body is not script.tree.body else [])]
    around = {outer for statement in body for outer in script.ancestors(statement)}
    statements = [statement for statement in statements if statement not in around]
    gone = _gone(script, statements, needed, {*intent.work, *starters(script)})

    work = [statement for statement in body if statement in gone]
    indent = " " * body[0].col_offset
    call = f"{indent}tokenmill.prepare(\n"
    call += "".join(
        f"{indent}    {text},\n" if name == "sources" else f"{indent}    {name}={text},\n"
        for name, text in texts.items()
    )
    call += f"{indent})\n"
    edits: list[Edit] = []
    for statement in gone:
        assert statement.end_lineno is not None
        before = max((s.end_lineno or 0 for s in statements if s.lineno < statement.lineno), default=0)
        first = with_comments(script.source, first_line(statement), after=before)
        last = statement.end_lineno
        if statement is not work[-1]:
            while (line := line_of(script.source, last + 1)) and not line.strip():
                last += 1  # the blank lines behind it
        edits.append(lines_edit(script.source, first, last, call if statement is work[-1] else ""))
    return with_imports(script, edited(script.source, edits))


def _driver(script: Script, anchor: ast.AST) -> tuple[list[ast.stmt], Function | None]:
    """The block that drives the work: the module's, that of its guard, or the body of the function that it calls."""
    for _ in range(8):
        function = script.function_of(anchor)
        if function is None:
            outer = [anchor, *script.ancestors(anchor)]
            guard = next((node for node in outer if is_main_guard(node)), script.tree)
            assert isinstance(guard, ast.If | ast.Module)
            return guard.body, None
        calls = script.calls_to(function)
        if len(calls) == 1 and isinstance(script.parents[calls[0]], ast.Expr) and not isinstance(function, ast.Lambda):
            return function.body, function
        if not calls:
            break
        anchor = calls[0]
    raise untellable(script, anchor, "where the work is set off cannot be told", _HINT)


def _placed(script: Script, value: Value, function: Function | None) -> str:
    """The expression as it can be written where the work was: with no name of another function in it."""
    if isinstance(value, str):
        return value
    homes = (None, script.tree, function)
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    bound = {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if all(script.home(name) in homes or name.id in bound for name in names):
        return script.text(value)
    values = script.values(value)
    if len(values) != 1 or values[0] is value:
        raise untellable(script, value, f"what `{script.text(value)}` is cannot be told outside its function", _HINT)
    return _placed(script, values[0], function)


def _gone(script: Script, statements: list[ast.stmt], needed: set[str], work: set[ast.Call]) -> list[ast.stmt]:
    """The statements that go: the work, what hangs on it, and what then serves nothing."""
    kept_for_call = _with_dependencies(statements, needed)
    gone = {s for s in statements if any(node in work for node in ast.walk(s))}
    for statement in gone & kept_for_call:
        names = ", ".join(sorted(assigned(statement) & needed))
        raise untellable(script, statement, f"`{names}` is needed, and cannot be told apart from the work", _HINT)
    grown = True
    while grown:
        lost = {name for s in gone for name in _defined(s)} - {n for s in kept_for_call for n in _defined(s)}
        more = {s for s in statements if s not in gone and s not in kept_for_call and used(s) & lost}
        more = {s for s in more if not isinstance(s, ast.Import | ast.ImportFrom)}
        # Whatever is left only for the sake of what is gone.
        by_gone = {name for s in gone for name in used(s)}
        for statement in statements:
            if statement in gone or statement in kept_for_call or not _only_defines(statement):
                continue
            others = {n for s in statements if s not in gone and s is not statement for n in used(s)}
            if _defined(statement) & by_gone and not _defined(statement) & (others | needed):
                more.add(statement)
        grown = bool(more - gone)
        gone |= more
    return sorted(gone, key=lambda statement: statement.lineno)


def _with_dependencies(statements: list[ast.stmt], needed: set[str]) -> set[ast.stmt]:
    names, kept = set(needed), set()
    grown = True
    while grown:
        grown = False
        for statement in statements:
            imports = isinstance(statement, ast.Import | ast.ImportFrom)
            if statement not in kept and not imports and _changes(statement) & names:
                kept.add(statement)
                names |= used(statement)
                grown = True
    return kept


def _changes(statement: ast.stmt) -> set[str]:
    """The names that the statement gives a value or changes; what a function does inside is its own."""
    return _defined(statement) if isinstance(statement, ast.FunctionDef | ast.ClassDef) else assigned(statement)


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _only_defines(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign)
