"""tokenmill as a library: in scripts without a guard, silent, and honest about dead workers."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from conftest import jsonl_bytes, prepare_inline

import tokenmill
from tokenmill.cli.words import count, duration, size
from tokenmill.errors import DataError, RecipeError
from tokenmill.executors.deaths import exit_in_words
from tokenmill.recipe import parse_count, parse_val


def test_unguarded_script_in_a_folder_with_a_stray_numpy_works_and_prints_nothing(tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    script = tmp_path / "sub" / "script.py"
    script.parent.mkdir()
    script.write_text("import tokenmill\ntokenmill.prepare('sample', 'out', workers=2)\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert tokenmill.verify(tmp_path / "out").ok


def test_every_public_name_can_be_imported():
    for name in tokenmill.__all__:
        assert getattr(tokenmill, name) is not None
    import_module("tokenmill.mill")
    import_module("tokenmill.verification")
    assert callable(tokenmill.prepare)
    assert callable(tokenmill.verify)
    with pytest.raises(AttributeError):
        tokenmill.nothing  # noqa: B018


def test_progress_is_told_to_whoever_asks(tmp_path):
    seen = []
    tokenmill.prepare(
        "sample", tmp_path / "out", workers=1, on_progress=lambda p: seen.append((p.fraction, p.n_tokens))
    )
    assert seen[0] == (0.0, 0)
    assert seen[-1] == (1.0, 368_658)


def test_options_are_spelled_as_on_the_command_line(tmp_path):
    manifest = tokenmill.prepare(
        ["sample"], tmp_path / "out", format="llmc", shard_tokens="100K", val="10", shuffle=3, executor="inline"
    )
    recipe = manifest.recipe
    assert (recipe.shard_tokens, recipe.val, recipe.shuffle) == (100_000, 10, "keyed:3")


def test_tokens_of_a_split_are_memory_mapped(tmp_path):
    prepare_inline("sample", tmp_path / "out")
    shards = tokenmill.open_shards(tmp_path / "out")
    (val,) = shards.tokens("val")
    assert len(val) == 909
    assert sum(len(ids) for ids in shards.tokens()) == shards.n_tokens == 368_658
    assert shards.decode(val[:5].tolist()) == "So they went to the"


def test_an_error_in_a_worker_is_the_same_error(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["fine"]) + b"{}\n")
    with pytest.raises(DataError, match="line 2: Object missing required field `text`"):
        tokenmill.prepare(tmp_path / "a.jsonl", tmp_path / "out")


def test_a_killed_worker_is_an_event_and_not_the_end(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["some words in a document " * 40] * 30_000))
    killed = []

    def kill_a_worker(progress):
        if progress.n_tokens and not killed:
            killed.append(worker_pids()[0])
            os.kill(int(killed[0]), signal.SIGKILL)

    manifest = tokenmill.prepare(
        tmp_path / "a.jsonl", tmp_path / "out", workers=2, tokenizer="p50k_base", on_progress=kill_a_worker
    )
    assert any(
        f"worker {killed[0]} died in unit" in what and "killed by SIGKILL; the unit goes to a fresh worker" in what
        for _, what in manifest.run.mishaps
    )
    assert manifest.totals.n_documents == 30_000
    assert not manifest.excluded
    assert tokenmill.verify(tmp_path / "out").ok


def worker_pids():
    """The workers of this process, which threads of it have started."""
    children = [path.read_text().split() for path in Path(f"/proc/{os.getpid()}/task").glob("*/children")]
    return [pid for pids in children for pid in pids]


@pytest.mark.parametrize("fields", [{"workers": 0}, {"batch_bytes": 0}, {"executor": "threads"}])
def test_run_options_are_checked(fields):
    with pytest.raises(RecipeError):
        tokenmill.RunOptions(**fields)


def test_importing_modules_first_hides_no_function():
    code = "import tokenmill; from tokenmill.mill import prepare_recipe; import tokenmill.verification\n"
    code += "assert callable(tokenmill.prepare) and callable(tokenmill.verify)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_workers_of_a_killed_parent_end_quietly(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["some words in a document " * 40] * 100_000))
    code = f"import tokenmill; tokenmill.prepare({str(tmp_path / 'a.jsonl')!r}, {str(tmp_path / 'out')!r}, workers=2)"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "out").rglob("*.partial")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    _, errors = process.communicate(timeout=30)  # the pipe closes when the last worker has ended
    assert errors == ""


def test_exits_in_words():
    assert exit_in_words(3) == "exit code 3"
    assert exit_in_words(-11) == "killed by SIGSEGV"


@pytest.mark.parametrize(
    ("text", "number"), [("100M", 10**8), ("1.5B", 1_500_000_000), ("10_000", 10_000), ("2k", 2000)]
)
def test_sizes_are_read_as_people_write_them(text, number):
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "M", "1.5", "1.0001K", "-3", "1e3", "1 0"])
def test_malformed_sizes_are_refused(text):
    with pytest.raises(RecipeError, match="is not a whole number"):
        parse_count(text)


def test_val_is_read_as_people_write_it():
    values = [parse_val(text) for text in ("0.0005", ".5", "5e-4", "1000", "10K", "shard", "none")]
    assert values == [0.0005, 0.5, 0.0005, 1000, 10_000, "shard", "none"]


def test_numbers_are_shown_as_people_read_them():
    assert [count(n) for n in (7, 999, 1000, 14_868_862, 10_371_489_838)] == ["7", "999", "1K", "14.9M", "10.4B"]
    assert [size(n) for n in (7, 1500, 200_001_024, 3e9)] == ["7 B", "1.5 kB", "200 MB", "3 GB"]
    assert [duration(s) for s in (3.14, 75.2, 3700)] == ["3.1 s", "1:15", "1:01:40"]
