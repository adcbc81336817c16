"""Files from elsewhere: within the disk budget, resumed, checked, and gone when they are done."""

import dataclasses
import hashlib
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from journeys import RECIPES, REPO, SOURCE, content, corpus_files, file_bytes, shards_of, texts, write_files

LARGE = {"unit_bytes": 400_000, "batch_bytes": 100_000, "bucket_bytes": 4_000_000}
FILE_BYTES = 400_000


def large_files(n_files: int = 10) -> dict[str, bytes]:
    """Files of very nearly the same size, which is `FILE_BYTES` at most."""
    found = {}
    for i in range(n_files):
        data = file_bytes(texts(1200, seed=i, mean_words=80), ".jsonl")[:FILE_BYTES]
        found[f"sample/10BT/{i:03d}.jsonl"] = data[: data.rindex(b"\n") + 1]
    return found


class Watch:
    """Watches a folder while a run works: the most bytes that downloads took together."""

    def __init__(self, root: Path) -> None:
        self.root, self.most = root, 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        while not self.done.is_set():
            with suppress(FileNotFoundError):  # it went away while it was listed
                self.most = max(self.most, sum(size_of(path) for path in self.root.glob("*/.work/downloads/*")))
            time.sleep(0.001)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def gets(hub) -> list:
    """The requests that bodies of files came with."""
    return [request for request in hub.requests if request.method == "GET" and request.path.startswith("/cdn/")]


@pytest.mark.parametrize("name", ["streamed", "shuffled"])
def test_downloads_never_take_more_than_the_budget(name, journey, hub):
    files = large_files()
    hub.add_repo(REPO, files)
    with Watch(journey.scratch) as watch:
        ended = journey.run(RECIPES[name] | {"shard_tokens": 500_000} if name == "streamed" else RECIPES[name],
                            disk_budget=2 * FILE_BYTES, **LARGE)  # fmt: skip
    assert ended.code == 0, ended.said
    assert FILE_BYTES // 2 < watch.most <= 2 * FILE_BYTES
    assert sum(request.n_bytes for request in gets(hub)) == sum(map(len, files.values()))
    assert journey.leftovers() == []


def test_a_budget_that_is_too_small_is_refused_before_anything_is_fetched(journey, hub):
    files = large_files(2)
    hub.add_repo(REPO, files)
    needed = max(map(len, files.values()))
    ended = journey.run(RECIPES["shuffled"], disk_budget=needed - 1, **LARGE)
    assert ended.code == 2
    assert f"pass `--disk-budget {needed}` or more" in ended.said
    assert gets(hub) == []
    assert journey.leftovers() == []
    assert not list(journey.bucket.rglob("*.*"))
    assert journey.run(RECIPES["shuffled"], disk_budget=needed, **LARGE).code == 0


def test_small_files_share_a_unit_and_must_fit_together(journey, hub):
    files = corpus_files(n_files=30, n_documents=3, suffix=".jsonl")
    hub.add_repo(REPO, files)
    assert journey.run(RECIPES["shuffled"], disk_budget=max(map(len, files.values())), unit_bytes=10_000).code == 2
    ended = journey.run(RECIPES["shuffled"], disk_budget=10_000, unit_bytes=10_000)
    assert ended.code == 0, ended.said


@pytest.mark.parametrize("limit", [{"limit_documents": 130}, {"limit_tokens": 31_000}, {"limit_documents": 2}])
def test_a_limit_fetches_no_more_than_fits_the_budget(limit, journey, hub, tmp_path):
    files = corpus_files(n_files=8)
    hub.add_repo(REPO, files)
    folder = write_files(tmp_path / "corpus", files)
    recipe = RECIPES["shuffled"] | limit
    budget = 2 * max(map(len, files.values()))
    ended = journey.run(recipe, disk_budget=budget)
    assert ended.code == 0, ended.said
    assert journey.run(recipe, tmp_path / "local", source=str(folder / "sample" / "10BT")).code == 0
    names = ("train.bin", "val.bin")
    assert {name: content(journey.output())[name] for name in names} == {
        name: content(tmp_path / "local")[name] for name in names
    }
    assert len({request.path for request in hub.requests if "/resolve/" in request.path}) < 8
    assert journey.leftovers() == []


def test_downloads_are_kept_where_that_is_asked(journey, hub, tmp_path):
    files = corpus_files()
    hub.add_repo(REPO, files)
    ended = journey.run(RECIPES["shuffled"], tmp_path / "out", keep_downloads=True)
    assert ended.code == 0, ended.said
    kept = sorted((tmp_path / "out" / "downloads").iterdir())
    assert sorted(path.read_bytes() for path in kept) == sorted(files.values())
    ended = journey.run(RECIPES["shuffled"], keep_downloads=True)
    assert ended.code == 2
    assert "`--keep-downloads` keeps them in the output folder" in ended.said


def test_a_download_that_was_killed_goes_on_where_it_stopped(journey, hub):
    data = file_bytes(texts(30_000, mean_words=80), ".jsonl")
    hub.add_repo(REPO, {"sample/10BT/0.jsonl": data})
    assert len(data) > 4 << 20
    options = {**LARGE, "unit_bytes": 4 << 20}
    assert journey.run(RECIPES["shuffled"], fault="download.part:3", **options).code == -9
    (partial,) = journey.scratch.glob("*/.work/downloads/*.partial")
    n_bytes = partial.stat().st_size
    assert n_bytes >= 3 << 20
    hub.requests.clear()
    ended = journey.run(RECIPES["shuffled"], **options)
    assert ended.code == 0, ended.said
    (rest,) = [request for request in hub.requests if request.n_bytes > 1000 and "/api/" not in request.path]
    assert rest.range == f"bytes={n_bytes}-"
    assert rest.n_bytes == len(data) - n_bytes


@pytest.mark.parametrize("what", ["garbage", "too long", "half garbage"])
def test_a_partial_file_that_was_changed_is_found_out(what, journey, hub):
    files = large_files(2)
    hub.add_repo(REPO, files)
    expected = journey.run(RECIPES["shuffled"], "s3://bucket/undisturbed", **LARGE)
    assert expected.code == 0, expected.said
    assert journey.run(RECIPES["shuffled"], fault="download.written", **LARGE).code == -9
    for partial in journey.scratch.glob("*/.work/downloads/*.partial"):
        data = {"garbage": b"x" * 1000, "too long": b"x" * 2 * FILE_BYTES, "half garbage": partial.read_bytes()[:999]}
        partial.write_bytes(data[what] + b"?")
    ended = journey.run(RECIPES["shuffled"], **LARGE)
    assert ended.code == 0, ended.said
    assert content(journey.output()) == content(journey.output("s3://bucket/undisturbed"))


def test_a_download_whose_copy_here_was_changed_is_fetched_again(journey, hub, tmp_path):
    hub.add_repo(REPO, corpus_files())
    assert journey.run(RECIPES["shuffled"], tmp_path / "out", keep_downloads=True, fault="segment.renamed:3").code == -9
    for path in (tmp_path / "out" / "downloads").iterdir():
        if not path.name.endswith(".partial"):
            path.write_bytes(path.read_bytes()[::-1])
    ended = journey.run(RECIPES["shuffled"], tmp_path / "out", keep_downloads=True)
    assert ended.code == 0, ended.said
    assert journey.run(RECIPES["shuffled"], tmp_path / "undisturbed").code == 0
    assert shards_of(content(tmp_path / "undisturbed")).items() <= content(tmp_path / "out").items()


def test_a_file_that_always_arrives_damaged_is_not_believed(journey, hub):
    files = corpus_files()
    hub.add_repo(REPO, files)
    victim = hashlib.sha256(next(iter(files.values()))).hexdigest()
    blob = hub.objects[victim]
    hub.objects[victim] = dataclasses.replace(blob, data=b"x" * blob.n_bytes)
    ended = journey.run(RECIPES["shuffled"])
    assert ended.code == 1
    assert "arrived damaged 3 times" in ended.said


def test_a_file_that_is_a_source_twice_comes_twice(journey, hub, tmp_path):
    files = corpus_files(n_documents=60)
    hub.add_repo(REPO, files)
    folder = write_files(tmp_path / "corpus", files) / "sample" / "10BT"
    again, out, local = "000_00000.parquet", tmp_path / "out", tmp_path / "local"
    recipe = RECIPES["shuffled"]
    ended = journey.run(recipe | {"sources": [SOURCE, f"{SOURCE}/{again}", SOURCE]}, out, disk_budget=200_000)
    assert ended.code == 0, ended.said
    assert journey.run(recipe | {"sources": [str(folder), str(folder / again), str(folder)]}, local).code == 0
    assert shards_of(content(out)) == shards_of(content(local))


def test_a_run_that_goes_on_in_the_middle_of_a_file_keeps_that_file(journey, hub):
    """The units of a file that were done before must not count for those that are still to do."""
    hub.add_repo(REPO, large_files(3))
    options = {**LARGE, "unit_bytes": 50_000, "disk_budget": FILE_BYTES}
    expected = journey.run(RECIPES["shuffled"], "s3://bucket/undisturbed", **options)
    assert expected.code == 0, expected.said
    for n in (3, 8):
        assert journey.run(RECIPES["shuffled"], fault=f"unit.receipt-synced:{n}", **options).code == -9
    ended = journey.run(RECIPES["shuffled"], seconds=30, **options)
    assert ended.code == 0, ended.said
    assert content(journey.output()) == content(journey.output("s3://bucket/undisturbed"))
    assert journey.leftovers() == []
