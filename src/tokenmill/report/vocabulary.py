"""The tokens that occur most, and how much of the vocabulary is used."""

from __future__ import annotations

import numpy as np

from tokenmill.cli.words import plural
from tokenmill.reading.shown import shown_pieces
from tokenmill.report import charts
from tokenmill.report.charts import Row
from tokenmill.report.counting import SEED
from tokenmill.report.facts import Facts
from tokenmill.report.markup import Markup, details, joined, table, tag
from tokenmill.report.sections import MAX_BARS
from tokenmill.report.text import on_one_line

MAX_TOKENS = 100


def vocabulary_section(facts: Facts) -> Markup | None:
    """The most frequent tokens, and how much of the vocabulary is used."""
    tokens, tokenizer = facts.tokens, facts.shards.tokenizer
    top = tokens.most_frequent(MAX_TOKENS)
    if not top:
        return None

    def text(token: int) -> Markup:
        (piece,) = shown_pieces(tokenizer, np.array([token]), facts.shards.eot)
        if piece.bytes and "\ufffd" in piece.text:  # a part of a character
            return tag("span", f"bytes {piece.bytes[0]}", class_="sign")
        return on_one_line(piece.text)

    rows = [Row(text(token), n, f"{n / tokens.n_read:.2%}") for token, n in top[:MAX_BARS]]
    listed = [
        [str(rank), text(token), str(token), f"{n:,}", f"{n / tokens.n_read:.3%}"]
        for rank, (token, n) in enumerate(top, 1)
    ]
    head = ["rank", "token", "id", "times", "share"]
    return joined(
        [
            tag("p", used_words(facts)),
            charts.bars(rows, "The most frequent tokens", ("token", "share of all tokens")),
            details(f"The {len(top)} most frequent, with ids", table(head, listed, "Most frequent tokens", 2)),
        ]
    )


def used_words(facts: Facts) -> str:
    tokens, tokenizer = facts.tokens, facts.shards.tokenizer
    read = f"All {tokens.n_read:,} tokens were counted."
    if tokens.n_read < facts.shards.n_tokens:
        of_all = f"{tokens.n_read:,} of {facts.shards.n_tokens:,} tokens"
        read = f"Counted in a sample: {of_all}, in stretches drawn with seed {SEED}."
    if tokenizer is None:
        return f"{plural(tokens.n_used, 'different id')} occur. {read}"
    size_, inside = tokenizer.vocab_size, int(np.count_nonzero(tokens.counts[: tokenizer.vocab_size]))
    beyond = tokens.n_read - int(tokens.counts[:size_].sum())
    strange = f" {plural(beyond, 'token')} have ids that are not in it." if beyond else ""
    never = size_ - inside
    return (
        f"{never / size_:.1%} of the vocabulary of {facts.shards.told.name} is never used: {never:,} of {size_:,} ids."
        f"{strange} {read}"
    )
