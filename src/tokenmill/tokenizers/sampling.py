"""Trust, and look: a seeded sample of every run is encoded again by the reference while it runs.

About 1 document in 1,000, and at least 20 in a run. One difference ends the run: the document is saved, and the error
names the command that shows the difference again.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from tokenmill.batches import Documents, Tokens
from tokenmill.errors import ExactnessError
from tokenmill.tokenizers import Tokenizer

SHARE = 1 / 1000
MIN_DOCUMENTS = 20
MISMATCH_FILE = "mismatch.txt"


class ReferenceSample:
    """Compares documents of one unit with the reference."""

    def __init__(self, tokenizer: Tokenizer, fingerprint: str, unit: int, n_units: int, out: Path) -> None:
        self.tokenizer, self.out = tokenizer, out
        self.n_checked = 0
        self._rng = np.random.default_rng([int(fingerprint[:8], 16), unit])
        self._n_wanted = -(-MIN_DOCUMENTS // n_units)

    def check(self, documents: Documents, tokens: Tokens) -> None:
        """Encode some of the documents again, and raise on the first that differs."""
        chosen = np.flatnonzero(self._rng.random(len(documents)) < SHARE)
        n_missing = min(self._n_wanted - self.n_checked - len(chosen), len(documents))
        if n_missing > 0:
            chosen = np.union1d(chosen, self._rng.choice(len(documents), n_missing, replace=False))
        ends = np.cumsum(tokens.doc_lengths)
        for i in chosen.tolist():
            ids = tokens.ids[ends[i] - tokens.doc_lengths[i] : ends[i]]
            text = documents.texts[i].as_py()
            if not np.array_equal(ids, self.tokenizer.reference.encode_one(text)):
                self.refuse(text)
        self.n_checked += len(chosen)

    def refuse(self, text: str) -> None:
        path = self.out / MISMATCH_FILE
        path.write_bytes(text.encode())
        pattern = ["--pattern", self.tokenizer.pattern] if self.tokenizer.pattern else []
        command = ["tokenmill", "tokenizers", "--tokenizer", self.tokenizer.name, *pattern, "--compare", str(path)]
        raise ExactnessError(
            f"{self.tokenizer.engine_name} and {self.tokenizer.reference.name} give different ids for a document"
            f"\n  it is saved in `{path}`",
            hint=f"`{shlex.join(command)}` shows the difference; please report it",
        )
