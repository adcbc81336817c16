"""Every example and command of the guide "My prepare.py dies" does what the guide says."""

import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiktoken_ext.openai_public

import tokenmill

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "my-prepare-dies.md").read_text()
BLOCKS = re.findall(r"<!-- (\w+)(?:: (.*?))? -->\n```(\w+)\n(.*?)```", GUIDE, flags=re.DOTALL)
EXAMPLES = [(outcome, words, code) for outcome, words, language, code in BLOCKS if language == "python"]
COMMANDS = "set -e\n" + "".join(code for outcome, _, _, code in BLOCKS if outcome == "shell")
HANG_SECONDS = 8


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """tiktoken's vocabulary in its cache, an empty cache of datasets, and this environment's commands."""
    folder = tmp_path_factory.mktemp("guide")
    (url,) = re.findall(r'"(https://[^"]+)"', inspect.getsource(tiktoken_ext.openai_public.r50k_base))
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    shutil.copy(Path(tokenmill.__file__).parent / "tokenizers/vocab/r50k_base.tiktoken", folder / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"TIKTOKEN_CACHE_DIR": str(folder), "HF_HOME": str(folder / "hf"), "PATH": path}


def test_the_guide_has_its_examples():
    assert len(EXAMPLES) == GUIDE.count("```python") == 7
    assert GUIDE.count("```sh") == len([block for block in BLOCKS if block[0] == "shell"]) == 4


@pytest.mark.parametrize(
    ("outcome", "words", "code"), EXAMPLES, ids=[words or outcome for outcome, words, _ in EXAMPLES]
)
def test_an_example_ends_as_the_guide_says(outcome, words, code, tmp_path, environment):
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    (tmp_path / "example.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=HANG_SECONDS if outcome == "hangs" else 60)
    except subprocess.TimeoutExpired:
        assert outcome == "hangs"
        return
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.communicate()
    if outcome == "runs":
        assert process.returncode == 0, stderr
        assert stdout.startswith(words)
    else:
        assert outcome == "says" or (outcome == "dies" and process.returncode != 0)
        assert words in stderr


def test_the_commands_of_the_guide_work(tmp_path, environment):
    sample = pq.read_table(tokenmill.sources.catalog.CATALOG["sample"])
    (tmp_path / "corpus.txt").write_text("<|endoftext|>".join(sample["text"].to_pylist()))
    shards = tmp_path / "fineweb-edu" / "sample" / "10BT"
    shards.mkdir(parents=True)
    pq.write_table(sample, shards / "000_00000.parquet", row_group_size=100)
    done = subprocess.run(
        ["bash", "-c", COMMANDS], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "way3_fineweb" / "train.bin").read_bytes() == (tmp_path / "way1" / "train.bin").read_bytes()
    assert (tmp_path / "way3_llmc" / "manifest.json").exists()
