"""What a station may be asked besides encoding a unit, as plain data that crosses machines as JSON."""

from __future__ import annotations

import msgspec

from tokenmill.plan import Unit
from tokenmill.segments import UnitReceipt
from tokenmill.shards.writer import SplitRule


class UnitStretch(msgspec.Struct, frozen=True):
    """The tokens of a unit: a segment, and what is needed to read it."""

    unit: Unit
    receipt: UnitReceipt
    first_rows: tuple[int, ...]  # for each span, how many rows of its input came before

    @property
    def n_tokens(self) -> int:
        return self.receipt.n_tokens

    @property
    def n_documents(self) -> int:
        return self.receipt.n_documents


class ShardTask(msgspec.Struct, frozen=True):
    """One shard: where it begins in the stream of tokens, and the stretches that hold it.

    It ends where the format says, and the stretches go at least so far that the next one has something to begin with;
    or it is the last of its split.
    """

    number: int  # through all splits
    n_val: int  # shards of val before it
    rule: SplitRule
    last: bool
    start: int  # its first token, in the stream
    n_tokens_before: int  # of the stream, before the first stretch
    n_documents_before: int
    n_val_documents: int | None  # the first documents of the stream that are val; None: the first shard is
    stretches: tuple[UnitStretch, ...]
