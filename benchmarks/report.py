"""Results -> tables and a chart: on standard output, or between the markers of README and docs.

    python -m benchmarks.report benchmarks/results/NAME.json

writes `<!-- bench:NAME -->` ... `<!-- /bench:NAME -->` in README.md, docs/performance.md and docs/my-prepare-dies.md,
and docs/performance.svg.
"""

from __future__ import annotations

import json
import re
import sys
from math import isnan
from pathlib import Path
from typing import Any

from benchmarks.chart import Bar, bars_svg
from benchmarks.figures import Figure, Record, is_measured, rate, start_up, taken
from benchmarks.targets import OURS, checks

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/performance.md", "docs/my-prepare-dies.md")
CHART = "docs/performance.svg"
NOT_IN_CHART = (
    "tokenmill-1",
    "nanogpt-1",
    "prepare-1",
    "prepare-2",
    "prepare-fineweb",
)  # variants


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    write_pages(results, ROOT)


def write_pages(results: dict[str, Any], root: Path) -> None:
    """Put the tables of a benchmark between the markers of the pages that have them."""
    (root / CHART).write_text(chart(results))
    tables = {
        "proof": proof(results),
        "summary": summary(results),
        "ways": ways(results),
        "machine": machine(results),
        "targets": target_table(results),
        "field": field_table(results),
        "sections": section_tables(results),
    }
    for page in PAGES:
        text = (root / page).read_text()
        for name, table in tables.items():
            text = between_markers(text, name, table)
        (root / page).write_text(text)


def between_markers(text: str, name: str, content: str) -> str:
    """Replace what stands between two markers, if there is something to put there."""
    if not content:
        return text
    pattern = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content.strip()}\n{match[2]}", text)


def whole_report(results: dict[str, Any]) -> str:
    """All tables, as a page of its own."""
    parts = [machine(results), "## Targets", target_table(results), "## The field", field_table(results)]
    return "\n\n".join(part for part in [*parts, section_tables(results)] if part) + "\n"


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(results: dict[str, Any]) -> str:
    facts, corpus = results["machine"], results["corpus"]
    versions = "; ".join(
        ", ".join(f"{name} {version}" for name, version in group.items()) for group in results["versions"].values()
    )
    return (
        f"{facts['n_cores']} cores of {facts['cpu']} ({facts['architecture']}), Linux {facts['kernel']}, Python"
        f" {facts['python']}; {corpus['n_text_bytes'] / 1e6:.1f} MB of text in {corpus['n_documents']:,} documents,"
        f" {corpus['n_files']} Parquet files (`{corpus['name']}`, SHA-256 {corpus['sha256'][:16]}); {results['rounds']}"
        f" rounds, medians; {results['date'][:10]}. Measured by `{results['command']}`.\n\nVersions: {versions}."
    )


def summary(results: dict[str, Any]) -> str:
    """The README's: the chart, a short table, and what it was measured on."""
    field = results["sections"].get("field", {})
    if not is_measured(field.get(OURS)) or isnan(rate(field[OURS])):
        return ""
    ours = rate(field[OURS])
    rows = [
        [record["title"], three_digits(rate(record)), f"{ours / rate(record):.3g}", peak(record)]
        for _, record in ranked(field)
        if not isnan(rate(record))
    ]
    heads = ["", "MB of text per CPU second", "tokenmill is so many times as fast", "peak MB"]
    where = machine(results).split("\n\n")[0]
    return "\n\n".join([table(heads, rows), where])


def proof(results: dict[str, Any]) -> str:
    """The README's first screen: the chart, and how to measure it again."""
    field = results["sections"].get("field", {})
    if not is_measured(field.get(OURS)) or isnan(rate(field[OURS])):
        return ""
    facts, corpus = results["machine"], results["corpus"]
    return (
        f"![MB of text per CPU second: tokenmill, its peers, and the bare engine as the limit]({CHART})\n\n"
        f"{corpus['n_text_bytes'] / 1e6:.0f} MB of Parquet (`{corpus['name']}`) to token files on disk, gpt2,"
        f" {facts['n_cores']} cores ({facts['architecture']}); the ids of all were compared first."
        " Measure it again with `make bench CORPUS=folder`; [how, and all figures](docs/performance.md)."
    )


def ranked(field: dict[str, Record]) -> list[tuple[str, Record]]:
    """Those that were measured, the fastest first."""
    found = [(name, record) for name, record in field.items() if is_measured(record)]
    return sorted(found, key=lambda pair: -rate(pair[1]) if rate(pair[1]) > 0 else 0.0)


def chart(results: dict[str, Any]) -> str:
    bars = [
        Bar(record["title"].replace("*", "").replace("`", ""), rate(record), kind_of(name))
        for name, record in ranked(results["sections"].get("field", {}))
        if name not in NOT_IN_CHART and not isnan(rate(record))
    ]
    return bars_svg("MB of text per CPU second of the whole process tree, start-up set apart", bars)


def kind_of(name: str) -> str:
    if name == "engine":
        return "limit"
    return "ours" if name.startswith(("tokenmill", "prepare")) else "other"


def target_table(results: dict[str, Any]) -> str:
    words = {True: "met", False: "**not met**", None: "not measured"}
    return table(
        ["target", "wanted", "measured", ""],
        [[one.target, one.wanted, one.measured, words[one.met]] for one in checks(results)],
    )


HEADS = ("", "MB per CPU s", "CPU s", "wall s", "peak MB", "read MB", "written MB")


def field_table(results: dict[str, Any]) -> str:
    field = results["sections"].get("field", {})
    if not field:
        return ""
    heads = [*HEADS, "1 MB job: CPU s", "wall s", "ids"]
    rows = [[record["title"], *figures(record), "equal"] for _, record in ranked(field)]
    rows += [
        [record["title"], *["-"] * 8, "wrong or not there: " + one_line(record["wrong"])]
        for record in field.values()
        if not is_measured(record)
    ]
    return table(heads, rows)


def section_tables(results: dict[str, Any]) -> str:
    parts = []
    for name, section in results["sections"].items():
        if name in ("field", "imports"):
            continue
        heads = [*HEADS, "small job: CPU s", "wall s"]
        rows = [
            [record["title"], *(figures(record) if is_measured(record) else [one_line(record["wrong"])])]
            for record in section.values()
        ]
        parts += [f"### {name.capitalize()}", table(heads, rows)]
    for process, seconds in results["sections"].get("imports", {}).items():
        named = ", ".join(f"{name} {one * 1000:.0f}" for name, one in seconds.items())
        parts.append(f"Imports of the {process}, {sum(seconds.values()):.2f} s in all; ms by package: {named}.")
    return "\n\n".join(parts)


def figures(record: Record) -> list[str]:
    small_cpu, small_wall = start_up(record, "cpu_seconds"), start_up(record, "wall_seconds")
    last = record["first_run"]
    return [
        three_digits(rate(record)),
        with_spread(taken(record, "cpu_seconds")),
        with_spread(taken(record, "wall_seconds")),
        peak(record),
        f"{last['n_read_bytes'] / 1e6:,.0f}",
        f"{max(last['n_written_bytes'], last['n_disk_written_bytes']) / 1e6:,.0f}",
        f"{small_cpu.median:.2f}" if small_cpu else "-",
        f"{small_wall.median:.2f}" if small_wall else "-",
    ]


def three_digits(found: float) -> str:
    return "too short to tell" if isnan(found) else f"{found:.3g}"


def with_spread(found: Figure) -> str:
    return f"{found.median:.2f} ({found.least:.2f} to {found.greatest:.2f})"


def peak(record: Record) -> str:
    return f"{record['first_run']['peak_bytes'] / 1e6:,.0f}"


def one_line(text: str) -> str:
    return " ".join(text.split())[:300].replace("|", "/")


def ways(results: dict[str, Any]) -> str:
    """The table of the guide "My prepare.py dies"."""
    section = results["sections"].get("ways", {})
    if not section or not all(map(is_measured, section.values())):
        return ""
    slowest = taken(section["as it is"], "cpu_seconds").median
    rows = []
    for record in section.values():
        cpu, wall = taken(record, "cpu_seconds").median, taken(record, "wall_seconds").median
        rows.append([record["title"], f"{wall:.1f}", f"{cpu:.1f}", f"{slowest / cpu:.1f} times"])
    return table(["way", "wall s", "CPU s", "against the script as it is"], rows)


if __name__ == "__main__":
    main()
