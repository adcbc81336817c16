"""convert and merge: the same tokens in another format, there and back, killed or not."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import prepare_inline, write_parquet

import tokenmill
from tokenmill import Changes, convert, merge
from tokenmill.errors import DamageError, OutputError, RecipeError
from tokenmill.reading import open_any

SIZES = {
    "nanogpt": {},
    "megatron": {},
    "mds": {"sequence_length": 256, "shard_tokens": 10_240},
    **{name: {"shard_tokens": 30_000} for name in ("llmc", "npy", "datatrove", "olmo", "litdata", "parquet")},
}
TWO_WAY = [name for name in SIZES if name != "mds"]
FOREIGN = Path(__file__).parent.parent / "foreign"


def trainer_files(out: Path) -> dict[str, str]:
    """The files that a trainer reads."""
    skipped = ("manifest.json", "SHA256SUMS")
    paths = [path for path in out.rglob("*") if path.is_file() and path.parent.name != "index"]
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.name not in skipped
    }


def back_to(manifest: tokenmill.Manifest) -> Changes:
    recipe = manifest.recipe
    return Changes(recipe.format, recipe.name, recipe.shard_tokens, recipe.sequence_length, recipe.eot)


@pytest.fixture(scope="module")
def outputs(sample_texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    source = write_parquet(folder / "a.parquet", sample_texts[:120])
    return {name: prepare_inline(source, folder / name, format=name, **SIZES[name]) for name in SIZES}, folder


@pytest.mark.parametrize("name", TWO_WAY)
def test_there_and_back_through_every_format_gives_the_same_files(name, outputs, tmp_path):
    manifests, folder = outputs
    others = ["llmc", "megatron", "nanogpt"] if name not in ("llmc", "npy") else TWO_WAY
    for other in others:
        if other == name:
            continue
        there, back = tmp_path / other, tmp_path / f"{other}-back"
        manifest = convert(folder / name, there, Changes(other, **SIZES[other]))
        assert manifest.parents[0].fingerprint == manifests[name].fingerprint
        assert tokenmill.verify(there, "full" if other == "megatron" else "sample").problems == ()
        convert(there, back, back_to(manifests[name]))
        assert trainer_files(back) == trainer_files(folder / name), other


@pytest.mark.parametrize("name", TWO_WAY)
def test_mds_is_one_way_and_says_what_it_drops(name, outputs, tmp_path):
    manifests, folder = outputs
    manifest = convert(folder / name, tmp_path / "mds", Changes("mds", **SIZES["mds"]))
    totals = manifest.totals
    assert 0 < totals.n_dropped_tokens < 2 * 256
    assert totals.n_tokens + totals.n_dropped_tokens == manifests[name].totals.n_tokens
    assert tokenmill.verify(tmp_path / "mds").ok
    assert convert(tmp_path / "mds", tmp_path / "llmc", Changes("llmc", shard_tokens=30_000)).totals.n_shards > 2


def test_a_document_cut_by_the_edge_of_a_split_is_two_entries_and_its_end_is_marked(outputs, sample_texts, tmp_path):
    _, folder = outputs
    convert(folder / "llmc", tmp_path / "out", Changes("megatron"))
    shards = tokenmill.open_shards(tmp_path / "out")
    rest = [document for document in shards if document.is_rest]
    assert len(rest) == 1
    beginning = shards[rest[0].number - 1]
    assert beginning.is_cut
    assert (beginning.split, rest[0].split) == ("val", "train")
    assert (beginning.source, beginning.row) == (rest[0].source, rest[0].row)
    whole = sample_texts[rest[0].row]
    assert shards.text(beginning) + shards.text(rest[0]) == whole


def test_end_of_text_moves_goes_and_stays(outputs, tmp_path):
    manifests, folder = outputs
    n_tokens = manifests["llmc"].totals.n_tokens
    last = convert(folder / "llmc", tmp_path / "last", Changes("llmc", shard_tokens=30_000, eot="last"))
    none = convert(folder / "llmc", tmp_path / "none", Changes("llmc", shard_tokens=30_000, eot="none"))
    assert last.totals.n_tokens == n_tokens
    assert none.totals.n_tokens == n_tokens - 120
    assert np.fromfile(tmp_path / "last" / last.shards[-1].file, "<u2")[-1] == 50256
    again = convert(tmp_path / "none", tmp_path / "again", Changes("llmc", shard_tokens=30_000))
    assert again.recipe.eot == "none"
    assert all(tokenmill.verify(tmp_path / name).ok for name in ("last", "none", "again"))


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_shards_that_somebody_else_wrote_are_converted(path, tmp_path):
    manifest = convert(path, tmp_path / "out", Changes("datatrove"))
    expected = json.loads((FOREIGN / "documents.json").read_text())
    shards = tokenmill.open_shards(tmp_path / "out")
    found = [shards.text(document) for document in shards]
    texts = expected["texts"] if isinstance(expected, dict) and "texts" in expected else None
    if path.parent.name != "mds":  # whose tail is dropped
        assert len(found) == 8
        assert texts is None or found == texts
    assert manifest.parents[0].sha256 == ""
    result = tokenmill.verify(tmp_path / "out")
    assert result.ok
    assert "from elsewhere" in result.notes[0]


@pytest.mark.parametrize("ids", [[1, 100_257, 2], [1, -2, 3], [1, 2**40, 3]])
def test_ids_that_the_tokenizer_does_not_have_are_not_cut_to_its_type(ids, tmp_path):
    np.save(tmp_path / "train.npy", np.array(ids, np.int64))
    with pytest.raises(RecipeError, match="gpt2 has 50,257 ids"):
        convert(tmp_path / "train.npy", tmp_path / "out", Changes("llmc"), tokenizer="gpt2")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_another_tokenizer_than_the_manifest_says_is_refused(outputs, tmp_path):
    _, folder = outputs
    with pytest.raises(RecipeError, match="are of gpt2 by its manifest"):
        convert(folder / "llmc", tmp_path / "out", Changes("npy"), tokenizer="cl100k_base")
    assert not (tmp_path / "out").exists()


def test_documents_that_mds_dropped_whole_are_still_counted_in_what_is_made_of_it(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["word " * 20] * 50)
    prepare_inline(source, tmp_path / "mds", format="mds", sequence_length=300, shard_tokens=600, val="none")
    assert tokenmill.open_shards(tmp_path / "mds").manifest.shards[-1].n_dropped_documents > 0
    convert(tmp_path / "mds", tmp_path / "npy", Changes("npy"))
    convert(tmp_path / "npy", tmp_path / "olmo", Changes("olmo"))
    for out in ("mds", "npy", "olmo"):
        assert tokenmill.verify(tmp_path / out).problems == ()


def test_a_converted_output_without_its_manifest_converts_to_the_same(outputs, tmp_path):
    _, folder = outputs
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in (folder / "llmc").glob("*.bin"):
        (bare / path.name).write_bytes(path.read_bytes())
    convert(bare, tmp_path / "out", Changes("llmc", shard_tokens=30_000))
    assert trainer_files(tmp_path / "out") == trainer_files(folder / "llmc")


def test_merge_puts_val_with_val_and_train_with_train(sample_texts, tmp_path):
    texts = sample_texts
    for name, part in (("a", texts[:40]), ("b", texts[40:90])):
        source = write_parquet(tmp_path / f"{name}.parquet", part)
        prepare_inline(source, tmp_path / name, format="npy", shard_tokens=20_000, val=5)
    manifest = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    shards = tokenmill.open_shards(tmp_path / "both")
    found = {split: [shards.text(document) for document in shards.documents(split)] for split in ("val", "train")}
    assert found == {"val": texts[:5] + texts[40:45], "train": texts[5:40] + texts[45:90]}
    assert [Path(entry.path).name for entry in manifest.inputs] == ["a.parquet", "b.parquet"]
    assert len(manifest.parents) == 2
    assert tokenmill.verify(tmp_path / "both").problems == ()
    assert {Path(document.source).name for document in shards} == {"a.parquet", "b.parquet"}


@pytest.mark.parametrize("name", ["llmc", "megatron", "parquet"])
def test_merge_puts_a_document_whole_into_val_that_its_edge_cuts(name, sample_texts, tmp_path):
    for part, texts in (("a", sample_texts[:40]), ("b", sample_texts[40:90])):
        source = write_parquet(tmp_path / f"{part}.parquet", texts)
        prepare_inline(source, tmp_path / part, format="llmc", shard_tokens=5_000, val="shard")
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both", Changes(name))
    convert(tmp_path / "both", tmp_path / "moved", Changes("olmo"))
    for out in ("both", "moved"):
        shards = tokenmill.open_shards(tmp_path / out)
        assert not any(document.is_cut or document.is_rest for document in shards)
        assert sorted(shards.text(document) for document in shards) == sorted(sample_texts[:90])
        assert tokenmill.verify(tmp_path / out).problems == ()


def test_merge_keeps_the_rest_of_a_document_whose_beginning_mds_dropped(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["word " * 20] * 50)
    prepare_inline(source, tmp_path / "a", format="llmc", shard_tokens=110, val="shard")
    convert(tmp_path / "a", tmp_path / "mds", Changes("mds", sequence_length=11, shard_tokens=22))
    convert(tmp_path / "mds", tmp_path / "b", Changes("llmc"))
    n_tokens = [tokenmill.open_shards(tmp_path / out).n_tokens for out in ("a", "b")]
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both").totals.n_tokens == sum(n_tokens)


def test_merge_refuses_a_document_without_its_end_that_others_would_follow(outputs, tmp_path):
    _, folder = outputs
    with pytest.raises(OutputError, match="has lost its end"):
        merge([folder / "mds", folder / "mds"], tmp_path / "both")
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize("name", ["nanogpt", "llmc", "megatron", "datatrove", "olmo", "litdata"])
def test_a_truncated_shard_is_not_converted(name, outputs, tmp_path):
    _, folder = outputs
    shutil.copytree(folder / name, tmp_path / "in")
    path = tmp_path / "in" / tokenmill.open_shards(tmp_path / "in").manifest.shards[-1].file
    os.truncate(path, path.stat().st_size - 100)
    assert "is damaged" in open_any(tmp_path / "in").warnings[0]
    with pytest.raises(OutputError, match="is damaged"):
        convert(tmp_path / "in", tmp_path / "out", Changes("npy"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fields", "difference"),
    [({"tokenizer": "cl100k_base"}, "tokenizer: `gpt2`"), ({"eot": "last"}, "place of end-of-text: `first`")],
)
def test_outputs_that_do_not_go_together_are_not_merged(fields, difference, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["some text"] * 20)
    prepare_inline(source, tmp_path / "a", format="npy", val=1)
    prepare_inline(source, tmp_path / "b", format="npy", val=1, **fields)
    with pytest.raises(OutputError, match=difference):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(RecipeError, match="at least two"):
        merge([tmp_path / "a"], tmp_path / "both")


def test_a_conversion_goes_on_after_kills_and_is_not_done_twice(outputs, tmp_path):
    _, folder = outputs
    code = (
        "import sys, tokenmill, tokenmill.conversion as c; c.RUN_BYTES = 4000\n"
        "tokenmill.convert(sys.argv[1], sys.argv[2], tokenmill.Changes('llmc', shard_tokens=2000))"
    )
    command = [sys.executable, "-c", code, str(folder / "nanogpt"), str(tmp_path / "out")]
    rng, n_kills = random.Random(7), 0  # noqa: S311 - no secret
    while True:
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and not (tmp_path / "out" / ".work" / "journal").exists():
            time.sleep(0.005)
        try:
            process.wait(timeout=rng.uniform(0.01, 0.15) if n_kills < 4 else 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            n_kills += 1
            continue
        assert process.returncode == 0
        break
    assert n_kills >= 1
    convert(folder / "nanogpt", tmp_path / "undisturbed", Changes("llmc", shard_tokens=2000))
    assert trainer_files(tmp_path / "out") == trainer_files(tmp_path / "undisturbed")
    assert not (tmp_path / "out" / ".work").exists()
    before = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns
    convert(folder / "nanogpt", tmp_path / "out", Changes("llmc", shard_tokens=2000))
    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == before


def test_convert_and_merge_on_the_command_line(outputs, tmp_path):
    _, folder = outputs

    def run(*arguments):
        command = [sys.executable, "-m", "tokenmill", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    done = run("convert", folder / "llmc", "-o", tmp_path / "m", "--format", "megatron")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Converted: ")
    assert "corpus_train_text_document.bin" in done.stdout
    done = run("merge", folder / "llmc", folder / "llmc", "-o", tmp_path / "both", "--json")
    assert json.loads(done.stdout)["recipe"]["format"] == "llmc"
    counted = json.loads(run("stats", tmp_path / "both", "--json").stdout)
    (source,) = counted["sources"].values()
    assert source["n_documents"] == counted["total"]["n_documents"]
    for arguments, message in [
        (("convert", folder / "llmc", "-o", tmp_path / "x", "--format", "npy", "--shard-tokens", "0"), "at least 1"),
        (("convert", tmp_path / "nothing", "-o", tmp_path / "x", "--format", "npy"), "nothing"),
        (("convert", folder / "llmc", "-o", tmp_path / "x", "--format", "bin"), "unknown format `bin`"),
        (("convert", folder / "llmc", "-o", folder / "llmc", "--format", "npy"), "is also what is read"),
        (("merge", folder / "llmc", folder / "nanogpt", "-o", tmp_path / "x"), "cannot be merged"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_flipped_bit_is_not_given_a_right_checksum_by_converting(outputs, tmp_path):
    _, folder = outputs
    shutil.copytree(folder / "llmc", tmp_path / "in")
    shard = tmp_path / "in" / "fineweb_train_000001.bin"
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DamageError, match="its checksum differs"):
        convert(tmp_path / "in", tmp_path / "out", Changes("npy", shard_tokens=30_000))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_name_that_is_a_path_is_refused(outputs, tmp_path):
    _, folder = outputs
    with pytest.raises(RecipeError, match="not a plain file name"):
        convert(folder / "llmc", tmp_path / "out", Changes("npy", name="../x", shard_tokens=30_000))


def test_naming_the_right_tokenizer_keeps_the_manifest(outputs, tmp_path):
    _, folder = outputs
    manifest = convert(folder / "llmc", tmp_path / "out", Changes("npy", shard_tokens=30_000), tokenizer="gpt2")
    assert manifest.parents[0].sha256
