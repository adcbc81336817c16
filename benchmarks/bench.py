"""What every section works with: the corpora, the ids that are right, and where things go."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contenders.protocol import DocumentIds
from benchmarks.corpus import Corpus, first_difference, linked, parquet_files, reference_ids
from benchmarks.environments import python_of
from benchmarks.field import Command, our_llmc_ids, tokenmill
from benchmarks.measure import Case
from benchmarks.vocabulary import write_vocabulary

SMALL_BYTES = 1_000_000
QUICK_BYTES = 4_000_000


@dataclass
class Bench:
    work: Path
    venvs: Path
    rounds: int
    corpus: Corpus
    small: Corpus
    contenders: tuple[str, ...] = ()  # empty: all
    corpora: dict[str, Corpus] = field(default_factory=dict)  # beside the first one, by name
    tokenizers: dict[str, str] = field(default_factory=dict)  # tokenizer.json files, by name
    _right: dict[tuple[str, str], DocumentIds] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    @property
    def vocabulary(self) -> Path:
        return self.work / "vocabulary"

    @property
    def python(self) -> Path:
        """The interpreter that has tokenmill and nothing else."""
        return python_of("tokenmill", self.venvs)

    def tokenmill(self, *options: str, small: bool = False) -> Command:
        return tokenmill(self.python, *options, small=small)

    def right(self, corpus: Corpus | None = None, tokenizer: str = "gpt2") -> DocumentIds:
        """The reference's ids; made once."""
        corpus = corpus or self.corpus
        key = (corpus.name, tokenizer)
        if key not in self._right:
            self.say(f"the reference's ids of {corpus.name} with {tokenizer}")
            self._right[key] = reference_ids(corpus, tokenizer)
        return self._right[key]

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self._began:6.0f} s] {line}", file=sys.stderr, flush=True)

    def prepare_case(
        self,
        name: str,
        *options: str,
        title: str = "",
        kind: str = "parquet",
        corpus: Corpus | None = None,
        read: Callable[[Path], DocumentIds] | None = our_llmc_ids,
        tokenizer: str = "gpt2",
    ) -> Case:
        """`tokenmill prepare` with 2 workers unless said otherwise, and the same on the small corpus."""
        corpus = corpus or self.corpus
        given = list(options) if "--workers" in options else [*options, "--workers", "2"]
        right = self.right(corpus, tokenizer) if read else None
        return Case(
            name=name,
            title=title or name,
            command=self.tokenmill(*given),
            source=corpus.form(kind),
            n_bytes=corpus.n_text_bytes,
            small_source=self.small.form(kind),
            n_small_bytes=self.small.n_text_bytes,
            small_command=self.tokenmill(*given, small=True),
            check=(lambda out: first_difference(right, read(out))) if read and right else None,
        )


def new_bench(given: Path, work: Path, venvs: Path, rounds: int, *, quick: bool) -> Bench:
    """Lay out the work folder."""
    write_vocabulary(work / "vocabulary")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(work / "vocabulary/tiktoken")  # of every contender too
    files = parquet_files(given)
    if not files:
        raise SystemExit(f"no Parquet files in {given}")
    corpus = linked("corpus", files, work)
    small = corpus.first("small", SMALL_BYTES, n_files=2)  # work for two processes
    if quick:
        corpus = corpus.first("quick", QUICK_BYTES, n_files=3)
    return Bench(work=work, venvs=venvs, rounds=rounds, corpus=corpus, small=small)
