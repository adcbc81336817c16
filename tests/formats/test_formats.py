"""Each format: the bytes of the project it is named after, its limits, a kill in the middle, damage found."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import digests, prepare_inline, write_parquet

import tokenmill
from tokenmill.batches import TokenRun
from tokenmill.errors import DataError, OutputError, RecipeError
from tokenmill.recipe import Recipe, recipe_dtype, shard_dtype
from tokenmill.shards import format_named, format_names
from tokenmill.shards.writer import ShardSequence

FOREIGN = Path(__file__).parent.parent / "foreign"
GIVEN = json.loads((FOREIGN / "documents.json").read_text())
DOCUMENTS = [[10, 20, 30, 50256], [1, 2, 50256]]
# Formats that came after the first three, with several shards of the sample and two splits where they have them.
SMALL = {
    "megatron": {"val": 40},
    "datatrove": {"val": 40, "shard_tokens": 60_000},
    "olmo": {"val": 40, "shard_tokens": 60_000},
    "litdata": {"val": 40, "shard_tokens": 60_000},
    "mds": {"val": 40, "shard_tokens": 64_000, "sequence_length": 128},
    "parquet": {"val": 40, "shard_tokens": 60_000},
}


def write(documents: list[list[int]], out: Path, **fields) -> dict[str, bytes]:
    """Write documents as they are, through the classes that a run writes with; return the files of the format."""
    recipe = Recipe(sources=("sample",), **fields).resolve()
    dtype = np.dtype(shard_dtype(recipe))
    out.mkdir(exist_ok=True)
    ids = np.array([token for document in documents for token in document], dtype=recipe_dtype(recipe))
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    rows = np.arange(len(documents), dtype=np.uint64)
    with ShardSequence(recipe, dtype, out, ["corpus/a.parquet"], [], lambda shard: None) as sequence:
        sequence.append("train", TokenRun(ids, lengths, np.zeros(len(documents), np.uint32), rows))
        shards = sequence.finish()
    names = [file.file for shard in shards for file in shard.files[:-1]]
    closing = format_named(recipe.format).closing_files(recipe, dtype, shards)
    return {name: (out / name).read_bytes() for name in names} | closing


def test_megatron_bytes(tmp_path):
    assert write(DOCUMENTS, tmp_path, format="megatron", name="x") == {
        "x_text_document.bin": bytes.fromhex("0a0014001e0050c4 0100020050c4"),
        "x_text_document.idx": bytes.fromhex(
            "4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 04000000 03000000"
            "0000000000000000 0800000000000000 0000000000000000 0100000000000000 0200000000000000"
        ),
    }


def test_datatrove_bytes(tmp_path):
    assert write(DOCUMENTS, tmp_path, format="datatrove", name="x") == {
        "train/000_x.ds": bytes.fromhex("0a0014001e0050c4 0100020050c4"),
        "train/000_x.ds.index": bytes.fromhex("0400000000000000 0700000000000000"),
        "train/000_x.ds.metadata": b"gpt2|2\n7\n7.00 T",
        "train/x.ds.metadata": b"gpt2|2\n7\n7.00 T",
    }


@pytest.mark.parametrize(
    ("n_tokens", "words"),
    [
        (7, "7.00 T"),
        (999, "999 T"),
        (1000, "1.00 kT"),
        (12_345_678, "12.3 MT"),
        (999_500, "1.00 MT"),
        (10**10, "10.0 GT"),
    ],
)
def test_datatrove_says_token_counts_as_humanize_does(n_tokens, words):
    from tokenmill.shards.datatrove import for_people

    assert for_people(n_tokens) == words


def test_olmo_bytes(tmp_path):
    files = write(DOCUMENTS, tmp_path, format="olmo")
    assert files["train/part-0-00000.npy"] == bytes.fromhex("0a0014001e0050c4 0100020050c4")
    lines = gzip.decompress(files["train/part-0-00000.csv.gz"]).decode()
    assert lines == "0,4,0-0,corpus/a.parquet,1\n4,7,0-1,corpus/a.parquet,2\n"


def test_litdata_bytes(tmp_path):
    documents = [[50256, 10, 20, 30], [50256, 1, 2], [50256, 7, 8, 9, 10, 11]]
    assert write(documents, tmp_path, format="litdata")["train/chunk-0-0.bin"] == bytes.fromhex(
        "03000000 14000000 1c000000 22000000 2e000000 50c40a0014001e00 50c401000200 50c40700080009000a000b00"
    )


def test_mds_bytes(tmp_path):
    """n, offsets, the columns as JSON in the gap up to the first offset, and samples without a size before each."""
    data = write(DOCUMENTS, tmp_path, format="mds", sequence_length=3, shard_tokens=6)["train/shard.00000.mds"]
    first = int.from_bytes(data[4:8], "little")
    assert np.frombuffer(data[:16], "<u4").tolist() == [2, first, first + 12, first + 24]
    assert json.loads(data[16:first])["column_encodings"] == ["ndarray:int32:3"]
    assert data[first:] == bytes.fromhex("0a000000 14000000 1e000000 50c40000 01000000 02000000")


def with_eot(tokenizer: str) -> list[list[int]]:
    return [[*ids, GIVEN["eot"][tokenizer]] for ids in GIVEN["documents"][tokenizer]]


@pytest.mark.parametrize("tokenizer", ["gpt2", "cl100k_base"])
@pytest.mark.parametrize(
    ("shard_format", "fields", "folder", "names"),
    [
        ("megatron", {"name": "x"}, "megatron", {"x_text_document": "{tokenizer}_text_document"}),
        ("datatrove", {"name": "x"}, "datatrove/{tokenizer}", {"train/000_x": "00000_unshuffled"}),
        ("mds", {"sequence_length": 64, "shard_tokens": 6400}, "mds/{tokenizer}_fixed", {"train/": ""}),
        ("litdata", {"shard_tokens": 200}, "litdata/{tokenizer}_{unsigned}", {"train/": ""}),
    ],
)
def test_the_same_bytes_as_the_projects_own_library(tokenizer, shard_format, fields, folder, names, tmp_path):
    """tests/consumers/make_foreign.py made these files, of the same documents."""
    given = FOREIGN / folder.format(tokenizer=tokenizer, unsigned="uint16" if tokenizer == "gpt2" else "uint32")
    files = write(with_eot(tokenizer), tmp_path, format=shard_format, tokenizer=tokenizer, **fields)
    ((ours, theirs),) = names.items()
    found = {name.replace(ours, theirs.format(tokenizer=tokenizer)): data for name, data in files.items()}
    found.pop("train/x.ds.metadata", None)  # for all shards; datatrove's merger writes it
    expected = {path.name: path.read_bytes() for path in given.iterdir() if path.name.startswith(tuple(found))}
    if shard_format == "litdata":
        for index in (found, expected):
            index["index.json"] = json.loads(index["index.json"]) | {"updated_at": None}
    assert found == expected


# Limits, refused before there is anything in the folder.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "llmc", "shard_tokens": 1_073_741_312}, "at most 1,073,741,311 tokens a shard"),
        ({"format": "megatron", "shard_tokens": 1000}, "one pair of files a data set"),
        ({"format": "megatron", "val": "shard"}, "one file a split"),
        ({"format": "litdata", "shard_tokens": 2**30}, "may exceed 4 GiB"),
        ({"format": "litdata", "name": "x"}, "`--name` has no meaning"),
        ({"format": "mds", "shard_tokens": 2**30, "sequence_length": 1024}, "exceeds 4 GiB"),
        ({"format": "mds", "shard_tokens": 2**29, "sequence_length": 1}, "exceeds 4 GiB"),
        ({"format": "mds", "shard_tokens": 1000, "sequence_length": 1024}, "does not hold whole samples of 1,024"),
        ({"format": "mds", "shard_tokens": 3000, "sequence_length": 1024}, "does not hold whole samples of 1,024"),
        ({"format": "mds", "sequence_length": 0}, "sequence_length must be at least 1"),
        ({"format": "mds", "val": "shard"}, "a folder a split"),
        ({"format": "olmo", "shard_tokens": 2**30 + 1}, "at most 1,073,741,824 tokens a file"),
        ({"format": "olmo", "name": "x"}, "`--name` has no meaning"),
        ({"format": "parquet", "name": "x"}, "`--name` has no meaning"),
        *(
            ({"format": name, "sequence_length": 128}, "`--sequence-length` has no meaning")
            for name in format_names()
            if name != "mds"
        ),
    ],
)
def test_what_a_format_cannot_carry_is_refused_before_work_begins(fields, message, tmp_path):
    with pytest.raises(RecipeError, match=re.escape(message)):
        prepare_inline("sample", tmp_path / "out", **fields)
    assert not (tmp_path / "out").exists()


def test_the_largest_shards_that_readers_take_are_accepted():
    for name, n_tokens in (("llmc", 1_073_741_311), ("olmo", 2**30), ("litdata", 500_000_000)):
        Recipe(sources=("sample",), format=name, shard_tokens=n_tokens).resolve()
    Recipe(sources=("sample",), format="mds", shard_tokens=2**29, sequence_length=1024).resolve()


@pytest.mark.parametrize(
    ("largest_id", "megatron", "others"),
    [(65_498, "<u2", "<u2"), (65_499, "<i4", "<u2"), (65_535, "<i4", "<u2"), (65_536, "<i4", "<u4")],
)
def test_megatron_is_int32_from_65500_ids_on_and_the_others_from_65537(largest_id, megatron, others):
    assert format_named("megatron").dtype(largest_id) == megatron
    for name in ("nanogpt", "llmc", "npy", "datatrove", "olmo", "litdata", "parquet"):
        assert format_named(name).dtype(largest_id) == others
    assert format_named("mds").dtype(largest_id) == "<i4"


def test_a_split_smaller_than_a_sample_is_refused_and_leaves_nothing(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["short", "long " * 100])
    for val, split in ((1, "val"), ("none", "train")):
        length = 50 if val == 1 else 500
        with pytest.raises(RecipeError, match=rf"the {split} split has \d+ tokens, fewer than one sample of {length}"):
            prepare_inline(
                source, tmp_path / "out", format="mds", val=val, sequence_length=length, shard_tokens=1000
            )  # fmt: skip
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shard_format", [name for name in format_names() if name not in ("nanogpt", "megatron")])
def test_no_last_shard_is_empty(shard_format, tmp_path):
    """Documents of 5 tokens, in shards of 10: after four of them the last shard is full, and no other is begun."""
    source = write_parquet(tmp_path / "a.parquet", ["a b c d"] * 4)
    samples = {"sequence_length": 5} if shard_format == "mds" else {}
    manifest = prepare_inline(
        source, tmp_path / "out", format=shard_format, shard_tokens=10, val="none", shuffle="none", **samples
    )
    assert [shard.n_tokens for shard in manifest.shards] == [10, 10]


def test_mds_drops_the_tail_and_says_so(tmp_path):
    manifest = prepare_inline("sample", tmp_path / "out", format="mds", sequence_length=1000, shard_tokens=100_000)
    assert (manifest.totals.n_tokens, manifest.totals.n_dropped_tokens) == (368_000, 658)
    assert [shard.n_dropped_tokens for shard in manifest.shards] == [0, 0, 0, 658]
    assert tokenmill.verify(tmp_path / "out").ok


@pytest.mark.parametrize("shard_format", ["megatron", "datatrove", "olmo", "litdata", "parquet"])
def test_shards_end_with_a_document_and_a_long_one_is_alone(shard_format, tmp_path):
    texts = ["a b c", "long " * 500, "d e", "f"]
    source = write_parquet(tmp_path / "a.parquet", texts)
    fields = {} if shard_format == "megatron" else {"shard_tokens": 100}
    manifest = prepare_inline(source, tmp_path / "out", format=shard_format, **fields)
    shards = tokenmill.open_shards(tmp_path / "out")
    assert [shard.n_documents for shard in manifest.shards] == ([4] if shard_format == "megatron" else [1, 1, 2])
    assert [shards.text(document) for document in shards] == texts
    assert tokenmill.verify(tmp_path / "out").ok


@pytest.mark.parametrize("shard_format", list(SMALL))
@pytest.mark.parametrize("eot", ["first", "last", "none"])
def test_empty_documents_are_kept_in_every_format(shard_format, eot, tmp_path):
    texts = ["", "a", "", "", "b c d", ""]
    source = write_parquet(tmp_path / "a.parquet", texts, row_group_size=1)
    fields = {"sequence_length": 1} if shard_format == "mds" else {}
    prepare_inline(source, tmp_path / "out", format=shard_format, eot=eot, **fields)
    shards = tokenmill.open_shards(tmp_path / "out")
    assert [shards.text(document) for document in shards] == texts
    assert tokenmill.verify(tmp_path / "out").ok


def test_an_empty_document_is_an_entry_without_a_sequence_in_megatron(tmp_path):
    """As its builder writes one: lengths [1, 1], and the documents end after 0, 1, 1 and 2 sequences."""
    index = write([[], [5], [], [6]], tmp_path, format="megatron", name="x", eot="none")["x_text_document.idx"]
    assert np.frombuffer(index, "<u8", 2, 18).tolist() == [2, 5]
    assert np.frombuffer(index, "<i4", 2, 34).tolist() == [1, 1]
    assert np.frombuffer(index, "<i8", 5, 34 + 24).tolist() == [0, 0, 1, 1, 2]


def test_olmo_lists_no_document_without_tokens(tmp_path):
    """OLMo-core refuses a list with a document that begins behind the last token."""
    files = write([[], [5, 6], []], tmp_path, format="olmo", eot="none")
    assert gzip.decompress(files["train/part-0-00000.csv.gz"]).decode() == "0,2,0-1,corpus/a.parquet,2\n"


# Damage, and kills.


@pytest.fixture(scope="module", params=list(SMALL))
def output(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / request.param
    prepare_inline("sample", out, format=request.param, **SMALL[request.param])
    return out


def test_an_output_verifies_in_full(output):
    verification = tokenmill.verify(output, level="full", workers=1)
    assert verification.ok
    assert verification.n_compared > 400


def test_verify_names_the_side_file_that_is_damaged_or_missing(output, tmp_path):
    copy = shutil.copytree(output, tmp_path / "copy")
    manifest = tokenmill.open_shards(copy).manifest
    sides = [file.file for shard in manifest.shards for file in shard.side_files]
    for name in [*sides[:3], *(file.file for file in manifest.closing_files)]:
        path = copy / name
        data = path.read_bytes()
        half = len(data) // 2
        for damaged in (data[:-1], data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :], data + b"x", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            problems = tokenmill.verify(copy).problems
            assert any(problem.startswith(f"{name}: ") for problem in problems), (name, problems)
            path.write_bytes(data)
    assert tokenmill.verify(copy).ok


def test_a_finished_output_without_one_of_its_files_is_not_called_done(output, tmp_path):
    copy = shutil.copytree(output, tmp_path / "copy")
    manifest = tokenmill.open_shards(copy).manifest
    for file in [*manifest.shards[-1].files, *manifest.closing_files]:
        (copy / file.file).rename(tmp_path / "away")
        with pytest.raises(OutputError, match=re.escape(f"`{file.file}` of `{copy}` is missing or damaged")):
            tokenmill.prepare_recipe(manifest.recipe, copy)
        (tmp_path / "away").rename(copy / file.file)


def test_every_side_file_is_in_the_sums(output):
    sums = {line.split("  ")[1] for line in (output / "SHA256SUMS").read_text().splitlines()}
    files = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert sums == files - {"SHA256SUMS"}


@pytest.mark.parametrize("shard_format", list(SMALL))
def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(shard_format, tmp_path):
    """killed.py ends runs by SIGKILL, at random moments and at steps of a commit, and starts them again."""
    options = {"executor": "inline", "unit_bytes": 300_000}
    spec = {"recipe": {"sources": ["sample"], "format": shard_format, **SMALL[shard_format]}, "options": options}
    command = [sys.executable, Path(__file__).parent / "killed.py", json.dumps(spec), tmp_path]
    ended = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    n_killed = json.loads(ended.stdout)["n_killed"]
    assert n_killed >= 2
    undisturbed, disturbed = (tokenmill.open_shards(tmp_path / name).manifest for name in ("whole", "killed"))
    assert digests(undisturbed) == digests(disturbed)
    assert tokenmill.verify(tmp_path / "killed").ok
    names = [
        sorted(path.relative_to(tmp_path / name).as_posix() for path in (tmp_path / name).rglob("*"))
        for name in ("whole", "killed")
    ]
    assert names[0] == names[1]


def test_a_document_too_long_for_a_chunk_is_named_as_such(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.shards.litdata.MAX_BYTES", 2**12)
    source = write_parquet(tmp_path / "a.parquet", ["short", "long " * 5000])
    with pytest.raises(DataError, match="larger than 4 GiB"):
        prepare_inline(source, tmp_path / "out", format="litdata", shard_tokens=400)
    assert not (tmp_path / "out").exists()
