"""`tokenmill datasets`: the corpora that are known by name."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from tokenmill.cli import suggestions
from tokenmill.cli.lists import print_rows
from tokenmill.cli.words import count, size
from tokenmill.sources.catalog import Corpus, Version, corpora, corpus_named, corpus_source


@click.command(short_help="The corpora that are known by name.")
@click.argument("name", required=False, shell_complete=suggestions.corpora)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def datasets(name: str | None, as_json: bool) -> None:
    """List the corpora that `prepare` knows by name; with NAME, all about one of them.

    \b
    Examples:
        tokenmill datasets
        tokenmill datasets fineweb-edu
    """
    chosen = {name: corpus_named(name)} if name else corpora()
    if as_json:
        facts = [corpus_facts(key, corpus) for key, corpus in chosen.items()]
        sys.stdout.write(msgspec.json.encode(facts[0] if name else facts).decode() + "\n")
    elif name:
        show_corpus(name, chosen[name])
    else:
        print_rows([row for key, corpus in chosen.items() for row in version_rows(key, corpus)], as_json=False)
        click.echo("\n? is not known. Tokens are by GPT-2 where no other tokenizer is named. * is the default version.")


def corpus_facts(name: str, corpus: Corpus) -> dict[str, Any]:
    """An entry of the catalog as JSON: with its name, its page, and the address of each version."""
    facts: dict[str, Any] = {"name": name, "homepage": corpus.homepage} | msgspec.to_builtins(corpus)
    for version, fields in facts["versions"].items():
        fields["address"] = corpus_source(name, version).source
    return facts


def version_rows(name: str, corpus: Corpus) -> list[dict[str, str]]:
    """A row for each version; one that is not listed by name has no figures."""
    rows = []
    for label, version in versions_shown(corpus):
        rows.append({"corpus": name, "version": label, **figures(version), "license": corpus.license or "?"})
    return rows


def versions_shown(corpus: Corpus) -> list[tuple[str, Version]]:
    shown = [(f"{name}*" if name == corpus.default else name, version) for name, version in corpus.versions.items()]
    if corpus.pattern:
        shown.append((corpus.pattern.form, Version(path=corpus.pattern.path)))
    return shown


def figures(version: Version) -> dict[str, str]:
    by = "" if version.tokens_by == "gpt2" or version.n_tokens is None else f" ({version.tokens_by})"
    return {
        "documents": "?" if version.n_documents is None else count(version.n_documents),
        "size": "?" if version.n_bytes is None else size(version.n_bytes),
        "tokens": "?" if version.n_tokens is None else count(version.n_tokens) + by,
    }


def show_corpus(name: str, corpus: Corpus) -> None:
    lines = [
        corpus.title,
        f"  from       {f'hf://datasets/{corpus.repository}' if corpus.repository else 'the package'},"
        f" text in `{corpus.text_column}`",
        f"  license    {corpus.license or '?'}{'; gated: accept its terms, and set HF_TOKEN' if corpus.gated else ''}",
    ]
    lines += [f"  page       {corpus.homepage}"] if corpus.homepage else []
    lines += [f"  note       {corpus.note}"] if corpus.note else []
    click.echo("\n".join(lines) + "\n")
    rows = []
    for label, version in versions_shown(corpus):
        files = "?" if version.n_files is None else f"{version.n_files:,}"
        shards = "?" if version.n_tokens is None else f"about {size(2 * version.n_tokens)}"
        row = {"version": label, **figures(version), "files": files, "as uint16": shards, "path": version.path}
        rows.append(row | {"figures from": version.source or "?"})
    print_rows(rows, as_json=False)
    example = corpus.default or next(iter(corpus.versions))
    option = f" --version {example}" if len(corpus.version_names) > 1 else ""
    click.echo(
        "\nSize is that of the files. `as uint16` is an estimate of the shards for gpt2: 2 bytes for each token."
        f"\n\n    tokenmill prepare {name}{option} -o data/{name.replace('-', '_')}"
    )
