"""Same recipe, same bytes: on any number of workers, with any unit, batch and bucket size."""

import itertools

import pytest
from conftest import digests, prepare_inline, write_every_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenmill
from tokenmill.recipe import RunOptions

counter = itertools.count()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format": "llmc", "shard_tokens": 50_000},
        {"format": "megatron", "val": 30},
        {"format": "datatrove", "shard_tokens": 50_000},
        {"format": "olmo", "shard_tokens": 50_000},
        {"format": "litdata", "shard_tokens": 50_000},
        {"format": "mds", "shard_tokens": 51_200, "val": 30, "sequence_length": 512},
        {"format": "parquet", "shard_tokens": 50_000},
    ],
    ids=lambda fields: fields.get("format", "nanogpt"),
)
def test_number_of_workers_changes_no_byte(fields, tmp_path):
    from tokenmill.mill import prepare_recipe
    from tokenmill.recipe import Recipe

    results = []
    for workers in (1, 2, 5) if fields.get("format") == "llmc" else (1, 3):
        options = RunOptions(workers=workers, unit_bytes=200_000)
        recipe = Recipe(sources=("sample", "sample"), **fields)
        manifest = prepare_recipe(recipe, tmp_path / str(workers), options)
        assert manifest.run.workers == workers or manifest.run.n_units < workers
        results.append(digests(manifest))
    assert all(result == results[0] for result in results)


@pytest.fixture(scope="module")
def mixed_corpus(tmp_path_factory, sample_texts):
    """A few hundred documents, empty ones and odd ones among them, in every source format."""
    folder = tmp_path_factory.mktemp("corpus")
    odd = ["", "x", "é\u2028ü", "a\r\nb", "\U000323b0's", "日本語の文章。" * 50, "\0", "  ", "tab\t\n\n\n"]
    texts = ["first", *itertools.chain(*zip(odd * 4, [t[:2000] for t in sample_texts[:36]], strict=True)), "last"]
    return write_every_format(folder, texts)


FIELDS = [
    {},
    {"shuffle": "keyed:7", "val": 5},
    {"shuffle": "none", "val": 0.1},
    {"format": "llmc", "shard_tokens": 1000},
    {"format": "npy", "shard_tokens": 777, "shuffle": "keyed:1", "eot": "none"},
    {"format": "llmc", "shard_tokens": 501, "val": 20, "eot": "last", "tokenizer": "cl100k_base"},
    {"format": "megatron", "val": 7, "eot": "none"},
    {"format": "datatrove", "shard_tokens": 900, "val": 0.1},
    {"format": "olmo", "shard_tokens": 900, "eot": "none"},
    {"format": "litdata", "shard_tokens": 900, "val": "shard", "tokenizer": "cl100k_base"},
    {"format": "mds", "shard_tokens": 960, "sequence_length": 32, "val": 20, "shuffle": "keyed:3"},
    {"format": "mds", "shard_tokens": 33, "sequence_length": 11, "eot": "none"},
    {"format": "parquet", "shard_tokens": 5000, "eot": "none"},
]


@pytest.fixture(scope="module")
def expected(mixed_corpus, tmp_path_factory):
    """The digests of an undisturbed run over the Parquet file, for each recipe."""
    out = tmp_path_factory.mktemp("expected")
    return [digests(prepare_inline(mixed_corpus[0], out / str(i), **f)) for i, f in enumerate(FIELDS)]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.integers(0, len(FIELDS) - 1),
    source=st.integers(0, 10),
    unit_bytes=st.integers(300, 60_000),
    batch_bytes=st.integers(100, 30_000),
    bucket_bytes=st.integers(1000, 100_000),
)
def test_unit_batch_and_bucket_size_and_source_format_change_no_byte(
    which, source, unit_bytes, batch_bytes, bucket_bytes, mixed_corpus, expected, tmp_path
):
    if FIELDS[which].get("format") == "olmo":
        source = 0  # its lists name the source file
    options = RunOptions(executor="inline", unit_bytes=unit_bytes, batch_bytes=batch_bytes, bucket_bytes=bucket_bytes)
    manifest = prepare_inline(mixed_corpus[source], tmp_path / str(next(counter)), options, **FIELDS[which])
    assert digests(manifest) == expected[which]


def test_giving_files_together_or_in_a_folder_is_the_same(tmp_path, sample_texts):
    from conftest import write_parquet

    (tmp_path / "in").mkdir()
    a = write_parquet(tmp_path / "in" / "a.parquet", sample_texts[:100])
    b = write_parquet(tmp_path / "in" / "b.parquet", sample_texts[100:150])
    together = prepare_inline([a, b], tmp_path / "1")
    assert digests(together) == digests(prepare_inline(tmp_path / "in", tmp_path / "2"))
    assert digests(together) == digests(prepare_inline(str(tmp_path / "in" / "*.parquet"), tmp_path / "3"))
    assert digests(together) != digests(prepare_inline([b, a], tmp_path / "4"))


def test_fingerprint_depends_on_the_recipe_alone():
    recipe = tokenmill.Recipe(sources=("sample",)).resolve()
    assert recipe.fingerprint == tokenmill.Recipe(sources=("sample",), shuffle="numpy:2357").resolve().fingerprint
    assert recipe.fingerprint != tokenmill.Recipe(sources=("sample",), val=0.001).resolve().fingerprint
