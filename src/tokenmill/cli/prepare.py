"""`tokenmill prepare`."""

from __future__ import annotations

import shlex
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli.display import progress_display
from tokenmill.cli.options import recipe_from_flags, recipe_options, run_options
from tokenmill.cli.plan import show_forecast
from tokenmill.cli.report import REPORT
from tokenmill.cli.share import refuse_beside_node, show_share
from tokenmill.cli.signals import stoppable
from tokenmill.cli.words import count, duration, eot_place, order_of, plural, size
from tokenmill.errors import RecipeError, TokenmillError
from tokenmill.storage.addresses import is_address

if TYPE_CHECKING:
    from tokenmill.manifest import Manifest
    from tokenmill.progress import Progress


@click.command(short_help="Text into training shards.")
@recipe_options
@click.option(
    "--executor",
    type=click.Choice(["processes", "inline", "ray"]),
    default="processes",
    help="Who works: processes of this machine, this process alone, or a Ray cluster.  [default: processes]",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="The cluster: `auto`, HOST:PORT or ray://HOST:PORT.  [default: RAY_ADDRESS, or Ray on this machine]",
)
@click.option(
    "--stall-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    help="Replace a worker that makes no progress for so long.  [default: 300]",
)
@click.option(
    "--node",
    metavar="I/N",
    help="Encode the I-th of N shares, on one of several machines that share the folder OUT; the same command without"
    " it finishes the output. Limits count then: a share may encode what lies behind them.",
)
@click.option("--allow-excluded", is_flag=True, help="Exit with 0, not 4, when documents went to quarantine.")
@click.option("--retry-excluded", is_flag=True, help="Try documents again that went to quarantine before.")
@click.option("--report", "with_report", is_flag=True, help="Write OUT/report.html, as `tokenmill report` does.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, as `tokenmill plan` does, and do nothing.")
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
    out: Path | str,
    recipe_file: Path | None,
    no_shuffle: bool,
    workers: int | None,
    disk_budget: str | None,
    keep_downloads: bool,
    scratch_budget: str | None,
    scratch: str | None,
    executor: Any,
    ray_address: str | None,
    stall_seconds: float,
    node: str | None,
    allow_excluded: bool,
    retry_excluded: bool,
    with_report: bool,
    dry_run: bool,
    as_json: bool,
    progress: str,
    quiet: bool,
    verbose: bool,
    **flags: Any,
) -> int:
    """Turn text into training shards.

    SOURCE is a Parquet, Arrow, JSONL or text file (.jsonl and .txt also as .gz or .zst), a folder, a glob, several
    of them, or a name that `tokenmill datasets` lists, such as `sample`, which ships with tokenmill. Files are taken
    in the order given, those of a folder or glob sorted by path. A run that was stopped or killed goes on when the
    same command is given again.

    \b
    Examples:
        tokenmill prepare sample -o out
        tokenmill prepare fineweb-edu --version 10B -o data/fineweb_edu
        tokenmill prepare 'fineweb/*.parquet' -o data/llmc --format llmc --shard-tokens 100M
        tokenmill prepare books.txt -o data/books --tokenizer cl100k_base --separator '<|endoftext|>'
    """
    from tokenmill.mill import prepare_recipe
    from tokenmill.sharing import ShareDone

    recipe = recipe_from_flags(sources, recipe_file, no_shuffle, flags, quiet or progress in ("jsonl", "off"))
    options = run_options(
        workers,
        disk_budget,
        keep_downloads,
        scratch_budget,
        scratch,
        executor=executor,
        ray_address=ray_address,
        stall_seconds=stall_seconds,
        node=node,
        retry_excluded=retry_excluded,
    )
    if node is not None:
        refuse_beside_node(report=with_report, dry_run=dry_run)
    if dry_run:
        show_forecast(recipe, out, options, as_json)
        return 0
    if with_report and not isinstance(out, Path):
        raise RecipeError(
            "`--report` writes a file into the output folder, and this output is in a store",
            hint="`tokenmill download` it, then `tokenmill report`",
        )
    began = False

    def show_and_note(state: Progress) -> None:
        nonlocal began
        began = True
        on_progress(state)

    try:
        with progress_display("off" if quiet else progress) as show, stoppable(show) as on_progress:
            done = prepare_recipe(recipe, out, options, show_and_note)
    except TokenmillError:
        if verbose:
            traceback.print_exc()
        raise
    if isinstance(done, ShareDone):
        show_share(done, out, as_json=as_json, quiet=quiet)
        return 0
    manifest: Manifest = done
    if with_report:
        assert isinstance(out, Path)
        write_report(out)
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(manifest).decode() + "\n")
    elif not quiet:
        click.echo(summary(manifest, out, not began, verbose))
        if with_report:
            click.echo(f"The report is in {out}/{REPORT}.")
    return 4 if manifest.excluded and not allow_excluded else 0


def write_report(out: Path) -> None:
    from tokenmill.reading import open_any
    from tokenmill.report import page

    page.write_report(open_any(out), out / REPORT)


def engine_line(manifest: Manifest) -> str:
    """How it is known that the ids are right."""
    tokenizer, seconds = manifest.tokenizer, manifest.run.seconds
    if tokenizer.n_checked_documents == 0:
        return f"  engine     the reference itself: {tokenizer.reason}"
    reference = next(name for name in tokenizer.versions if name != tokenizer.engine)
    share = seconds["check"] / max(sum(seconds.values()), 1e-9)
    took = f" ({share:.1%} of the time)" if share else ""  # on a cluster it is part of encoding
    documents, by = plural(tokenizer.n_checked_documents, "document"), f"{reference} {tokenizer.versions[reference]}"
    return f"  checked    {documents} again with {by}: equal{took}"


def excluded_lines(manifest: Manifest) -> list[str]:
    """The documents that no engine could take: the first few, and how many."""
    if not manifest.excluded:
        return []
    shown = [
        f"    {entry.file} row {entry.row}, {size(entry.n_bytes)}: {entry.reason}" for entry in manifest.excluded[:5]
    ]
    more = [f"    and {len(manifest.excluded) - 5:,} more, in the manifest"] if len(manifest.excluded) > 5 else []
    return [f"  excluded   {plural(len(manifest.excluded), 'document')}, kept in quarantine/", *shown, *more]


def summary(manifest: Manifest, out: Path | str, already_done: bool, verbose: bool) -> str:
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
        lines.append(f"  {split:<9}  {plural(n_tokens, 'token')}, {plural(n_documents, 'document')} in {out}/{names}")
    if run.n_units_resumed and not already_done:
        lines.append(f"  resumed    {run.n_units_resumed:,} of {plural(run.n_units, 'unit')} were done before")
    elif not already_done:
        rate = totals.n_text_bytes / max(run.elapsed_seconds, 1e-9)
        lines.append(
            f"  speed      {size(rate)}/s of text, {count(totals.n_tokens / max(run.elapsed_seconds, 1e-9))} tokens/s"
            f" with {plural(run.workers, 'worker')}"
        )
    lines += [f"  skipped    {plural(n, 'row')}: {reason}" for reason, n in manifest.skipped.items()]
    lines += excluded_lines(manifest)
    if run.mishaps and not already_done:
        lines.append(f"  note       {plural(len(run.mishaps), 'mishap')} on the way; `-v` tells them")
    if manifest.n_special_text_documents:
        spelling = plural(manifest.n_special_text_documents, "document")
        lines.append(f"  note       {spelling} spell a special token such as <|endoftext|> in the text; it stayed text")
    if verbose:
        lines += [f"  mishap     after {seconds:.1f} s: {what}" for seconds, what in run.mishaps]
        lines.append(f"  recipe     {manifest.fingerprint}")
        lines.append(f"  seconds    {', '.join(f'{stage} {s:.2f}' for stage, s in run.seconds.items())} (all workers)")
    if totals.n_dropped_tokens:
        lines.append(
            f"  dropped    {plural(totals.n_dropped_tokens, 'token')} behind the last whole sample of"
            f" {recipe.sequence_length:,}"
        )
    itemsize = {"uint16": 2, "int64": 8}.get(tokenizer.dtype, 4)
    lines += [f"note: {note}" for note in format_named(recipe.format).notes(recipe, itemsize)]
    folder = shlex.quote(str(out))
    lines.append(f"Check it with `tokenmill verify {folder}`.")
    if not is_address(str(out)):
        lines.append(f"Look inside with `tokenmill inspect {folder} --doc 0`.")
    return "\n".join(lines)
