"""The simulation of a large run, at a thousandth of the size: its figures agree with each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.simulate import PARTS
from benchmarks.simulated import QUICK, Corpus


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(QUICK)


def test_shards_hold_all_tokens_and_documents(corpus, tmp_path):
    figures = PARTS["whole"](corpus, tmp_path)
    assert figures["tokens"] == QUICK.n_tokens
    assert figures["documents"] == QUICK.n_documents
    assert figures["shards"] == QUICK.n_tokens // QUICK.shard_tokens
    assert figures["mishaps"] > 0


def test_the_journal_is_read_back_as_it_was_written(corpus, tmp_path):
    written = PARTS["journal"](corpus, tmp_path)
    read = PARTS["resume"](corpus, tmp_path)
    assert read["units"] == written["units"] == PARTS["plan"](corpus, tmp_path)["units"]
    assert read["tokens"] == QUICK.n_tokens


def test_every_unit_is_done_though_nodes_are_lost_and_slow(corpus, tmp_path):
    figures = PARTS["crew"](corpus, tmp_path)
    assert figures["tokens"] == QUICK.n_tokens
    assert figures["answers lost"] > 0
    assert figures["units asked for"] >= figures["units"] + figures["answers lost"]


def test_cutting_covers_the_stream_with_and_without_val(corpus, tmp_path):
    figures = PARTS["cutting"](corpus, tmp_path)
    assert figures["tokens, val none"] == figures["tokens, val shard"] == QUICK.n_tokens


def test_requests_add_up(corpus, tmp_path):
    figures = PARTS["requests"](corpus, tmp_path)
    for kind in ("PUT", "GET", "LIST"):
        assert figures[kind] == sum(n for name, n in figures.items() if name.startswith(f"{kind}, "))
