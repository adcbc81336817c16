"""The code -> docs/reference/*.md: commands, recipe, manifest, formats, errors, Python.

    python tools/reference.py            writes the pages
    python tools/reference.py --check    exits with 1 if one of them is out of date

Nothing here is worded twice: help texts, docstrings and the comments behind fields are what the pages say.
"""

from __future__ import annotations

import inspect
import re
import sys
import tokenize
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import msgspec

import tokenmill
from tokenmill import errors, manifest
from tokenmill.cli import cli
from tokenmill.cli import main as command_line
from tokenmill.cli.prepare import prepare
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.shards import format_named, format_names
from tokenmill.shards.receipts import FileReceipt, ShardReceipt

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
MADE = "<!-- Made by tools/reference.py from the code: `make reference` makes it again. -->\n\n"
# In the order in which somebody comes to need them.
PYTHON = ["prepare", "open_shards", "verify", "convert", "merge", "forecast", "Tokenizer", "imap", "prepare_recipe"]


def pages() -> dict[str, str]:
    """Every page of the reference, by its file name."""
    made = {
        "commands.md": commands_page(),
        "recipe.md": recipe_page(),
        "manifest.md": manifest_page(),
        "formats.md": formats_page(),
        "errors.md": errors_page(),
        "python.md": python_page(),
    }
    return {name: MADE + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" for name, text in made.items()}


# Commands: from click.


def commands_page() -> str:
    parts = ["# Commands", "Every command and flag, as `--help` shows them. The links lead to the pages that explain."]
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=name, parent=click.Context(cli, info_name="tokenmill"))
        parts += [f"## {name}", f"```text\n{' '.join(command.get_usage(context).split())}\n```"]
        parts += [help_text(command.help or ""), option_table(command, context), f"More: [{name}](../{name}.md)."]
    return "\n\n".join(parts)


def help_text(text: str) -> str:
    """A command's help: prose as it is, the examples behind click's mark as a block."""
    prose, _, examples = inspect.cleandoc(text).partition("\b\n")
    if not examples:
        return escaped(prose)
    lines = examples.splitlines()[1:]
    return escaped(prose) + "\n```sh\n" + "\n".join(line.strip() for line in lines) + "\n```"


def option_table(command: click.Command, context: click.Context) -> str:
    rows = []
    for option in command.params:
        if isinstance(option, click.Option):
            flags = ", ".join(f"`{flag}`" for flag in option.opts)
            rows.append([flags, value_of(option, context), cell(option.help or "")])
    return table(["flag", "value", "meaning"], rows) if rows else ""


def value_of(option: click.Option, context: click.Context) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in option.type.choices)
    metavar = "N" if "RANGE" in option.make_metavar(context) else option.make_metavar(context)
    return f"`{cell(metavar)}`"


# Recipe and manifest: from the structs, and the comments behind their fields.


def recipe_page() -> str:
    return "\n\n".join(
        [
            "# Recipe",
            "The fields of a recipe: keys of a file for [`--recipe`](../prepare.md), arguments of `tokenmill.Recipe`,"
            " and what `recipe` holds in a [manifest](manifest.md). An unknown key is an error. `null` takes the"
            " default of the [format](formats.md). In a file, counts may be written as `100M`, and `version` may stand"
            " beside the name of a [corpus](../datasets.md).",
            *struct_section(Recipe),
            *struct_section(RunOptions),
        ]
    )


def manifest_page() -> str:
    structs = [
        manifest.Manifest,
        manifest.TokenizerRecord,
        manifest.Totals,
        ShardReceipt,
        FileReceipt,
        manifest.InputRecord,
        manifest.ExcludedRecord,
        manifest.ParentRecord,
        manifest.RunRecord,
    ]
    return "\n\n".join(
        [
            "# Manifest schema",
            f"`manifest.json`, schema {manifest.SCHEMA}: an object with the fields of Manifest."
            " What it is for: [the manifest](../manifest.md).",
            *(part for struct in structs for part in struct_section(struct)),
        ]
    )


def struct_section(struct: type[msgspec.Struct]) -> list[str]:
    comments, help_texts = (
        field_comments(struct),
        {option.name: getattr(option, "help", "") for option in prepare.params},
    )
    rows = []
    for field in msgspec.structs.fields(struct):
        default = "" if field.required else f"`{msgspec.json.encode(field.default).decode()}`"
        meaning = comments[field.name] or (help_texts.get(field.name) if struct in (Recipe, RunOptions) else "") or ""
        rows.append([f"`{field.name}`", f"`{cell(type_name(struct, field.name))}`", default, cell(meaning)])
    head = ["field", "type", "default", "meaning"]
    if not any(row[2] for row in rows):
        rows, head = [[*row[:2], row[3]] for row in rows], ["field", "type", "meaning"]
    return [f"## {struct.__name__}", escaped(vars(struct).get("__doc__") or ""), table(head, rows)]


def type_name(struct: type, field: str) -> str:
    """The type as the source spells it."""
    found = re.search(rf"^    {field}: ([^=#\n]+)", inspect.getsource(struct), flags=re.MULTILINE)
    assert found is not None
    if literal := re.fullmatch(r"Literal\[(.*)\]", found[1].strip()):
        return literal[1].replace(", ", " | ")
    module = inspect.getmodule(struct)
    return re.sub(r"\b[A-Z]\w+\b", lambda word: choices_of(getattr(module, word[0], None)) or word[0], found[1].strip())


def choices_of(value: Any) -> str | None:
    return " | ".join(f'"{choice}"' for choice in get_args(value)) if get_origin(value) is Literal else None


def field_comments(struct: type) -> dict[str, str]:
    """What stands behind each field, or above it on lines of its own."""
    comments: dict[str, str] = {}
    above: list[str] = []
    name = ""
    for token in tokenize.generate_tokens(StringIO(inspect.getsource(struct)).readline):
        text = token.string.lstrip("# ")
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            above.append(text)
        elif token.type == tokenize.COMMENT and name:
            comments[name] = text
        elif token.type == tokenize.NAME and token.start[1] == 4 and re.match(r"\s*\w+:", token.line):
            name = token.string
            comments[name] = " ".join(above)
            above = []
        elif token.type == tokenize.NAME and token.string == "def":
            break
    return comments


# Formats and errors.


def formats_page() -> str:
    rows = []
    for name in format_names():
        made = format_named(name)
        eot, shard_tokens, val, shuffle, *_ = made.defaults
        tokens = f"{shard_tokens:,}" if shard_tokens else "one file a split"
        rows.append([f"[`{name}`](#{name})", made.trainers, eot, str(val), shuffle, tokens, made.cut])
    head = ["format", "trainers", "end-of-text", "val", "shuffle", "tokens a shard", "cut"]
    parts = [
        "# Format layouts",
        "The bytes of every format, as the module that writes it draws them, and its defaults."
        " Which one for which trainer: [formats](../formats.md).",
        table(head, rows),
    ]
    for name in format_names():
        drawing = inspect.getdoc(inspect.getmodule(type(format_named(name)))) or ""
        parts += [f"## {name}", f"```text\n{drawing}\n```"]
    return "\n\n".join(parts)


def errors_page() -> str:
    codes = (inspect.getdoc(command_line) or "").partition("\n\n")[2]
    rows = [re.match(r"([\d, ]+)(.*)", " ".join(part.split())) for part in re.split(r"[;,] (?=\d)", codes.rstrip("."))]
    drawn, _, rest = (inspect.getdoc(errors) or "").partition("\n\n")[2].rpartition("\n\n")
    return "\n\n".join(
        [
            "# Errors and exit codes",
            "An error goes to stderr: what is wrong and where, and a hint with the flag or command that helps."
            " A traceback means a bug, or `-v`.",
            table(["exit code", "meaning"], [[row[1].strip(" ,"), row[2]] for row in rows if row]),
            "From Python the same errors are raised as these classes of `tokenmill.errors`,"
            " each with `message`, `hint` and `exit_code`:",
            f"```text\n{inspect.cleandoc(drawn)}\n```",
            escaped(rest),
        ]
    )


# Python.


def python_page() -> str:
    others = [name for name in tokenmill.__all__ if name not in PYTHON and not name.startswith("__")]
    parts = [
        "# Python API",
        "The public names of `tokenmill`. Examples: [from Python](../python.md). Fields of Recipe and RunOptions:"
        " [recipe](recipe.md); of Manifest: [manifest](manifest.md).",
    ]
    for name in [*PYTHON, *others]:
        parts += [f"## {name}", *described(getattr(tokenmill, name), name)]
    return "\n\n".join(parts)


def described(value: Any, name: str) -> list[str]:
    doc = escaped(
        inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value) or ""
    )
    if not inspect.isclass(value):
        return [signature(value, name), doc]
    parts = [doc]
    if name not in ("Recipe", "RunOptions", "Manifest"):  # which have a page of their own
        parts.insert(0, signature(value, name))
    members = [(key, member) for key, member in vars(value).items() if is_public(key, member)]
    rows = [[f"`{cell(heading(key, member))}`", cell(first_line(member))] for key, member in members]
    return [*parts, table(["member", "is"], rows)] if rows else parts


def is_public(key: str, member: Any) -> bool:
    return not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, property | classmethod))


def heading(key: str, member: Any) -> str:
    if isinstance(member, property):
        return f"{key}: {plain(str(member.fget.__annotations__.get('return', 'Any')))}"
    function = member.__func__ if isinstance(member, classmethod) else member
    shown = re.sub(r"^\((self|cls)(, )?", "(", plain(str(inspect.signature(function))))
    return key + shown


def first_line(member: Any) -> str:
    function = member.fget if isinstance(member, property) else member
    return (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")


def signature(value: Any, name: str) -> str:
    """A call with a line for each parameter where one line would be too long."""
    found = inspect.signature(value)
    parameters = [plain(str(parameter)) for parameter in found.parameters.values()]
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in found.parameters.values()):
        first = next(i for i, one in enumerate(found.parameters.values()) if one.kind is one.KEYWORD_ONLY)
        parameters.insert(first, "*")
    returned = found.return_annotation
    end = "" if inspect.isclass(value) or returned is inspect.Signature.empty else f" -> {plain(str(returned))}"
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){end}"
    return f"```text\n{line}\n```"


def plain(text: str) -> str:
    """Annotations without quotes and module names."""
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"""(: |-> )(['"])(.*?)\2(?= =|,|\)|$)""", r"\1\3", text)
    text = re.sub(r"\b(?:tokenmill|collections|typing|pathlib)(?:\.\w+)*\.(\w+)", r"\1", text)
    return text.replace("Optional[Literal['first', 'last', 'none']]", "Eot | None")


# Markdown.


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    return " ".join(escaped(text).split()).replace("|", "\\|")


def escaped(text: str) -> str:
    """Text in which angle brackets outside of backticks stay what they are."""
    parts = text.split("`")
    return "`".join(
        part if i % 2 else part.replace("<", "&lt;").replace("[default", "\\[default") for i, part in enumerate(parts)
    )


def main() -> int:
    made = pages()
    if "--check" not in sys.argv:
        for name, text in made.items():
            (FOLDER / name).write_text(text)
        return 0
    stale = [name for name, text in made.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text]
    if stale:
        print(f"out of date: {', '.join(stale)}; run `make reference`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
