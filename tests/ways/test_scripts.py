"""The drop-in scripts: the golden bytes, the layouts on disk, and what they say when something dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import GOLDEN, corpora_folder, jsonl_bytes, needs_corpora, prepare_inline, write_parquet

import tokenmill
from tokenmill.cli.scripts import fineweb_recipe, prepare_command, prepare_fineweb_command
from tokenmill.errors import DataError, RecipeError, SourceError
from tokenmill.manifest import load_manifest
from tokenmill.recipe import RunOptions
from tokenmill.scripts.fineweb_layouts import fineweb_shards

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ROOT / "data" / "fineweb"
LIMIT_SECONDS = 120

# Tokenizers of the user's own that do what kills, at the document that says so.
DEADLY = """
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent

class Panic(BaseException):
    pass

class Deadly:
    name = "deadly"
    identity = "deadly 1"
    vocab_size = 256
    special_tokens = {"<eos>": 255}

    def encode_batch(self, texts):
        with open(HERE / "calls", "a") as calls:
            calls.write(f"{os.getpid()} {len(texts)}\\n")
        for text in texts:
            if text == "KILL":
                os.kill(os.getpid(), signal.SIGKILL)
            if text == "EXIT":
                os._exit(7)
            if text == "PANIC":
                raise Panic("the stack is full")
            if text == "WAIT" and not (HERE / "waiting").exists():
                (HERE / "waiting").write_text(str(os.getpid()))
                time.sleep(60)
        return [list(text.encode()) for text in texts]

    def decode(self, ids):
        return bytes(ids).decode()
"""


def command_of(script: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", str(script), *map(str, arguments)]


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"HF_HOME": str(cache), "HF_DATASETS_CACHE": str(cache / "datasets")}


def run_script(script: Path, *arguments: object, cache: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        command_of(script, *arguments), env=environment(cache), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


def digests_in(out: Path) -> dict[str, str]:
    assert tokenmill.verify(out).ok
    return {shard.file: shard.sha256 for shard in load_manifest(out).shards}


@pytest.fixture
def copied(tmp_path) -> Path:
    """A folder with copies of the scripts, and the deadly tokenizer beside them."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("prepare.py", "prepare_fineweb.py"):
        shutil.copy(SCRIPTS / name, folder)
    (folder / "deadly.py").write_text(DEADLY)
    return folder


@pytest.mark.parametrize("num_proc", [1, 2])
def test_a_copied_prepare_script_gives_the_bytes_of_nanogpt_beside_itself(num_proc, copied, tmp_path):
    done = run_script(copied / "prepare.py", "--num_proc", num_proc, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert digests_in(copied) == GOLDEN["sets"]["sample"]["nanogpt"]["files"]
    assert done.stdout.startswith("Prepared 368,658 tokens of 420 documents in")
    assert "checked    20 documents again with tiktoken" in done.stdout
    assert done.stderr.startswith("planned ")
    assert "Map" not in done.stderr  # the bars of datasets
    again = run_script(copied / "prepare.py", "--num-proc", num_proc, cache=tmp_path / "cache")
    assert again.stdout.startswith("Already done")


def test_the_module_writes_to_the_current_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tokenmill.scripts.prepare", "--num_proc", "1"],
        cwd=tmp_path,
        env=environment(tmp_path / "cache"),
        capture_output=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0
    assert digests_in(tmp_path) == GOLDEN["sets"]["sample"]["nanogpt"]["files"]


@needs_corpora
@pytest.mark.parametrize("num_proc", [1, 2, 4])
@pytest.mark.parametrize("ending", ["txt", "parquet"])
def test_prepare_gives_the_bytes_of_nanogpt_for_text_and_parquet(ending, num_proc, tmp_path):
    folder = corpora_folder()
    golden = json.loads((folder / "golden.json").read_text())["sets"]["same"]["nanogpt"]["files"]
    source = folder / "corpora" / "same" / f"docs.{ending}"
    arguments = ["--input", source, "--num_proc", num_proc, "--out", tmp_path / "out"]
    done = run_script(SCRIPTS / "prepare.py", *arguments, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert digests_in(tmp_path / "out") == golden


@needs_corpora
@pytest.mark.parametrize("shard_format", ["nanogpt", "llmc"])
def test_prepare_fineweb_gives_the_bytes_of_the_projects_own_scripts(shard_format, tmp_path):
    folder = corpora_folder()
    golden = json.loads((folder / "golden.json").read_text())["sets"]["english"][shard_format]["files"]
    sample = tmp_path / "fineweb-edu" / "sample" / "10BT"
    sample.mkdir(parents=True)
    for path in (folder / "corpora" / "english").glob("*.parquet"):
        (sample / path.name).symlink_to(path)
    size = ["--shard_size", "10000000"] if shard_format == "llmc" else []
    arguments = ["--version", "10B", "--input", tmp_path / "fineweb-edu", "--format", shard_format, *size]
    done = run_script(
        SCRIPTS / "prepare_fineweb.py", *arguments, "--out", tmp_path / "out", "--num_proc", 2, cache=tmp_path / "cache"
    )
    assert done.returncode == 0, done.stderr
    assert digests_in(tmp_path / "out") == golden


def calls(folder: Path) -> list[int]:
    """The processes that called the deadly tokenizer, call by call."""
    path = folder / "calls"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def deadly_run(folder: Path, texts: list[str], num_proc: int, out: str = "out") -> subprocess.CompletedProcess:
    if not (folder / "corpus.jsonl").exists():
        (folder / "corpus.jsonl").write_bytes(jsonl_bytes(texts))
    arguments = ["--input", folder / "corpus.jsonl", "--tokenizer", "deadly:Deadly", "--num_proc", num_proc]
    return run_script(folder / "prepare.py", *arguments, "--out", folder / out, cache=folder / "cache")


def test_a_rerun_is_served_from_the_cache_until_a_file_changes(copied):
    texts = ["some text"] * 10
    assert deadly_run(copied, texts, 2, "first").returncode == 0
    n_calls = len(calls(copied))
    assert deadly_run(copied, texts, 2, "second").returncode == 0
    assert len(calls(copied)) == n_calls
    assert digests_in(copied / "first") == digests_in(copied / "second")
    with (copied / "corpus.jsonl").open("ab") as file:
        file.write(jsonl_bytes(["more"]))
    assert deadly_run(copied, texts, 2, "third").returncode == 0
    assert len(calls(copied)) > n_calls


def test_num_proc_1_works_in_the_main_process_and_2_in_others(copied):
    (copied / "corpus.jsonl").write_bytes(jsonl_bytes(["some text"] * 10))
    for num_proc in (1, 2):
        arguments = ["--input", copied / "corpus.jsonl", "--tokenizer", "deadly:Deadly", "--num_proc", num_proc]
        process = subprocess.Popen(
            command_of(copied / "prepare.py", *arguments, "--out", copied / f"out{num_proc}"),
            env=environment(copied / f"cache{num_proc}"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert process.wait(timeout=LIMIT_SECONDS) == 0
        pids = set(calls(copied))
        (copied / "calls").unlink()
        assert (pids == {process.pid}) if num_proc == 1 else (1 <= len(pids) <= 2 and process.pid not in pids)


@pytest.mark.parametrize(("word", "how"), [("KILL", "killed by SIGKILL"), ("EXIT", "exit code 7")])
def test_a_document_that_kills_a_worker_is_named_with_the_way_it_died(word, how, copied):
    done = deadly_run(copied, ["fine"] * 700 + [word] + ["fine"] * 300, 2)
    assert done.returncode == 3
    assert f"died of the document in row 700 of `{copied / 'corpus.jsonl'}`: {how}" in done.stderr
    assert "abruptly" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (copied / "out" / "train.bin").exists()


@pytest.mark.parametrize("num_proc", [1, 2])
def test_a_panic_is_named_with_its_document(num_proc, copied):
    done = deadly_run(copied, ["fine"] * 30 + ["PANIC"] + ["fine"] * 30, num_proc)
    assert done.returncode == 1
    place = f"row 30 of `{copied / 'corpus.jsonl'}`"
    assert f"failed on the document in {place}: Panic: the stack is full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("idle", "in_background"), [(False, False), (True, False), (True, True)])
def test_a_worker_killed_from_outside_is_reported_with_signal_and_rows(idle, in_background, copied):
    """A shell starts its background jobs with interrupts ignored."""
    (copied / "corpus.jsonl").write_bytes(jsonl_bytes(["fine", "WAIT", "fine", "fine"]))
    arguments = ["--input", copied / "corpus.jsonl", "--tokenizer", "deadly:Deadly", "--num_proc", 2]
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if in_background else []
    process = subprocess.Popen(
        [*ignoring, *command_of(copied / "prepare.py", *arguments, "--out", copied / "out")],
        env=environment(copied / "cache"),
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + LIMIT_SECONDS
    while not ((copied / "waiting").exists() and (copied / "waiting").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    waiting = int((copied / "waiting").read_text())
    while len(set(calls(copied))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1)  # the other one has nothing left to do: it holds the lock of the pool's queue
    (other,) = set(calls(copied)) - {waiting}
    os.kill(other if idle else waiting, signal.SIGKILL)
    _, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 3
    at = "ended between documents" if idle else f"died at rows 0 to 1 of `{copied / 'corpus.jsonl'}`"
    assert f"{at}: killed by SIGKILL" in errors
    assert "Traceback" not in errors
    again = deadly_run(copied, [], 2)
    assert again.returncode == 0, again.stderr


def test_an_interrupt_ends_all_processes_without_a_traceback(copied):
    (copied / "corpus.jsonl").write_bytes(jsonl_bytes(["fine", "WAIT", "fine", "fine"]))
    arguments = ["--input", copied / "corpus.jsonl", "--tokenizer", "deadly:Deadly", "--num_proc", 2]
    process = subprocess.Popen(
        command_of(copied / "prepare.py", *arguments, "--out", copied / "out"),
        env=environment(copied / "cache"),
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (copied / "waiting").exists() or len(set(calls(copied))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = process.communicate(timeout=LIMIT_SECONDS)  # the pipe closes when the last worker has ended
    assert process.returncode == 130
    assert "error: interrupted" in errors
    assert "Traceback" not in errors


def test_missing_datasets_is_said_with_the_remedy(tmp_path):
    code = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'datasets':\n"
        "            raise ModuleNotFoundError('no datasets', name='datasets')\n"
        "sys.meta_path.insert(0, Blocker())\n"
        f"sys.argv = ['prepare.py', '--out', {str(tmp_path / 'out')!r}]\n"
        "from tokenmill.scripts.prepare import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 2
    assert "error: `datasets` is not installed" in done.stderr
    assert "hint: `pip install 'tokenmill[datasets]'`" in done.stderr


def test_the_datasets_executor_counts_and_skips_as_the_others_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    texts = ["", None, "short", "a <|endoftext|> inside", "x" * 50, None, "last"]
    files = [write_parquet(tmp_path / f"{i}.parquet", texts, row_group_size=2, kind=pa.string()) for i in range(3)]
    fields = {"max_chars": 40, "val": 2, "shuffle": "none", "limit_documents": 9}
    by_map = prepare_inline(
        files, tmp_path / "map", RunOptions(executor="datasets", workers=1, unit_bytes=50), **fields
    )
    inline = prepare_inline(files, tmp_path / "inline", RunOptions(executor="inline", unit_bytes=70), **fields)
    assert [shard.sha256 for shard in by_map.shards] == [shard.sha256 for shard in inline.shards]
    assert (by_map.skipped, by_map.totals) == (inline.skipped, inline.totals)
    assert by_map.n_special_text_documents == inline.n_special_text_documents > 0

    with pytest.raises(RecipeError, match="nothing to train on"):
        prepare_inline(files, tmp_path / "empty", RunOptions(executor="datasets", workers=1), min_chars=10_000)
    files[0].write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError):
        prepare_inline(files, tmp_path / "broken", RunOptions(executor="datasets", workers=1))
    with pytest.raises(RecipeError, match="unknown executor"):
        RunOptions(executor="dataset")


def shards_at(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return write_parquet(folder / "000_00000.parquet", ["text"]).parent


def test_every_layout_of_fineweb_is_recognized(tmp_path):
    hub = tmp_path / "home" / "hub"
    edu, classic = (hub / f"datasets--HuggingFaceFW--{name}" for name in ("fineweb-edu", "fineweb"))
    plain, repository = shards_at(tmp_path / "plain"), shards_at(tmp_path / "fineweb" / "sample" / "10BT")
    edu_10, classic_100 = shards_at(edu / "snapshots/aa/sample/10BT"), shards_at(classic / "snapshots/bb/sample/100BT")
    newer = shards_at(edu / "snapshots/cc/sample/100BT")
    assert fineweb_shards(plain, "350B", None) == (plain, "edu")
    assert fineweb_shards(plain, "10B", "classic") == (plain, "classic")
    assert fineweb_shards(tmp_path / "fineweb", "10B", None) == (repository, "classic")
    assert fineweb_shards(tmp_path / "fineweb" / "sample", "10B", None) == (repository, "classic")
    for root in (hub, tmp_path / "home"):
        assert fineweb_shards(root, "10B", None) == (edu_10, "edu")
        assert fineweb_shards(root, "100B", "edu") == (newer, "edu")
    assert fineweb_shards(edu, "100B", None) == (newer, "edu")
    assert fineweb_shards(classic, "100B", "classic") == (classic_100, "classic")
    with pytest.raises(SourceError, match="both FineWeb-Edu and FineWeb"):
        fineweb_shards(hub, "100B", None)
    with pytest.raises(SourceError, match=r"looked for\n.*\n  sample/350BT/\*\.parquet") as missing:
        fineweb_shards(hub, "350B", None)
    assert missing.value.hint == "`--version 10B` is there"
    with pytest.raises(SourceError, match="is fineweb, and `--type edu` asks for fineweb-edu"):
        fineweb_shards(tmp_path / "fineweb", "10B", "edu")
    with pytest.raises(SourceError, match="is sample 100BT, and sample 10BT is asked for"):
        fineweb_shards(classic_100, "10B", None)
    with pytest.raises(SourceError, match="no such folder"):
        fineweb_shards(tmp_path / "nowhere", "10B", None)

    second = shards_at(edu / "snapshots/dd/sample/10BT")
    with pytest.raises(SourceError, match="several snapshots: aa, dd"):
        fineweb_shards(edu, "10B", None)
    (edu / "refs").mkdir()
    (edu / "refs" / "main").write_text("dd")
    assert fineweb_shards(edu, "10B", None).folder == second


def test_fineweb_shards_of_llmc_are_named_as_in_its_own_script(copied, tmp_path):
    shards_at(tmp_path / "plain")
    for kind, name in (("edu", "edu_fineweb"), ("classic", "fineweb")):
        arguments = ["--input", tmp_path / "plain", "--type", kind, "--format", "llmc", "--shard_size", 1]
        done = run_script(copied / "prepare_fineweb.py", *arguments, "--out", tmp_path / kind, cache=tmp_path / "cache")
        assert done.returncode == 0, done.stderr
        assert list(digests_in(tmp_path / kind)) == [f"{name}_val_000000.bin", f"{name}_train_000001.bin"]


@pytest.mark.parametrize(
    ("kind", "version", "address"),
    [
        (None, "10B", "HuggingFaceFW/fineweb-edu/sample/10BT"),
        ("edu", "100B", "HuggingFaceFW/fineweb-edu/sample/100BT"),
        ("classic", "350B", "HuggingFaceFW/fineweb/sample/350BT"),
    ],
)
def test_fineweb_without_input_comes_from_the_hub(kind, version, address):
    recipe = fineweb_recipe(None, version, kind, "llmc", "1M", {"separator": None, "documents": None})
    assert recipe.sources == (f"hf://datasets/{address}",)
    assert (recipe.format, recipe.shard_tokens) == ("llmc", 1_000_000)
    assert recipe.name == ("fineweb" if kind == "classic" else "edu_fineweb")


def test_a_shard_size_is_refused_for_nanogpt(copied, tmp_path):
    done = run_script(copied / "prepare_fineweb.py", "--input", copied, "--shard_size", "1M", cache=tmp_path / "cache")
    assert (done.returncode, "`--shard_size` is for `--format llmc`" in done.stderr) == (2, True)


def test_every_flag_of_the_scripts_is_on_their_page():
    page = (ROOT / "docs" / "scripts.md").read_text()
    assert "(docs/scripts.md)" in (ROOT / "README.md").read_text()
    for command in (prepare_command(Path()), prepare_fineweb_command(Path())):
        flags = [flag for option in command.params for flag in option.opts if flag.startswith("--")]
        assert not [flag for flag in flags if flag.replace("-", "_") not in page.replace("-", "_")]


@pytest.mark.parametrize("num_proc", [1, 2])
def test_the_flag_that_the_error_about_a_broken_record_names_is_there(num_proc, copied):
    (copied / "my corpus.jsonl").write_text('{"text": "one"}\n{"text": null}\n{"text": "two"}\n{"text": "three"}\n')
    arguments = ["--input", copied / "my corpus.jsonl", "--num_proc", num_proc, "--out", copied / "my out"]
    done = run_script(copied / "prepare.py", *arguments, cache=copied / "cache")
    assert (done.returncode, "`--on-bad-document skip`" in done.stderr) == (1, True)
    done = run_script(copied / "prepare.py", *arguments, "--on-bad-document", "skip", cache=copied / "cache")
    assert done.returncode == 0, done.stderr
    assert load_manifest(copied / "my out").totals.n_documents == 3
    assert f"`tokenmill verify '{copied / 'my out'}'`" in done.stdout


def test_the_flags_that_the_errors_about_tokenizers_name_are_there(copied, tmp_path):
    ranks = ROOT / "src" / "tokenmill" / "tokenizers" / "vocab" / "r50k_base.tiktoken"
    (tmp_path / "plain").mkdir()
    write_parquet(tmp_path / "plain" / "a.parquet", ["one", "two"])
    arguments = ["--input", tmp_path / "plain", "--tokenizer", ranks, "--out", tmp_path / "out"]
    for more, hint in (([], "--pattern"), (["--pattern", "gpt2"], "--eot-token")):
        done = run_script(copied / "prepare_fineweb.py", *arguments, *more, cache=tmp_path)
        assert (done.returncode, hint in done.stderr) == (2, True), done.stderr
    done = run_script(copied / "prepare_fineweb.py", *arguments, *more, "--eot-token", 50256, cache=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_shard_in_the_place_of_its_folder_is_told(tmp_path):
    shards_at(tmp_path / "plain")
    shard = next(path for path in (tmp_path / "plain").rglob("*") if path.is_file())
    with pytest.raises(SourceError, match="is a file") as error:
        fineweb_shards(shard, "10B", None)
    assert error.value.hint == f"pass the folder that holds it: `--input {shard.parent}`"
