"""A look into shards of any format: written by tokenmill, with its manifest gone; by others; and damaged."""

import gzip
import json
import shutil
import struct
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import prepare_inline, write_parquet

import tokenmill
from tokenmill.errors import OutputError, RecipeError
from tokenmill.reading import open_any
from tokenmill.reading.finding import find
from tokenmill.reading.guessing import KNOWN
from tokenmill.reading.statistics import statistics
from tokenmill.reading.survey import survey
from tokenmill.shards import format_named, format_names
from tokenmill.shards.megatron import MAGIC

FOREIGN = Path(__file__).parent.parent / "foreign"
MADE = json.loads((FOREIGN / "documents.json").read_text())
EOT = 50256
FOREIGN_PATHS = [
    str(path.relative_to(FOREIGN)) for path in sorted(FOREIGN.glob("*/*")) if path.suffix not in (".idx", ".json")
]
# The type of the ids of each, as its maker was told.
FOREIGN_DTYPES = {
    "datatrove": ("uint16", "uint32"),
    "litdata/gpt2_int32": ("int32", None),
    "litdata/gpt2_uint16": ("uint16", None),
    "litdata/cl100k_base_uint32": (None, "uint32"),
    "litdata": (None, "int32"),
    "llmc": ("uint16", "uint32"),
    "mds/gpt2_bytes": ("int64", None),
    "mds/gpt2_uint16": ("uint16", None),
    "mds": ("int32", "int32"),
    "megatron": ("uint16", "int32"),
    "nanogpt": ("uint16", "uint32"),
    "npy": ("uint16", "uint32"),
    "parquet": ("int32", "int32"),
}


def run(*arguments, **options):
    command = [sys.executable, "-m", "tokenmill", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def documents_of(shards) -> list[list[int]]:
    """The ids of all documents without end-of-text, with the smallest runs there are."""
    return [
        shards.text_ids(run.documents(i, i + 1).ids).tolist()
        for split in shards.splits
        for run in shards.runs(split, max_bytes=64)
        for i in range(len(run))
    ]


def prepared(out: Path, name: str, **fields):
    """The sample in a format, in several shards where it has them."""
    several = {} if name in ("nanogpt", "megatron") else {"shard_tokens": 100_000}
    if name == "mds":
        several = {"shard_tokens": 128 * 800, "sequence_length": 128}
    return prepare_inline("sample", out, format=name, **{**several, **fields})


def without_manifest(out: Path) -> Path:
    """Take away all that tokenmill adds to a format."""
    (out / "manifest.json").unlink()
    (out / "SHA256SUMS").unlink()
    shutil.rmtree(out / "index")
    return out


@pytest.mark.parametrize("name", format_names())
@pytest.mark.parametrize("tokenizer", ["gpt2", "cl100k_base"])
def test_our_shards_are_known_again_without_their_manifest(name, tokenizer, tmp_path):
    manifest = prepared(tmp_path / "out", name, tokenizer=tokenizer, val=0.1 if name != "npy" else "shard")
    ours = open_any(tmp_path / "out")
    assert (ours.format, ours.dtype.name, ours.told.how) == (name, manifest.tokenizer.dtype, "its manifest")
    expected = [np.concatenate([run.ids for run in ours.runs(split)]).tolist() for split in ours.splits]

    bare = open_any(without_manifest(tmp_path / "out"))
    assert (bare.format, bare.dtype.name) == (name, manifest.tokenizer.dtype)
    assert bare.tokenizer == tokenmill.Tokenizer(tokenizer)
    assert (bare.eot, bare.eot_place) == (manifest.tokenizer.eot_token, manifest.recipe.eot)
    assert {s: sum(f.n_tokens for f in bare.files_of(s)) for s in bare.splits} == {
        split: n_tokens for split, (_, _, n_tokens) in manifest.split_totals().items()
    }
    assert bare.count_documents() == manifest.totals.n_documents
    assert [np.concatenate([run.ids for run in bare.runs(split)]).tolist() for split in bare.splits] == expected


@pytest.mark.parametrize("name", format_names())
def test_runs_are_the_documents_with_their_sources_however_small_the_runs(name, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["one", "", "two words", "x " * 300, "", "", "end"] * 5)
    samples = {"sequence_length": 4, "shard_tokens": 400} if name == "mds" else {}
    if name not in ("nanogpt", "megatron", "mds"):
        samples = {"shard_tokens": 400}
    prepare_inline(source, tmp_path / "out", format=name, val=7, shuffle="none", **samples)
    expected = list(tokenmill.open_shards(tmp_path / "out"))
    shards = open_any(tmp_path / "out")
    for max_bytes in (1, 10, 1000, 10**8):
        ids, rows = [], []
        for _, _, part in shards.numbered_runs(max_bytes):
            ids += [part.documents(i, i + 1).ids.tolist() for i in range(len(part))]
            rows += part.doc_rows.tolist()
        assert ids == [document.tokens.tolist() for document in expected]
        assert rows == [document.row for document in expected]


@pytest.mark.parametrize("eot", ["first", "last"])
def test_a_document_that_a_split_cuts_is_one_document_in_two_splits(eot, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", [f"text {i} " + "and so on " * 20 for i in range(10)])
    prepare_inline(source, tmp_path / "out", format="llmc", shard_tokens=150, eot=eot)
    ours = open_any(tmp_path / "out")
    assert ours.continues("train")
    assert not ours.continues("val")
    first = next(ours.runs("train"))
    whole = tokenmill.open_shards(tmp_path / "out")
    cut = int(first.doc_rows[0])
    assert ours.document(cut)[1].tolist() == whole[cut].tokens.tolist()
    assert sum(len(run) for split in ours.splits for run in ours.runs(split)) == 11
    assert ours.count_documents() == 10
    bare = open_any(without_manifest(tmp_path / "out"))
    assert bare.eot_place == eot
    if eot == "first":  # with end-of-text last nothing tells that the first document is a rest
        assert bare.continues("train")
        assert bare.count_documents() == 10
        assert bare.document(cut)[1].tolist() == ours.document(cut)[1].tolist()


@pytest.mark.parametrize("path", FOREIGN_PATHS)
def test_files_that_other_libraries_wrote_are_read(path):
    shards = open_any(FOREIGN / path)
    tokenizer = "gpt2" if "gpt2" in path else "cl100k_base"
    dtypes = next(dtypes for start, dtypes in FOREIGN_DTYPES.items() if path.startswith(start))
    assert shards.format == path.partition("/")[0]
    assert shards.dtype.name == dtypes[tokenizer != "gpt2"]
    assert shards.told.name == tokenizer
    assert shards.eot == MADE["eot"][tokenizer]
    found, expected = documents_of(shards), MADE["documents"][tokenizer]
    if shards.format == "mds":  # what does not fill a sample was dropped
        assert found[:-1] == expected[: len(found) - 1]
        assert found[-1] == expected[len(found) - 1][: len(found[-1])]
        assert len(found) >= 7
    else:
        assert found == expected
    assert survey(shards).first_text == MADE["texts"][0]


@pytest.mark.parametrize("path", ["mds/gpt2_zstd/shard.00000.mds.zstd", "litdata/gpt2_uint16/chunk-0-0.bin"])
def test_one_file_of_a_folder_is_enough(path):
    shards = open_any(FOREIGN / path)
    assert shards.format == path.partition("/")[0]
    assert documents_of(shards)[0] == MADE["documents"]["gpt2"][0]


@pytest.mark.parametrize(
    ("beside", "whole"),
    [
        ("megatron/gpt2_text_document", "megatron/gpt2_text_document.bin"),
        ("megatron/gpt2_text_document.idx", "megatron/gpt2_text_document.bin"),
        ("datatrove/gpt2/00000_unshuffled.ds.index", "datatrove/gpt2"),
        ("mds/gpt2_fixed/index.json", "mds/gpt2_fixed"),
    ],
)
def test_a_file_beside_the_tokens_stands_for_them(beside, whole):
    assert documents_of(open_any(FOREIGN / beside)) == documents_of(open_any(FOREIGN / whole))


def test_litdata_and_datatrove_without_their_side_files_are_read_by_a_look_at_the_ids(tmp_path):
    shutil.copy(FOREIGN / "litdata/gpt2_int32/chunk-0-0.bin", tmp_path)
    shards = open_any(tmp_path / "chunk-0-0.bin")
    assert (shards.format, shards.dtype.itemsize) == ("litdata", 4)
    assert documents_of(shards) == MADE["documents"]["gpt2"][:7]
    for name, dtype in (("gpt2", "uint16"), ("cl100k_base", "uint32")):
        shutil.copy(FOREIGN / "datatrove" / name / "00000_unshuffled.ds", tmp_path / f"{name}.ds")
        shards = open_any(tmp_path / f"{name}.ds")
        assert (shards.dtype.name, shards.told.name) == (dtype, name)
        assert documents_of(shards) == MADE["documents"][name]


def test_olmo_is_told_by_its_list_of_documents_or_by_end_of_text(tmp_path):
    docs = [[*ids, 100257] for ids in MADE["documents"]["cl100k_base"]]
    np.array(list(chain(*docs)), np.uint32).tofile(tmp_path / "part-0-00000.npy")
    assert documents_of(open_any(tmp_path)) == MADE["documents"]["cl100k_base"]
    ends = np.cumsum([len(ids) for ids in docs]).tolist()
    lines = [
        f'{a},{b},id-{i},"s3://a, b.json.gz",{i + 1}' for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    (tmp_path / "part-0-00000.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    shards = open_any(tmp_path)
    assert (shards.format, shards.files[0].dtype_told_by, shards.n_documents) == ("olmo", "its .csv.gz", 8)
    assert documents_of(shards) == MADE["documents"]["cl100k_base"]


def write_megatron(prefix: Path, sequences: list[list[int]], entries: list[int], code: int, dtype: str) -> Path:
    flat = np.array(list(chain(*sequences)), dtype)
    flat.tofile(prefix.with_suffix(".bin"))
    lengths = np.array([len(ids) for ids in sequences], "<i4")
    pointers = (np.cumsum([0, *lengths[:-1]]) * flat.itemsize).astype("<i8")
    head = MAGIC + struct.pack("<QBQQ", 1, code, len(sequences), len(entries))
    prefix.with_suffix(".idx").write_bytes(
        head + lengths.tobytes() + pointers.tobytes() + np.array(entries, "<i8").tobytes()
    )
    return prefix.with_suffix(".bin")


@pytest.mark.parametrize(("code", "dtype"), [(8, "<u2"), (4, "<i4"), (5, "<i8")])
def test_megatron_documents_of_several_sequences_and_of_none(code, dtype, tmp_path):
    sequences = [[10, 20], [30, EOT], [1, 2, EOT]]
    path = write_megatron(tmp_path / "a_text_sentence", sequences, [0, 2, 2, 3], code, dtype)
    shards = open_any(path)
    assert shards.dtype == np.dtype(dtype)
    assert [r.doc_lengths.tolist() for r in shards.runs("train", 10**6)] == [[4, 0], [3]]
    assert documents_of(shards) == [[10, 20, 30], [], [1, 2]]


def test_executed_bytes_of_megatron_and_datatrove_are_read(tmp_path):
    idx = (
        "4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 04000000 03000000 0000000000000000"
        "0800000000000000 0000000000000000 0100000000000000 0200000000000000"
    )
    ids = bytes.fromhex("0a0014001e0050c4 0100020050c4")
    (tmp_path / "a.idx").write_bytes(bytes.fromhex(idx))
    (tmp_path / "a.bin").write_bytes(ids)
    (tmp_path / "a.ds").write_bytes(ids)
    (tmp_path / "a.ds.index").write_bytes(bytes.fromhex("0400000000000000 0700000000000000"))
    (tmp_path / "a.ds.metadata").write_bytes(b"gpt2|2\n7\n7.00 T")
    for name in ("a.idx", "a.ds"):
        assert documents_of(open_any(tmp_path / name)) == [[10, 20, 30], [1, 2]]
    with pytest.raises(OutputError, match="files of several formats"):
        open_any(tmp_path)
    assert open_any(tmp_path / "a.bin").format == "megatron"


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.int32()), pa.large_list(pa.uint16())])
def test_parquet_lists_of_any_integers_are_read(kind, tmp_path):
    rows = [[5, 6, EOT], [], None, [7, EOT]] * 50
    table = pa.table({"input_ids": pa.array(rows, kind), "n": range(200)})
    pq.write_table(table, tmp_path / "train-00000.parquet", row_group_size=7)
    shards = open_any(tmp_path)
    assert shards.n_tokens == 250
    assert documents_of(shards) == [[5, 6], [], [], [7]] * 50
    assert shards.tokens(1, 4).tolist() == [6, EOT, 7]
    assert shards.tokens(0, 250).tolist() == [5, 6, EOT, 7, EOT] * 50


def test_rows_packed_full_are_not_taken_for_documents(tmp_path):
    ids = list(chain(*([*ids, EOT] for ids in MADE["documents"]["gpt2"])))[:192]
    pq.write_table(pa.table({"input_ids": np.array(ids).reshape(-1, 32).tolist()}), tmp_path / "a.parquet")
    shards = open_any(tmp_path)
    assert shards.documents_told_by.startswith("end-of-text")
    assert documents_of(shards)[:7] == MADE["documents"]["gpt2"][:7]


@pytest.mark.parametrize("tokenizer", KNOWN)
@pytest.mark.parametrize("eot", ["first", "last", "none"])
def test_the_tokenizer_is_told_by_the_ids_alone(tokenizer, eot, tmp_path):
    texts = [*MADE["texts"], "    indented\n        more\n" * 20]
    source = write_parquet(tmp_path / "a.parquet", texts)
    prepare_inline(source, tmp_path / "out", tokenizer=tokenizer, eot=eot, val="none", shuffle="none")
    shards = open_any(without_manifest(tmp_path / "out"))
    assert shards.told.name == tokenizer
    assert shards.eot_place == eot


def test_ids_of_a_tokenizer_that_is_not_known_are_not_given_to_another(tmp_path):
    rng = np.random.default_rng(0)
    np.append(rng.integers(0, 128000, 5000), 128000).astype(np.uint32).tofile(tmp_path / "train.bin")
    shards = open_any(tmp_path)
    assert shards.tokenizer is None
    done = run("inspect", tmp_path)
    assert done.returncode == 0
    assert "tokenizer  not known" in done.stdout
    done = run("inspect", tmp_path, "--find", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hint: pass `--tokenizer`" in done.stderr


def test_a_text_that_several_tokenizers_fit_is_given_to_none(tmp_path):
    np.array([9642, 13] * 60, np.uint32).tofile(tmp_path / "train.bin")
    shards = open_any(tmp_path)
    assert (shards.dtype.name, shards.tokenizer) == ("uint32", None)
    assert "too little of it" in shards.told.how


def llmc_bytes(ids, magic=20240520, version=1, n_tokens=None) -> bytes:
    head = struct.pack("<3i", magic, version, len(ids) if n_tokens is None else n_tokens).ljust(1024, b"\0")
    return head + np.array(ids, "<u2").tobytes()


def mds_bytes() -> bytes:
    return (FOREIGN / "mds/gpt2_fixed/shard.00000.mds").read_bytes()


IDX = (FOREIGN / "megatron/gpt2_text_document.idx").read_bytes()
PARQUET = (FOREIGN / "parquet/gpt2.parquet").read_bytes()
CHUNK = (FOREIGN / "litdata/gpt2_int32/chunk-0-0.bin").read_bytes()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.bin": b"\1\2\3"}, "has an odd size, 3 bytes"),
        ({"a.bin": llmc_bytes([1, 2], n_tokens=9)}, "is truncated: 9 tokens by its header, and room for 2"),
        ({"a.bin": llmc_bytes([1, 2], n_tokens=-9)}, "counts -9 tokens"),
        ({"a.bin": llmc_bytes([1, 2], version=3)}, "header that is not known: magic 20240520, version 3"),
        ({"a.bin": llmc_bytes([1, 2], magic=20250101)}, "header that is not known: magic 20250101"),
        ({"a.bin": llmc_bytes([1, 2], magic=20240522)}, "questions of an evaluation"),
        ({"a.npy": b"\x93NUMPY\1\0v\0{'descr'"}, "does not begin with a header of numpy"),
        ({"a.idx": IDX, "a.bin": b"\1\2"}, "is truncated: 201 tokens"),
        ({"a.idx": IDX[:50], "a.bin": b"\1\2"}, "is truncated: 50 bytes for 8 sequences"),
        ({"a.idx": IDX[:17] + b"\7" + IDX[18:], "a.bin": b"\1\2"}, "with ids of type 7"),
        ({"a.idx": IDX}, "has no .bin beside it"),
        ({"a.ds": b"\1\2", "a.ds.index": b"\7" + b"\0" * 7}, "its .index ends at 7 tokens"),
        ({"chunk-0-0.bin": CHUNK[:100], "index.json": b'{"chunks": [{"filename": "chunk-0-0.bin"}]}'}, "is truncated"),
        ({"chunk-0-0.bin": CHUNK, "index.json": b"{"}, "is no JSON"),
        ({"shard.00000.mds": mds_bytes()[:300]}, "is truncated"),
        ({"shard.00000.mds": b"\0" * 40}, "does not begin with the places of its items"),
        ({"shard.00000.mds.zstd": b"nonsense"}, "cannot be unpacked"),
        ({"a.parquet": PARQUET[:-9]}, "is no Parquet file, or damaged"),
        ({"part-0-00000.npy": b"\1\0\2\0", "part-0-00000.csv.gz": gzip.compress(b"0,9,a,b,1\n")}, "ends at 9"),
        ({"part-0-00000.npy": b"\1\0\2\0", "part-0-00000.csv.gz": b"nonsense"}, "is no list of documents"),
        ({"notes.txt": b"hello"}, "no shards in"),
        ({"a.ds": b"\1\0", "b.parquet": PARQUET}, "holds files of several formats"),
    ],
)
def test_damaged_and_odd_files_are_refused_in_a_sentence(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    done = run("inspect", tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_parquet_file_of_text_is_no_shard(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["text"])
    with pytest.raises(OutputError, match="columns: `text`"):
        open_any(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "lmc"], "did you mean `llmc`?"),
        (["--dtype", "float32"], "unknown dtype `float32`"),
        (["--tokenizer", "gpt7"], "unknown tokenizer `gpt7`"),
        (["--tokens", "7"], "is not of the form A:B"),
        (["--find", ""], "nothing to look for"),
        (["--doc", "0", "--find", "x"], "choose one of"),
        (["--doc", "99"], "there is no document 99 in"),
        (["--doc", "-99"], "it has 8 documents"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, message):
    done = run("inspect", FOREIGN / "nanogpt/gpt2", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dtype_that_cannot_be_right_is_told(tmp_path):
    wide = FOREIGN / "nanogpt/cl100k_base"
    (warning,) = [w for w in survey(open_any(wide, dtype="uint16")).warnings if "32-bit" in w]
    assert "in every second place" in warning
    np.save(tmp_path / "a_train_000001.npy", np.fromfile(wide / "train.bin", "<u2"))
    assert any("they are 32-bit ids" in w for w in survey(open_any(tmp_path)).warnings)
    assert any("ids of 16 bits" in w for w in survey(open_any(FOREIGN / "nanogpt/gpt2", dtype="uint32")).warnings)


def test_warnings_name_what_will_hurt(tmp_path):
    ids = [EOT, 1, 2, EOT, EOT, EOT, EOT, 3, 4]
    (tmp_path / "a_train_000001.bin").write_bytes(llmc_bytes(ids))
    warnings = survey(open_any(tmp_path)).warnings
    assert any("3 documents are empty, 3 of them in a row" in w for w in warnings)
    assert any("`a_train_000001.bin` has 9 tokens" in w for w in warnings)
    (tmp_path / "a_train_000001.bin").write_bytes(llmc_bytes([EOT, 60_000, *range(40_000)]))
    warnings = survey(open_any(tmp_path, tokenizer="gpt2")).warnings
    assert any("1 ids are out of range: gpt2 has 50,257, and token 1 of" in w for w in warnings)
    (tmp_path / "a_train_000001.bin").write_bytes(llmc_bytes([EOT, *[7] * 100_000]))
    (tmp_path / "a_train_000002.bin").write_bytes(llmc_bytes([7] * 100_000))
    warnings = survey(open_any(tmp_path)).warnings
    assert any("in 100,000 tokens and more of `a_train_000002.bin`" in w for w in warnings)
    np.array([40, 1842, 340] * 50, np.uint16).tofile(tmp_path / "train.bin")
    assert any("no end-of-text was found" in w for w in survey(open_any(tmp_path / "train.bin")).warnings)
    shutil.copytree(FOREIGN / "litdata/gpt2_int32", tmp_path / "lit")
    (tmp_path / "lit" / "chunk-0-1.bin").unlink()
    assert any("names `chunk-0-1.bin`, which is not there" in w for w in survey(open_any(tmp_path / "lit")).warnings)


def test_a_rest_behind_the_last_id_is_told():
    assert survey(open_any(FOREIGN / "nanogpt/gpt2", dtype="uint32")).warnings[0].startswith("`train.bin` ends with 2")


def test_survey_of_the_sample_agrees_with_its_manifest(tmp_path):
    manifest = prepared(tmp_path / "out", "llmc")
    ours = survey(open_any(tmp_path / "out"))
    lengths = sorted(len(document.tokens) for document in tokenmill.open_shards(tmp_path / "out"))
    assert ours.lengths["p50"] == lengths[len(lengths) // 2 - 1]
    assert (ours.lengths["max"], ours.n_documents, ours.eot_share) == (lengths[-1], 420, 1.0)
    assert ours.n_ids_used == len(np.unique(np.concatenate([f.ids for f in open_any(tmp_path / "out").files])))
    assert ours.warnings == ()
    one = survey(open_any(tmp_path / "out" / manifest.shards[1].file))
    assert (one.tokenizer_told_by, one.n_tokens) == ("its manifest", 100_000)
    bare = survey(open_any(without_manifest(tmp_path / "out")))
    same = ("lengths", "n_ids_used", "n_tokens", "n_documents", "first_text", "last_text", "largest_id")
    assert [getattr(ours, name) for name in same] == [getattr(bare, name) for name in same]


def test_inspect_tells_of_foreign_files_and_who_says_so():
    out = run("inspect", FOREIGN / "datatrove/gpt2").stdout
    assert out.startswith("201 tokens of 8 documents in ")
    assert "format     datatrove, uint16 (told by its .metadata)" in out
    assert "told by: its own index" in out
    assert "lengths    p1 3, p25 15, p50 22, p75 23, p99 58, max 58 tokens" in out
    assert "first      The mill stands by the river" in out
    facts = json.loads(run("inspect", FOREIGN / "megatron/gpt2_text_document.bin", "--json").stdout)["survey"]
    assert (facts["format"], facts["dtype"], facts["tokenizer"], facts["n_documents"]) == (
        "megatron",
        "uint16",
        "gpt2",
        8,
    )


def test_inspect_shows_tokens_and_their_edges():
    path = FOREIGN / "llmc/gpt2/fineweb_train_000001.bin"
    done = run("inspect", path, "--tokens", "0:5", "--colors")
    assert done.stdout == "tokens 0 to 5 of 201\n50256 464 3939 6296 416\n\n<|endoftext|>|The| mill| stands| by\n"
    facts = json.loads(run("inspect", path, "--tokens", ":-198", "--json").stdout)
    assert facts == {"start": 0, "stop": 3, "tokens": [50256, 464, 3939], "text": "<|endoftext|>The mill"}
    assert run("inspect", path, "--tokens", "500:600").stdout.startswith("tokens 201 to 201 of 201\n")
    done = run("inspect", path, "--doc", 5, "--colors")
    assert "".join(done.stdout.split("\n\n", 1)[1].split("|")).strip() == MADE["texts"][5]
    assert run("inspect", path, "--doc", -2).stdout == "document 6 (train): 3 tokens\n\nYes.\n"


def test_find_lists_documents_and_exits_with_1_if_there_are_none(tmp_path):
    path = FOREIGN / "mds/gpt2_zstd"
    done = run("inspect", path, "--find", "stones")
    assert done.returncode == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("document")] == ["1", "2", "4", "7"]
    limited = run("inspect", path, "--find", "stones", "--limit", 1)
    assert limited.stdout.count("document") == 1
    assert "may be more" in limited.stderr
    assert [hit.number for hit in find(open_any(path), "粉は細かい")] == [5]
    done = run("inspect", path, "--find", "<|endoftext|>")
    assert (done.returncode, done.stdout) == (1, "")

    prepared(tmp_path / "out", "llmc")
    shards = tokenmill.open_shards(tmp_path / "out")
    expected = [document.number for document in shards if "the king" in shards.text(document)]
    assert [hit.number for hit in find(open_any(tmp_path / "out"), "the king")] == expected
    assert [hit.row for hit in find(open_any(tmp_path / "out"), "the king")] == expected


def test_stats_count_by_split_and_by_source(tmp_path):
    manifest = prepared(tmp_path / "out", "llmc")
    found = statistics(tmp_path / "out")
    assert (found.total.n_tokens, found.total.n_documents) == (368_658, 420)
    assert {name: (c.n_documents, c.n_tokens) for name, c in found.splits.items()} == {
        split: (n, m) for split, (_, n, m) in manifest.split_totals().items()
    }
    (source,) = found.sources.values()
    assert source.n_text_bytes == manifest.totals.n_text_bytes
    assert sum(part.n_documents for part in found.histogram) == 420
    assert sum(part.n_tokens for part in found.histogram) == 368_658
    bare = statistics(without_manifest(tmp_path / "out"))
    assert (bare.total.n_documents, bare.splits, bare.histogram) == (420, found.splits, found.histogram)
    assert bare.bytes_per_token == pytest.approx(found.bytes_per_token, rel=0.05)
    done = run("stats", tmp_path / "out")
    assert done.stdout.startswith("368,658 tokens of 420 documents in ")
    assert "  512 to 1,023                    162  ████████████████████████████████████\n" in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80
    assert json.loads(run("stats", tmp_path / "out", "--json").stdout)["longest"] == 3002


@pytest.mark.parametrize("name", format_names())
def test_no_format_is_forgotten(name):
    from tokenmill.reading.detect import OPENERS

    assert name in OPENERS
    assert format_named(name).name == name


def test_unknown_format_is_a_recipe_error():
    with pytest.raises(RecipeError, match="unknown format"):
        open_any(FOREIGN / "nanogpt/gpt2", format="zip")
