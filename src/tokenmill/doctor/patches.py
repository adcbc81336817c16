"""The three known ways out of a script that dies, each as a change to the script itself.

    1   main process: no worker processes at all
    2   lazy encoder: workers kept, with a tokenizer that goes anywhere and a map that does not hang
    3   straight from the shards: the script's work handed to tokenmill.prepare

Each way is a row of passes over the text, guided by the tree; the rest of the file and its comments stay. What
cannot be told from the script is refused with the line, never guessed.
"""

from __future__ import annotations

import ast

from tokenmill.doctor.dispatch import keyword, worker_count
from tokenmill.doctor.edits import Edit, edited, replaced, span, unified_diff
from tokenmill.doctor.engines import token_lists
from tokenmill.doctor.guard import with_main_guard
from tokenmill.doctor.imports import with_imports
from tokenmill.doctor.names import Script, too_deep
from tokenmill.doctor.pool_patch import without_pools
from tokenmill.doctor.straight import straight_from_shards
from tokenmill.doctor.tokenizer_patch import lazy_tokenizers, loaded_once
from tokenmill.errors import RecipeError


def script_patch(source: str, filename: str, way: int) -> str:
    """Return a unified diff for `patch -p1` that takes the script to way 1, 2 or 3, or say what cannot be told."""
    if way not in (1, 2, 3):
        raise RecipeError(
            f"there is no way {way}", hint="choose 1 (main process), 2 (lazy encoder) or 3 (from the shards)"
        )
    # The mark in front is no part of the program, and stays.
    mark, source = source[: source.startswith("\ufeff")], source.removeprefix("\ufeff")
    try:
        after = _patched(Script(source, filename), way)
    except RecursionError:
        raise too_deep(filename) from None
    if after == source:
        raise RecipeError(f"nothing in `{filename}` needs to change for way {way}")
    return unified_diff(mark + source, mark + after, filename)


def _patched(script: Script, way: int) -> str:
    after = straight_from_shards(script) if way == 3 else _mended(script, way)
    Script(after, script.filename)
    return after


def _mended(script: Script, way: int) -> str:
    def again(source: str) -> Script:
        return Script(source, script.filename)

    source = lazy_tokenizers(script)
    source = loaded_once(again(source))
    source = without_lists(again(source))
    source = without_pools(again(source), processes=way == 2)
    if way == 1:
        source = without_num_proc(again(source))
    source = with_imports(script, source, ("contextlib", "functools", "tokenmill"))
    return with_main_guard(again(source)) if way == 2 else source


def without_num_proc(script: Script) -> str:
    """Return the source with every `num_proc` of datasets at None: the main process."""
    edits = []
    for call in script.calls:
        count = keyword(call, "num_proc")
        if count is not None and worker_count(script, call) is not None:
            edits.append(replaced(script.source, count, "None"))
    return edited(script.source, edits)


def without_lists(script: Script) -> str:
    """Return the source without `.tolist()` where whoever gets the tokens takes an array as well."""
    edits = []
    for call in token_lists(script):
        parent = script.parents[call]
        if isinstance(parent, ast.Call) and call in parent.args and _takes_arrays(script, parent, call):
            assert isinstance(call.func, ast.Attribute)
            edits.append(Edit(span(script.source, call.func.value)[1], span(script.source, call)[1], ""))
    return edited(script.source, [_from_the_parenthesis(script.source, edit) for edit in edits])


def _from_the_parenthesis(source: str, edit: Edit) -> Edit:
    """`(tokens[:n]).tolist()`: the tree leaves out the parenthesis, the text has it."""
    return Edit(edit.start + source[edit.start : edit.end].rindex(".tolist"), edit.end, "")


def _takes_arrays(script: Script, taker: ast.Call, tokens: ast.Call) -> bool:
    if any(path.startswith("numpy.") for path in script.paths(taker.func)):
        return True
    # llm.c's and modded-nanogpt's writer, from data_common.py: it asks for the length and makes an array of it.
    if any(path.endswith("data_common.write_datafile") for path in script.paths(taker.func)):
        return True
    functions = script.functions(taker.func)
    index = taker.args.index(tokens)
    return bool(functions) and all(
        index < len(function.args.args) and _is_used_as_array(script, function, function.args.args[index].arg)
        for function in functions
    )


def _is_used_as_array(script: Script, function: ast.AST, parameter: str) -> bool:
    """Whether a function only measures, iterates, slices, or hands to numpy what it was given."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != parameter:
            continue
        parent = script.parents[node]
        fits = (
            (
                isinstance(parent, ast.Call)
                and any(p == "len" or p.startswith("numpy.") for p in script.paths(parent.func))
            )
            or (isinstance(parent, ast.For | ast.comprehension) and parent.iter is node)
            or (isinstance(parent, ast.Subscript) and parent.value is node)
        )
        if not fits:
            return False
    return True
