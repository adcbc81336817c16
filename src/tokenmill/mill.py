"""START HERE: recipe -> plan -> encode -> assemble -> seal.

    plan      list the inputs, cut them into units            plan.py, sources/
    encode    unit -> segment (token ids, document lengths)   encode.py in workers, executors/, tokenizers/
    assemble  segments, in order -> shards of the format      assemble.py, shuffle.py, shards/
    seal      receipts -> manifest and SHA256SUMS             manifest.py

Every stage is a call in `prepare_recipe`, and a module of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from tokenmill import __version__
from tokenmill.assemble import assemble
from tokenmill.calibrate import engine_choice
from tokenmill.encode import Job
from tokenmill.errors import DataError, RecipeError, SourceError
from tokenmill.executors import executor_named
from tokenmill.manifest import Manifest, seal
from tokenmill.plan import plan_units
from tokenmill.progress import Progress
from tokenmill.recipe import DocumentsBy, Eot, ExecutorName, Recipe, RunOptions, recipe_from_mapping
from tokenmill.segments import UnitReceipt
from tokenmill.tokenizers import Tokenizer
from tokenmill.tokenizers.custom import CustomTokenizer, named_for
from tokenmill.tokenizers.sampling import SampleChecker
from tokenmill.workspace import claim, discard, finished_manifest

OnProgress = Callable[[Progress], None]


def prepare_recipe(
    recipe: Recipe, out: str | Path, options: RunOptions | None = None, on_progress: OnProgress | None = None
) -> Manifest:
    """Carry out a recipe into the folder `out` and return the manifest; a finished output is returned as it is."""
    out, options = Path(out), options or RunOptions()
    recipe = recipe.resolve()
    plan = plan_units(recipe, options.unit_bytes)
    if (manifest := finished_manifest(out, recipe, plan.inputs)) is not None:
        return manifest

    engine = engine_choice(recipe, plan)
    work = claim(out, recipe)
    progress = Progress(plan, options, on_progress)
    job = Job(
        tokenmill=__version__,
        recipe=recipe,
        inputs=plan.inputs,
        work=str(work),
        batch_bytes=options.batch_bytes,
        n_units=len(plan.units),
        import_paths=tuple(os.path.abspath(path) for path in sys.path),  # noqa: PTH100 - "" is the working folder
        use_reference=engine.use_reference,
    )
    checker = SampleChecker(Tokenizer(recipe.tokenizer, recipe.pattern), work)
    encode = executor_named(options.executor)(job, plan.units, options, progress.beat)
    try:
        encoded = progress.watched(encode) if engine.use_reference else checked(progress.watched(encode), checker)
        receipts, shards = assemble(encoded, plan, job, options, out, progress)
        checker.finish()
    except (RecipeError, SourceError, DataError):  # nothing to go on with: leave the folder to the next try
        checker.stop()
        discard(out, recipe)
        raise
    finally:
        encode.close()
        checker.stop()
    run = progress.record(checker.seconds)
    manifest = seal(out, recipe, plan, engine, checker.n_checked, receipts, shards, run)
    shutil.rmtree(work)
    return manifest


def checked(receipts: Iterator[UnitReceipt], checker: SampleChecker) -> Iterator[UnitReceipt]:
    """Pass receipts on, and have a sample of each unit encoded again by the reference."""
    for receipt in receipts:
        checker.submit(receipt.unit)
        yield receipt


def prepare(
    sources: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    tokenizer: str | CustomTokenizer = "gpt2",
    pattern: str | None = None,
    format: str = "nanogpt",
    text_column: str = "text",
    name: str | None = None,
    shard_tokens: int | str | None = None,
    val: float | int | str | None = None,
    shuffle: int | str | None = None,
    eot: Eot | None = None,
    eot_token: str | int | None = None,
    separator: str | None = None,
    documents: DocumentsBy = "auto",
    where: str | None = None,
    min_chars: int | str | None = None,
    max_chars: int | str | None = None,
    limit_documents: int | str | None = None,
    limit_tokens: int | str | None = None,
    on_bad_document: Literal["fail", "skip"] = "fail",
    workers: int | None = None,
    executor: ExecutorName = "processes",
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Turn text into training shards: the same as `tokenmill prepare`, option for option.

    `sources` are files, folders, globs or names of known corpora. Options left at None take the format's default.
    `shuffle` takes a seed, "none", or "numpy:SEED". Works at the top level of a script without a `__main__` guard
    and in notebooks. A tokenizer of your own may be given as an object; it works in this process, without workers.
    `on_progress` is called with the run's progress, from this thread.
    """
    if not isinstance(tokenizer, str):
        tokenizer, executor = named_for(tokenizer), "inline"
    fields: dict[str, object] = {
        "sources": [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)],
        "tokenizer": tokenizer,
        "pattern": pattern,
        "format": format,
        "text_column": text_column,
        "name": name,
        "shard_tokens": shard_tokens,
        "val": val,
        "shuffle": shuffle,
        "eot": eot,
        "eot_token": eot_token,
        "separator": separator,
        "documents": documents,
        "where": where,
        "min_chars": min_chars,
        "max_chars": max_chars,
        "limit_documents": limit_documents,
        "limit_tokens": limit_tokens,
        "on_bad_document": on_bad_document,
    }
    recipe = recipe_from_mapping(fields, where="the call of prepare")
    return prepare_recipe(recipe, out, RunOptions(workers=workers, executor=executor), on_progress)
