"""Trust, and look: a seeded sample of every run is encoded again by the reference while it runs.

About 1 document in 1,000 (in 2,000 for a tokenizer.json), and at least 20 in a run. Workers put the documents of the
sample, with the ids they gave them, beside the segment; one thread of the parent encodes them again, so that the
reference is loaded once and not in every worker. One difference ends the run: the document is saved, and the error
names the command that shows it.
"""

from __future__ import annotations

import secrets
import shlex
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.batches import Documents, Tokens, arrow_array, text_array
from tokenmill.care import NOT_THE_DOCUMENT
from tokenmill.errors import ExactnessError
from tokenmill.journal import Checked
from tokenmill.storage.local import TEMP_SUFFIX
from tokenmill.tokenizers import Tokenizer

MIN_DOCUMENTS = 20
# Those that make up the minimum are short: tiktoken takes 13 s for a document of 55 MB.
SHORT_BYTES = 100_000
MISMATCH_FILE = "mismatch.txt"
SCHEMA = pa.schema([("text", pa.large_string()), ("ids", pa.large_list(pa.uint32()))])


def sample_path(work: Path, unit: int) -> Path:
    return work / "units" / f"{unit:07d}.sample"


class SampleWriter:
    """Chooses documents of one unit and keeps them with their ids until the unit is done."""

    def __init__(self, share: float, fingerprint: str, unit: int, n_units: int) -> None:
        self._share = share
        self._rng = np.random.default_rng([int(fingerprint[:8], 16), unit])
        # The minimum comes from the first units: where there are many, chance has more than enough.
        self._n_wanted = -(-MIN_DOCUMENTS // n_units) if unit < MIN_DOCUMENTS else 0
        self._texts: list[str] = []
        self._ids: list[np.ndarray[tuple[int], np.dtype[np.uint32]]] = []

    def choose(self, documents: Documents, tokens: Tokens) -> None:
        """Take some documents of a batch into the sample."""
        chosen = set(np.flatnonzero(self._rng.random(len(documents)) < self._share).tolist())
        n_missing = self._n_wanted - len(self._texts) - len(chosen)
        if n_missing > 0:
            short = np.flatnonzero(np.diff(documents.text_offsets) <= SHORT_BYTES)
            others = np.setdiff1d(short, list(chosen))
            chosen |= set(self._rng.permutation(others)[:n_missing].tolist())
        ends = np.cumsum(tokens.doc_lengths)
        for i in sorted(chosen):
            self._texts.append(documents.texts[i].as_py())
            self._ids.append(tokens.ids[ends[i] - tokens.doc_lengths[i] : ends[i]].astype(np.uint32))

    def n_equal(self, tokenizer: Tokenizer, out: Path) -> int:
        """Encode the sample again here and now; return how many documents were compared."""
        pairs = zip(self._texts, self._ids, strict=True)
        return sum(is_compared(tokenizer, text, ids, out) for text, ids in pairs)

    def write(self, path: Path) -> None:
        offsets = np.cumsum([0, *map(len, self._ids)], dtype=np.int64)
        all_ids = np.concatenate([np.empty(0, np.uint32), *self._ids])
        ids = pa.LargeListArray.from_arrays(arrow_array(offsets), arrow_array(all_ids))
        table = pa.table([text_array(self._texts), ids], schema=SCHEMA)
        temp_path = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMP_SUFFIX}")  # another may write it too
        with pa.ipc.new_file(str(temp_path), SCHEMA) as writer:
            writer.write_table(table)
        temp_path.replace(path)


class SampleChecker:
    """Encodes the samples again, in a thread of its own, and says so when one differs."""

    def __init__(self, tokenizer: Tokenizer, work: Path) -> None:
        self.seconds = 0.0
        self._tokenizer, self._work = tokenizer, work
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenmill-check")
        self._checks: list[tuple[int, Future[int]]] = []
        self._stopping = threading.Event()

    def submit(self, unit: int) -> list[Checked]:
        """Have the sample of a finished unit checked; return what earlier checks have shown, or raise it."""
        self._checks.append((unit, self._thread.submit(self._check, sample_path(self._work, unit))))
        done = []
        while self._checks and self._checks[0][1].done():
            done.append(self._checks.pop(0))
        return [Checked(unit, check.result()) for unit, check in done]

    def finish(self) -> list[Checked]:
        """Wait for all checks."""
        return [Checked(unit, check.result()) for unit, check in self._checks]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    def _check(self, path: Path) -> int:
        began = time.thread_time()
        if not path.exists():  # checked and not recorded, by a run that was killed in between
            return 0
        n_checked = 0
        try:
            rows = pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all().to_pylist()
        except pa.ArrowException:  # samples are not synced: a crash of the machine may have taken this one
            return 0
        for row in rows:
            if self._stopping.is_set():
                return 0
            n_checked += is_compared(self._tokenizer, row["text"], row["ids"], self._work.parent)
        self.seconds += time.thread_time() - began
        return n_checked


def is_compared(tokenizer: Tokenizer, text: str, ids: Any, out: Path) -> bool:
    """Encode a document with the reference; say so if it finds other ids, and return whether it could be asked."""
    try:
        right = tokenizer.reference.encode_one(text)
    except NOT_THE_DOCUMENT:
        raise
    except BaseException:  # a panic in a Rust library: there is nothing to compare with
        return False
    if not np.array_equal(ids, right):
        raise difference(tokenizer, text, out)
    return True


def difference(tokenizer: Tokenizer, text: str, out: Path) -> ExactnessError:
    path = out / MISMATCH_FILE
    path.write_bytes(text.encode())
    pattern = ["--pattern", tokenizer.pattern] if tokenizer.pattern else []
    command = ["tokenmill", "tokenizers", "--tokenizer", tokenizer.name, *pattern, "--compare", str(path)]
    return ExactnessError(
        f"{tokenizer.engine.name} and {tokenizer.reference.name} give different ids for a document"
        f"\n  it is saved in `{path}`",
        hint=f"`{shlex.join(command)}` shows the difference; please report it",
    )
