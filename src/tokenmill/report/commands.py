"""A manifest -> the command that makes the same output again, and the one that checks it."""

from __future__ import annotations

import shlex
from pathlib import Path

from tokenmill.errors import RecipeError
from tokenmill.manifest import Manifest
from tokenmill.recipe import Recipe
from tokenmill.shards import format_named
from tokenmill.tokenizers import Tokenizer

# Options of `prepare` that go by the name of their field, and the value that goes without saying.
PLAIN = {
    "tokenizer": "gpt2",
    "pattern": None,
    "format": "nanogpt",
    "text_column": "text",
    "separator": None,
    "where": None,
    "min_chars": None,
    "max_chars": None,
    "limit_documents": None,
    "limit_tokens": None,
    "on_bad_document": "fail",
}
OF_FORMAT = ("name", "shard_tokens", "sequence_length", "val", "eot")
OF_TARGET = ("name", "shard_tokens", "sequence_length", "eot")  # of `convert` and `merge`


def reproducing_command(manifest: Manifest, out: Path) -> str:
    """The command line that makes these shards again, from the same files."""
    recipe = manifest.recipe
    if manifest.parents:
        words = ["convert" if len(manifest.parents) == 1 else "merge", *(parent.path for parent in manifest.parents)]
        flags = [*flag("format", recipe.format), *format_flags(recipe, OF_TARGET)]
    else:
        words = ["prepare", *recipe.sources]
        flags = prepare_flags(recipe)
    return shlex.join(["tokenmill", *words, "-o", str(out), *flags])


def checking_command(out: Path) -> str:
    return shlex.join(["tokenmill", "verify", str(out)])


def prepare_flags(recipe: Recipe) -> list[str]:
    flags = []
    for name, usual in PLAIN.items():
        if (value := getattr(recipe, name)) != usual:
            flags += flag(name, value)
    if recipe.documents not in ("auto", "separator"):
        flags += flag("documents", recipe.documents)
    flags += format_flags(recipe, OF_FORMAT)
    if recipe.shuffle != format_named(recipe.format).defaults.shuffle:
        flags += shuffle_flags(str(recipe.shuffle))
    if recipe.eot != "none" and recipe.eot_token != usual_eot(recipe):
        flags += flag("eot_token", recipe.eot_token)
    return flags


def format_flags(recipe: Recipe, names: tuple[str, ...]) -> list[str]:
    """Options whose default is the format's."""
    defaults = format_named(recipe.format).defaults
    return [
        word
        for name in names
        if getattr(recipe, name) not in (None, getattr(defaults, name))
        for word in flag(name, getattr(recipe, name))
    ]


def flag(name: str, value: object) -> list[str]:
    return [f"--{name.replace('_', '-')}", str(value)]


def shuffle_flags(shuffle: str) -> list[str]:
    return ["--no-shuffle"] if shuffle == "none" else ["--shuffle", shuffle.removeprefix("keyed:")]


def usual_eot(recipe: Recipe) -> int | None:
    """The end-of-text that nobody must name."""
    try:
        return Tokenizer(recipe.tokenizer, recipe.pattern).eot_token
    except RecipeError:  # several could be, or the tokenizer is gone
        return None
