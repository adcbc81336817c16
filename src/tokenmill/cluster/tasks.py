"""What a station may be asked besides encoding a unit, as plain data that crosses machines as JSON."""

from __future__ import annotations

import msgspec

from tokenmill.scatter import Bucket
from tokenmill.segments import Segment
from tokenmill.shards.writer import SplitRule


class ShardTask(msgspec.Struct, frozen=True):
    """One shard: where it begins in the stream of tokens, and the segments or buckets that hold it.

    It ends where the format says, and they go at least so far that the next one has something to begin with;
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
    segments: tuple[Segment, ...] = ()  # in the order of the corpus
    buckets: tuple[Bucket, ...] = ()  # or shuffled: they lie across the files of all groups,
    group_bytes: tuple[int, ...] = ()  # which have these sizes
