"""The field: every contender, where it runs, what it reads, and how its ids are read back.

All of them turn the same documents into gpt2 ids on disk. Those of tokenmill end sealed: synced, with checksums, a
manifest and a document index.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.contenders.protocol import DocumentIds, llmc_ids, nanogpt_ids
from benchmarks.corpus import Corpus, first_difference
from benchmarks.environments import ROOT, python_of
from benchmarks.measure import Case

Command = Callable[[Path, Path], list[str]]  # source, out -> what to run


@dataclass(frozen=True)
class Contender:
    name: str
    title: str
    environment: str
    reads: str = "parquet"
    script: str = ""  # of contenders/
    processes: int = 2
    command: Callable[[Path], Command] | None = None  # of ours: from the interpreter
    small_command: Callable[[Path], Command] | None = None
    read: Callable[[Path], DocumentIds] | None = None


# tokenmill gives a job this small to one worker. To know what the start of two takes, it is cut in two.
IN_SMALL_UNITS = """
from tokenmill import plan
from tokenmill.cli import main
plan.MIN_UNIT_BYTES = 500_000
main()
"""


def tokenmill(python: Path, *options: str, small: bool = False) -> Command:
    start = [str(python), *(["-c", IN_SMALL_UNITS] if small else ["-m", "tokenmill"]), "prepare"]
    return lambda source, out: [*start, str(source), "-o", str(out / "out"), "--progress", "off", *options]


def ours(name: str, title: str, read: Callable[[Path], DocumentIds], *options: str) -> Contender:
    return Contender(
        name,
        title,
        "tokenmill",
        command=lambda python: tokenmill(python, *options),
        small_command=lambda python: tokenmill(python, *options, small=True),
        read=read,
    )


def our_script(name: str, n: int) -> Callable[[Path], Command]:
    def command(python: Path) -> Command:
        start = [str(python), "-m", f"tokenmill.scripts.{name}", "--num_proc", str(n)]
        return lambda source, out: [*start, "--input", str(source), "--out", str(out / "out")]

    return command


def our_llmc_ids(out: Path) -> DocumentIds:
    return llmc_ids(out / "out")


def our_nanogpt_ids(out: Path) -> DocumentIds:
    return nanogpt_ids(out / "out")


FLAT = ("--format", "llmc", "--val", "none")
FIELD = (
    Contender("engine", "the bare engine in memory (gigatoken, 1 thread)", "plain", script="engine", processes=1),
    ours("tokenmill-1", "**tokenmill**, 1 worker", our_llmc_ids, *FLAT, "--workers", "1"),
    ours("tokenmill-2", "**tokenmill**, 2 workers", our_llmc_ids, *FLAT, "--workers", "2"),
    ours("tokenmill-nanogpt", "**tokenmill**, 2 workers, nanoGPT's shuffled files", our_nanogpt_ids, "--workers", "2"),
    Contender(
        "prepare-1",
        "our `prepare.py --num_proc 1`",
        "scripts",
        command=our_script("prepare", 1),
        read=our_nanogpt_ids,
    ),
    Contender(
        "prepare-2",
        "our `prepare.py --num_proc 2`",
        "scripts",
        command=our_script("prepare", 2),
        read=our_nanogpt_ids,
    ),
    Contender(
        "prepare-fineweb",
        "our `prepare_fineweb.py --num_proc 2`",
        "tokenmill",
        command=our_script("prepare_fineweb", 2),
        read=our_nanogpt_ids,
    ),
    Contender("encode-files", "gigatoken `encode_files` on JSONL, in RAM", "plain", "jsonl", "encode_files"),
    Contender("encode-files-parquet", "gigatoken `encode_files` on Parquet, in RAM", "plain", script="encode_files"),
    Contender("llmc", "llm.c's loop (`Pool.imap`, tiktoken), 2 processes", "plain", script="llmc"),
    Contender("litdata", "litdata `optimize` (tiktoken), 2 workers", "litdata", script="litdata"),
    Contender("streaming", "streaming `MDSWriter` (tiktoken), 2 processes", "streaming", script="streaming"),
    Contender("encode-batch", "`tokenizers.encode_batch`, 2 threads", "plain", script="encode_batch"),
    Contender("nanogpt-1", "nanoGPT's recipe (`datasets.map`), num_proc 1", "plain", script="nanogpt", processes=1),
    Contender("nanogpt-2", "nanoGPT's recipe (`datasets.map`), num_proc 2", "plain", script="nanogpt"),
    Contender("dolma", "`dolma tokens`, 2 processes", "dolma", "jsonl.gz", "dolma"),
    Contender("datatrove", "datatrove's pipeline, 2 workers", "datatrove", script="datatrove"),
    Contender("megatron", "Megatron's classic way (`tokenizers`, a line at a time)", "plain", "jsonl", "megatron"),
)


def contender_case(
    contender: Contender, corpus: Corpus, small: Corpus, right: DocumentIds, vocabulary: Path, venvs: Path
) -> Case:
    """A contender on a corpus, as something to be measured."""
    python = python_of(contender.environment, venvs)
    command = contender.command(python) if contender.command else script_command(contender, python, vocabulary)

    def check(out: Path) -> str | None:
        read = contender.read or (lambda out: read_by_script(command, out))
        return first_difference(right, read(out))

    return Case(
        name=contender.name,
        title=contender.title,
        command=command,
        source=corpus.form(contender.reads),
        n_bytes=corpus.n_text_bytes,
        small_source=small.form(contender.reads),
        n_small_bytes=small.n_text_bytes,
        small_command=contender.small_command(python) if contender.small_command else None,
        check=check,
        env={"PYTHONPATH": str(ROOT)} if contender.script else {},
    )


def script_command(contender: Contender, python: Path, vocabulary: Path) -> Command:
    start = [str(python), "-m", f"benchmarks.contenders.{contender.script}"]
    options = ["--processes", str(contender.processes), "--vocabulary", str(vocabulary)]
    return lambda source, out: [*start, str(source), str(out), *options]


def read_by_script(command: Command, out: Path) -> DocumentIds:
    """Have a contender's script read its own output."""
    file = out.parent / "ids.npz"
    subprocess.run([*command(out, out), "--ids", str(file)], check=True, cwd=ROOT, capture_output=True)
    with np.load(file) as found:
        ids = DocumentIds(found["ids"], found["lengths"])
    file.unlink()
    return ids
