"""The document index of a shard: where each document begins, and where it came from.

`OUT/index/000000.arrow` belongs to shard 0: an Arrow IPC file with one row for each document that begins in the
shard, in order, in record batches of 65,536 rows, so that row N is in batch N // 65536. Nobody must scan for
end-of-text, which would be wrong where a text spells it.

    start      uint64   position of the document's first token in the shard
    length     uint64   its tokens, end-of-text included; it may run on into the following shards
    input      uint32   its source: a position in the manifest's list of inputs
    row        uint64   its row there, counted from 0 (for JSONL and lines: the line, counted from 0)
    continued  bool     whether it is the rest of a document that began in another split

The names of index files contain neither `train` nor `val`: build-nanogpt loads every file whose name does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.batches import arrow_array
from tokenmill.errors import DamageError
from tokenmill.storage.local import PartialFile

BATCH_ROWS = 65_536
SCHEMA = pa.schema(
    [
        ("start", pa.uint64()),
        ("length", pa.uint64()),
        ("input", pa.uint32()),
        ("row", pa.uint64()),
        ("continued", pa.bool_()),
    ]
)


INDEX = "index"


def index_name(shard_index: int) -> str:
    return f"{INDEX}/{shard_index:06d}.arrow"


class IndexWriter:
    """Writes the rows of one shard; the bytes do not depend on how they are appended."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.file = PartialFile(path, "index")
        self.n_documents = 0
        self._stream = pa.PythonFile(self.file, mode="w")
        self._writer = pa.ipc.new_file(self._stream, SCHEMA)
        self._waiting: list[Any] = []
        self._n_waiting = 0

    def append(
        self,
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        inputs: npt.NDArray[np.uint32],
        rows: npt.NDArray[np.uint64],
        continued: npt.NDArray[np.bool_],
    ) -> None:
        if len(starts) == 0:
            return
        arrays = (starts.astype(np.uint64), lengths.astype(np.uint64), inputs, rows, continued)
        self._waiting.append(pa.record_batch([arrow_array(array) for array in arrays], schema=SCHEMA))
        self._n_waiting += len(starts)
        self.n_documents += len(starts)
        if self._n_waiting >= BATCH_ROWS:
            self._write(keep=self._n_waiting % BATCH_ROWS)

    def _write(self, keep: int) -> None:
        """Write all rows that wait but the last `keep`."""
        table = pa.Table.from_batches(self._waiting, SCHEMA).combine_chunks()
        n_rows = len(table) - keep
        for batch in table.slice(0, n_rows).to_batches(max_chunksize=BATCH_ROWS):
            self._writer.write_batch(batch)
        self._waiting = table.slice(n_rows).to_batches()
        self._n_waiting = keep

    def commit(self) -> str:
        """Finish the file and return its SHA-256."""
        if self._n_waiting:
            self._write(keep=0)
        self._writer.close()
        self.file.commit()
        return self.file.sha256


class Index:
    """A document index, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
        except (pa.ArrowException, OSError) as error:
            raise DamageError(f"cannot read the document index `{path}`: {error}") from None
        if self._reader.schema != SCHEMA:
            raise DamageError(f"`{path}` is no document index: its columns are {self._reader.schema.names}")
        self.n_batches: int = self._reader.num_record_batches

    def batch(self, i: int) -> Any:
        """Record batch `i`, whose first row is i * 65,536."""
        try:
            return self._reader.get_batch(i)
        except (pa.ArrowException, OSError) as error:
            raise DamageError(f"cannot read the document index `{self._path}`: {error}") from None

    def row(self, document: int) -> dict[str, int]:
        """The entry of one document."""
        (entry,) = self.batch(document // BATCH_ROWS).slice(document % BATCH_ROWS, 1).to_pylist()
        return dict(entry)

    def __len__(self) -> int:
        if self.n_batches == 0:
            return 0
        return (self.n_batches - 1) * BATCH_ROWS + int(self.batch(self.n_batches - 1).num_rows)
