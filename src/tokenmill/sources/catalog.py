"""Corpora that are known by name. So far: the sample that ships with the package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent.parent

CATALOG: dict[str, Path] = {
    # 420 passages of public-domain English books, 1.6 MB of text, 368,238 GPT-2 tokens.
    "sample": PACKAGE / "samples" / "sample.parquet",
}
