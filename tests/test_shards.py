"""Shards are cut to exact size, their headers tell the truth, and the index finds every document."""

import struct

import numpy as np
import pytest
from conftest import prepare_inline, write_parquet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenmill
from tokenmill.batches import TokenRun
from tokenmill.errors import OutputError, RecipeError, TokenmillError
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.shards import format_named, format_names
from tokenmill.shards.index import Index
from tokenmill.shards.writer import ShardSequence

runs_of_lengths = st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=8)


def write_runs(runs: list[list[int]], out, shard_tokens, rule="train", name="npy"):
    """Write documents of the given lengths, run by run; token ids count up through all of them."""
    recipe = Recipe(sources=("sample",), format=name, shard_tokens=shard_tokens, val="none").resolve()
    position = row = 0
    with ShardSequence(recipe, np.dtype("<u2"), out, ["sample"], [], lambda shard: None) as sequence:
        for lengths in runs:
            n = sum(lengths)
            ids = np.arange(position, position + n, dtype=np.uint16)
            rows = np.arange(row, row + len(lengths), dtype=np.uint64)
            sequence.append(rule, TokenRun(ids, np.array(lengths, np.int64), np.zeros(len(lengths), np.uint32), rows))
            position, row = position + n, row + len(lengths)
        return sequence.finish()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=runs_of_lengths, shard_tokens=st.integers(1, 20))
def test_shards_hold_the_tokens_in_order_and_the_index_every_document_once(runs, shard_tokens, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    lengths = [n for run in runs for n in run]
    total = sum(lengths)
    if total == 0:
        with pytest.raises(RecipeError, match="nothing to train on"):
            write_runs(runs, out, shard_tokens)
        return
    receipts = write_runs(runs, out, shard_tokens)
    assert [r.n_tokens for r in receipts[:-1]] == [shard_tokens] * (len(receipts) - 1)
    assert 0 < receipts[-1].n_tokens <= shard_tokens
    ids = np.concatenate([np.load(out / receipt.file) for receipt in receipts])
    assert ids.tolist() == list(range(total))

    entries = []
    for i, receipt in enumerate(receipts):
        index = Index(out / receipt.index.file)
        assert len(index) == receipt.n_documents
        entries += [(i * shard_tokens + index.row(n)["start"], index.row(n)["length"]) for n in range(len(index))]
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    assert entries == list(zip(starts, lengths, strict=True))

    again = tmp_path_factory.mktemp("out")
    assert receipts == write_runs([lengths], again, shard_tokens), "the bytes depend on how the tokens arrived"


def test_llmc_headers(tmp_path):
    texts = ["some text " * 20] * 10
    source = write_parquet(tmp_path / "a.parquet", texts)
    for tokenizer, magic, version, dtype in [("gpt2", 20240520, 1, "<u2"), ("cl100k_base", 20240801, 7, "<u4")]:
        out = tmp_path / tokenizer
        manifest = prepare_inline(source, out, format="llmc", shard_tokens=150, tokenizer=tokenizer, name="x")
        assert [s.file for s in manifest.shards][:2] == ["x_val_000000.bin", "x_train_000001.bin"]
        tokens = []
        for shard in manifest.shards:
            data = (out / shard.file).read_bytes()
            assert struct.unpack("<3i", data[:12]) == (magic, version, shard.n_tokens)
            assert data[12:1024] == bytes(1012)
            tokens += np.frombuffer(data[1024:], dtype=dtype).tolist()
        expected = tokenmill.Tokenizer(tokenizer)
        assert tokens == [expected.eot_token, *expected.encode(texts[0])] * 10


def test_npy_shards_load_with_numpy(tmp_path):
    manifest = prepare_inline("sample", tmp_path / "out", format="npy", shard_tokens=100_000)
    arrays = [np.load(tmp_path / "out" / shard.file) for shard in manifest.shards]
    assert [len(array) for array in arrays] == [100_000, 100_000, 100_000, 68_658]
    assert {str(array.dtype) for array in arrays} == {"uint16"}


def test_nanogpt_with_a_large_vocabulary_is_uint32_and_says_what_to_change(tmp_path):
    manifest = prepare_inline("sample", tmp_path / "out", tokenizer="cl100k_base")
    assert manifest.tokenizer.dtype == "uint32"
    ids = np.memmap(tmp_path / "out" / "train.bin", dtype=np.uint32, mode="r")
    assert int(ids[-1]) == 100257
    (note,) = format_named("nanogpt").notes(manifest.recipe, 4)
    assert "'train.bin'), dtype=np.uint32" in note
    assert "'val.bin'), dtype=np.uint32" in note


def test_a_document_longer_than_several_shards_is_found_whole(tmp_path):
    texts = ["short", "long " * 500, "short again"]
    source = write_parquet(tmp_path / "a.parquet", texts)
    prepare_inline(source, tmp_path / "out", format="llmc", shard_tokens=100)
    shards = tokenmill.open_shards(tmp_path / "out")
    assert [shards.text(document) for document in shards] == texts
    assert [shards.text(shards[i]) for i in range(-3, 3)] == texts * 2
    with pytest.raises(IndexError):
        shards[3]


@pytest.mark.parametrize("eot", ["first", "last", "none"])
def test_empty_documents_are_documents(eot, tmp_path):
    texts = ["", "a", "", "", "b", ""]
    source = write_parquet(tmp_path / "a.parquet", texts, row_group_size=1)
    prepare_inline(source, tmp_path / "out", shuffle="none", val="none", eot=eot)
    shards = tokenmill.open_shards(tmp_path / "out")
    assert [shards.text(document) for document in shards] == texts
    assert tokenmill.verify(tmp_path / "out").ok


@pytest.mark.parametrize(
    ("val", "documents"),
    [(1, [1, 9]), (4, [4, 6]), (0.25, [3, 7]), ("none", [10])],
)
def test_val_takes_the_first_documents(val, documents, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", [f"text {i}" for i in range(10)], row_group_size=3)
    for shard_format in format_names():
        samples = {"sequence_length": 1, "shard_tokens": 7} if shard_format == "mds" else {}
        manifest = prepare_inline(
            source, tmp_path / shard_format, format=shard_format, val=val, shuffle="none", **samples
        )
        assert [n for _, n, _ in manifest.split_totals().values()] == documents
        shards = tokenmill.open_shards(tmp_path / shard_format)
        assert [document.row for document in shards] == list(range(10))


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"format": "llmc"}, "`val shard` needs two shards, and 30 tokens fill only one", "--val none"),
        ({"val": 10}, "val takes all of them", "smaller `--val`"),
        ({"val": 99, "shuffle": "none"}, "val takes all of them", "smaller `--val`"),
        ({"val": "shard"}, "has no shards", "--val 0.0005"),
        ({"shard_tokens": 10}, "one file a split", "--format llmc"),
        ({"val": 1.5}, "must lie between 0 and 1", "0.01"),
        ({"val": 0}, "at least 1 document", "--val none"),
        ({"val": "some"}, "val `some` is not known", "shard"),
        ({"shuffle": "sorted"}, "shuffle `sorted` is not known", "keyed:SEED"),
        ({"format": "llmc", "shard_tokens": 2_000_000_000}, "at most 1,073,741,311 tokens", None),
        ({"format": "lmc"}, "unknown format `lmc`", "did you mean `llmc`?"),
        ({"name": "../x", "format": "npy"}, "not a plain file name", None),
        ({"name": "x"}, "`--name` has no meaning", None),
        ({"name": "medieval", "format": "npy"}, "contains `train` or `val`", "another `--name`"),
        ({"shard_tokens": 0, "format": "npy"}, "at least 1", None),
        ({"eot": "start"}, "the recipe is malformed", None),
        ({"documents": "lines"}, "the recipe is malformed", None),
        ({"text_column": None}, "the recipe is malformed", None),
        ({"val": True}, "the recipe is malformed", None),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(fields, message, hint, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", [f"text {i}" for i in range(10)])
    with pytest.raises(RecipeError) as error:
        prepare_inline(source, tmp_path / "out", **fields)
    assert message in error.value.message
    assert hint is None or hint in error.value.hint
    assert not (tmp_path / "out").exists()


def test_output_of_another_recipe_is_refused_with_the_differences(tmp_path):
    out = tmp_path / "out"
    prepare_inline("sample", out)
    with pytest.raises(OutputError, match=r"another recipe\n  tokenizer: `gpt2` there, `r50k_base` now"):
        prepare_inline("sample", out, tokenizer="r50k_base")


def test_files_that_are_not_ours_are_not_overwritten(tmp_path):
    (tmp_path / "train.bin").write_bytes(b"precious")
    with pytest.raises(OutputError, match=r"holds `train\.bin`, which tokenmill did not make"):
        prepare_inline("sample", tmp_path)
    assert (tmp_path / "train.bin").read_bytes() == b"precious"


def test_only_our_own_files_are_ever_deleted(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    source = write_parquet(tmp_path / "a.parquet", ["a", "b"])
    with pytest.raises(RecipeError, match="nothing to train on"):
        prepare_inline(source, out, val=5)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    for name in ("index/mine.txt", "SHA256SUMS", ".work/mine"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
        with pytest.raises(OutputError, match=r"did not make|is not tokenmill's"):
            prepare_inline(source, out, val=5)
        assert (out / name).read_text() == "mine"
        (out / name).unlink()
        if name != "SHA256SUMS":
            (out / name).parent.rmdir()


def test_folder_is_free_again_after_a_mistake(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"content": "a"}\n{"content": "b"}\n')
    with pytest.raises(TokenmillError, match="missing required field"):
        prepare_inline(tmp_path / "a.jsonl", tmp_path / "out", val=1)
    assert prepare_inline(tmp_path / "a.jsonl", tmp_path / "out", val=1, text_column="content").totals.n_documents == 2


def test_a_finished_output_of_changed_inputs_or_with_a_lost_shard_is_not_called_done(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["a", "b"])
    prepare_inline(source, tmp_path / "out", val=1)
    (tmp_path / "out" / "train.bin").rename(tmp_path / "train.bin")
    with pytest.raises(OutputError, match=r"`train\.bin` of .* is missing or damaged"):
        prepare_inline(source, tmp_path / "out", val=1)
    (tmp_path / "train.bin").rename(tmp_path / "out" / "train.bin")
    write_parquet(source, ["a", "b", "c"])
    with pytest.raises(OutputError, match=r"made from other inputs\n  `.*a\.parquet`: \d+ bytes then, \d+ now"):
        prepare_inline(source, tmp_path / "out", val=1)


def test_a_finished_output_is_left_alone(tmp_path):
    first = prepare_inline("sample", tmp_path / "out")
    before = (tmp_path / "out" / "train.bin").stat().st_mtime_ns
    assert prepare_inline("sample", tmp_path / "out") == first
    assert (tmp_path / "out" / "train.bin").stat().st_mtime_ns == before


def test_an_unfinished_output_starts_over(tmp_path):
    out = tmp_path / "out"
    finished = prepare_inline("sample", out, format="llmc", shard_tokens=100_000)
    files = {path: path.read_bytes() for path in out.glob("*.bin")}
    (out / ".work").mkdir()
    (out / "manifest.json").unlink()
    from msgspec import json

    (out / ".work" / "recipe.json").write_bytes(json.encode(finished.recipe))
    (out / "fineweb_train_000009.bin.partial").write_bytes(b"half")
    with pytest.raises(OutputError, match="not finished"):
        tokenmill.open_shards(out)
    prepare_inline("sample", out, format="llmc", shard_tokens=100_000)
    assert {path: path.read_bytes() for path in out.glob("*.bin*")} == files
    assert tokenmill.verify(out).ok


def test_shards_are_sealed_and_segments_deleted_while_later_units_are_encoded(tmp_path):
    seen = []

    def look(progress):
        segments = len(list((tmp_path / "out" / ".work" / "units").glob("*.segment")))
        seen.append((progress.encoded, len(progress.shards), segments))

    options = RunOptions(executor="inline", unit_bytes=100_000)
    recipe = Recipe(sources=("sample",), format="llmc", shard_tokens=50_000)
    manifest = tokenmill.prepare_recipe(recipe, tmp_path / "out", options, look)
    assert manifest.run.n_units >= 5
    assert any(not encoded and n_shards >= 2 for encoded, n_shards, _ in seen)
    assert max(n_segments for *_, n_segments in seen) <= 2


def test_side_files_are_not_mistaken_for_shards(tmp_path):
    """build-nanogpt loads every file of the folder whose name contains train or val."""
    manifest = prepare_inline("sample", tmp_path / "out", format="npy", shard_tokens=100_000)
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    ours = {name for name in names if "train" in name or "val" in name}
    assert ours == {shard.file for shard in manifest.shards}
    assert not any(name.startswith(".work") for name in names)
