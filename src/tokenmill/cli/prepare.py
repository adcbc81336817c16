"""`tokenmill prepare`."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli.display import progress_display
from tokenmill.cli.words import count, duration, eot_place, order_of, plural, size
from tokenmill.errors import TokenmillError
from tokenmill.recipe import RunOptions, recipe_from_mapping, toml_mapping

if TYPE_CHECKING:
    from tokenmill.manifest import Manifest


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The folder that shards go to.")
@click.option(
    "--tokenizer",
    help="gpt2, r50k_base, p50k_base, cl100k_base, o200k_base; a tokenizer.json or its folder; a .tiktoken rank file;"
    " or package.module:attribute.  [default: gpt2]",
)
@click.option("--pattern", metavar="NAME", help="For a rank file: the tokenizer whose pattern splits the text.")
@click.option("--format", help="nanogpt, llmc or npy: see `tokenmill formats`.  [default: nanogpt]")
@click.option("--text-column", help="The column or JSON field that holds the text.  [default: text]")
@click.option("--name", help="What shard files are called (llmc, npy).  [default: fineweb]")
@click.option("--shard-tokens", metavar="N", help="Tokens in a shard (llmc, npy), such as 100M.  [default: 100M]")
@click.option(
    "--val",
    metavar="SPEC",
    help="What is for validation: a fraction (0.0005), a number of documents (1000), `shard` (the first one) or `none`."
    "  [default: 0.0005 for nanogpt, shard for llmc and npy]",
)
@click.option(
    "--shuffle",
    metavar="SEED",
    help="Put documents in the random order of this seed; `numpy:SEED` for nanoGPT's own permutation."
    "  [default: numpy:2357 for nanogpt]",
)
@click.option("--no-shuffle", is_flag=True, help="Keep documents in the order of the corpus.  [default for llmc, npy]")
@click.option(
    "--eot",
    type=click.Choice(["first", "last", "none"]),
    help="Where each document gets its end-of-text token.  [default: last for nanogpt, first for llmc and npy]",
)
@click.option(
    "--eot-token",
    metavar="NAME|ID",
    help="The end-of-text token, where the vocabulary has more than one that could be.",
)
@click.option(
    "--separator",
    metavar="STRING",
    help="What stands between documents in plain text.  [default: <|endoftext|>, where the file has it]",
)
@click.option(
    "--documents",
    type=click.Choice(["file", "line", "paragraph"]),
    help="How plain text splits into documents, other than by a separator.",
)
@click.option(
    "--where", metavar="FILTER", help="Take rows for which this holds: \"int_score >= 3 and language == 'en'\"."
)
@click.option("--min-chars", metavar="N", help="Leave out documents of fewer characters.")
@click.option("--max-chars", metavar="N", help="Leave out documents of more characters.")
@click.option("--limit-documents", metavar="N", help="Take the first N documents of the corpus.")
@click.option(
    "--limit-tokens", metavar="N", help="Take as many whole documents as have no more than N tokens together."
)
@click.option(
    "--on-bad-document",
    type=click.Choice(["fail", "skip"]),
    help="What to do with a record that is broken (JSON, UTF-8, missing field): fail, or skip, count and list it."
    "  [default: fail]",
)
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes.  [default: one for each core]")
@click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(path_type=Path),
    help="A TOML file with these options; flags override it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON on stdout, and nothing else there.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "jsonl", "off"]),
    default="auto",
    help="How to show progress on stderr.  [default: auto]",
)
@click.option("-q", "--quiet", is_flag=True, help="Neither progress nor summary.")
@click.option("-v", "--verbose", is_flag=True, help="More in the summary; a traceback with every error.")
def prepare(
    sources: tuple[str, ...],
    out: Path,
    recipe_file: Path | None,
    no_shuffle: bool,
    workers: int | None,
    as_json: bool,
    progress: str,
    quiet: bool,
    verbose: bool,
    **flags: Any,
) -> None:
    """Turn text into training shards.

    SOURCE is a Parquet, Arrow, JSONL or text file (.jsonl and .txt also as .gz or .zst), a folder, a glob, several
    of them, or `sample`, which ships with tokenmill. Files are taken in the order given, those of a folder or glob
    sorted by path.

    \b
    Examples:
        tokenmill prepare sample -o out
        tokenmill prepare 'fineweb/*.parquet' -o data --format llmc --shard-tokens 100M
        tokenmill prepare books.txt -o data --tokenizer cl100k_base --separator '<|endoftext|>'
    """
    from tokenmill.mill import prepare_recipe

    if no_shuffle and flags["shuffle"]:
        raise click.UsageError("`--shuffle` and `--no-shuffle` exclude each other")
    if flags["separator"] is not None and flags["documents"]:
        raise click.UsageError("`--separator` and `--documents` exclude each other")
    mapping = toml_mapping(recipe_file) if recipe_file else {}
    given = recipe_fields(sources, no_shuffle, flags)
    if "separator" in given or "documents" in given:  # one of them overrides the other in the file
        mapping = {name: value for name, value in mapping.items() if name not in ("separator", "documents")}
    mapping |= given
    if "sources" not in mapping:
        raise click.UsageError("no SOURCE given: a file, a folder, a glob, or `sample`")
    recipe = recipe_from_mapping(mapping, where=f"`{recipe_file}`" if recipe_file else "the options")
    already_done = (out / "manifest.json").exists()
    try:
        with progress_display("off" if quiet else progress) as on_progress:
            manifest = prepare_recipe(recipe, out, RunOptions(workers=workers), on_progress)
    except TokenmillError:
        if verbose:
            traceback.print_exc()
        raise
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(manifest).decode() + "\n")
    elif not quiet:
        click.echo(summary(manifest, out, already_done, verbose))


def engine_line(manifest: Manifest) -> str:
    """How it is known that the ids are right."""
    tokenizer, seconds = manifest.tokenizer, manifest.run.seconds
    if tokenizer.n_checked_documents == 0:
        return f"  engine     the reference itself: {tokenizer.reason}"
    reference = next(name for name in tokenizer.versions if name != tokenizer.engine)
    share = seconds["check"] / max(sum(seconds.values()), 1e-9)
    by = f"{reference} {tokenizer.versions[reference]}"
    documents = plural(tokenizer.n_checked_documents, "document")
    return f"  checked    {documents} again with {by}: equal ({share:.1%} of the time)"


def recipe_fields(sources: tuple[str, ...], no_shuffle: bool, flags: dict[str, Any]) -> dict[str, Any]:
    """The fields of the recipe that were given on the command line."""
    fields = {name: value for name, value in flags.items() if value is not None}
    if sources:
        fields["sources"] = list(sources)
    if no_shuffle:
        fields["shuffle"] = "none"
    return fields


def summary(manifest: Manifest, out: Path, already_done: bool, verbose: bool) -> str:
    """What was made, from what, and what to do next."""
    from tokenmill.shards import format_named

    totals, run, recipe, tokenizer = manifest.totals, manifest.run, manifest.recipe, manifest.tokenizer
    what = f"{plural(totals.n_tokens, 'token')} of {plural(totals.n_documents, 'document')}"
    lines = [
        f"Already done: {what}" if already_done else f"Prepared {what} in {duration(run.elapsed_seconds)}",
        f"  from       {plural(len(manifest.inputs), 'file')}, {size(totals.n_text_bytes)} of text",
        f"  tokenizer  {tokenizer.name} by {tokenizer.engine} {tokenizer.versions[tokenizer.engine]};"
        f" end-of-text {'' if tokenizer.eot_token is None else f'{tokenizer.eot_token}, '}{eot_place(str(recipe.eot))}",
        engine_line(manifest),
        f"  order      {order_of(str(recipe.shuffle))}",
    ]
    for split, (n_shards, n_documents, n_tokens) in manifest.split_totals().items():
        files = [shard.file for shard in manifest.shards if shard.split == split]
        names = files[0] if n_shards == 1 else f"{files[0]} ... {files[-1]}"
        lines.append(f"  {split:<9}  {plural(n_tokens, 'token')}, {plural(n_documents, 'document')} in {out / names}")
    if not already_done:
        rate = totals.n_text_bytes / max(run.elapsed_seconds, 1e-9)
        lines.append(
            f"  speed      {size(rate)}/s of text, {count(totals.n_tokens / max(run.elapsed_seconds, 1e-9))} tokens/s"
            f" with {plural(run.workers, 'worker')}"
        )
    lines += [f"  skipped    {plural(n, 'row')}: {reason}" for reason, n in manifest.skipped.items()]
    if manifest.n_special_text_documents:
        spelling = plural(manifest.n_special_text_documents, "document")
        lines.append(f"  note       {spelling} spell a special token such as <|endoftext|> in the text; it stayed text")
    if verbose:
        lines.append(f"  recipe     {manifest.fingerprint}")
        lines.append(f"  seconds    {', '.join(f'{stage} {s:.2f}' for stage, s in run.seconds.items())} (all workers)")
    itemsize = 2 if tokenizer.dtype == "uint16" else 4
    lines += [f"note: {note}" for note in format_named(recipe.format).notes(recipe, itemsize)]
    lines.append(f"Check it with `tokenmill verify {out}`, look inside with `tokenmill inspect {out} --doc 0`.")
    return "\n".join(lines)
