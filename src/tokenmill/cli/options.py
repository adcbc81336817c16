"""What `prepare` and `plan` are asked: the options of the recipe, and how they come together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tokenmill.cli import suggestions
from tokenmill.errors import OutputError
from tokenmill.recipe import Recipe, RunOptions, parse_bytes, recipe_from_mapping, toml_mapping
from tokenmill.sources.catalog import chosen_by_default
from tokenmill.storage.addresses import is_address


class Place(click.ParamType[Path | str]):
    """A folder, or an address, which a Path would spoil."""

    name = "place"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        return value if is_address(str(value)) else Path(value)


class Folder(click.Path):
    """A file or folder of this machine; an address is told what to do."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_address(str(value)):
            raise OutputError(
                f"`{value}` is elsewhere, and this command works on files of this machine",
                hint=f"fetch it first: `tokenmill download {value} --to DIR`",
            )
        return super().convert(value, param, ctx)


OPTIONS = [
    click.argument("sources", nargs=-1, metavar="SOURCE...", shell_complete=suggestions.sources),
    click.option(
        "-o",
        "--out",
        required=True,
        type=Place(),
        help="The folder that shards go to, or s3://BUCKET/path, gs:// or az://.",
    ),
    click.option(
        "--tokenizer",
        shell_complete=suggestions.tokenizers,
        help="gpt2, r50k_base, p50k_base, cl100k_base, o200k_base; a tokenizer.json or its folder;"
        " a .tiktoken rank file; or package.module:attribute.  [default: gpt2]",
    ),
    click.option(
        "--pattern",
        metavar="NAME",
        shell_complete=suggestions.tokenizers,
        help="For a rank file: the tokenizer whose pattern splits the text.",
    ),
    click.option(
        "--format",
        shell_complete=suggestions.formats,
        help="nanogpt, llmc, npy, megatron, datatrove, olmo, litdata, mds or parquet: see `tokenmill formats`."
        "  [default: nanogpt]",
    ),
    click.option(
        "--version",
        shell_complete=suggestions.versions,
        metavar="NAME",
        help="Which version of a corpus that is known by name: see `tokenmill datasets`.  [default: of the corpus]",
    ),
    click.option(
        "--text-column",
        help="The column or JSON field that holds the text.  [default: of a corpus that is known by name; else text]",
    ),
    click.option("--name", help="What shard files are called, where the format leaves it open."),
    click.option("--shard-tokens", metavar="N", help="Tokens in a shard, such as 100M.  [default: of the format]"),
    click.option(
        "--sequence-length",
        metavar="N",
        help="Tokens in a sample, for mds, whose samples are of one length.  [default: 2048]",
    ),
    click.option(
        "--val",
        metavar="SPEC",
        help="What is for validation: a fraction (0.0005), a number of documents (1000), `shard` (the first one)"
        " or `none`.  [default: 0.0005 for nanogpt, shard for llmc and npy, else none]",
    ),
    click.option(
        "--shuffle",
        metavar="SEED",
        help="Put documents in the random order of this seed; `numpy:SEED` for nanoGPT's own permutation."
        "  [default: numpy:2357 for nanogpt]",
    ),
    click.option(
        "--no-shuffle", is_flag=True, help="Keep documents in the order of the corpus.  [default for llmc, npy]"
    ),
    click.option(
        "--eot",
        type=click.Choice(["first", "last", "none"]),
        help="Where each document gets its end-of-text token.  [default: last for nanogpt, first for llmc and npy]",
    ),
    click.option(
        "--eot-token",
        metavar="NAME|ID",
        help="The end-of-text token, where the vocabulary has more than one that could be.",
    ),
    click.option(
        "--separator",
        metavar="STRING",
        help="What stands between documents in plain text.  [default: <|endoftext|>, where the file has it]",
    ),
    click.option(
        "--documents",
        type=click.Choice(["file", "line", "paragraph"]),
        help="How plain text splits into documents, other than by a separator.",
    ),
    click.option(
        "--where", metavar="FILTER", help="Take rows for which this holds: \"int_score >= 3 and language == 'en'\"."
    ),
    click.option("--min-chars", metavar="N", help="Leave out documents of fewer characters."),
    click.option("--max-chars", metavar="N", help="Leave out documents of more characters."),
    click.option("--limit-documents", metavar="N", help="Take the first N documents of the corpus."),
    click.option(
        "--limit-tokens", metavar="N", help="Take as many whole documents as have no more than N tokens together."
    ),
    click.option(
        "--on-bad-document",
        type=click.Choice(["fail", "skip"]),
        help="What to do with a record that is broken (JSON, UTF-8, missing field): fail, or skip, count and list it."
        "  [default: fail]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Worker processes.  [default: one for each core that the CPU quota allows]",
    ),
    click.option(
        "--disk-budget",
        metavar="SIZE",
        help="Disk that files from elsewhere may take at a time, such as 20GB."
        "  [default: four of the largest, at least 1GB]",
    ),
    click.option("--keep-downloads", is_flag=True, help="Keep them, in OUT/downloads."),
    click.option(
        "--scratch-budget",
        metavar="SIZE",
        help="Refuse beforehand what needs more disk than that beside its output.  [default: what is free]",
    ),
    click.option(
        "--scratch", metavar="DIR", help="Where a run works whose output is in a store.  [default: ~/.cache/tokenmill]"
    ),
    click.option(
        "--recipe",
        "recipe_file",
        type=click.Path(path_type=Path),
        help="A TOML file with these options; flags override it.",
    ),
]


def recipe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that describe a run."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def run_options(
    workers: int | None,
    disk_budget: str | None,
    keep_downloads: bool,
    scratch_budget: str | None,
    scratch: str | None,
    **more: Any,
) -> RunOptions:
    return RunOptions(
        workers=workers,
        disk_budget=parse_bytes(disk_budget) if disk_budget else None,
        keep_downloads=keep_downloads,
        scratch_budget=parse_bytes(scratch_budget) if scratch_budget else None,
        scratch=scratch,
        **more,
    )


def recipe_from_flags(
    sources: tuple[str, ...], recipe_file: Path | None, no_shuffle: bool, flags: dict[str, Any], quiet: bool = False
) -> Recipe:
    """Put a recipe together from a file, if there is one, and the flags, which override it.

    Unless `quiet`, the version of a corpus that nobody named is said on stderr.
    """
    if no_shuffle and flags["shuffle"]:
        raise click.UsageError("`--shuffle` and `--no-shuffle` exclude each other")
    if flags["separator"] is not None and flags["documents"]:
        raise click.UsageError("`--separator` and `--documents` exclude each other")
    mapping: dict[str, Any] = toml_mapping(recipe_file) if recipe_file else {}
    given = {name: value for name, value in flags.items() if value is not None}
    if sources:
        given["sources"] = list(sources)
    if no_shuffle:
        given["shuffle"] = "none"
    if "separator" in given or "documents" in given:  # one of them overrides the other in the file
        mapping = {name: value for name, value in mapping.items() if name not in ("separator", "documents")}
    mapping |= given
    if "sources" not in mapping:
        raise click.UsageError("no SOURCE given: a file, a folder, a glob, or the name of a corpus such as `sample`")
    recipe = recipe_from_mapping(mapping, where=f"`{recipe_file}`" if recipe_file else "the options")
    if not quiet and "version" not in mapping:
        named = mapping["sources"]
        for chosen in chosen_by_default([named] if isinstance(named, str) else named):
            click.echo(f"note: version {chosen.version} of {chosen.name}; choose with `--version`", err=True)
    return recipe
