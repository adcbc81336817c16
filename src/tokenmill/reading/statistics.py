"""Counts of shards of any format: in all, by split, by source file, and how long documents are.

By the manifest and its index where there are some. Other shards are read to their end; text is measured by a sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from tokenmill.manifest import InputRecord
from tokenmill.reading import AnyShards, open_any
from tokenmill.reading.finding import decoded
from tokenmill.reading.guessing import windows
from tokenmill.reading.lengths import Bin, Lengths


class Counts(msgspec.Struct, frozen=True):
    """Tokens count end-of-text; bytes are those of the text, where they are known."""

    n_documents: int
    n_tokens: int
    n_text_bytes: int | None = None


class Statistics(msgspec.Struct, frozen=True):
    path: str
    format: str
    tokenizer: str | None
    total: Counts
    bytes_per_token: float | None
    text_is_sampled: bool  # bytes a token by a sample of the tokens; else by the manifest
    splits: dict[str, Counts]
    sources: dict[str, Counts]  # empty without a manifest: nothing else tells where documents came from
    longest: int
    histogram: tuple[Bin, ...]  # by powers of two, without the empty bins at its ends


def statistics(path: str | Path, tokenizer: str | None = None) -> Statistics:
    """Count what is in an output, or in shards that somebody else wrote."""
    return counted(open_any(path, tokenizer))[0]


def counted(shards: AnyShards) -> tuple[Statistics, Lengths]:
    """Count what is in shards, and how long documents are."""
    all_lengths = Lengths()
    by_split: dict[str, int] = dict.fromkeys(shards.splits, 0)
    for split, lengths in shards.lengths():
        by_split[split] += len(lengths)
        all_lengths.add(lengths)
    return with_lengths(shards, all_lengths, by_split), all_lengths


def with_lengths(shards: AnyShards, lengths: Lengths, by_split: dict[str, int]) -> Statistics:
    """What is told of shards, with the lengths of their documents and the number of them in each split."""
    manifest = shards.manifest if shards.path.is_dir() else None
    n_text_bytes = manifest.totals.n_text_bytes if manifest else None
    total = Counts(lengths.n_documents, shards.n_tokens, n_text_bytes)
    return Statistics(
        path=str(shards.path),
        format=shards.format,
        tokenizer=shards.told.name,
        total=total,
        bytes_per_token=n_text_bytes / max(1, shards.n_tokens) if n_text_bytes is not None else sampled_bytes(shards),
        text_is_sampled=manifest is None,
        splits={
            split: Counts(n, sum(file.n_tokens for file in shards.files_of(split))) for split, n in by_split.items()
        },
        sources=by_source(manifest.inputs if manifest else ()),
        longest=lengths.longest,
        histogram=lengths.histogram(),
    )


def by_source(inputs: Iterable[InputRecord]) -> dict[str, Counts]:
    """Counts by source file; merged outputs may have one of them several times."""
    found: dict[str, Counts] = {}
    for entry in inputs:
        before = found.get(entry.path, Counts(0, 0, 0))
        found[entry.path] = Counts(
            before.n_documents + entry.n_documents,
            before.n_tokens + entry.n_tokens,
            (before.n_text_bytes or 0) + entry.n_text_bytes,
        )
    return found


def sampled_bytes(shards: AnyShards) -> float | None:
    """Bytes of text a token, end-of-text counted as a token without text, in stretches from all over the files."""
    if shards.tokenizer is None or not shards.n_tokens:
        return None
    sample = np.concatenate(windows(shards.files, n_windows=64, n_tokens=4096))
    text = sample if shards.eot is None else sample[sample != shards.eot]
    return len(decoded(shards.tokenizer, text).encode()) / len(sample)
