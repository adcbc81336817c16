"""What a preparation script means to make: from which files, by which tokenizer, in which format, where.

Out comes an `Intent`: the arguments of a tokenmill.prepare call, as expressions of the script. What cannot be told,
or would come out otherwise than the script has it, is refused with the line and the command to type instead.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from tokenmill.doctor.dispatch import POOL, keyword, matches, worker_count
from tokenmill.doctor.edits import untellable
from tokenmill.doctor.engines import ENCODER, ENGINE, LOADER
from tokenmill.doctor.names import Script
from tokenmill.doctor.outputs import Value, script_output
from tokenmill.doctor.tokenizer_patch import tokenizer_argument
from tokenmill.errors import RecipeError

_FILES_OF = {  # reader -> the keyword of its files
    "datasets.Dataset.from_parquet": "path_or_paths",
    "datasets.Dataset.from_json": "path_or_paths",
    "pyarrow.parquet.ParquetFile": "source",
    "pyarrow.parquet.read_table": "source",
    "pandas.read_parquet": "path",
    "open": "file",
}
_SELECTS = ("filter", "select", "shuffle", "take", "skip", "sort", "shard", "rename_column", "rename_columns")
_LOADERS_OF_FILES = ("parquet", "json", "text", "arrow")


class Intent(NamedTuple):
    anchor: ast.Call  # where the script gets its documents
    arguments: dict[str, Value]
    work: list[ast.Call]  # what prepare does in the script's stead


def script_intent(script: Script) -> Intent:
    """Return the tokenmill.prepare call that does what the script does."""
    tokenizer_calls = [call for call in script.calls if matches(script, call.func, LOADER)]
    # The source first: for data of the Hub there is a script of ours, whatever this one writes.
    anchor, files, extra = _source(script, "tokenmill prepare FILES -o OUT")
    writer, arguments = script_output(script)
    hint = f"tokenmill prepare FILES -o OUT --format {str(arguments['format']).strip(chr(34))}"
    _refuse_selections(script, hint)
    told: dict[str, Value] = {"sources": files, "out": arguments.pop("out"), **arguments}
    told["tokenizer"] = _tokenizer(script, tokenizer_calls, hint)
    told |= extra
    if (column := _text_column(script, hint)) != "text":
        told["text_column"] = f'"{column}"'
    told |= _end_of_text(script, str(arguments["format"]))
    if (workers := _workers(script)) is not None:
        told["workers"] = workers
    engines = [call for call in script.calls if matches(script, call, ENGINE) or matches(script, call, ENCODER)]
    return Intent(anchor, told, [anchor, writer, *tokenizer_calls, *engines])


def _source(script: Script, hint: str) -> tuple[ast.Call, Value, dict[str, Value]]:
    found: list[tuple[ast.Call, Value, dict[str, Value]]] = []
    for call in script.calls:
        if script.stands_for(call.func, {"datasets.load_dataset"}):
            found.append(_loaded_files(script, call, hint))
        elif script.stands_for(call.func, {"datasets.load_from_disk"}) and call.args:
            found.append((call, f'{script.text(call.args[0])} + "/*.arrow"', {}))
        else:
            for path in script.paths(call.func) & _FILES_OF.keys():
                files = call.args[0] if call.args else keyword(call, _FILES_OF[path])
                if files is not None and (path != "open" or _reads_json_lines(script, call)):
                    found.append((call, _iterated(script, files), {}))
    if len({_shown(script, files) for _, files, _ in found}) == 1:
        return found[0]
    lines = ", ".join(str(call.lineno) for call, *_ in found)
    raise RecipeError(
        f"`{script.filename}`: the files it reads cannot be told"
        + (
            f": several are read in lines {lines}"
            if found
            else ": no load_dataset, ParquetFile, read_table or JSON lines"
        ),
        hint=hint,
    )


def _loaded_files(script: Script, call: ast.Call, hint: str) -> tuple[ast.Call, Value, dict[str, Value]]:
    first = call.args[0] if call.args else keyword(call, "path")
    kind = constant(script, first)
    split = constant(script, keyword(call, "split"))
    if isinstance(split, str) and "[" in split:
        raise untellable(script, call, f"only `{split}` of the data is taken", f"{hint} --limit-documents N")
    files = keyword(call, "data_files") or keyword(call, "data_dir")
    if kind not in _LOADERS_OF_FILES or files is None:
        raise _hub_error(script, call, hint, str(kind or "?"))
    values = script.values(files)
    if len(values) == 1 and isinstance(values[0], ast.Dict):
        if len(values[0].values) != 1:
            raise untellable(script, call, "several splits are loaded, and which is prepared cannot be told", hint)
        files = values[0].values[0]
    extra: dict[str, Value] = {}
    if kind == "text":
        by = constant(script, keyword(call, "sample_by")) or "line"
        if by != "document":
            what = "`datasets` makes empty documents of blank lines, and tokenmill makes none: the bytes would differ"
            raise untellable(script, call, what, f"tokenmill prepare FILES -o OUT --documents {by}")
        extra["documents"] = '"file"'
    return call, _iterated(script, files), extra


def _hub_error(script: Script, call: ast.Call, hint: str, name: str) -> RecipeError:
    if "fineweb" in name.lower():
        size = re.search(r"sample-(10|100|350)BT", script.source)
        hint = f"python -m tokenmill.scripts.prepare_fineweb --version {size[1] if size else '10'}B --input DIR"
    return untellable(script, call, f"the data is `{name}` of the Hugging Face Hub, not files", hint)


def _iterated(script: Script, files: ast.expr) -> Value:
    """For the variable of a loop over files: what the loop goes over."""
    if isinstance(files, ast.Name):
        for binding in script.lookup(files):
            if binding.how == "iterates" and binding.value is not None:
                value = binding.value
                if (
                    isinstance(value, ast.Call)
                    and value.args
                    and not script.paths(value.func).isdisjoint({"tqdm.tqdm"})
                ):
                    value = value.args[0]
                return value
    return files


def _reads_json_lines(script: Script, call: ast.Call) -> bool:
    mode = call.args[1] if len(call.args) > 1 else keyword(call, "mode")
    reads = mode is None or (isinstance(mode, ast.Constant) and "r" in str(mode.value))
    return reads and any(script.stands_for(other.func, {"json.loads", "orjson.loads"}) for other in script.calls)


def _refuse_selections(script: Script, hint: str) -> None:
    """Refuse a script that leaves documents out, orders them or changes them in a way of its own."""
    maps = []
    for call in script.calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        paths = script.paths(call.func)
        of_data = not paths or any(path.startswith("datasets.") or path.endswith(".shuffle") for path in paths)
        if method == "map" and of_data:
            maps.append(call)
        elif method in _SELECTS and of_data and keyword(call, "num_shards") is None:
            what = f"`.{method}(...)` chooses, orders or renames what is prepared"
            raise untellable(script, call, what, f"{hint} --where CONDITION, --limit-documents N or --shuffle SEED")
    if len(maps) > 1:
        raise untellable(script, maps[1], "the documents go through a second function", hint)
    for node in script.nodes:
        if isinstance(node, ast.Break | ast.Continue):
            raise untellable(script, node, "documents may be left out here", f"{hint} --where CONDITION")


def _tokenizer(script: Script, calls: list[ast.Call], hint: str) -> Value:
    names = {script.text(call.args[0]): call for call in calls if call.args}
    if len(names) != 1:
        what = "no tokenizer is loaded" if not names else f"several tokenizers are loaded: {', '.join(names)}"
        raise RecipeError(f"`{script.filename}`: {what}", hint=f"{hint} --tokenizer NAME")
    call = next(iter(names.values()))
    name = tokenizer_argument(script, call)
    if name is None and constant(script, call.args[0]) in ("gpt2", "openai-community/gpt2"):
        name = '"gpt2"'
    if name is None:
        what = "which tokenizer this is cannot be told"
        raise untellable(script, call, what, f"{hint} --tokenizer path/to/tokenizer.json")
    # The expression itself where it is one: its names are looked up where the new call stands.
    return call.args[0] if name == script.text(call.args[0]) else name


def _text_column(script: Script, hint: str) -> str:
    """The column that is encoded, as it is: what changes the text on the way cannot be told in a recipe."""
    columns: set[str] = set()
    for call in script.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name not in ("encode", "encode_ordinary", "encode_batch", "encode_ordinary_batch") or not call.args:
            continue
        for value in script.values(call.args[0]):
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
                columns.add(str(value.slice.value))
            elif isinstance(value, ast.Call | ast.BinOp | ast.JoinedStr):
                raise untellable(script, value, "the text is changed before it is encoded", hint)
    if len(columns) > 1:
        raise RecipeError(f"`{script.filename}`: several columns are encoded: {', '.join(sorted(columns))}", hint=hint)
    return columns.pop() if columns else "text"


def _end_of_text(script: Script, shard_format: str) -> dict[str, Value]:
    """Where the script puts end-of-text, unless it is where the format has it."""
    places = set()
    for node in script.nodes:
        match node:
            case ast.Call(ast.Attribute(owner, "append"), [value]) if _is_eot(script, value):
                places.add("first" if _grows_after(script, node, owner) else "last")
            case ast.List([first, *_], ast.Load()) if _is_eot(script, first):
                parent = script.parents[node]
                places.add("last" if isinstance(parent, ast.BinOp) and parent.right is node else "first")
    if len(places) > 1:
        raise RecipeError(
            f"`{script.filename}`: end-of-text stands on both sides of a document", hint="write `eot=` by hand"
        )
    place = places.pop() if places else "none"
    return {} if place == ("last" if "nanogpt" in shard_format else "first") else {"eot": f'"{place}"'}


def _grows_after(script: Script, append: ast.Call, owner: ast.expr) -> bool:
    """Whether more is put behind what was appended, in the lines that follow: `all.append(eot); all.extend(tokens)`."""
    statement = script.parents[append]
    blocks = [block for _, block in ast.iter_fields(script.parents[statement]) if isinstance(block, list)]
    block = next((block for block in blocks if statement in block), [statement])
    name = re.escape(ast.unparse(owner))
    return any(re.match(rf"{name}(\.extend\(| \+= )", ast.unparse(s)) for s in block[block.index(statement) + 1 :])


def _is_eot(script: Script, node: ast.expr) -> bool:
    text = " ".join(ast.unparse(value) for value in [node, *script.values(node)])
    return re.search(r"eot|eos|endoftext|50256|bos_token", text) is not None


def _workers(script: Script) -> ast.expr | None:
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "map" and worker_count(script, call) is not None:
            return keyword(call, "num_proc")
        if matches(script, call.func, POOL):
            return call.args[0] if call.args else keyword(call, "processes")
    return None


def constant(script: Script, node: ast.expr | None) -> object:
    """The one constant that the expression stands for, or None."""
    values = script.values(node) if node is not None else []
    return values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else None


def _shown(script: Script, value: Value) -> str:
    return value if isinstance(value, str) else script.text(value)
