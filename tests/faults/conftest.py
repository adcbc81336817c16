"""Corpora and references of the fault tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import Forks, leftovers, write_corpus


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> list[str]:
    """Three files of JSONL and Parquet, 1.2 MB."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "in", n_documents=3000)


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    yield
    assert leftovers() == []
