"""The sections of a benchmark: each a list of cases that take turns.

field       every contender on the same files
ways        the three ways of "My prepare.py dies"
formats     the same documents as Parquet (zstd, snappy), JSONL (plain, gz, zst) and text
tokenizers  gpt2, cl100k_base, o200k_base, and the tokenizer.json files given
corpora     the other corpora given
shuffle     nanoGPT's files in nanoGPT's order, and in the corpus's
sizes       the corpus 1, 2, 4 and 8 times: cost and memory
workers     1 and 2 workers, on the corpus 8 times
ray         2 workers as processes, and on Ray
start       the 1 MB job, and what is imported
verify      `verify --checksums-only` and `sha256sum` on the same files
convert     the tokens into another format
resume      a run killed halfway, gone on with; a finished one, run again
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench
from benchmarks.contenders.protocol import DocumentIds, divided
from benchmarks.corpus import first_difference
from benchmarks.environments import EnvironmentMissingError, python_of
from benchmarks.field import FIELD, FLAT, Command, contender_case, our_llmc_ids, our_nanogpt_ids, tokenmill
from benchmarks.figures import Record
from benchmarks.measure import Case, measured_cases
from benchmarks.ways import ways_cases

SIZES = (1, 2, 4, 8)


def field_section(bench: Bench) -> dict[str, Record]:
    cases, missing = [], {}
    for contender in FIELD:
        if bench.contenders and contender.name not in bench.contenders:
            continue
        try:
            case = contender_case(contender, bench.corpus, bench.small, bench.right(), bench.vocabulary, bench.venvs)
            cases.append(case)
        except EnvironmentMissingError as error:
            missing[contender.name] = not_measured(contender.title, str(error))
    return measured_cases(cases, bench.rounds, bench.work, bench.say) | missing


def not_measured(title: str, why: str) -> Record:
    return {"title": title, "wrong": why, "rounds": [], "small_rounds": [], "n_bytes": 0, "n_small_bytes": 0}


def formats(bench: Bench) -> list[Case]:
    kinds = {
        "Parquet, zstd": "parquet.zstd",
        "Parquet, snappy": "parquet.snappy",
        "JSONL": "jsonl",
        "JSONL.gz": "jsonl.gz",
        "JSONL.zst": "jsonl.zst",
        "text": "txt",
    }
    return [bench.prepare_case(name, *FLAT, kind=kind) for name, kind in kinds.items()]


def tokenizers(bench: Bench) -> list[Case]:
    named = {name: name for name in ("gpt2", "cl100k_base", "o200k_base")} | bench.tokenizers
    return [
        bench.prepare_case(
            name, "--format", "megatron", "--eot", "none", "--tokenizer", given, read=megatron_ids, tokenizer=given
        )
        for name, given in named.items()
    ]


def megatron_ids(out: Path) -> DocumentIds:
    """Megatron's pair of files, read for ids and the lengths of documents: the header says the type and the counts."""
    (index,) = (out / "out").glob("*.idx")
    raw = index.read_bytes()
    kind, n = {4: np.int32, 8: np.uint16}[raw[17]], int.from_bytes(raw[18:26], "little")
    lengths = np.frombuffer(raw, np.int32, n, 34)
    return DocumentIds(np.fromfile(index.with_suffix(".bin"), kind).astype(np.uint32), lengths.astype(np.int64))


def corpora(bench: Bench) -> list[Case]:
    others = {"the corpus itself": bench.corpus} | bench.corpora
    return [bench.prepare_case(name, *FLAT, corpus=corpus) for name, corpus in others.items()]


def shuffle(bench: Bench) -> list[Case]:
    unshuffled = bench.prepare_case("corpus order", "--no-shuffle", read=in_order_ids)
    return [bench.prepare_case("shuffled", read=our_nanogpt_ids), unshuffled]


def in_order_ids(out: Path) -> DocumentIds:
    """nanoGPT's files without a shuffle: val first."""
    files = [np.fromfile(out / "out" / f"{split}.bin", np.uint16) for split in ("val", "train")]
    return divided(np.concatenate(files))


def sizes(bench: Bench) -> list[Case]:
    return [repeated_case(bench, f"{n}x", f"{n} times the files", n, 2) for n in SIZES]


def workers(bench: Bench) -> list[Case]:
    """On the corpus 8 times over: on less, half of the time is start-up."""
    return [repeated_case(bench, counted(n), counted(n), 8, n) for n in (1, 2)]


def ray(bench: Bench) -> list[Case]:
    """The same work by 2 worker processes and by 2 workers of Ray; what Ray needs to start is in the small job."""
    by_ray = python_of("ray", bench.venvs)
    cases = [
        repeated_case(bench, "processes", "2 worker processes", 8, 2),
        replace(
            repeated_case(bench, "ray", "2 workers of Ray", 8, 2, "--executor", "ray", python=by_ray),
            env={"RAY_TMPDIR": "/tmp"},  # noqa: S108 - its sockets need a short path
        ),
    ]
    return [replace(case, watched=True) for case in cases]


def repeated_case(
    bench: Bench, name: str, title: str, times: int, n_workers: int, *more: str, python: Path | None = None
) -> Case:
    """The corpus so many times over."""
    options, python = (*FLAT, "--workers", str(n_workers), *more), python or bench.python
    return Case(
        name=name,
        title=title,
        command=tokenmill(python, *options),
        source=bench.corpus.times(times).parquet,
        n_bytes=bench.corpus.n_text_bytes * times,
        small_source=bench.small.parquet,
        n_small_bytes=bench.small.n_text_bytes,
        small_command=tokenmill(python, *options, small=True),
        check=repeated(bench.right(), times),
    )


def repeated(right: DocumentIds, n: int) -> Callable[[Path], str | None]:
    return lambda out: first_difference(
        DocumentIds(np.tile(right.ids, n), np.tile(right.lengths, n)), our_llmc_ids(out)
    )


def counted(n: int) -> str:
    return "1 worker" if n == 1 else f"{n} workers"


def start(bench: Bench) -> list[Case]:
    right = bench.right(bench.small)
    return [
        Case(
            name=counted(n),
            title=f"1 MB, {counted(n)}",
            command=bench.tokenmill(*FLAT, "--workers", str(n)),
            source=bench.small.parquet,
            n_bytes=bench.small.n_text_bytes,
            check=lambda out: first_difference(right, our_llmc_ids(out)),
        )
        for n in (1, 2)
    ]


def imports(bench: Bench) -> dict[str, dict[str, float]]:
    """Seconds of imports in the parent and in a worker, by package: `python -X importtime` of each."""
    out = bench.work / "imports"
    command = [*bench.tokenmill(*FLAT, "--workers", "1")(bench.small.parquet, out)]
    parent = [command[0], "-X", "importtime", *command[1:]]
    worker = [
        command[0],
        "-X",
        "importtime",
        "-c",
        "import tokenmill.worker, tokenmill.sources.parquet; from tokenmill import Tokenizer; Tokenizer('gpt2').engine",
    ]
    # `--workers 1` starts a worker process; its standard error is not the parent's.
    return {name: import_seconds(one) for name, one in {"parent": parent, "worker": worker}.items()}


def import_seconds(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    micros: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        if match := re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)", line):
            micros[match[2].split(".")[0]] += int(match[1])
    most = dict(micros.most_common(12))
    others = sum(micros.values()) - sum(most.values())
    return {name: one / 1e6 for name, one in [*most.items(), ("all others", others)]}


def verify(bench: Bench) -> list[Case]:
    """On the corpus 4 times over, so that start-up is not all there is."""
    made, small = finished(bench, "verified", 4), finished(bench, "verified-small", 0)
    ours = [str(bench.python), "-m", "tokenmill", "verify", "--checksums-only"]
    sums = "cd {} && sha256sum --quiet -c SHA256SUMS"
    case = Case(
        name="verify",
        title="`tokenmill verify --checksums-only`",
        command=lambda source, out: [*ours, str(source)],
        source=made,
        n_bytes=size(made),
        small_source=small,
        n_small_bytes=size(small),
    )
    return [
        case,
        replace(
            case,
            name="sha256sum",
            title="`sha256sum -c`",
            command=lambda source, out: ["sh", "-c", sums.format(source)],
        ),
    ]


def convert(bench: Bench) -> list[Case]:
    made, small = finished(bench, "converted", 1), finished(bench, "converted-small", 0)
    return [
        Case(
            name=f"llmc to {target}",
            title=f"llmc to {target}",
            command=converter(bench, target),
            source=made,
            n_bytes=bench.corpus.n_text_bytes,
            small_source=small,
            n_small_bytes=bench.small.n_text_bytes,
        )
        for target in ("megatron", "nanogpt", "npy")
    ]


def converter(bench: Bench, target: str) -> Command:
    start = [str(bench.python), "-m", "tokenmill", "convert"]
    return lambda source, out: [*start, str(source), "-o", str(out / "out"), "--format", target]


def finished(bench: Bench, name: str, times: int) -> Path:
    """An output of `prepare`, of the small corpus for 0."""
    corpus = bench.corpus.times(times) if times > 1 else bench.corpus if times else bench.small
    out = bench.work / name
    subprocess.run(bench.tokenmill(*FLAT, "-q")(corpus.parquet, out), check=True)
    return out / "out"


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def resume(bench: Bench) -> list[Case]:
    """The unit of a small corpus is the whole of it, so the corpus 4 times over."""
    corpus = bench.corpus.times(4)
    n_units = int(subprocess.check_output(plan_units(bench, corpus.parquet), text=True))
    command = bench.tokenmill(*FLAT, "--workers", "2")
    case = Case(
        name="from nothing",
        title="a run from nothing",
        command=command,
        source=corpus.parquet,
        n_bytes=bench.corpus.n_text_bytes * 4,
    )

    def run(out: Path, fault: str = "") -> None:
        env = os.environ | ({"TOKENMILL_FAULT": fault} if fault else {})
        given = [*command(corpus.parquet, out), "-q"]
        subprocess.run(given, env=env, start_new_session=True, check=not fault, capture_output=True)

    return [
        case,
        replace(
            case,
            name="from half",
            title="a run killed when half of the units were done, gone on with",
            before=lambda source, out: run(out, f"unit.receipt-synced:{max(1, n_units // 2)}"),
        ),
        replace(case, name="finished", title="a finished run, run again", before=lambda source, out: run(out)),
    ]


def plan_units(bench: Bench, source: Path) -> list[str]:
    code = (
        "import sys; from tokenmill.plan import plan_units; from tokenmill.recipe import Recipe;"
        "print(len(plan_units(Recipe(sources=(sys.argv[1],)).resolve(), None).units))"
    )
    return [str(bench.python), "-c", code, str(source)]


SECTIONS: dict[str, Callable[[Bench], list[Case]] | None] = {
    "field": None,  # it may miss contenders
    "ways": ways_cases,
    "formats": formats,
    "tokenizers": tokenizers,
    "corpora": corpora,
    "shuffle": shuffle,
    "sizes": sizes,
    "workers": workers,
    "ray": ray,
    "start": start,
    "verify": verify,
    "convert": convert,
    "resume": resume,
}


def measured_section(name: str, bench: Bench) -> dict[str, Record]:
    """Measure one section."""
    cases = SECTIONS[name]
    if cases is None:
        return field_section(bench)
    return measured_cases(cases(bench), bench.rounds, bench.work, bench.say)
