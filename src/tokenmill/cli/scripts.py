"""The command lines of `data/fineweb/prepare.py` and `prepare_fineweb.py`.

Flags are spelled as in nanoGPT's and llm.c's scripts, with underscores; hyphens are taken too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli.display import progress_display
from tokenmill.cli.prepare import summary
from tokenmill.cli.signals import stoppable
from tokenmill.recipe import ExecutorName, Recipe, RunOptions, parse_bytes, parse_count, recipe_from_mapping
from tokenmill.sources.catalog import corpus_source

if TYPE_CHECKING:
    from tokenmill.scripts.fineweb_layouts import FinewebType

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
FILE_NAMES = {"edu": "edu_fineweb", "classic": "fineweb"}  # of shards, as llm.c's script calls them


def shared_options(folder: Path) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of both scripts."""
    options = [
        click.option(
            "--tokenizer",
            help="gpt2, cl100k_base, o200k_base ..., or whatever `tokenmill prepare --tokenizer` takes."
            "  [default: gpt2]",
        ),
        click.option(
            "--num_proc",
            "--num-proc",
            "num_proc",
            type=click.IntRange(min=1),
            help="Worker processes.  [default: one for each core]",
        ),
        click.option(
            "--out",
            "-o",
            type=click.Path(path_type=Path),
            default=folder,
            help="The folder for the files.  [default: that of the script; with `python -m` the current one]",
        ),
        click.option("--text_column", "--text-column", "text_column", help="The column of the text.  [default: text]"),
        click.option("--separator", metavar="STRING", help="What stands between documents in plain text."),
        click.option(
            "--documents",
            type=click.Choice(["file", "line", "paragraph"]),
            help="How plain text splits into documents, other than by a separator.",
        ),
        # What the errors of both may point to.
        click.option("--pattern", help="How a `.tiktoken` rank file splits text: a pattern, or the name of one."),
        click.option(
            "--eot_token", "--eot-token", "eot_token", help="End-of-text, by name or id, where it is not told."
        ),
        click.option(
            "--on_bad_document",
            "--on-bad-document",
            "on_bad_document",
            type=click.Choice(["fail", "skip"]),
            help="What to do with a broken record.  [default: fail]",
        ),
    ]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def prepare_command(folder: Path) -> click.Command:
    """Return the command of prepare.py, whose files go to `folder` by default."""

    @click.command("prepare.py", context_settings=CONTEXT)
    @click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="FILE|DIR|GLOB",
        help="Text, JSONL, Parquet or Arrow; may be given again.  [default: the sample that ships with tokenmill]",
    )
    @shared_options(folder)
    def prepare(inputs: tuple[str, ...], num_proc: int | None, out: Path, **fields: Any) -> int:
        """Turn a corpus into nanoGPT's train.bin and val.bin by `datasets.map`.

        `--num_proc 1` works in this process, any other number in that many workers. What `datasets` has cached is
        used again. The bytes are those of nanoGPT's own script.

        \b
        Examples:
            python prepare.py --input corpus.txt --separator '<|endoftext|>' --num_proc 8
            python prepare.py --input 'crawl/*.parquet' --tokenizer cl100k_base --out data
        """
        return carry_out(script_recipe(inputs or ("sample",), fields), out, num_proc, "datasets")

    return prepare


def prepare_fineweb_command(folder: Path) -> click.Command:
    """Return the command of prepare_fineweb.py, whose files go to `folder` by default."""
    from tokenmill.scripts.fineweb_layouts import VERSIONS

    @click.command("prepare_fineweb.py", context_settings=CONTEXT)
    @click.option(
        "--version", "-v", type=click.Choice(list(VERSIONS)), default="10B", show_default=True, help="Which sample."
    )
    @click.option(
        "--type",
        "-t",
        "kind",
        type=click.Choice(["edu", "classic"]),
        help="FineWeb-Edu or FineWeb.  [default: what the folder is; edu where it does not say]",
    )
    @click.option(
        "--input",
        "source",
        type=click.Path(path_type=Path),
        help="Shards on disk: a download of the Hub repository, the Hugging Face cache, or a plain folder of shards."
        "  [default: the sample on the Hub]",
    )
    @click.option(
        "--format",
        "shard_format",
        type=click.Choice(["nanogpt", "llmc"]),
        default="nanogpt",
        show_default=True,
        help="train.bin and val.bin, or llm.c's shards.",
    )
    @click.option(
        "--shard_size",
        "--shard-size",
        "--shard-tokens",  # the name in hints
        "-s",
        "shard_size",
        metavar="N",
        help="Tokens in a shard of llmc.  [default: 100M]",
    )
    @click.option(
        "--disk_budget",
        "--disk-budget",
        "disk_budget",
        metavar="SIZE",
        help="Disk that files from the Hub may take at a time.  [default: four of the largest]",
    )
    @shared_options(folder)
    def prepare_fineweb(
        version: str,
        kind: FinewebType | None,
        source: Path | None,
        shard_format: str,
        shard_size: str | None,
        disk_budget: str | None,
        num_proc: int | None,
        out: Path,
        **fields: Any,
    ) -> int:
        """Turn FineWeb's shards into the files of nanoGPT or llm.c, straight from Parquet or Arrow.

        \b
        Examples:
            python prepare_fineweb.py --type edu --version 10B
            python prepare_fineweb.py --version 10B --input fineweb-edu
            python prepare_fineweb.py --version 10B --input ~/.cache/huggingface/hub --format llmc --out edu_fineweb10B
        """
        if shard_format == "nanogpt" and shard_size is not None:
            raise click.UsageError("`--shard_size` is for `--format llmc`: nanoGPT has one file for each split")
        recipe = fineweb_recipe(source, version, kind, shard_format, shard_size, fields)
        return carry_out(recipe, out, num_proc, "processes", disk_budget)

    return prepare_fineweb


def fineweb_recipe(
    source: Path | None,
    version: str,
    kind: FinewebType | None,
    shard_format: str,
    shard_size: str | None,
    fields: dict[str, Any],
) -> Recipe:
    """The recipe for a sample of FineWeb: that in a folder, or else the one on the Hub."""
    from tokenmill.scripts.fineweb_layouts import REPOSITORIES, fineweb_shards

    if source is None:
        kind = kind or "edu"
        place = corpus_source(REPOSITORIES[kind], version).source
    else:
        shards = fineweb_shards(source.expanduser(), version, kind)
        kind, place = shards.type, str(shards.folder)
    if shard_format == "llmc":
        fields = fields | {"name": FILE_NAMES[kind], "shard_tokens": shard_size and parse_count(shard_size)}
    return script_recipe((place,), fields | {"format": shard_format})


def script_recipe(sources: tuple[str, ...], fields: dict[str, Any]) -> Recipe:
    if fields["separator"] is not None and fields["documents"]:
        raise click.UsageError("`--separator` and `--documents` exclude each other")
    given = {name: value for name, value in fields.items() if value is not None}
    return recipe_from_mapping({"sources": list(sources), **given}, where="the options")


def carry_out(
    recipe: Recipe, out: Path, num_proc: int | None, executor: ExecutorName, disk_budget: str | None = None
) -> int:
    """Do the work, show how far it is, and say what was made: as `tokenmill prepare` does."""
    from tokenmill.mill import prepare_recipe

    already_done = (out / "manifest.json").exists()
    budget = parse_bytes(disk_budget) if disk_budget else None
    options = RunOptions(workers=num_proc, executor=executor, disk_budget=budget)
    # A map of `datasets` that hangs is freed by Python's own interrupt.
    signals = stoppable if executor == "processes" else nullcontext
    with progress_display("auto") as show, signals(show) as on_progress:
        manifest = prepare_recipe(recipe, out, options, on_progress)
    click.echo(summary(manifest, out, already_done, verbose=False))
    return 4 if manifest.excluded else 0
