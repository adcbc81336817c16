"""`tokenmill doctor`: this machine, a script, or a corpus."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from tokenmill.cli import suggestions
from tokenmill.cli.words import duration, plural, size
from tokenmill.errors import SourceError

if TYPE_CHECKING:
    from tokenmill.doctor.corpus import Finding

MAX_LISTED = 100
MAX_DOCUMENT_MB = 10.0
COLORS = {"ok": "green", "note": "yellow", "will bite": "red"}
# What each way of asking takes; anything else is a mistake that would go unnoticed.
TAKEN = {
    "this machine": {"out", "workers"},
    "a script": {"patch"},
    "--input": {"text_column", "separator", "documents", "tokenizer", "max_document_mb"},
}


@click.command(short_help="What is wrong with this machine, a script, a corpus.")
@click.argument("paths", nargs=-1, metavar="[SCRIPT.py]")
@click.option("--patch", type=click.IntRange(1, 3), help="Print a diff: 1 main process, 2 lazy encoder, 3 from shards.")
@click.option("--input", "inputs", multiple=True, metavar="FILES...", help="Scan a corpus: SOURCEs as for `prepare`.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where the shards would go.  [default: this folder]")
@click.option("--workers", type=click.IntRange(min=1), help="Judge for so many workers.  [default: as `prepare`]")
@click.option("--text-column", help="With --input: the column or JSON field of the text.  [default: text]")
@click.option("--separator", metavar="STRING", help="With --input: what stands between documents in plain text.")
@click.option(
    "--documents",
    type=click.Choice(["file", "line", "paragraph"]),
    help="With --input: how plain text splits into documents, other than by a separator.",
)
@click.option(
    "--tokenizer",
    shell_complete=suggestions.tokenizers,
    help="With --input: whose special tokens to look for.  [default: all that ship]",
)
@click.option(
    "--max-document-mb",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="With --input: list documents of more than N MB of text.  [default: 10]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print as JSON; with --input one line for each finding, all of them."
)
def doctor(paths: tuple[str, ...], inputs: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Say what is wrong: with this machine, with a script, or with a corpus.

    Without an argument: cores, memory, limits, disk and versions, with a verdict on each for a run of `prepare`.
    With a SCRIPT.py: what in it dies, and why; the script is read, never run. With --input: the documents that
    kill those who encode them, by file and row.

    Exits with 1 when something will bite or kill.

    \b
    Examples:
        tokenmill doctor -o data --workers 16
        tokenmill doctor prepare.py
        tokenmill doctor prepare.py --patch 2 | patch -p1
        tokenmill doctor --input 'fineweb/*.parquet'
    """
    mode = "--input" if inputs else "a script" if paths else "this machine"
    given = {name for name, value in options.items() if value is not None}
    if wrong := sorted(given - TAKEN[mode]):
        flag = "--" + wrong[0].replace("_", "-")
        raise click.UsageError(f"`{flag}` does not go with {mode}: see `tokenmill doctor --help`")
    match mode:
        case "this machine":
            return show_machine(options["out"] or Path(), options["workers"], as_json)
        case "a script":
            return show_script(paths, options["patch"], as_json)
        case _:  # a shell puts all but the first file of a glob behind the option's one value
            return show_corpus((*inputs, *paths), options, as_json)


def show_machine(out: Path, workers: int | None, as_json: bool) -> int:
    from tokenmill.doctor.machine import machine_facts, verdicts

    facts = machine_facts(out.absolute())
    found = verdicts(facts, workers)
    n_bites = sum(one.verdict == "will bite" for one in found)
    if as_json:
        print_json({"ok": not n_bites, "facts": facts, "verdicts": found})
        return 1 if n_bites else 0
    about_width = max(len(one.about) for one in found)
    for one in found:
        mark = click.style(f"{one.verdict:<9}", fg=COLORS[one.verdict])
        click.echo(f"{mark}  {one.about:<{about_width}}  {one.found}")
        if one.remedy:
            click.echo(f"{'':<9}  {'':<{about_width}}  {one.remedy}")
    with_workers = f"with {plural(workers or facts.cpu_count, 'worker')}"
    click.echo(
        f"{plural(n_bites, 'thing')} will bite a run {with_workers}" if n_bites else f"Fit for a run {with_workers}"
    )
    return 1 if n_bites else 0


def show_script(paths: tuple[str, ...], way: int | None, as_json: bool) -> int:
    if len(paths) > 1:
        raise click.UsageError("one script at a time; to scan a corpus, pass `--input FILES`")
    (name,) = paths
    if Path(name).suffix != ".py":
        raise click.UsageError(f"`{name}` is no Python script; to scan a corpus, pass `--input {name}`")
    from tokenmill.doctor.patches import script_patch
    from tokenmill.doctor.script import script_faults

    source, encoding = script_text(name)
    if way is not None:
        # In the bytes of the script, which is what `patch` compares; its name is the system's matter.
        *names, changes = script_patch(source, name, way).split("\n", 2)
        click.echo(os.fsencode("\n".join([*names, ""])) + changes.encode(encoding), nl=False)
        return 0
    faults = script_faults(source, name)
    if as_json:
        print_json({"ok": not faults, "file": name, "faults": faults})
    elif not faults:
        click.echo(f"{name}: nothing in it that is known to die")
    else:
        for fault in faults:
            click.echo(click.style(f"{name}:{fault.line}: ", bold=True) + fault.what)
            click.echo(f"  why     {fault.why}\n  remedy  {fault.remedy}")
        click.echo(
            f"{plural(len(faults), 'fault')}; `tokenmill doctor {name} --patch 1|2|3` prints a diff that mends them"
        )
    return 1 if faults else 0


def script_text(name: str) -> tuple[str, str]:
    """The source of a script, line ends and a byte order mark as they are, and the encoding that it declares."""
    import tokenize

    try:
        with Path(name).open("rb") as file:
            encoding, _ = tokenize.detect_encoding(file.readline)
        encoding = encoding.replace("utf-8-sig", "utf-8")
        return Path(name).read_bytes().decode(encoding), encoding
    except FileNotFoundError:
        raise SourceError(f"no such script: `{name}`") from None
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceError(f"`{name}` is no Python: {error}") from None


def show_corpus(sources: tuple[str, ...], options: dict[str, Any], as_json: bool) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from tokenmill.cli.options import recipe_from_flags
    from tokenmill.doctor.corpus import scan_corpus
    from tokenmill.sources import list_inputs
    from tokenmill.tokenizers import Tokenizer, tokenizer_names

    names = ("text_column", "separator", "documents", "tokenizer")
    flags = {name: options[name] for name in names} | {"on_bad_document": "skip", "shuffle": None}
    recipe = recipe_from_flags(sources, None, False, flags).resolve()
    tokenizers = [options["tokenizer"]] if options["tokenizer"] else tokenizer_names()
    words = {word for name in tokenizers for word in Tokenizer(name).special_tokens}
    inputs = list_inputs(recipe)
    max_bytes = int((options["max_document_mb"] or MAX_DOCUMENT_MB) * 1e6)
    began, n_documents, n_text_bytes = perf_counter(), 0, 0
    counts: Counter[str] = Counter()
    columns = ("scanning", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # elsewhere, what is printed must go where it was sent
        disable=not (sys.stderr and sys.stderr.isatty()),
    ) as progress:
        bar = progress.add_task("scanning", total=sum(entry.size for entry in inputs))
        for scanned in scan_corpus(recipe, inputs, words, max_bytes):
            for finding in scanned.findings:
                if as_json or counts.total() < MAX_LISTED:
                    show_finding(finding, as_json)
                counts[finding.kind] += 1
            n_documents += scanned.n_documents
            n_text_bytes += scanned.n_text_bytes
            progress.update(bar, completed=scanned.n_file_bytes)
    elapsed = perf_counter() - began
    speed = f"{size(n_text_bytes)} of text in {duration(elapsed)}, {size(n_text_bytes / max(elapsed, 1e-9))}/s"
    read = f"{plural(n_documents, 'document')}, {speed}"
    click.echo(corpus_summary(counts, read), err=as_json)
    return 1 if any(kills(kind) for kind in counts) else 0


def kills(kind: str) -> bool:
    from tokenmill.doctor.corpus import HARMLESS

    return kind not in HARMLESS


def show_finding(finding: Finding, as_json: bool) -> None:
    import msgspec

    if as_json:
        print_json({**msgspec.structs.asdict(finding), "kills": finding.kills})
        return
    path = Path(finding.file)
    place = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    if finding.row is not None:
        place += f", row {finding.row:,}"
    if finding.line is not None:
        place += f" (line {finding.line:,})"
    click.echo(f"{place}: {finding.what}")


def corpus_summary(counts: Counter[str], read: str) -> str:
    """What was found, by kind, and what each kind does to whom."""
    from tokenmill.doctor.corpus import CONSEQUENCES

    if not counts:
        return f"OK: nothing that kills in {read}"
    more = counts.total() - MAX_LISTED
    lines = [f"... and {more:,} more: `--json` lists all"] if more > 0 else []
    lines.append(f"Found {counts.total():,} in {read}")
    kind_width, count_width = max(map(len, counts)), max(len(f"{n:,}") for n in counts.values())
    lines += [
        f"  {counts[kind]:>{count_width},}  {kind:<{kind_width}}  {consequence}"
        for kind, consequence in CONSEQUENCES.items()
        if counts[kind]
    ]
    return "\n".join(lines)


def print_json(value: Any) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
