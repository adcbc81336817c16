"""Which shards a preparation script writes: the format, the folder, their names and size, and the split.

np.memmap(DIR/"{split}.bin", mode="w+") after train_test_split    nanogpt
a header that begins with 20240520, or data_common's writer       llmc
np.save(DIR/"NAME_{split}_{i:06d}")                               npy
"""

from __future__ import annotations

import ast

from tokenmill.doctor.dispatch import keyword
from tokenmill.doctor.edits import untellable
from tokenmill.doctor.names import Script
from tokenmill.errors import RecipeError

Value = ast.expr | str  # an expression of the script, or text to write as it is

_MAGIC = (20240520, 20240801)  # llm.c's, for 16 and 32 bits
_HINT = "tokenmill prepare FILES -o OUT --format nanogpt|llmc|npy"


def script_output(script: Script) -> tuple[ast.Call, dict[str, Value]]:
    """Return the call that writes, and the arguments of tokenmill.prepare about the output."""
    if (call := _first(script, "numpy.memmap", writes=True)) is not None:
        return call, _nanogpt(script, call)
    if (call := _first(script, "numpy.save")) is not None:
        return call, _shards(script, call, "npy")
    has_magic = any(isinstance(node, ast.Constant) and node.value in _MAGIC for node in script.nodes)
    for call in script.calls:
        path = call.args[0] if call.args else None
        from_llmc = any(p.endswith("data_common.write_datafile") for p in script.paths(call.func))
        if from_llmc or (has_magic and script.stands_for(call.func, {"open"}) and _file_mode(call) == "wb"):
            assert path is not None
            return call, _shards(script, call, "llmc")
    raise RecipeError(f"`{script.filename}`: which shards it writes cannot be told", hint=_HINT)


def _first(script: Script, path: str, writes: bool = False) -> ast.Call | None:
    for call in script.calls:
        if call.args and script.stands_for(call.func, {path}):
            mode = keyword(call, "mode")
            if not writes or (isinstance(mode, ast.Constant) and mode.value == "w+"):
                return call
    return None


def _file_mode(call: ast.Call) -> object:
    mode = call.args[1] if len(call.args) > 1 else keyword(call, "mode")
    return mode.value if isinstance(mode, ast.Constant) else None


def _nanogpt(script: Script, call: ast.Call) -> dict[str, Value]:
    splits = [c for c in script.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "train_test_split"]
    hint = _HINT.replace("nanogpt|llmc|npy", "nanogpt --val FRACTION --shuffle numpy:SEED")
    if len(splits) != 1:
        raise untellable(script, call, "how the documents are split into train and val cannot be told", hint)
    split = splits[0]
    size = split.args[0] if split.args else keyword(split, "test_size")
    seed, shuffle = keyword(split, "seed"), keyword(split, "shuffle")
    if size is None or seed is None or (isinstance(shuffle, ast.Constant) and not shuffle.value):
        raise untellable(
            script, split, "a split without test_size, seed or shuffle gives no order that can be told", hint
        )
    folder, name = _folder_and_name(script, call.args[0], call)
    if not script.text(name).rstrip("'\"").endswith(".bin"):
        raise untellable(script, call, "a memory map that is not train.bin or val.bin", _HINT)
    told: dict[str, Value] = {"out": folder, "format": '"nanogpt"', "val": size}
    is_plain = isinstance(seed, ast.Constant)
    told["shuffle"] = f'"numpy:{script.text(seed)}"' if is_plain else f'f"numpy:{{{script.text(seed)}}}"'
    return told


def _shards(script: Script, call: ast.Call, shard_format: str) -> dict[str, Value]:
    folder, name = _folder_and_name(script, call.args[0], call)
    told: dict[str, Value] = {"out": folder, "format": f'"{shard_format}"', "name": _shard_name(script, name)}
    return told | {"shard_tokens": _shard_size(script, call)}


def _folder_and_name(script: Script, path: ast.expr, call: ast.Call) -> tuple[Value, ast.expr]:
    """Return the folder of a file that is written, and its name, which tells the split or the shard."""
    found: dict[str, tuple[Value, ast.expr]] = {}
    for value in script.values(path):
        match value:
            case ast.Call(func, [*folders, name]) if script.stands_for(func, {"os.path.join"}) and folders:
                whole = len(folders) == 1
                folder: Value = folders[0] if whole else f"os.path.join({', '.join(map(script.text, folders))})"
            case ast.BinOp(folder, ast.Div(), name):
                pass
            case ast.JoinedStr() | ast.Constant():
                folder, name = '"."', value
                if "/" in script.text(value):
                    raise untellable(script, call, "the folder of the output cannot be told", _HINT)
            case _:
                continue
        for whole_name in script.values(name):
            found[script.text(whole_name)] = folder, whole_name
    if len({script.text(f) if isinstance(f, ast.expr) else f for f, _ in found.values()}) != 1:
        raise untellable(script, call, "the folder of the output cannot be told", _HINT)
    return next(iter(found.values()))


def _shard_name(script: Script, name: ast.expr) -> Value:
    """The part of `f"{NAME}_{split}_{index:06d}.bin"` before the split."""
    parts = name.values if isinstance(name, ast.JoinedStr) else []
    fields = [i for i, part in enumerate(parts) if isinstance(part, ast.FormattedValue)]
    number = parts[fields[-1]] if len(fields) >= 2 else None
    if not isinstance(number, ast.FormattedValue) or "06d" not in script.text(name):
        raise untellable(script, name, "shards are named otherwise than NAME_SPLIT_000000", _HINT)
    split = parts[fields[-2]]
    assert isinstance(split, ast.FormattedValue)
    words = {value.value for value in script.values(split.value) if isinstance(value, ast.Constant)}
    if words != {"train", "val"}:
        raise untellable(script, name, "which shards are train and which are val cannot be told", _HINT)
    before = parts[: fields[-2]]
    if len(before) == 1 and isinstance(before[0], ast.Constant):
        return f'"{str(before[0].value).removesuffix("_")}"'
    if len(before) == 2 and isinstance(before[0], ast.FormattedValue) and ast.unparse(before[1]) == "'_'":
        return before[0].value
    raise untellable(script, name, "the name before the split cannot be told", _HINT)


def _shard_size(script: Script, call: ast.Call) -> Value:
    """The size of the array that tokens are gathered in, or what is called shard_size."""
    for other in script.calls:
        if script.stands_for(other.func, {"numpy.empty", "numpy.zeros"}) and other.args:
            dtype = keyword(other, "dtype")
            if dtype is None or "int32" in ast.unparse(dtype).replace("uint32", ""):
                continue  # a header
            shape = other.args[0]
            return shape.elts[0] if isinstance(shape, ast.Tuple) and len(shape.elts) == 1 else shape
    for node in script.nodes:
        if (isinstance(node, ast.Name) and node.id.lower() == "shard_size") or (
            isinstance(node, ast.Attribute) and node.attr == "shard_size"
        ):
            return node
    raise untellable(script, call, "how many tokens make a shard cannot be told", f"{_HINT} --shard-tokens N")
