"""The commands of a page of Markdown, in order: indented lines, and fenced blocks of sh, console and python."""

import inspect
import re
from typing import NamedTuple

PROGRAMS = ("tokenmill", "python", "torchrun", "hf", "pip", "make", "sha256sum")
# Words that stand for something else: such a line says how a command is spelled, and nobody types it.
FORM = re.compile(r"\[|\.\.\.|…|<Tab>|\w\|\w|\b(SOURCE|OUT|OUT\d|IN|PATH|DIR|FILES|FOLDER|SCRIPT\.py|OWNER|F)\b")


class Command(NamedTuple):
    language: str  # sh or python
    code: str
    line: int
    file: str = "example.py"  # what the page calls a block of Python


def commands_of(text: str) -> list[Command]:
    found: list[Command] = []
    lines = iter(enumerate(text.splitlines(), 1))
    before = ""  # the last line with something on it
    for number, line in lines:
        if fence := re.match(r"```(\w*)", line):
            code = []
            for _, inner in lines:
                if inner.startswith("```"):
                    break
                code.append(inner)
            marked = before.startswith("<!-- ")  # has a test of its own
            if fence[1] in ("sh", "python") and not marked:
                named = re.search(r"[Ii]n `(\w+\.py)`:$", before)
                found.append(Command(fence[1], "\n".join(code) + "\n", number, named[1] if named else "example.py"))
            elif fence[1] == "console":
                found += [Command("sh", inner[2:], number) for inner in code if inner.startswith("$ ")]
        elif line.startswith("    ") and (code := typed(line.strip())):
            found.append(Command("sh", code, number))
        before = line or before
    return found


def typed(line: str) -> str | None:
    """What of an indented line somebody would type, if it is a command."""
    code = re.split(r"\s{2,}", line.removeprefix("$ "))[0]
    words = [word for word in code.split() if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    return code if words and words[0] in PROGRAMS and not FORM.search(code) else None


def help_examples(text: str) -> list[Command]:
    """The examples of a command's help."""
    return commands_of("\n".join(inspect.cleandoc(text).splitlines()))
