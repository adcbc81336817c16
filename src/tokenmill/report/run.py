"""The part of a report that says how the run went: how fast, what held it up, and what went wrong on the way."""

from __future__ import annotations

from itertools import pairwise

from tokenmill.cli.words import count, duration, plural, size
from tokenmill.manifest import Manifest, RunSample
from tokenmill.report import charts
from tokenmill.report.charts import Row, Tick
from tokenmill.report.markup import Markup, cut_rows, details, joined, table, tag

STAGES = {None: "starting", "reading": "reading", "encoding": "encoding", "writing": "writing"}
MAX_EVENTS = 200
MAX_LABELS = 24  # events that have a number in the chart


def run_section(manifest: Manifest) -> Markup | None:
    run = manifest.run
    if not run.seconds:
        return None
    workers = plural(run.workers, "worker")
    words = f"Took {duration(run.elapsed_seconds)} with {workers}, and finished {run.finished}."
    if run.n_units_resumed:
        words += (
            f" {run.n_units_resumed:,} of {plural(run.n_units, 'unit')} were done by earlier runs that were stopped."
        )
    parts = [tag("p", words)]
    if len(run.samples) > 1 and run.samples[-1].n_text_bytes > run.samples[0].n_text_bytes:
        parts.append(throughput(manifest))
    stages = [Row(stage, seconds, f"{seconds:,.2f} s") for stage, seconds in run.seconds.items()]
    parts.append(charts.bars(stages, "Seconds by stage, of all processes together", ("stage", "seconds")))
    parts.append(events(manifest))
    return joined(parts)


def rates(samples: tuple[RunSample, ...]) -> list[tuple[RunSample, RunSample, float]]:
    """Bytes of text a second between each sample and the next. A worker that dies takes back what it had counted."""
    return [
        (before, after, max(0.0, (after.n_text_bytes - before.n_text_bytes) / (after.seconds - before.seconds)))
        for before, after in pairwise(samples)
        if after.seconds > before.seconds
    ]


def throughput(manifest: Manifest) -> Markup:
    """Text a second over the run; below it the stage that held it up; events as numbered lines."""
    run = manifest.run
    found = rates(run.samples)
    seconds = max(run.elapsed_seconds, found[-1][1].seconds)
    most = max(rate for *_, rate in found) * 1.05
    steps = [
        point
        for before, after, rate in found
        for point in ((before.seconds / seconds, rate / most), (after.seconds / seconds, rate / most))
    ]
    marks = [charts.upright(min(1.0, at / seconds), mark_class(what)) for at, what in run.mishaps]
    labels = [
        tag("span", str(i), style=f"left:{min(1.0, at / seconds):.2%}", class_="event", aria_hidden="true")
        for i, (at, _) in enumerate(run.mishaps[:MAX_LABELS], 1)
    ]
    stretches = stages(found)
    band = tag(
        "div",
        *(
            tag(
                "span",
                class_=f"stage-{stage}",
                style=f"left:{start / seconds:.2%};width:{(end - start) / seconds:.2%}",
                title=f"{stage}: {start:.1f} to {end:.1f} s",
            )
            for stage, start, end in stretches
        ),
        class_="band",
        aria_hidden="true",
    )
    ticks = [Tick(value / seconds, duration(value)) for value in charts.round_ticks(seconds)]
    total = run.samples[-1].n_text_bytes - run.samples[0].n_text_bytes
    bound = ", then ".join(f"{stage} until {duration(end)}" for stage, _, end in stretches[:6])
    chart = charts.plot(
        f"Text encoded a second: {size(total / seconds)}/s on average, {size(most / 1.05)}/s at most."
        f" What bound it: {bound}.",
        [charts.path(steps), *marks],
        ticks,
        [Tick(value / most, size(value)) for value in charts.round_ticks(most)],
        "time",
        "text a second",
        labels,
    )
    rows = [
        [
            duration(after.seconds),
            f"{size(rate)}/s",
            count((after.n_tokens - before.n_tokens) / (after.seconds - before.seconds)),
            STAGES[after.binding],
        ]
        for before, after, rate in found
    ]
    names = [
        (f"stage-{stage}", f"{stage} binds" if stage != "starting" else stage)
        for stage in dict.fromkeys(stage for stage, *_ in stretches)
    ]
    return joined(
        [
            tag("h3", "Throughput"),
            chart,
            band,
            charts.legend(names),
            details(
                "As a table", table(["until", "text", "tokens a second", "what binds"], rows, "Throughput over the run")
            ),
        ]
    )


def stages(found: list[tuple[RunSample, RunSample, float]]) -> list[tuple[str, float, float]]:
    """Stretches of the run that one stage held up: its name, from and to which second."""
    stretches: list[tuple[str, float, float]] = []
    for before, after, _ in found:
        stage = STAGES[after.binding]
        if stretches and stretches[-1][0] == stage:
            stretches[-1] = (stage, stretches[-1][1], after.seconds)
        else:
            stretches.append((stage, before.seconds, after.seconds))
    return stretches


def mark_class(what: str) -> str:
    return "event-quarantine" if "quarantine" in what else "event-line"


def events(manifest: Manifest) -> Markup:
    """Deaths, stalls and retries with their times; documents that were left out."""
    parts = []
    if manifest.run.mishaps:
        rows, more = cut_rows(
            [[str(i), duration(at), what] for i, (at, what) in enumerate(manifest.run.mishaps, 1)], MAX_EVENTS, "mishap"
        )
        parts.append(
            table(
                ["", "after", "what happened, and what was done"], rows, f"Worker deaths, stalls and retries{more}", 3
            )
        )
    else:
        parts.append(tag("p", "No worker died, nothing was tried again."))
    if manifest.excluded:
        rows, more = cut_rows(
            [[entry.file, f"{entry.row:,}", size(entry.n_bytes), entry.reason] for entry in manifest.excluded],
            MAX_EVENTS,
            "document",
        )
        parts.append(
            table(["file", "row", "size", "why"], rows, f"Documents in quarantine, which no engine could take{more}")
        )
    if manifest.skipped:
        rows = [[reason, f"{n:,}"] for reason, n in manifest.skipped.items()]
        parts.append(table(["reason", "rows"], rows, "Rows that were skipped"))
    return joined(parts)
