"""Everything that a report says, gathered in bounded memory and time.

Counts are those of `tokenmill stats`. Shards without a manifest are read to their end for them, up to a billion
tokens; of more, documents are estimated from a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from tokenmill.manifest import Manifest
from tokenmill.reading import AnyShards
from tokenmill.reading.lengths import Lengths
from tokenmill.reading.locating import Located, Locator
from tokenmill.reading.statistics import Counts, Statistics, counted, with_lengths
from tokenmill.reading.survey import Scan, stretches
from tokenmill.report.counting import SEED, TokenCounts, count_tokens

MAX_READ_TOKENS = 1_000_000_000
N_DOCUMENTS = 6
COUNT_SECONDS = 2.0  # for the numbers of the documents shown, where no index tells them


@dataclass(frozen=True)
class Facts:
    shards: AnyShards
    statistics: Statistics
    lengths: Lengths
    lengths_are_sampled: bool
    tokens: TokenCounts
    locator: Locator
    documents: tuple[Located, ...]  # a seeded handful

    @property
    def manifest(self) -> Manifest | None:
        """The manifest, where the report is about all of its output."""
        return self.shards.manifest if self.shards.path.is_dir() else None


def gather(shards: AnyShards, max_read_tokens: int = MAX_READ_TOKENS) -> Facts:
    """Read what the report needs."""
    is_sampled = shards.manifest is None and shards.n_tokens > max_read_tokens
    statistics, lengths = sampled_counts(shards) if is_sampled else counted(shards)
    locator = Locator(shards)
    locator.count(COUNT_SECONDS)
    return Facts(shards, statistics, lengths, is_sampled, count_tokens(shards), locator, handful(locator))


def sampled_counts(shards: AnyShards) -> tuple[Statistics, Lengths]:
    """Counts by stretches from all over the files: documents that lie whole in one of them."""
    scan, lengths = Scan(shards), Lengths()
    for file, start, stop in stretches(shards.files):
        scan.add(file, start, stop)
    for some in scan.lengths:
        lengths.add(some)
    per_token = scan.n_starts / max(1, scan.n_tokens)
    by_split = {
        split: round(per_token * sum(file.n_tokens for file in shards.files_of(split))) for split in shards.splits
    }
    found = with_lengths(shards, lengths, by_split)
    total = Counts(sum(by_split.values()), shards.n_tokens)
    return msgspec.structs.replace(found, total=total), lengths


def handful(locator: Locator) -> tuple[Located, ...]:
    """A few documents, always the same ones: by number, or by place where numbers would need a scan."""
    random, n_documents = np.random.default_rng(SEED), locator.n_documents
    if not locator.n_tokens:
        return ()
    if n_documents is None:
        places = np.sort(random.integers(0, locator.n_tokens, N_DOCUMENTS)).tolist()
        return tuple(dict.fromkeys(locator.document_at(place) for place in places))
    numbers = np.sort(random.choice(n_documents, min(N_DOCUMENTS, n_documents), replace=False)).tolist()
    return tuple(found for number in numbers if (found := locator.document(number)) is not None)
