"""Documents by number and by place, in every format, with a manifest and without."""

import shutil

import numpy as np
import pytest
from conftest import prepare_inline

from tokenmill.reading import locating as module
from tokenmill.reading import open_any
from tokenmill.reading.lengths import OCTAVES, QUARTERS, Lengths
from tokenmill.reading.locating import Locator
from tokenmill.shards import format_names
from tokenmill.sources.catalog import CATALOG


def all_documents(shards) -> list[np.ndarray]:
    """The documents by reading everything."""
    found: list[np.ndarray] = []
    for first, _, run in shards.numbered_runs(20_000):
        for i in range(len(run)):
            ids = run.documents(i, i + 1).ids
            if first + i == len(found):
                found.append(ids)
            else:  # the rest of one that the edge of a split cut
                found[first + i] = np.concatenate([found[first + i], ids])
    return found


@pytest.fixture(scope="module", params=format_names())
def output(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / request.param
    options = {} if request.param in ("nanogpt", "megatron") else {"shard_tokens": 51_200}
    prepare_inline(CATALOG["sample"], out, format=request.param, **options)
    return out


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_document_is_found_by_its_number_and_by_its_tokens(output, has_manifest, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_TOKENS", 5_000)
    monkeypatch.setattr(module, "LOOK_TOKENS", 64)
    if not has_manifest:
        shutil.copytree(
            output, tmp_path / "bare", ignore=shutil.ignore_patterns("manifest.json", "index", "SHA256SUMS")
        )
        output = tmp_path / "bare"
    shards = open_any(output)
    expected, locator = all_documents(shards), Locator(shards)
    while not locator.count(0.01):
        pass
    assert locator.n_documents == len(expected)
    for number, ids in enumerate(expected):
        found = locator.document(number)
        assert np.array_equal(shards.tokens(found.start, found.stop), ids)
        if len(ids):
            assert {locator.document_at(place) for place in (found.start, found.stop - 1)} == {found}
    with pytest.raises(IndexError):
        locator.document(len(expected))
    with pytest.raises(IndexError):
        locator.document_at(shards.n_tokens)


def test_a_document_at_a_place_is_found_before_anything_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_TOKENS", 5_000)
    prepare_inline(CATALOG["sample"], tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    shards = open_any(tmp_path / "out" / "train.bin")
    locator = Locator(shards)
    assert locator.n_documents is None
    assert locator.document(300) is None
    found = locator.document_at(200_000)
    assert found.number is None
    ids = shards.tokens(found.start - 1, found.stop)
    assert np.flatnonzero(ids == 50_256).tolist() == [0, len(ids) - 1]
    assert locator.count(60)
    assert locator.document(locator.document_at(200_000).number).start == found.start


def test_shards_without_end_of_text_are_one_document_a_split(tmp_path):
    np.arange(1, 10_000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    np.arange(1, 100, dtype=np.uint16).tofile(tmp_path / "val.bin")
    locator = Locator(open_any(tmp_path, tokenizer="gpt2"))
    assert locator.n_documents == 2
    assert (locator.document(0).stop, locator.document(1).start) == (99, 99)
    assert locator.document_at(5_000) == locator.document(1)


def test_lengths_are_counted_exactly_however_long():
    some = np.array([0, 0, 1, 5, 5, 900, 1_000_000, 3_000_000, 2**33], np.int64)
    lengths = Lengths()
    lengths.add(some[:4])
    lengths.add(some[4:])
    shares = [0, 1, 25, 50, 75, 90, 99, 100]
    assert lengths.percentiles(shares) == np.percentile(some, shares, method="inverted_cdf").tolist()
    for edges in (OCTAVES, QUARTERS):
        bins = lengths.histogram(edges)
        assert sum(part.n_documents for part in bins) == len(some)
        assert sum(part.n_tokens for part in bins) == some.sum()
        for part in bins:
            assert part.n_documents == ((some >= part.low) & (some < part.high)).sum()
