"""The table of docs/reliability.md: what was tried, how often, and what came of it; beside it what the peers do."""

import json
from collections import Counter
from pathlib import Path

PEERS = Path(__file__).parent / "peers.json"
BEGIN, END = "<!-- made by make torture -->", "<!-- end -->"
KILLS = "SIGKILL of the whole process group at a random moment"


def added_up(entries: list[dict]) -> list[dict]:
    """One entry for each fault and outcome."""
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        counts[entry["fault"], entry["outcome"]] += entry["n"]
    return [{"fault": fault, "outcome": outcome, "n": n} for (fault, outcome), n in counts.items()]


def rows(result: dict) -> list[str]:
    peers = json.loads(PEERS.read_text())["table"] if PEERS.exists() else {}
    kills = {"fault": KILLS, "outcome": "same bytes", "n": result["kills"]}
    entries = added_up([kills, *result["tests"]])
    return [f"| {one['fault']} | {one['n']:,} | {one['outcome']} | {peers.get(one['fault'], '')} |" for one in entries]


def write(page: Path, result: dict) -> None:
    """Put the table between the two marks of the page."""
    text = page.read_text()
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    problems = ", ".join(f"{n} {kind}s" for kind, n in result["problems"].items())
    said = f"{result['date']}, {result['machine']}: {result['kills']} kills in {result['seconds']} s, {problems}."
    lines = [BEGIN, said, "", "| fault | tried | outcome | peers |", "|---|---|---|---|", *rows(result)]
    page.write_text(head + "\n".join(lines) + "\n" + tail)
