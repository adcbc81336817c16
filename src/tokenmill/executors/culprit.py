"""Which of these documents kills a process: they are encoded one by one in a process of their own.

Started as `python -m tokenmill.executors.culprit`. In: the tokenizer and the texts, as JSON on standard input. Out:
the index of each text, one a line, before it is encoded; whoever reads it sees the last one when the process dies.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec

# A few megabytes take seconds at most, the loading of a tokenizer included.
LIMIT_SECONDS = 120.0


class Suspects(msgspec.Struct, frozen=True):
    tokenizer: str
    pattern: str | None
    use_reference: bool
    import_paths: tuple[str, ...]
    texts: list[str]


def deadly_document(suspects: Suspects) -> int | None:
    """Return the index of the text that ends a process; None if all of them go well this time."""
    command = [sys.executable, "-P", "-m", "tokenmill.executors.culprit"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(suspects), capture_output=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    begun = done.stdout.split()
    return int(begun[-1]) if done.returncode and begun else None


def main() -> None:
    import os

    import numpy as np
    import pyarrow as pa

    from tokenmill.batches import Documents
    from tokenmill.tokenizers import Tokenizer

    suspects = msgspec.json.decode(sys.stdin.buffer.read(), type=Suspects)
    sys.path += [path for path in suspects.import_paths if path not in sys.path]
    tokenizer = Tokenizer(suspects.tokenizer, suspects.pattern)
    engine = tokenizer.reference if suspects.use_reference else tokenizer.engine
    for i, text in enumerate(suspects.texts):
        os.write(1, b"%d\n" % i)
        engine.encode(Documents(pa.array([text], pa.large_string()), np.zeros(1, np.uint32), 1))


if __name__ == "__main__":
    main()
