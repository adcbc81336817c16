"""The format of docs/your-own-format.md, installed as its page says, and used from end to end."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from tokenmill.shards import OpenShard, ShardFormat, format_named, format_names

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-format.md").read_text()
CODE, TOML = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("python", "toml"))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder on the path with the module and what an installer makes of the entry point."""
    site = tmp_path / "site"
    info = site / "int64_format-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "int64.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: int64-format\nVersion: 1.0\n")
    ((group, entries),) = tomllib.loads(TOML)["project"]["entry-points"].items()
    lines = [f"{name} = {target}" for name, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    yield site
    sys.modules.pop("int64", None)


def run(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "tokenmill", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ}, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_example_is_40_lines_at_most():
    assert len(CODE.splitlines()) <= 40


def test_a_format_from_outside_works_like_any_other(installed, tmp_path, sample_texts):
    assert format_names()[-1] == "int64"
    out = tmp_path / "out"
    made = json.loads(
        run("prepare", "sample", "-o", out, "--format", "int64", "--shard-tokens", "100K", "--val", "20", "--json")
    )
    assert [shard["file"] for shard in made["shards"]] == ["val-0000.i64", *(f"train-{i:04d}.i64" for i in range(4))]
    assert "OK" in run("verify", out)
    assert "int64" in run("formats")
    assert "train-0000.i64" in run("inspect", out)

    tokenizer = tokenmill.Tokenizer("gpt2")
    expected = [token for text in sample_texts for token in [*tokenizer.encode(text), tokenizer.eot_token]]
    found = [np.memmap(out / shard["file"], "<i8", mode="r") for shard in made["shards"]]
    assert np.concatenate(found).tolist() == expected
    shards = tokenmill.open_shards(out)
    assert [shards.text(document) for document in shards] == sample_texts


def test_a_format_has_every_method_and_value_of_the_protocol(installed):
    wanted = {name for name in [*vars(ShardFormat), *ShardFormat.__annotations__] if not name.startswith("_")}
    for name in format_names():
        assert {attribute for attribute in wanted if not hasattr(format_named(name), attribute)} == set()
    assert {"append", "commit", "abandon"} <= set(vars(OpenShard))
