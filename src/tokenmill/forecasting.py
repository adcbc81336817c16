"""What a run would do, without doing it: sizes from the listing, the rest from a small sample of the text.

Exact are files, units and, for Parquet without a filter, rows. Tokens, bytes and time are estimates: a few batches,
spread over the corpus, are read and encoded, in this process.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill import machine
from tokenmill.calibrate import engine_choice
from tokenmill.encode import of_wanted_length
from tokenmill.errors import RecipeError
from tokenmill.executors.ledger import WINDOW_PER_WORKER
from tokenmill.fetching import checked_budget
from tokenmill.plan import Plan, Span, plan_units
from tokenmill.recipe import Recipe, RunOptions, recipe_dtype, shuffle_kind_and_seed
from tokenmill.scatter import GROUP_BYTES
from tokenmill.shards import format_named
from tokenmill.sources import Input, parquet, source_for
from tokenmill.sources.pins import pinned
from tokenmill.storage.addresses import is_address
from tokenmill.storage.local import existing_folder
from tokenmill.storage.scratch import scratch_folder
from tokenmill.storage.uploads import MAX_WAITING
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.definitions import Engine

SAMPLE_UNITS = 4
SAMPLE_BYTES = 1_000_000
# One row of the document index.
INDEX_BYTES = 28
START_SECONDS = 1.0
LLMC: dict[str, object] = {"format": "llmc", "val": "shard", "name": "tokens", "shuffle": "none"}


class Forecast(msgspec.Struct, frozen=True):
    """What `prepare` would do. Fields that say `about` are estimates from a sample."""

    recipe: Recipe
    fingerprint: str
    n_files: int
    n_file_bytes: int
    n_units: int
    n_workers: int
    engine: str
    about_documents: int
    about_tokens: int
    about_text_bytes: int
    about_output_bytes: int
    about_scratch_bytes: int  # beside the output: segments, buckets, and shards on their way to a store
    n_download_bytes: int  # of inputs that are elsewhere
    download_budget_bytes: int  # of those, at a time
    about_peak_disk_bytes: int
    free_disk_bytes: int
    about_memory_bytes: int
    about_seconds: float
    fits: bool


class Sample(NamedTuple):
    n_planned_bytes: int  # of the listing, that the sampled text stands for
    n_documents: int
    n_tokens: int
    n_text_bytes: int
    seconds: float


def forecast(recipe: Recipe, out: str | Path, options: RunOptions | None = None) -> Forecast:
    """Plan a run and estimate what it takes."""
    options = options or RunOptions()
    folder = scratch_folder(str(out), options.scratch) if is_address(str(out)) else Path(out)
    recipe = pinned(recipe, None).resolve()
    plan = plan_units(recipe, options.unit_bytes)
    choice = engine_choice(recipe, plan)
    about = estimate(recipe, plan, choice.use_reference)
    n_workers = max(1, min(options.n_workers, len(plan.units)))
    token_bytes = about.n_tokens * np.dtype(recipe_dtype(recipe)).itemsize
    away = is_address(str(out))
    scratch = scratch_bytes(recipe, plan, options, token_bytes, away=away)
    check_scratch(recipe, plan, options, token_bytes, away=away)
    downloads = checked_budget(plan, plan.units, options.disk_budget, keep=options.keep_downloads)
    n_download_bytes = sum(entry.size for entry in plan.inputs if entry.is_remote)
    downloads = min(downloads, n_download_bytes)
    peak = scratch + downloads + (0 if away else about.output_bytes)
    free = shutil.disk_usage(existing_folder(folder)).free
    kind, _ = shuffle_kind_and_seed(str(recipe.shuffle))
    memory = machine.PARENT_BYTES + n_workers * machine.WORKER_BYTES
    memory += 12 * about.n_documents if kind == "numpy" else 0
    return Forecast(
        recipe=recipe,
        fingerprint=recipe.fingerprint,
        n_files=len(plan.inputs),
        n_file_bytes=sum(entry.size for entry in plan.inputs),
        n_units=len(plan.units),
        n_workers=n_workers,
        engine=choice.name,
        about_documents=about.n_documents,
        about_tokens=about.n_tokens,
        about_text_bytes=about.n_text_bytes,
        about_output_bytes=about.output_bytes,
        about_scratch_bytes=scratch,
        n_download_bytes=n_download_bytes,
        download_budget_bytes=downloads,
        about_peak_disk_bytes=peak,
        free_disk_bytes=free,
        about_memory_bytes=memory + (3 * min(options.bucket_bytes, token_bytes) if kind != "none" else 0),
        about_seconds=START_SECONDS + about.seconds / n_workers,
        fits=peak <= free,
    )


class Estimate(NamedTuple):
    """What a run comes to, under its limits."""

    n_documents: int
    n_tokens: int
    n_text_bytes: int
    output_bytes: int
    seconds: float  # of one worker


def estimate(recipe: Recipe, plan: Plan, use_reference: bool) -> Estimate:
    sample = sampled(recipe, plan, Tokenizer(recipe.tokenizer, recipe.pattern), use_reference)
    scale = plan.n_bytes / max(1, sample.n_planned_bytes)
    n_documents = min(round(sample.n_documents * scale), recipe.limit_documents or 2**62)
    n_tokens = min(round(sample.n_tokens * scale), recipe.limit_tokens or 2**62)
    if recipe.limit_documents:
        n_tokens = min(n_tokens, round(sample.n_tokens / max(1, sample.n_documents) * n_documents))
    share = n_tokens / max(1, sample.n_tokens * scale)  # of the corpus, under the limits
    n_documents = min(n_documents, max(1, round(sample.n_documents * scale * share)))
    return Estimate(
        n_documents=n_documents,
        n_tokens=n_tokens,
        n_text_bytes=round(sample.n_text_bytes * scale * share),
        output_bytes=n_tokens * np.dtype(recipe_dtype(recipe)).itemsize + n_documents * INDEX_BYTES,
        seconds=sample.seconds * scale * share,
    )


def peak_disk_bytes(recipe: Recipe, plan: Plan, options: RunOptions, use_reference: bool, *, away: bool) -> int:
    """The output, unless it is in a store, and all that is beside it at the same time; refuse what is over budget."""
    about = estimate(recipe, plan, use_reference)
    token_bytes = about.n_tokens * np.dtype(recipe_dtype(recipe)).itemsize
    check_scratch(recipe, plan, options, token_bytes, away=away)
    return scratch_bytes(recipe, plan, options, token_bytes, away=away) + (0 if away else about.output_bytes)


def check_scratch(recipe: Recipe, plan: Plan, options: RunOptions, token_bytes: int, *, away: bool) -> None:
    """Refuse a run that needs more beside its output than the user allows, and name what would fit."""
    budget, needed = options.scratch_budget, scratch_bytes(recipe, plan, options, token_bytes, away=away)
    if budget is None or needed <= budget:
        return

    def fits(changes: dict[str, object]) -> bool:
        changed = msgspec.structs.replace(recipe, **changes)
        try:
            format_named(changed.format).check(changed)
        except RecipeError:
            return False
        return scratch_bytes(changed, plan, options, token_bytes, away=away) <= budget

    remedies = remedies_for_scratch(recipe)
    hint = next((f"`{flags}` would fit" for flags, changes in remedies.items() if fits(changes)), None)
    raise RecipeError(
        f"segments, buckets and open shards need about {needed:,} bytes of scratch, and the budget is {budget:,}",
        hint=hint or f"pass `--scratch-budget {needed}` or more",
    )


def remedies_for_scratch(recipe: Recipe) -> dict[str, dict[str, object]]:
    """Options that make a run need less beside its output, and what they change, the gentlest first."""
    remedies: dict[str, dict[str, object]] = {}
    for more_flags, more in (("", {}), ("--no-shuffle ", {"shuffle": "none"}), ("--format llmc --no-shuffle ", LLMC)):
        if more == {"shuffle": "none"} != {"shuffle": recipe.shuffle}:
            remedies["--no-shuffle"] = dict(more)
        for n in (100, 10, 1):
            remedies[f"{more_flags}--shard-tokens {n}M"] = {**more, "shard_tokens": n * 10**6}
    return remedies


def sampled(recipe: Recipe, plan: Plan, tokenizer: Tokenizer, use_reference: bool) -> Sample:
    """Read and encode some text of a few units, spread over the corpus."""
    chosen = sorted({int(i) for i in np.linspace(0, len(plan.units) - 1, SAMPLE_UNITS)})
    engine = tokenizer.reference if use_reference else tokenizer.engine
    samples = [sampled_span(recipe, plan, plan.units[index].spans[0], engine) for index in chosen]
    return Sample(
        n_planned_bytes=sum(sample.n_planned_bytes for sample in samples),
        n_documents=sum(sample.n_documents for sample in samples),
        n_tokens=sum(sample.n_tokens for sample in samples),
        n_text_bytes=sum(sample.n_text_bytes for sample in samples),
        seconds=sum(sample.seconds for sample in samples),
    )


def sampled_span(recipe: Recipe, plan: Plan, span: Span, engine: Engine) -> Sample:
    """Read the first batch of a span, or all of it where a filter may leave out any row, and encode about 1 MB."""
    entry = plan.inputs[span.input]
    began = perf_counter()
    n_documents = n_text_bytes = n_encoded_bytes = n_tokens = 0
    n_planned = span.n_bytes if recipe.where else 0
    encode_seconds = 0.0
    for documents in source_for(entry).read(entry, span, recipe, SAMPLE_BYTES):
        if not recipe.where:
            # What of the listing this stands for: text and JSON by their bytes, tables by the text they hold.
            at_least = min(span.n_bytes, SAMPLE_BYTES) if entry.kind in ("jsonl", "text") and entry.divisible else 0
            n_planned = max(at_least, round(documents.n_text_bytes * planned_share(entry, recipe)))
        documents = of_wanted_length(documents, recipe.min_chars, recipe.max_chars)
        n_documents += len(documents)
        n_text_bytes += documents.n_text_bytes
        if n_encoded_bytes < SAMPLE_BYTES and len(documents):
            before = perf_counter()
            n_tokens += len(engine.encode(documents).ids)
            encode_seconds += perf_counter() - before
            n_encoded_bytes += documents.n_text_bytes
        if not recipe.where:
            break
    scale = n_text_bytes / max(1, n_encoded_bytes)
    n_tokens = round(n_tokens * scale) + (n_documents if recipe.eot != "none" else 0)
    seconds = perf_counter() - began + encode_seconds * (scale - 1 if n_encoded_bytes else 0)
    return Sample(n_planned, n_documents, n_tokens, n_text_bytes, seconds)


def planned_share(entry: Input, recipe: Recipe) -> float:
    """How many bytes of the plan a byte of text stands for: not one where the plan had to guess."""
    if not (entry.is_remote and entry.kind == "parquet"):
        return 1.0
    with parquet.opened(entry) as file:
        n_text_bytes = sum(parquet.text_sizes(file, recipe.text_column))
    return sum(parquet.guessed_bytes(entry)) / max(1, n_text_bytes)


def scratch_bytes(recipe: Recipe, plan: Plan, options: RunOptions, token_bytes: int, *, away: bool) -> int:
    """Disk beyond the output: what a shard is made of stays until the shard is sealed.

    Of an output in a store, the shards that are open or wait to be put there are scratch too.
    """
    n_bytes = segment_bytes(recipe, plan, options, token_bytes)
    if not away:
        return n_bytes
    if recipe.shard_tokens is None:
        return n_bytes + token_bytes
    shard_bytes = recipe.shard_tokens * np.dtype(recipe_dtype(recipe)).itemsize
    of_group = 0 if recipe.shuffle == "none" else GROUP_BYTES  # there twice, before the first shard
    return n_bytes + min(token_bytes, max((MAX_WAITING + 2) * shard_bytes, of_group))


def segment_bytes(recipe: Recipe, plan: Plan, options: RunOptions, token_bytes: int) -> int:
    """What segments and buckets take at the most, beside an output of the same size."""
    if recipe.shard_tokens is None:  # one shard a split: all segments, or buckets, stay until it is sealed
        return token_bytes
    if recipe.is_shuffled:
        return token_bytes  # every bucket is in the files of all groups, which stay until the last shard is sealed
    if isinstance(recipe.val, float):
        return token_bytes  # all segments stay until the number of documents is known
    shard_bytes = recipe.shard_tokens * np.dtype(recipe_dtype(recipe)).itemsize
    n_units = min(len(plan.units), (WINDOW_PER_WORKER + 2) * options.n_workers)
    in_flight = token_bytes * n_units // len(plan.units)
    return min(shard_bytes + in_flight, token_bytes)
