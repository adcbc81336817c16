"""Every command of README, docs and help does what it says, typed in the order of its page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "remote")]

from collecting import Command, commands_of, help_examples
from hub_server import HubServer
from s3_server import S3Server
from world import INPUTS, OUTPUTS, ROOT, fill_bucket, fill_hub, make_output

from tokenmill.cli import cli

# What cannot be run here, and why.
SKIPPED = {
    r"pip install": "would change the environment that the tests run in; `make package` installs for real",
    r"python train\.py|torchrun": "needs the trainer, PyTorch and a GPU; `make test-consumers` reads the files",
    r"tokenmill view": "serves until somebody ends it; tests/browser opens it in a browser",
    r"make bench|python -m benchmarks": "takes an hour or two; tests/test_benchmarks.py tries its parts",
    r"--executor ray": "needs a Ray cluster: tests/cluster types it there",
    r"--format int64": "needs an installed package with an entry point: tests/formats/test_own_format.py has one",
}
FINDS = r"tokenmill doctor"  # exits with 1 when it finds something, as it should
SECONDS = 60

MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def pages() -> dict[str, list[Command]]:
    """The commands by page; help counts as one, unless the page of its command has the same examples."""
    found = {str(path.relative_to(ROOT)): commands_of(path.read_text()) for path in MARKDOWN}
    for name, command in cli.commands.items():
        examples = help_examples(command.help or "")
        if not {example.code for example in examples} <= {known.code for known in found[f"docs/{name}.md"]}:
            found[f"help of {name}"] = examples
    return {name: commands for name, commands in found.items() if commands}


PAGES = pages()


@pytest.fixture(scope="session")
def hub():
    with HubServer() as server:
        fill_hub(server)
        yield server


@pytest.fixture(scope="session")
def s3():
    with S3Server() as server:
        yield server


@pytest.fixture
def environment(request, page, hub, tmp_path):
    """This environment's commands, a home of one's own, and servers that stand in for the Hub and for S3."""
    kept = {name: value for name, value in os.environ.items() if not re.match(r"HF_|HUGGING|AWS_|.*_proxy", name, re.I)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "DO_NOT_TRACK": "1"}
    stores = {}
    if any("s3://" in command.code for command in PAGES[page]):
        server = request.getfixturevalue("s3")
        bucket = server.folder / "bucket"
        subprocess.run(["rm", "-rf", bucket], check=True)
        bucket.mkdir()
        fill_bucket(bucket, page)
        stores = server.environment
    return {**kept, **own, **hub.environment, **stores}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_as_typed(page, tmp_path, environment):
    commands = PAGES[page]
    for name, make in INPUTS.items():
        if any(re.search(rf"(?<![\w/-]){re.escape(name)}", command.code) for command in commands):
            make(tmp_path)
    for name in OUTPUTS.get(page, ()):
        make_output(tmp_path, name)
    for command in commands:
        if not any(re.search(pattern, command.code) for pattern in SKIPPED):
            run(command, page, tmp_path, environment)


def run(command: Command, page: str, folder: Path, environment: dict[str, str]) -> None:
    code = scaled(command.code)
    if command.language == "python":
        (folder / command.file).write_text(code)
        words = [sys.executable, command.file]
    else:
        words = ["bash", "-e", "-o", "pipefail", "-c", code]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    allowed = (0, 1) if re.search(FINDS, code) else (0,)
    assert done.returncode in allowed, f"{page}:{command.line}: {code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr, f"{page}:{command.line}: {done.stderr}"


def scaled(code: str) -> str:
    """The command for a corpus of 40 documents, which one shard of 100 million tokens would hold, all for val."""
    code = code.replace("100M", "10K")
    if not re.search("shard.tokens", code):
        code = re.sub(r"(tokenmill prepare [^\n]*--format (?:llmc|npy))", r"\1 --shard-tokens 10K", code)
        code = code.replace('format="llmc"', 'format="llmc", shard_tokens="10K"')
    return code


def test_nothing_is_skipped_that_is_not_there():
    codes = [command.code for commands in PAGES.values() for command in commands]
    assert [pattern for pattern in SKIPPED if not any(re.search(pattern, code) for code in codes)] == []
    assert set(OUTPUTS) <= set(PAGES)


def test_commands_are_told_from_the_ways_they_are_spelled():
    page = (
        "    tokenmill stats OUT [--json]\n    tokenmill verify out    # all of it\n    $ tokenmill stats a\n    12\n"
    )
    assert [command.code for command in commands_of(page)] == ["tokenmill verify out", "tokenmill stats a"]
