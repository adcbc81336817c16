"""Facts -> the page: one HTML file without a script, and with a policy that would let none run."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

import tokenmill
from tokenmill.cli.words import plural
from tokenmill.manifest import Manifest, now
from tokenmill.reading import AnyShards
from tokenmill.reading.shown import shown_pieces
from tokenmill.report import sections
from tokenmill.report.commands import checking_command, reproducing_command
from tokenmill.report.counting import SEED
from tokenmill.report.density import density_section
from tokenmill.report.facts import Facts, gather
from tokenmill.report.markup import Markup, cut_rows, details, joined, table, tag
from tokenmill.report.run import run_section
from tokenmill.report.text import colored
from tokenmill.report.vocabulary import vocabulary_section
from tokenmill.storage.local import write_whole

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SHOWN_TOKENS = 300
MAX_INPUTS = 300


def write_report(shards: AnyShards, target: Path) -> None:
    """Write the report on shards into a file."""
    write_whole(target, html_of(gather(shards)).encode(), "report")


def html_of(facts: Facts) -> str:
    """The whole page."""
    manifest = facts.manifest
    parts: list[tuple[str, str, Markup | None, str]] = [
        ("lengths", "How long documents are", sections.lengths_section(facts), "there are no documents"),
        ("sources", "Tokens by source file", sections.sources_section(facts), "only a manifest tells source files"),
        ("splits", "Tokens by split", sections.splits_section(facts), ""),
        ("shards", "Tokens over the shards", sections.shards_section(facts), ""),
        ("density", "Bytes a token", density_section(facts), "the tokenizer is not known"),
        ("vocabulary", "Tokens of the vocabulary", vocabulary_section(facts), "there are no tokens"),
        ("run", "The run", run_section(manifest) if manifest else None, "only a manifest tells how the run went"),
        ("documents", "Some documents", documents_section(facts), "there are no documents"),
        ("recipe", "Recipe and provenance", recipe_section(manifest) if manifest else None, "only a manifest has them"),
    ]
    there = [(key, title, content) for key, title, content, _ in parts if content is not None]
    missing = [f"{title}: {why}." for _, title, content, why in parts if content is None]
    contents = tag("ul", *(tag("li", tag("a", title, href=f"#{key}")) for key, title, _ in there))
    body = [
        header(facts),
        tag("nav", contents, aria_label="Contents"),
        tag(
            "main",
            tag(
                "dl",
                *(tag("div", tag("dt", name), tag("dd", value)) for name, value in sections.totals(facts)),
                class_="tiles",
            ),
            commands(facts),
            *(tag("section", tag("h2", title), content, id=key, aria_label=title) for key, title, content in there),
            tag(
                "section",
                tag("h2", "Not in this report"),
                tag("ul", *(tag("li", line) for line in missing)),
                aria_label="Not in this report",
            )
            if missing
            else "",
        ),
        tag("footer", f"Made {now()} by tokenmill {tokenmill.__version__}."),
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{facts.shards.path.name}: tokenmill report"),
        tag("style", Markup(files("tokenmill.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def header(facts: Facts) -> Markup:
    shards, manifest = facts.shards, facts.manifest
    end = "" if shards.eot is None else f", end-of-text {shards.eot}"
    made = f"made {manifest.run.finished} by tokenmill {manifest.tokenmill}" if manifest else "without a manifest"
    warnings = [*shards.warnings]
    if manifest and manifest.totals.n_dropped_tokens:
        warnings.append(
            f"{plural(manifest.totals.n_dropped_tokens, 'token')} behind the last whole sample were dropped"
        )
    if manifest and manifest.excluded:
        warnings.append(f"{plural(len(manifest.excluded), 'document')} went to quarantine, and are not in the shards")
    told = f"{shards.told.name or 'not known'} (told by: {shards.told.how})"
    return tag(
        "header",
        tag("p", "tokenmill report", class_="kind"),
        tag("h1", str(shards.path.absolute()), dir="auto"),
        tag("p", f"{shards.format}, {shards.dtype.name}{end}; {made}"),
        tag("p", f"tokenizer: {told}; documents told by: {shards.documents_told_by}")
        if manifest is None
        else tag("p", f"tokenizer: {shards.told.name}"),
        tag("ul", *(tag("li", warning) for warning in warnings), class_="warnings") if warnings else "",
    )


def commands(facts: Facts) -> Markup:
    out, manifest = facts.shards.path.absolute(), facts.manifest
    if manifest is None:
        return tag("p", "Look closer: ", tag("code", f"tokenmill inspect {out}"), class_="commands")
    return tag(
        "dl",
        tag("dt", "Make it again"),
        tag("dd", tag("code", reproducing_command(manifest, out))),
        tag("dt", "Check it"),
        tag("dd", tag("code", checking_command(out))),
        class_="commands",
    )


def documents_section(facts: Facts) -> Markup | None:
    """The beginnings of a few documents, drawn with a seed."""
    if not facts.documents:
        return None
    shown = []
    for found in facts.documents:
        ids = facts.shards.tokens(found.start, min(found.stop, found.start + SHOWN_TOKENS))
        entry, file = facts.locator.source(found), facts.shards.files[found.file]
        name = f"Document {found.number:,}" if found.number is not None else f"At token {found.start:,}"
        length = found.stop - found.start
        part = f", the first {SHOWN_TOKENS} shown" if length > SHOWN_TOKENS else ""
        origin = ""
        if entry is not None and facts.shards.manifest is not None:
            origin = f"{facts.shards.manifest.inputs[entry['input']].path}, row {entry['row']:,}; "
        where = f"{origin}{file.path.name} ({file.split}), {plural(length, 'token')}{part}"
        pieces = shown_pieces(facts.shards.tokenizer, ids, facts.shards.eot)
        shown.append(joined([tag("h3", name), tag("p", where, dir="auto", class_="where"), colored(pieces)]))
    said = f"Drawn with seed {SEED}. A color is a token; point at one for its id and bytes."
    return joined([tag("p", said), *shown])


def recipe_section(manifest: Manifest) -> Markup:
    recipe = {
        name: value for name, value in msgspec.to_builtins(manifest.recipe).items() if value not in (None, [], ())
    }
    rows = [
        [name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)]
        for name, value in recipe.items()
    ]
    record = manifest.tokenizer
    checked = f"{plural(record.n_checked_documents, 'document')} encoded again by the reference: equal"
    provenance = [
        ["fingerprint of the recipe", manifest.fingerprint],
        ["tokenmill", manifest.tokenmill],
        ["tokenizer", f"{record.name}, {record.vocab_size:,} ids, identity {record.identity}"],
        ["engine", f"{record.engine} ({', '.join(f'{name} {version}' for name, version in record.versions.items())})"],
        ["why", record.reason],
        ["checked", checked if record.n_checked_documents else "the reference itself did the work"],
        *(["made of", f"{parent.path}, fingerprint {parent.fingerprint}"] for parent in manifest.parents),
    ]
    if manifest.n_special_text_documents:
        spelled = plural(manifest.n_special_text_documents, "document")
        provenance.append(["special tokens in text", f"{spelled} spell one; it stayed text"])
    inputs, more = cut_rows(
        [[entry.path, entry.sha256, f"{entry.n_bytes:,}", f"{entry.n_rows:,}"] for entry in manifest.inputs],
        MAX_INPUTS,
        "file",
    )
    shards, more_shards = cut_rows(
        [[file.file, file.sha256, f"{file.n_bytes:,}"] for shard in manifest.shards for file in shard.files],
        MAX_INPUTS,
        "file",
    )
    return joined(
        [
            table(["option", "value"], rows, "Recipe: whatever changes a byte", 2),
            table(["what", "value"], provenance, "Provenance", 2),
            details(
                "Source files with checksums",
                table(["file", "SHA-256", "bytes", "rows"], inputs, f"Checksums of source files{more}", 2),
            ),
            details(
                "Files of the output with checksums",
                table(["file", "SHA-256", "bytes"], shards, f"Checksums of the output{more_shards}", 2),
            ),
        ]
    )
