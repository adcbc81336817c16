"""Every tokenizer of a script made a `tokenmill.Tokenizer`: lazy, picklable, loaded once.

tiktoken's encodings, bare CoreBPE engines and gigatoken's tokenizers are replaced where they are made; what the
script asks of them must be what Tokenizer answers alike, else the script is refused with the line.
"""

from __future__ import annotations

import ast
import re

from tokenmill.doctor.dispatch import keyword, matches
from tokenmill.doctor.edits import (
    Edit,
    edited,
    first_line,
    lines_edit,
    replaced,
    span,
    statement_removed,
    untellable,
    with_comments,
)
from tokenmill.doctor.engines import ENCODER, ENGINE, LOADER, loading_call, loads_per_document
from tokenmill.doctor.names import FUNCTIONS, Script
from tokenmill.tokenizers.vocabularies import VOCABULARIES

_GET = re.compile(r"tiktoken(\.registry)?\.get_encoding")
_FOR_MODEL = re.compile(r"tiktoken(\.model)?\.encoding_for_model")
_CORE_BPE = re.compile(r"(tiktoken\.)?(_tiktoken|core)(\._tiktoken)?\.CoreBPE")
_GIGATOKEN = re.compile(r"gigatoken\.Tokenizer(\.from_tiktoken|\.from_json)?")
_OURS = re.compile(r"tokenmill\.Tokenizer")
# What a tokenmill.Tokenizer answers as tiktoken.Encoding does.
_ANSWERS = {
    *("encode", "encode_ordinary", "encode_ordinary_batch", "decode"),
    *("eot_token", "n_vocab", "max_token_value", "name"),
}
_BY_HAND = "load it as `tokenmill.Tokenizer(NAME)` by hand, or choose way 3"


def is_tokenizer(script: Script, node: ast.expr) -> bool:
    return matches(script, node, ENCODER) or matches(script, node, ENGINE)


def lazy_tokenizers(script: Script) -> str:
    """Return the source with every tokenizer replaced where it is made, and its answers asked for by their own name."""
    made = {call: _made(script, call) for call in script.calls}
    edits = [replaced(script.source, call, text) for call, text in made.items() if text is not None]
    taken = [span(script.source, call) for call, text in made.items() if text is not None]
    for node in script.nodes:
        if isinstance(node, ast.Attribute) and is_tokenizer(script, node.value):
            inside = any(start <= span(script.source, node)[0] < end for start, end in taken)
            if not inside or node.value in made:
                edits += _answer(script, node, inside)
    return edited(script.source, edits)


def _made(script: Script, call: ast.Call) -> str | None:
    """The tokenmill.Tokenizer to write for a call that makes a tokenizer; None for any other call."""
    if matches(script, call.func, _CORE_BPE):
        loading = loading_call(script, call.args[0]) if call.args else None
        name = tokenizer_argument(script, loading) if loading is not None else None
    elif any(matches(script, call.func, kind) for kind in (_GET, _FOR_MODEL, _GIGATOKEN)):
        name = tokenizer_argument(script, call)
    else:
        return None
    if name is None:
        what = f"which of tokenmill's tokenizers `{script.text(call)}` is cannot be told"
        raise untellable(script, call, what, "see `tokenmill tokenizers`")
    return f"tokenmill.Tokenizer({name})"


def tokenizer_argument(script: Script, call: ast.Call) -> str | None:
    """The arguments of the tokenmill.Tokenizer that is what this call loads, as text; None if it cannot be told."""
    first = call.args[0] if call.args else call.keywords[0].value if call.keywords else None
    if first is None:
        return None
    if matches(script, call.func, _GET):
        known = not isinstance(first, ast.Constant) or first.value in VOCABULARIES
        return script.text(first) if known else None
    values = script.values(first)
    name = values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else None
    if matches(script, call.func, _FOR_MODEL) and isinstance(name, str):
        return _encoding_of_model(name)
    if matches(script, call.func, _GIGATOKEN):
        return _gigatoken_name(script, call, first)
    if isinstance(name, str) and name.endswith(".json"):
        return script.text(first)
    return None


def _encoding_of_model(model: str) -> str | None:
    from tiktoken import encoding_name_for_model

    try:
        name = encoding_name_for_model(model)
    except KeyError:
        return None
    return f'"{name}"' if name in VOCABULARIES else None


def _gigatoken_name(script: Script, call: ast.Call, first: ast.expr) -> str | None:
    values = script.values(first)
    name = str(values[0].value) if len(values) == 1 and isinstance(values[0], ast.Constant) else ""
    if name.endswith(".json"):
        return script.text(first)
    short = name.rpartition("/")[2].removesuffix(".tiktoken")
    if short in VOCABULARIES:
        return f'"{short}"'
    pretokenizer = call.args[1] if len(call.args) > 1 else keyword(call, "pretokenizer")
    if isinstance(pretokenizer, ast.Constant):
        for pattern, vocabulary in VOCABULARIES.items():
            if vocabulary.pretokenizer == pretokenizer.value:
                return f'{script.text(first)}, "{pattern}"'
    return None


def _answer(script: Script, node: ast.Attribute, inside: bool) -> list[Edit]:
    """What to write for an attribute of a tokenizer."""
    source, parent = script.source, script.parents[node]
    end_of_owner = span(source, node.value)[1]
    if node.attr == "_core_bpe":
        return [Edit(end_of_owner, span(source, node)[1], "")]
    if node.attr in ("as_tiktoken", "backend"):
        end = span(source, parent)[1] if isinstance(parent, ast.Call) else span(source, node)[1]
        return [Edit(end_of_owner, end, "")]
    if node.attr in ("_special_tokens", "_mergeable_ranks", "_pat_str") and inside:
        return []  # went into a CoreBPE that is gone
    if node.attr == "_special_tokens" and isinstance(parent, ast.Subscript):
        if isinstance(parent.slice, ast.Constant) and parent.slice.value == "<|endoftext|>":
            return [Edit(end_of_owner, span(source, parent)[1], ".eot_token")]
    elif node.attr == "encode_batch" and isinstance(parent, ast.Call) and parent.func is node and parent.args:
        # It raises where a text spells a special token, unless told not to; here such text is text.
        return [Edit(end_of_owner, span(source, parent)[1], f".encode_ordinary_batch({script.text(parent.args[0])})")]
    elif node.attr in _ANSWERS:
        options = parent.keywords if isinstance(parent, ast.Call) and parent.func is node else []
        if node.attr != "encode" or not (options or (isinstance(parent, ast.Call) and len(parent.args) > 1)):
            return []
        assert isinstance(parent, ast.Call)
        # Nothing allowed or nothing disallowed: special tokens in the text are text.
        if len(parent.args) == 1 and all(ast.unparse(option.value) in ("set()", "()", "[]") for option in options):
            return [Edit(end_of_owner, span(source, parent)[1], f".encode_ordinary({script.text(parent.args[0])})")]
        raise untellable(
            script,
            node,
            "special tokens spelled in the text become special ids here, and tokenmill encodes text as text",
            "use `encode_ordinary`",
        )
    raise untellable(script, node, f"tokenmill.Tokenizer has no `{node.attr}`", _BY_HAND)


def loaded_once(script: Script) -> str:
    """Return the source with the tokenizers that were loaded for every document loaded once, above the function."""
    edits: list[Edit] = []
    placed: set[str] = set()
    loaders: dict[str, str] = {}  # what loads, and the name of its cached twin
    for call in [*loads_per_document(script, _OURS), *loads_per_document(script, LOADER)]:
        statement = next(outer for outer in script.ancestors(call) if isinstance(outer, ast.stmt))
        around = [outer for outer in script.ancestors(call) if isinstance(outer, FUNCTIONS)]
        top = next(o for o in [around[-1], *script.ancestors(around[-1])] if isinstance(o, ast.stmt))
        used = [node for node in ast.walk(call) if isinstance(node, ast.Name)]
        line = with_comments(script.source, first_line(top))
        indent = " " * top.col_offset
        gap = "\n\n" if top.col_offset == 0 else "\n"
        if _can_move(script, statement, call) and all(_is_of_module(script, name) for name in used):
            text = f"{indent}{script.text(statement)}\n"
            edits.append(statement_removed(script, statement))
        elif all(_is_of_module(script, name) for name in ast.walk(call.func) if isinstance(name, ast.Name)):
            # What it loads depends on the document, or is not always wanted: kept after the first time.
            loader = loaders.setdefault(script.text(call.func), _fresh_name(script, len(loaders)))
            text = f"{indent}{loader} = functools.lru_cache({script.text(call.func)})\n"
            edits.append(replaced(script.source, call.func, loader))
        else:
            raise untellable(script, call, "how to load this tokenizer only once cannot be told", _BY_HAND)
        if text not in placed:
            placed.add(text)
            edits.append(lines_edit(script.source, line, line - 1, text + gap))
    return edited(script.source, edits)


def _fresh_name(script: Script, index: int) -> str:
    taken = {node.id for node in script.nodes if isinstance(node, ast.Name)}
    names = (f"load_tokenizer{number or ''}" for number in range(len(taken) + index + 2))
    return [name for name in names if name not in taken][index]


def _can_move(script: Script, statement: ast.stmt, call: ast.Call) -> bool:
    """Whether it is `enc = tokenmill.Tokenizer(...)`, straight in the function, and no other `enc` is about."""
    if not isinstance(statement, ast.Assign) or statement.value is not call or not matches(script, call.func, _OURS):
        return False
    target, function = statement.targets[0], script.function_of(call)
    if len(statement.targets) != 1 or not isinstance(target, ast.Name) or function is None:
        return False
    if script.parents[statement] is not function or len(script.bindings[function][target.id]) != 1:
        return False
    others = script.bindings.get(script.tree, {}).get(target.id, [])
    return all(b.value is not None and script.text(b.value) == script.text(call) for b in others)


def _is_of_module(script: Script, name: ast.Name) -> bool:
    return script.home(name) in (None, script.tree)
