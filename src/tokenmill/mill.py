"""START HERE: recipe -> plan -> encode -> assemble -> seal.

    plan      list the inputs, cut them into units            plan.py, sources/
    encode    unit -> segment (token ids, document lengths)   encode.py in workers, executors/, tokenizers/
    assemble  segments, in order -> shards of the format      assemble.py, scatter.py, shards/
    seal      receipts -> manifest and SHA256SUMS             manifest.py

Every stage is a call in `prepare_recipe`, and a module of its own. What is done is in the journal (journal.py) before
anything relies on it: a run that was killed goes on from there (workspace.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from tokenmill.calibrate import EngineChoice, engine_choice
from tokenmill.encode import Job
from tokenmill.errors import DataError, RecipeError, SourceError
from tokenmill.home import home_of
from tokenmill.manifest import Manifest, seal
from tokenmill.means import LocalMeans, Means, job_for, recorded, units_to_do
from tokenmill.plan import Unit, plan_units
from tokenmill.progress import Progress
from tokenmill.recipe import DocumentsBy, Eot, ExecutorName, Recipe, RunOptions, recipe_from_mapping
from tokenmill.removal import discard_work
from tokenmill.sharing import encode_share
from tokenmill.sources.pins import pinned
from tokenmill.space import check_space, space_error
from tokenmill.tokenizers.custom import CustomTokenizer, named_for
from tokenmill.workspace import Workspace, discard, workspace

OnProgress = Callable[[Progress], None]


def prepare_recipe(
    recipe: Recipe, out: str | Path, options: RunOptions | None = None, on_progress: OnProgress | None = None
) -> Manifest | Any:
    """Carry out a recipe into the folder or address `out` and return the manifest.

    A finished output is returned as it is, and an unfinished one of the same recipe is gone on with. With `node` in
    the options only that share is encoded, and what comes back is a ShareDone.
    """
    options = options or RunOptions()
    home = home_of(out, options)
    recipe = pinned(recipe, home.begun_recipe()).resolve()
    plan = plan_units(recipe, options.unit_bytes)
    if (manifest := home.finished(recipe, plan.inputs)) is not None:
        if not (options.retry_excluded and manifest.excluded):
            if options.node is None:
                home.sweep()
            return manifest
        home.start_over(recipe)

    engine = engine_choice(recipe, plan)
    if options.node is not None:
        return encode_share(home, recipe, plan, engine, options, on_progress)
    with home.named(), workspace(home, recipe, plan, retry_excluded=options.retry_excluded) as space:
        try:
            check_space(space, engine, options)
            manifest = carried_out(space, engine, options, on_progress)
        except (RecipeError, SourceError, DataError):  # nothing to go on with: leave the folder to the next try
            if not space.resumed:
                space.lock.check()
                discard(space)
            raise
        except OSError as error:
            raise space_error(error, space) from error
        discard_work(space.work)
    return manifest


def carried_out(
    space: Workspace, engine: EngineChoice, options: RunOptions, on_progress: OnProgress | None
) -> Manifest:
    """Encode, assemble, seal: whatever of it the journal does not have yet."""
    recipe, plan, journal, out = space.recipe, space.plan, space.journal, space.out
    progress = Progress(plan, options, journal.state, on_progress)
    space.lock.progress = progress.facts
    space.home.watch(progress.facts)
    means = means_for(space, job_for(space, engine, options), units_to_do(space, plan.units), options, progress)
    with closing(means):
        receipts, shards = means.assemble(recorded(space, means))
        if learned := means.finish():
            journal.record(*learned)
    space.home.settle(journal, progress.tick)
    space.lock.check()
    manifest = seal(out, recipe, plan, engine, journal.state, receipts, shards, progress.record(means.check_seconds))
    space.home.publish()
    return manifest


def means_for(space: Workspace, job: Job, to_do: list[Unit], options: RunOptions, progress: Progress) -> Means:
    if options.executor != "ray":
        return LocalMeans(space, job, to_do, options, progress)
    from tokenmill.cluster.means import ClusterMeans

    return ClusterMeans(space, job, to_do, options, progress)


def prepare(
    sources: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    tokenizer: str | CustomTokenizer = "gpt2",
    pattern: str | None = None,
    format: str = "nanogpt",
    version: str | None = None,
    text_column: str | None = None,
    name: str | None = None,
    shard_tokens: int | str | None = None,
    sequence_length: int | str | None = None,
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
    ray_address: str | None = None,
    node: str | None = None,
    on_progress: OnProgress | None = None,
) -> Manifest | Any:
    """Turn text into training shards: `tokenmill prepare`, with every option that changes the output.

    `sources` are files, folders, globs or names of known corpora, which have a `version`. Options left at None take
    the default of the format, and `text_column` that of the corpus.
    `shuffle` takes a seed, "none", or "numpy:SEED". Works at the top level of a script without a `__main__` guard
    and in notebooks. A tokenizer of your own may be given as an object; it works in this process, without workers.
    `node="2/8"` encodes only the second of eight shares, for a run without it to finish, and returns a ShareDone.
    `on_progress` is called with the run's progress, from this thread.
    """
    if not isinstance(tokenizer, str):
        if executor == "ray":
            raise RecipeError(
                "a tokenizer given as an object works in this process only",
                hint="on a cluster, name it as `package.module:attribute`",
            )
        tokenizer, executor = named_for(tokenizer), "inline"
    fields: dict[str, object] = {
        "sources": [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)],
        "tokenizer": tokenizer,
        "pattern": pattern,
        "format": format,
        "name": name,
        "shard_tokens": shard_tokens,
        "sequence_length": sequence_length,
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
    fields |= {key: value for key, value in (("version", version), ("text_column", text_column)) if value is not None}
    recipe = recipe_from_mapping(fields, where="the call of prepare")
    options = RunOptions(workers=workers, executor=executor, ray_address=ray_address, node=node)
    return prepare_recipe(recipe, out, options, on_progress)
