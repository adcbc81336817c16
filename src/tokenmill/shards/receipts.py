"""The records that files and shards are done."""

from __future__ import annotations

import msgspec

from tokenmill.shards import Split


class FileReceipt(msgspec.Struct, frozen=True):
    file: str  # relative to the output folder
    n_bytes: int
    sha256: str


class ShardReceipt(msgspec.Struct, frozen=True):
    """The record that a shard is sealed. `n_documents` counts those that begin in it."""

    file: str
    split: Split
    n_tokens: int
    n_documents: int
    n_bytes: int
    sha256: str
    index: FileReceipt
    side_files: tuple[FileReceipt, ...] = ()  # the other files of the format that belong to this shard
    # Behind the last shard of a split, what does not fill a sample; and documents of which nothing is left.
    n_dropped_tokens: int = 0
    n_dropped_documents: int = 0
    # 1 if it begins with the rest of a document that began in another split, which counts as one here
    n_continued: int = 0
    ends_cut: bool = False  # whether the end of its last document is not there, though nothing says so in the index

    @property
    def files(self) -> tuple[FileReceipt, ...]:
        """All files of the shard, that with the tokens first."""
        return (FileReceipt(self.file, self.n_bytes, self.sha256), *self.side_files, self.index)
