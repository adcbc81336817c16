"""Which expressions of a script are tokenizers, and which are arrays of tokens.

Told by the paths they stand for (see names.py) and, for arrays, by their names and how they were made.
"""

from __future__ import annotations

import ast
import re

from tokenmill.doctor.dispatch import keyword, mapped_functions, matches
from tokenmill.doctor.names import Script

ENCODER = re.compile(r"tiktoken(\.registry|\.model|\.core)?\.(get_encoding|encoding_for_model|Encoding)\(\)")
ENGINE = re.compile(
    r"(.*\._core_bpe|(tiktoken\.)?(_tiktoken|core)(\._tiktoken)?\.CoreBPE\(\)"
    r"|gigatoken\.(Tokenizer(\.from_\w+)?|gigatoken_rs\.\w*Tokenizer(\.\w+)?)\(\)(\.as_\w+\(\)|\.backend)?)"
)
LOADER = re.compile(
    r"(tiktoken(\.registry|\.model)?\.(get_encoding|encoding_for_model)"
    r"|transformers\.\w*Tokenizer\w*\.from_pretrained"
    r"|tokenizers\.(tokenizers\.)?Tokenizer\.from_(file|pretrained|str|buffer)"
    r"|gigatoken\.Tokenizer(\.from_\w+)?"
    r"|sentencepiece\.SentencePieceProcessor(\(\)\.[lL]oad)?)"
)
_TOKENS = re.compile(r"(^|_)(tok|toks|token|tokens)(_|$|\d)|^(input_|all_)?ids(_np)?$")
_COUNTS = re.compile(r"(^|_)(n|num|counts?|len|lens|lengths?|sizes?|offsets?|freqs?|hist|per)(_|$)")
_ARRAYS = re.compile(r"numpy\.(empty|zeros|array|asarray|memmap|fromfile|concatenate|frombuffer|load)\(\)")


def token_lists(script: Script) -> list[ast.Call]:
    """The calls of `.tolist()` on what is an array of tokens, by its name or by how it was made."""
    return [
        call
        for call in script.calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "tolist" and _is_tokens(script, call.func.value)
    ]


def _is_tokens(script: Script, node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        node = node.value  # tokens[:n] are tokens; batch["url"] is not what batch is
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            if _COUNTS.search(name.lower()):
                return False
            if _TOKENS.search(name.lower()):
                return True
        case ast.Call(ast.Attribute(value, "astype" | "copy" | "ravel" | "flatten" | "view")):
            return _is_tokens(script, value)
    values = script.values(node)
    return any(
        isinstance(value, ast.Call)
        and matches(script, value, _ARRAYS)
        and (_has_token_dtype(value) or any(_is_encoded(script, argument) for argument in value.args))
        for value in values
    )


def _has_token_dtype(call: ast.Call) -> bool:
    dtype = keyword(call, "dtype")
    return dtype is not None and "uint16" in ast.unparse(dtype)


def _is_encoded(script: Script, node: ast.expr) -> bool:
    return any(
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("encode", "encode_ordinary", "encode_batch", "encode_ordinary_batch")
        for value in script.values(node)
    )


def loads_per_document(script: Script, loader: re.Pattern[str]) -> list[ast.Call]:
    """The calls of a loader that are made anew for every document."""
    found = []
    for function in mapped_functions(script):
        decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
        if any("cache" in ast.unparse(decorator) for decorator in decorators):
            continue
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        found += [
            call
            for call in calls
            if script.function_of(call) is function
            and matches(script, call.func, loader)
            and not _is_kept(script, call)
        ]
    return found


def _is_kept(script: Script, call: ast.Call) -> bool:
    """Whether the value outlives the call of its function: a global, or an attribute of something."""
    statement = next((outer for outer in script.ancestors(call) if isinstance(outer, ast.stmt)), None)
    if not isinstance(statement, ast.Assign):
        return False
    names = script.global_names.get(script.function_of(call) or script.tree, set())
    return any(
        isinstance(target, ast.Attribute | ast.Subscript) or (isinstance(target, ast.Name) and target.id in names)
        for target in statement.targets
    )


def loading_call(script: Script, node: ast.expr, steps: int = 0) -> ast.Call | None:
    """The call that loaded the tokenizer which this expression stands for, or was taken from."""
    for value in script.values(node) if steps < 8 else []:
        if isinstance(value, ast.Attribute):
            return loading_call(script, value.value, steps + 1)
        if isinstance(value, ast.Call):
            if matches(script, value.func, LOADER):
                return value
            inner = value.args[0] if value.args else value.func
            returned = [r for f in script.functions(value.func) for r in script.returned(f)]
            return loading_call(script, returned[0] if returned else inner, steps + 1)
    return None
