"""What the Tab key offers for formats, tokenizers, corpora and their versions.

The names come from the tables that the commands themselves use; no vocabulary and no numpy is loaded for them.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tokenmill.shards import format_names

    return matching(dict.fromkeys(format_names(), ""), incomplete)


def tokenizers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shipped ones; where none fits, files."""
    from tokenmill.tokenizers import tokenizer_names

    return files_and(matching(dict.fromkeys(tokenizer_names(), ""), incomplete), incomplete)


def corpora(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tokenmill.sources.catalog import corpora as known

    return matching({name: corpus.title for name, corpus in known().items()}, incomplete)


def sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Corpora by name; where none fits, files."""
    return files_and(corpora(context, parameter, incomplete), incomplete)


def versions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The versions of the corpus that the command names."""
    from tokenmill.sources.catalog import corpora as known

    # Behind an option whose value is still to come, click leaves the sources among the arguments it has not parsed.
    words = {*(context.params.get("sources") or ()), *context.args}
    named = [corpus for name, corpus in known().items() if name in words]
    return matching({version: "" for corpus in named for version in corpus.versions}, incomplete)


def matching(names: dict[str, str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name, help=why or None) for name, why in names.items() if name.startswith(incomplete)]


def files_and(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Names and files: the word for files comes first, since bash forgets what came before it."""
    return [CompletionItem(incomplete, type="file"), *items]
