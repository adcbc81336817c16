"""A memory limit too small for the workers asked for: fewer workers and the same bytes, or a clear end."""

import contextlib
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
from harness import HERE, digests, start, tally, texts, write_jsonl

GROUPS = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A control group of version 1 or 2 with a memory limit."""

    def __init__(self, n_bytes: int) -> None:
        v1 = GROUPS / "memory"
        self.path = (v1 if v1.is_dir() else GROUPS) / f"tokenmill-test-{os.getpid()}-{n_bytes}"
        self.path.mkdir()
        try:
            if v1.is_dir():
                (self.path / "memory.limit_in_bytes").write_text(str(n_bytes))
                with contextlib.suppress(OSError):  # where swap is counted, none may help out
                    (self.path / "memory.memsw.limit_in_bytes").write_text(str(n_bytes))
            else:
                (self.path / "memory.max").write_text(str(n_bytes))
                with contextlib.suppress(OSError):
                    (self.path / "memory.swap.max").write_text("0")
        except OSError:
            self.close()
            raise

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text("0")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()


def group_or_skip(n_bytes: int) -> MemoryGroup:
    try:
        group = MemoryGroup(n_bytes)
        subprocess.run(["true"], preexec_fn=group.enter, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no control group for memory can be made here: {error}")
    return group


@pytest.fixture
def spec(tmp_path, forks):
    path = write_jsonl(tmp_path / "in.jsonl", texts(400, seed=5, mean_words=30, empty=False))
    recipe = {"sources": [str(path)], "format": "npy", "shard_tokens": 6000}
    recipe |= {"tokenizer": "hungry:Letters", "eot_token": "<end>"}
    spec = {"recipe": recipe, "modules": [str(HERE)], "options": {"executor": "inline"}, "out": str(tmp_path / "whole")}
    assert forks.run(spec).code == 0
    return {**spec, "out": str(tmp_path / "out"), "options": {"workers": 4, "unit_bytes": 4000}}


def test_too_little_memory_for_all_workers_means_fewer_workers(spec, tmp_path):
    # Three workers that take 200 MB each do not fit; one does, and perhaps two.
    group = group_or_skip(500_000_000)
    try:
        ended = start(spec, env={"HUNGRY": "200"}, preexec_fn=group.enter).wait()
    finally:
        group.close()
    assert ended.code == 0, ended.said
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    mishaps = [what for _, what in json.loads((tmp_path / "out" / "manifest.json").read_text())["run"]["mishaps"]]
    assert any("out of memory" in what and "goes on with" in what for what in mishaps)
    tally("memory limit too small for the workers asked for", "fewer workers, same bytes")


def test_too_little_memory_for_one_worker_is_told_and_a_rerun_with_more_finishes(spec, tmp_path):
    group = group_or_skip(300_000_000)
    try:
        ended = start(spec, env={"HUNGRY": "400"}, preexec_fn=group.enter).wait()
    finally:
        group.close()
    assert ended.code == 3, ended.said
    assert "out of memory" in ended.said
    assert "need about" in ended.said
    assert "run the same command again" in ended.said
    assert ended.orphans == []
    assert start(spec).wait().code == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    tally("memory limit too small for one worker", "told, exit 3; a rerun with more finishes, same bytes")


def test_worker_whose_allocation_fails_is_taken_out(spec, tmp_path):
    def limited():  # allocations fail, and nobody is killed
        resource.setrlimit(resource.RLIMIT_AS, (4_000_000_000, 4_000_000_000))

    ended = start(spec, env={"HUNGRY": "5000"}, preexec_fn=limited).wait()
    assert ended.code == 3, ended.said
    assert "could not get the memory" in ended.said
    assert start(spec).wait().code == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    tally("memory that a worker asks for is refused", "told, exit 3; a rerun with more finishes, same bytes")
