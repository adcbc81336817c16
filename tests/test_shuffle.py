"""Permutations are bijections, pinned for good, and carried out exactly."""

import math

import numpy as np
import pytest
from conftest import prepare_inline, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from tokenmill.errors import RecipeError
from tokenmill.recipe import RunOptions
from tokenmill.shuffle import keyed_permutation, numpy_permutation

PINNED_10 = [0, 2, 5, 6, 7, 3, 9, 4, 8, 1]
PINNED_10_BILLION = [6359820570, 9060594737, 2134410721, 875526754]
PINNED_NUMPY = [7, 0, 3, 5, 2, 4, 6, 1]


@settings(deadline=None)
@given(n=st.integers(1, 3000), seed=st.integers(0, 10**18 - 1))
def test_keyed_permutation_is_a_bijection(n, seed):
    positions = keyed_permutation(n, seed)(np.arange(n, dtype=np.uint64))
    assert sorted(positions.tolist()) == list(range(n))


def test_keyed_permutation_is_pinned():
    """A change here changes every shuffled output: never let it pass."""
    assert keyed_permutation(10, 42)(np.arange(10, dtype=np.uint64)).tolist() == PINNED_10
    assert keyed_permutation(10**10, 7)(np.arange(4, dtype=np.uint64)).tolist() == PINNED_10_BILLION


def test_keyed_permutation_needs_no_table():
    """26 billion documents: each position is computed by itself."""
    n = 26_000_000_000
    positions = keyed_permutation(n, 1)(np.array([0, 1, n - 1], dtype=np.uint64))
    assert len(set(positions.tolist())) == 3
    assert max(positions.tolist()) < n


def test_keyed_permutation_looks_random():
    """Neighbors are spread: the mean distance of two random positions is a third of n."""
    n = 100_000
    positions = keyed_permutation(n, 3)(np.arange(n, dtype=np.uint64)).astype(np.int64)
    assert abs(np.abs(np.diff(positions)).mean() / n - 1 / 3) < 0.01
    assert abs(np.corrcoef(np.arange(n), positions)[0, 1]) < 0.02


def test_numpy_permutation_is_nanogpts_and_its_stream_is_pinned():
    assert np.random.default_rng(2357).permutation(8).tolist() == PINNED_NUMPY
    positions = numpy_permutation(8, 2357)(np.arange(8, dtype=np.uint64))
    assert np.argsort(positions).tolist() == PINNED_NUMPY


def test_numpy_permutation_is_refused_where_it_would_not_fit():
    with pytest.raises(RecipeError, match="would need 312 GB") as error:
        numpy_permutation(26_000_000_000, 5)
    assert "--shuffle 5" in error.value.hint


@pytest.mark.parametrize("fraction", [0.0005, 0.1, 0.33])
def test_nanogpt_order_is_that_of_train_test_split(fraction, tmp_path):
    """The rule of Hugging Face datasets, written out: val is the first ceil(f n) of the permutation."""
    texts = [f"document {i}" for i in range(97)]
    prepare_inline(
        write_parquet(tmp_path / "a.parquet", texts, row_group_size=10),
        tmp_path / "out",
        RunOptions(executor="inline", unit_bytes=100, bucket_bytes=100),
        val=fraction,
    )
    order = np.random.default_rng(2357).permutation(97).tolist()
    n_val = math.ceil(fraction * 97)
    shards = tokenmill.open_shards(tmp_path / "out")
    found = {split: [shards.text(d) for d in shards.documents(split)] for split in ("val", "train")}
    assert found == {"val": [texts[i] for i in order[:n_val]], "train": [texts[i] for i in order[n_val:]]}


def test_documents_keep_their_source_and_row_through_a_shuffle(tmp_path):
    texts = [f"{i}" for i in range(500)]
    a = write_parquet(tmp_path / "a.parquet", [*texts[:200], None, *texts[200:300]], row_group_size=7)
    (tmp_path / "b.txt").write_text("\n".join(texts[300:]))
    options = RunOptions(executor="inline", unit_bytes=300, bucket_bytes=500)
    prepare_inline([a, tmp_path / "b.txt"], tmp_path / "out", options, shuffle="keyed:9", documents="line")
    shards = tokenmill.open_shards(tmp_path / "out")
    assert len(shards) == 500
    for document in shards:
        number = int(shards.text(document))
        if number < 300:
            assert document.source == str(a)
            assert document.row == number + (number >= 200)
        else:
            assert document.source == str(tmp_path / "b.txt")
            assert document.row == number - 300
