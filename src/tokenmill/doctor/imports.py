"""The imports of a patched script: those it needs now, without those it no longer does."""

from __future__ import annotations

import ast

from tokenmill.doctor.edits import Edit, edited, first_line, lines_edit, replaced
from tokenmill.doctor.names import Script


def with_imports(before: Script, source: str, wanted: tuple[str, ...] = ("tokenmill",)) -> str:
    """Return the source with the wanted modules imported where it names them, and imports that fell idle removed."""
    after = Script(source, before.filename)
    missing = [name for name in wanted if name in _names(after) and not _is_imported(after, name)]
    idle = _names(before) - _names(after)
    edits: list[Edit] = []
    dropped: list[ast.stmt] = []
    for node in after.nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        kept = [alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) not in idle]
        if kept and len(kept) < len(node.names):
            changed = (
                ast.Import(kept) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, kept, node.level)
            )
            edits.append(replaced(source, node, ast.unparse(changed)))
        elif not kept:
            dropped.append(node)
    # The last one at the top gives its place to what takes over.
    place = next((node for node in reversed(dropped) if after.parents[node] is after.tree), None)
    for node in dropped:
        text = "".join(f"import {name}\n" for name in missing) if node is place else ""
        edits.append(lines_edit(source, first_line(node), node.end_lineno or node.lineno, text))
    if missing and place is None:
        line = _line_for_import(after)
        edits.append(lines_edit(source, line, line - 1, "".join(f"import {name}\n" for name in missing)))
    return edited(source, edits)


def _names(script: Script) -> set[str]:
    return {node.id for node in script.nodes if isinstance(node, ast.Name)}


def _is_imported(script: Script, name: str) -> bool:
    return any(binding.path == name for binding in script.bindings.get(script.tree, {}).get(name, []))


def _line_for_import(script: Script) -> int:
    """The line behind the first run of imports, or behind the docstring."""
    line = first_line(script.tree.body[0])
    for i, node in enumerate(script.tree.body):
        is_docstring = i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.Import | ast.ImportFrom) and not is_docstring:
            break
        assert node.end_lineno is not None
        line = node.end_lineno + 1
    return line
