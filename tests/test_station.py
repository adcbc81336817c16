"""A station without Ray: what it looks at before it works, and a run on stations of this process."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest
from stations import use_stations_of_this_process

import tokenmill
from tokenmill.cli.display import plain_line
from tokenmill.cli.status import in_words
from tokenmill.cluster import ray_link
from tokenmill.cluster.means import refuse_secret_links
from tokenmill.cluster.station import About, Result, Station, StationJob
from tokenmill.encode import Job
from tokenmill.errors import RecipeError
from tokenmill.mill import prepare_recipe
from tokenmill.plan import plan_units
from tokenmill.recipe import Recipe, RunOptions
from tokenmill.shares import check_share
from tokenmill.sources.catalog import CATALOG
from tokenmill.status import Status


def job_of(recipe: Recipe, work: Path) -> bytes:
    plan = plan_units(recipe)
    job = Job(tokenmill.__version__, recipe, plan.inputs, str(work), "", 5_000_000, len(plan.units), (), False)
    return msgspec.json.encode(StationJob(job, 64_000_000, 300.0, None))


def about(out: Path, name: str = ".work/job-1") -> About:
    station = Station(str(out), name)
    answer = msgspec.json.decode(station.do("about", b"station-0"), type=Result)
    station.do("end", b"")
    assert isinstance(answer, About)
    return answer


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    source = tmp_path / "docs.txt"
    source.write_text("One. Two.")
    return Recipe(sources=(str(source),), format="llmc", val="none").resolve()


@pytest.fixture
def out(recipe, tmp_path) -> Path:
    """An output where a driver has left the job."""
    (tmp_path / "out/.work").mkdir(parents=True)
    (tmp_path / "out/.work/job-1").write_bytes(job_of(recipe, tmp_path / "out/.work"))
    return tmp_path / "out"


def test_a_station_on_other_storage_does_not_see_the_output(tmp_path):
    assert about(tmp_path / "elsewhere").sees_out is False


def test_a_station_that_sees_all_leaves_a_sign(out):
    found = about(out)
    assert (found.sees_out, found.missing_input) == (True, None)
    assert found.versions["tokenmill"] == tokenmill.__version__
    assert (out / ".work/job-1.station-0").read_bytes() == b"station-0"


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_station_names_a_source_that_it_does_not_see(out, recipe, change):
    source = Path(recipe.sources[0])
    source.unlink() if change == "gone" else source.write_text("another text")
    assert about(out).missing_input == str(source)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("shuffle", ["none", "keyed:3"])
def test_stations_write_what_one_machine_writes(tmp_path, monkeypatch, n, shuffle):
    use_stations_of_this_process(monkeypatch)
    recipe = Recipe(sources=(str(CATALOG["sample"]),), format="llmc", val=20, shard_tokens=50_000, shuffle=shuffle)
    prepare_recipe(recipe, tmp_path / "out", RunOptions(executor="ray", workers=n))
    monkeypatch.undo()
    prepare_recipe(recipe, tmp_path / "local", RunOptions(executor="inline"))
    assert sums(tmp_path / "out") == sums(tmp_path / "local")
    assert not (tmp_path / "out/.work").exists()


def sums(out: Path) -> list[str]:
    return [line for line in (out / "SHA256SUMS").read_text().splitlines() if not line.endswith("manifest.json")]


def test_what_makes_no_sense_on_a_cluster_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="Ray is not the executor"):
        RunOptions(ray_address="auto")
    with pytest.raises(RecipeError, match="a share is encoded on one machine"):
        check_share("1/2", RunOptions(executor="ray"))
    with pytest.raises(RecipeError, match="works in this process only"):
        tokenmill.prepare("sample", tmp_path / "out", tokenizer=object(), executor="ray")


def test_a_link_with_a_key_is_not_sent(monkeypatch):
    from types import SimpleNamespace

    from tokenmill.storage.addresses import normalized

    public = normalized("https://example.com/a.jsonl?sig=secret")
    entry = SimpleNamespace(path=public, is_remote=True)
    with pytest.raises(RecipeError, match="has a key in it") as raised:
        refuse_secret_links(SimpleNamespace(plan=SimpleNamespace(inputs=[entry])))
    assert "secret" not in str(raised.value)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(RecipeError, match="Ray is not installed"):
        ray_link.imported_ray()


def test_ray_does_not_keep_our_signals():
    before = signal.getsignal(signal.SIGTERM)
    with ray_link.own_signals():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) == before


def test_status_lists_nodes():
    nodes = {f"10.0.0.{i}": {"host": f"n{i}", "units": i, "shards": 1} for i in range(20)}
    progress = {"percent": 50.0, "text_mb_per_second": 1.0, "tokens_per_second": 5, "workers": 2, "nodes": nodes}
    counts = dict.fromkeys(
        ["n_units", "n_units_done", "n_documents", "n_tokens", "n_text_bytes", "n_shards", "n_tokens_in_shards"], 1
    )
    said = in_words(Status(state="running", owner="process 1 on n0", n_excluded=0, progress=progress, **counts), "out")
    assert "node 10.0.0.3 (n3): 3 units, 1 shard" in said
    assert (
        plain_line("progress", progress) == "progress percent=50.0 text_mb_per_second=1.0 tokens_per_second=5 workers=2"
    )
    assert "and 4 more nodes" in said
