"""`tokenmill plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli.options import recipe_from_flags, recipe_options, run_options
from tokenmill.cli.words import count, duration, eot_place, order_of, plural, size
from tokenmill.recipe import Recipe, RunOptions

if TYPE_CHECKING:
    from tokenmill.forecasting import Forecast


@click.command(short_help="What `prepare` would do: tokens, disk, memory, time.")
@recipe_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def plan(
    sources: tuple[str, ...],
    out: Path | str,
    recipe_file: Path | None,
    no_shuffle: bool,
    workers: int | None,
    disk_budget: str | None,
    keep_downloads: bool,
    scratch_budget: str | None,
    scratch: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Say what `prepare` would do, without doing it: documents, tokens, disk, memory, time.

    Takes the options of `prepare`. Estimates come from a small sample of the text, encoded here and now.

    \b
    Example:
        tokenmill plan sample -o out
    """
    recipe = recipe_from_flags(sources, recipe_file, no_shuffle, flags)
    options = run_options(workers, disk_budget, keep_downloads, scratch_budget, scratch)
    show_forecast(recipe, out, options, as_json)


def show_forecast(recipe: Recipe, out: Path | str, options: RunOptions, as_json: bool) -> None:
    from tokenmill.forecasting import forecast

    result = forecast(recipe, out, options)
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    else:
        click.echo(forecast_text(result, out))


def forecast_text(f: Forecast, out: Path | str) -> str:
    recipe = f.recipe
    eot = "" if recipe.eot_token is None else f"{recipe.eot_token}, "
    fits = "fits" if f.fits else "DOES NOT FIT"
    lines = [
        f"Would make about {count(f.about_tokens)} tokens of about {plural(f.about_documents, 'document')}",
        f"  from       {plural(f.n_files, 'file')}, {size(f.n_file_bytes)}, about {size(f.about_text_bytes)} of text,"
        f" in {plural(f.n_units, 'unit')}",
        f"  tokenizer  {recipe.tokenizer} by {f.engine}; end-of-text {eot}{eot_place(str(recipe.eot))}",
        f"  order      {order_of(str(recipe.shuffle))}; val: {recipe.val}",
        f"  output     {recipe.format}, about {size(f.about_output_bytes)} in {out}",
        f"  disk       about {size(f.about_peak_disk_bytes)} at the peak, {size(f.free_disk_bytes)} free: {fits}",
        f"  scratch    of that about {size(f.about_scratch_bytes)} for segments, buckets and open shards",
        f"  memory     about {size(f.about_memory_bytes)} with {plural(f.n_workers, 'worker')}",
        f"  time       about {duration(f.about_seconds)}, at the speed of the sample",
        f"  recipe     {f.fingerprint}",
    ]
    if f.n_download_bytes:
        at_a_time = f"at most {size(f.download_budget_bytes)} on disk at a time"
        lines.insert(2, f"  downloads  {size(f.n_download_bytes)}, {at_a_time}")
    return "\n".join(lines)
