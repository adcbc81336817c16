"""The table of docs/reliability.md: what was tried, how often, and what came of it; beside it what the peers do."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

PEERS = Path(__file__).parent / "peers.json"
BEGIN, END = "<!-- made by make torture -->", "<!-- end -->"


def into(tally: Path) -> dict[str, str]:
    """The environment in which the tests count what they try."""
    return {"TOKENMILL_FAULTS_TALLY": str(tally)}


def rows(entries: list[dict]) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        counts[entry["fault"], entry["outcome"]] += entry["n"]
    peers = json.loads(PEERS.read_text())["table"] if PEERS.exists() else {}
    return [f"| {fault} | {n:,} | {outcome} | {peers.get(fault, '')} |" for (fault, outcome), n in counts.items()]


def write(page: Path, entries: list[dict], where: str) -> None:
    """Put the table between the two marks of the page."""
    text = page.read_text()
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    day = datetime.now(UTC).date().isoformat()
    lines = [BEGIN, f"{day}, {where}.", "", "| fault | tried | outcome | peers |", "|---|---|---|---|", *rows(entries)]
    page.write_text(head + "\n".join(lines) + "\n" + tail)
