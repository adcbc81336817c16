"""A driver whose machine is lost, with an output in a store: what the stations did is not lost with it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stations import use_stations_of_this_process

from tokenmill.errors import BusyError, DamageError
from tokenmill.mill import prepare_recipe
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.storage.addresses import parsed
from tokenmill.storage.objects import get
from tokenmill.storage.parts import put_part

OUT = "s3://bucket/out"


class LostError(Exception):
    """The driver's machine is gone."""


@pytest.fixture
def recipe(tmp_path, sample_texts, monkeypatch):
    monkeypatch.setattr("tokenmill.scatter.GROUP_BYTES", 20_000)
    source = tmp_path / "docs.parquet"
    pq.write_table(pa.table({"text": sample_texts[:120]}), source, row_group_size=10)
    return Recipe(sources=(str(source),), format="llmc", shard_tokens=20_000, val="none", shuffle="keyed:3")


@pytest.fixture
def run(in_this_process, monkeypatch, tmp_path):
    """Make the output on a machine: its name, and who works there."""
    use_stations_of_this_process(monkeypatch)

    def run(recipe, machine, executor):
        options = RunOptions(workers=2, executor=executor, unit_bytes=4000, scratch=str(tmp_path / machine))
        return prepare_recipe(recipe, OUT, options)

    return run


def lose_the_driver(run, recipe, monkeypatch, *, at: str, keep_seconds: float) -> None:
    """Have it end at a step, so that nothing comes to the store but what was there by then."""
    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.cluster.means.KEEP_SECONDS", keep_seconds)

        def lost(*args):
            raise LostError

        patch.setattr(at, lost)
        with pytest.raises(LostError):
            run(recipe, "a", "ray")


def sums(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.endswith("manifest.json")]


@pytest.mark.parametrize("executor", ["ray", "inline", "processes"])
def test_what_was_scattered_stays(run, recipe, executor, s3, monkeypatch, tmp_path):
    lose_the_driver(run, recipe, monkeypatch, at="tokenmill.cluster.sealer.Sealer.seal", keep_seconds=1e9)
    assert not list((s3.folder / "bucket/out/.work/units").glob("*"))
    manifest = run(recipe, "b", executor)
    assert manifest.run.n_units > 8
    assert manifest.run.n_units_resumed == manifest.run.n_units
    prepare_recipe(recipe, tmp_path / "local", RunOptions(executor="inline", unit_bytes=4000))
    found, expected = s3.folder / "bucket/out/SHA256SUMS", tmp_path / "local/SHA256SUMS"
    assert sums(found.read_text()) == sums(expected.read_text())
    assert not (s3.folder / "bucket/out/.work").exists()


def test_units_that_were_encoded_stay(run, recipe, s3, monkeypatch):
    at = "tokenmill.cluster.means.ClusterMeans.scattered"
    lose_the_driver(run, recipe, monkeypatch, at=at, keep_seconds=0)
    manifest = run(recipe, "b", "inline")
    assert manifest.run.n_units_resumed >= manifest.run.n_units - 2  # the last ones may have been on their way


def test_a_journal_with_a_hole_is_refused(run, recipe, s3, monkeypatch):
    at = "tokenmill.cluster.means.ClusterMeans.scattered"
    lose_the_driver(run, recipe, monkeypatch, at=at, keep_seconds=0)
    part = sorted((s3.folder / "bucket/out/.work/journal").iterdir())[1]
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(DamageError, match=r"the journal in `s3://bucket/out/\.work` is damaged"):
        run(recipe, "b", "inline")


def test_a_part_is_never_put_in_the_place_of_anothers(proxy, in_this_process):
    in_this_process(proxy.endpoint)
    part = parsed("s3://bucket/out/.work/journal/0000001")
    put_part(part, b"ours", conditional=True)
    put_part(part, b"ours", conditional=True)  # the answer to the first try was lost
    with pytest.raises(BusyError, match="was written by another process"):
        put_part(part, b"theirs", conditional=True)
    assert get(part, 4) == b"ours"
