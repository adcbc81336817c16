"""Measure tokenmill and its peers on the same files in the same run.

    python -m benchmarks CORPUS                            everything; hours on a large corpus
    python -m benchmarks CORPUS --sections field --contenders tokenmill-2,nanogpt-2 --rounds 3
    python -m benchmarks CORPUS --quick                    4 MB of it, 1 round: does it work?

CORPUS is a Parquet file or a folder of them, with the column `text`. The results go to benchmarks/results/NAME.json,
with a chart and a page of tables beside it; `python -m benchmarks.report` puts them into README and docs.
"""

from __future__ import annotations

import argparse
import compileall
import json
import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, new_bench
from benchmarks.corpus import linked, parquet_files
from benchmarks.environments import ROOT, EnvironmentMissingError, python_of, versions
from benchmarks.field import FIELD
from benchmarks.machine import machine_facts
from benchmarks.report import chart, target_table, whole_report
from benchmarks.sections import SECTIONS, imports, measured_section


def main() -> None:
    given = parsed()
    given.out.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(ROOT / "src", quiet=1)  # as those of an installed package are
    work = Path(tempfile.mkdtemp(prefix="tokenmill-bench-", dir=given.work))
    try:
        bench = new_bench(given.corpus, work, given.venvs, given.rounds, quick=given.quick)
        bench.contenders = given.contenders
        bench.tokenizers = {name: str(Path(path).resolve()) for name, path in given.tokenizers}
        bench.corpora = {name: linked(name, parquet_files(Path(path)), work) for name, path in given.corpora}
        results = facts(bench, given)
        for section in given.sections:
            bench.say(f"section {section}")
            results["sections"][section] = measured_section(section, bench)
            if section == "start":
                results["sections"]["imports"] = imports(bench)
            write(results, given.out / f"{given.name}.json", work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    (given.out / f"{given.name}.svg").write_text(chart(results))
    (given.out / f"{given.name}.md").write_text(whole_report(results))
    print(target_table(results))


def parsed() -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure tokenmill and its peers.")
    parser.add_argument("corpus", type=Path, help="a Parquet file, or a folder of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contenders", type=names([one.name for one in FIELD]), default=())
    parser.add_argument("--sections", type=names(list(SECTIONS)), default=tuple(SECTIONS))
    parser.add_argument("--corpora", type=pair, nargs="*", default=[], metavar="NAME=PATH", help="other corpora")
    parser.add_argument(
        "--tokenizers", type=pair, nargs="*", default=[], metavar="NAME=PATH", help="tokenizer.json files"
    )
    parser.add_argument("--quick", action="store_true", help="4 MB of the corpus, 1 round")
    parser.add_argument("--name", default="latest", help="what the results are called")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results", help="where the results go")
    parser.add_argument("--venvs", type=Path, default=ROOT, help="where the contenders' environments are kept")
    parser.add_argument("--work", type=Path, default=None, help="a folder with room for all outputs")
    given = parser.parse_args()
    given.corpus = given.corpus.resolve()
    given.rounds = 1 if given.quick else given.rounds
    return given


def names(known: list[str]) -> Any:
    """A list of names, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        if unknown := set(given) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return given

    return parse


def pair(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not path:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=PATH")
    return name, path


def facts(bench: Bench, given: Any) -> dict[str, Any]:
    """What is known before anything is measured."""
    corpus = given.corpus.name
    sections = "" if given.sections == tuple(SECTIONS) else f" --sections {','.join(given.sections)}"
    contenders = f" --contenders {','.join(given.contenders)}" if given.contenders else ""
    others = "".join(
        f" --{what} " + " ".join(f"{name}={Path(path).name}" for name, path in pairs)
        for what, pairs in (("corpora", given.corpora), ("tokenizers", given.tokenizers))
        if pairs
    )
    command = f"python -m benchmarks {corpus} --rounds {given.rounds}{sections}{contenders}{others}"
    found = {}
    groups = {one.environment for one in FIELD if not given.contenders or one.name in given.contenders}
    for group in sorted(groups if "field" in given.sections else {"tokenmill"}):
        try:
            bench.say(f"environment {group}")
            found[group] = versions(group, python_of(group, bench.venvs))
        except EnvironmentMissingError as error:
            bench.say(str(error))
    return {
        "name": given.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command + (" --quick" if given.quick else ""),
        "machine": machine_facts(),
        "corpus": {"name": corpus, **bench.corpus.facts()},
        "versions": found,
        "rounds": given.rounds,
        "sections": {},
    }


def write(results: dict[str, Any], path: Path, work: Path) -> None:
    """Write the results, a run a line, without the paths of this machine."""
    text = re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), json.dumps(results, indent=1))
    path.write_text(text.replace(str(work), "WORK").replace(str(ROOT), ".") + "\n")


if __name__ == "__main__":
    main()
