"""A file system that fills up: nothing half-done under a final name, exit 3, and a rerun goes on when there is room."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from harness import digests, journal_of, size_of, start, start_cli, tally, texts, wait_until, write_jsonl


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 50 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """12 MB of text."""
    return write_jsonl(tmp_path_factory.mktemp("disk") / "in.jsonl", texts(20_000, seed=1, mean_words=100))


RECIPES = {
    "nanogpt": {"format": "nanogpt"},
    "llmc": {"format": "llmc", "shard_tokens": 300_000},
}


@pytest.mark.parametrize("name", RECIPES)
def test_disk_that_fills_up_in_the_middle(name, small_disk, source, forks, tmp_path):
    out, ballast = small_disk / "out", small_disk / "ballast"
    spec = {"recipe": {"sources": [str(source)], **RECIPES[name]}, "out": str(tmp_path / "whole")}
    assert forks.run({**spec, "options": {"executor": "inline"}}).code == 0
    expected = digests(tmp_path / "whole")
    spec |= {"out": str(out), "options": {"workers": 2, "unit_bytes": 300_000, "bucket_bytes": 1_000_000}}
    run = start(spec)
    wait_until(lambda: size_of(journal_of(out)) > 1000, run=run)
    while run.running:  # all that is left but 300 kB, again and again: what the run deletes must not help it
        fill(ballast, os.statvfs(small_disk).f_bavail * 4096 - 300_000)
        time.sleep(0.005)
    ended = run.wait()
    assert ended.code == 3, ended.said
    assert "the disk is full" in ended.said
    assert "run the same command again" in ended.said
    assert ended.orphans == []
    assert not (out / "manifest.json").exists()
    for file, digest in digests(out).items():
        assert file not in expected or digest == expected[file], f"{file} looks done and is not"
    subprocess.run(["mount", "-o", "remount,size=150m", small_disk], check=True)
    again = start(spec).wait()
    assert again.code == 0, again.said
    assert digests(out) == expected
    tally("disk of 50 MB that fills up, then made bigger", "exit 3, nothing half-done; rerun: same bytes")


def fill(ballast: Path, n_bytes: int) -> None:
    with ballast.open("ab") as file, contextlib.suppress(OSError):  # the run was faster, and there is no room at all
        if n_bytes > 0:
            os.posix_fallocate(file.fileno(), file.tell(), n_bytes)


def test_what_cannot_fit_is_refused_before_it_begins(small_disk, source):
    (small_disk / "ballast").write_bytes(bytes(48_000_000))
    ended = start_cli("prepare", source, "-o", small_disk / "out", "-q").wait()
    assert ended.code == 3, ended.said
    assert "more on its disk" in ended.said
    assert not list(small_disk.glob("out/*.bin*"))
    tally("disk too small from the start", "refused before it begins, exit 3")


def test_folder_that_may_not_be_written_is_refused(tmp_path, source):
    if os.geteuid() == 0:
        folder = Path("/proc")  # not even root makes a folder there
    else:
        folder = tmp_path / "readonly"
        folder.mkdir(mode=0o555)
    ended = start_cli("prepare", source, "-o", folder / "out", "-q").wait()
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    tally("folder that may not be written", "refused, exit 2")


def test_file_size_limit_stops_the_run_safely(source, forks, tmp_path):
    import resource

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    spec = {"recipe": {"sources": [str(source)], "format": "llmc", "shard_tokens": 300_000}}
    spec |= {"out": str(tmp_path / "out"), "options": {"workers": 2, "unit_bytes": 300_000}}
    ended = start(spec, preexec_fn=limited).wait()
    assert ended.code == 3, ended.said
    assert "larger than the system allows" in ended.said
    assert not list((tmp_path / "out").glob("*.bin"))
    assert start(spec).wait().code == 0
    tally("file size limit", "exit 3, nothing half-done; rerun finishes")
