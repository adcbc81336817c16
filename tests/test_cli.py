"""The command line: what it prints, where, and with which exit code."""

import json
import subprocess
import sys

import pytest
from conftest import write_parquet

import tokenmill
from tokenmill.cli import cli
from tokenmill.shards import format_names

COMMANDS = sorted(cli.commands)


def run(*arguments, cwd=None, **options):
    command = [sys.executable, "-m", "tokenmill", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["prepare", "--help"], ["--version"]])
def test_help_and_import_load_neither_numpy_nor_pyarrow(arguments):
    code = (
        "import sys, tokenmill, tokenmill.cli\n"
        f"sys.argv = ['tokenmill', *{arguments}]\n"
        "assert tokenmill.cli.exit_code() == 0\n"
        "heavy = {'numpy', 'pyarrow', 'awkward', 'gigatoken', 'tiktoken'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"tokenmill {command}" in done.stdout.partition("Example")[2]


def test_prepare_tells_what_it_made(tmp_path):
    done = run("prepare", "sample", "-o", "out", "--workers", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Prepared 368,658 tokens of 420 documents in ")
    assert "train      367,749 tokens, 419 documents in out/train.bin" in done.stdout
    assert "shard file=val.bin split=val tokens=909" in done.stderr
    again = run("prepare", "sample", "-o", "out", cwd=tmp_path)
    assert again.stdout.startswith("Already done: 368,658 tokens of 420 documents\n")


def test_json_is_the_only_thing_on_stdout_and_events_are_json_too(tmp_path):
    done = run("prepare", "sample", "-o", tmp_path / "out", "--json", "--progress", "jsonl")
    assert json.loads(done.stdout)["totals"]["n_tokens"] == 368_658
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert events[0]["event"] == "planned"
    assert [event["file"] for event in events if event["event"] == "shard"] == ["val.bin", "train.bin"]


def test_quiet_is_quiet(tmp_path):
    done = run("prepare", "sample", "-o", tmp_path / "out", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_verify_exits_with_1_on_damage(tmp_path):
    run("prepare", "sample", "-o", tmp_path / "out", "-q")
    done = run("verify", tmp_path / "out")
    assert done.stdout == "OK: 6 files, 751 kB, 368,658 tokens of 420 documents; 64 documents encoded again: equal\n"
    with (tmp_path / "out" / "train.bin").open("r+b") as file:
        file.write(b"\0\0")
    done = run("verify", tmp_path / "out")
    assert done.returncode == 1
    assert "train.bin: SHA-256 " in done.stdout
    assert "FAILED: 1 problem" in done.stdout
    assert json.loads(run("verify", tmp_path / "out", "--json").stdout)["ok"] is False


def test_inspect_shows_a_document_and_where_it_came_from(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["first", "second", "third"])
    run("prepare", source, "-o", tmp_path / "out", "-q", "--no-shuffle", "--val", "1")
    done = run("inspect", tmp_path / "out", "--doc", 1)
    assert done.stdout == (
        "document 1 of 3 (train): 2 tokens\n"
        "  shard   train.bin, tokens 0 to 2\n"
        f"  source  {source}, row 1 (counted from 0)\n"
        "\nsecond\n"
    )
    facts = json.loads(run("inspect", tmp_path / "out", "--doc", -1, "--json").stdout)
    assert (facts["text"], facts["row"], facts["tokens"]) == ("third", 2, [17089, 50256])
    overview = run("inspect", tmp_path / "out").stdout
    assert overview.startswith("6 tokens of 3 documents in ")
    done = run("inspect", tmp_path / "out", "--doc", 3)
    assert done.returncode == 2
    assert "there is no document 3" in done.stderr


def test_lists_name_every_format_and_tokenizer():
    assert {row["format"] for row in json.loads(run("formats", "--json").stdout)} == set(format_names())
    rows = {row["tokenizer"]: row for row in json.loads(run("tokenizers", "--json").stdout)}
    assert rows["o200k_base"]["end-of-text"] == 199_999
    assert rows["p50k_base"]["engine"] == "tiktoken"
    assert "nanoGPT" in run("formats").stdout
    assert "100277" in run("tokenizers").stdout


def test_recipe_file_is_the_command_written_down(tmp_path):
    (tmp_path / "r.toml").write_text(
        'sources = ["sample"]\nformat = "llmc"\nshard_tokens = "100K"\nname = "x"\nval = "shard"\n'
    )
    done = run("prepare", "--recipe", "r.toml", "-o", "out", "--name", "y", "--json", cwd=tmp_path)
    recipe = json.loads(done.stdout)["recipe"]
    assert (recipe["format"], recipe["shard_tokens"], recipe["name"]) == ("llmc", 100_000, "y")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["prepare", "-o", "out"], 2, "no SOURCE given"),
        (["prepare", "sample"], 2, "missing option `-o`"),
        (["prepare", "sampel", "-o", "out"], 2, "hint: did you mean `sample`?"),
        (["prepare", "sample", "-o", "out", "--tokenizer", "gpt-2"], 2, "hint: did you mean `gpt2`?"),
        (["prepare", "sample", "-o", "out", "--format", "nanoGPT"], 2, "hint: did you mean `nanogpt`?"),
        (["prepare", "sample", "-o", "out", "--shard-tokens", "many"], 2, "`many` is not a whole number"),
        (["prepare", "sample", "-o", "out", "--val", "1.5x"], 2, "`1.5x` is not a whole number"),
        (["prepare", "sample", "-o", "out", "--shuffle", "1", "--no-shuffle"], 2, "exclude each other"),
        (["prepare", "sample", "-o", "out", "--recipe", "no.toml"], 2, "recipe file `no.toml` not found"),
        (["prepare", "sample", "-o", "out", "--recipe", "bad.toml"], 2, "unknown key `tokeniser`"),
        (["prepare", "sample", "-o", "file"], 2, "a file of that name is in the way"),
        (["verify", "nowhere"], 2, "is no output of tokenmill"),
        (["inspect", "nowhere"], 2, "no such file or folder: `nowhere`"),
    ],
)
def test_mistakes_get_one_clear_error(arguments, code, message, tmp_path):
    (tmp_path / "bad.toml").write_text('tokeniser = "gpt2"\n')
    (tmp_path / "file").write_text("")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_no_room_for_a_segment_in_a_worker_is_told_and_exits_with_3(tmp_path):
    """A limit on the size of files, which the system reports much as it does a full disk."""
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = run("prepare", "sample", "-o", tmp_path / "out", preexec_fn=limit)
    assert done.returncode == 3
    assert "error: a file grew larger than the system allows" in done.stderr
    assert "hint: make room" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").glob("*.bin"))


def test_llama_header_and_nanogpt_notes_are_in_the_summary(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["some text"] * 10)
    common = ["prepare", source, "--tokenizer", "cl100k_base", "--progress", "off", "--val", "1"]
    assert "llama-3 header" in run(*common, "-o", tmp_path / "1", "--format", "llmc").stdout
    assert "np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint32" in run(*common, "-o", tmp_path / "2").stdout


def test_flags_override_the_way_text_splits_in_a_recipe_file(tmp_path):
    (tmp_path / "a.txt").write_text("oneZZtwo\nthree\n")
    (tmp_path / "r.toml").write_text('sources = "a.txt"\nseparator = "ZZ"\nval = "1"\nshuffle = 5\n')
    by_file = json.loads(run("prepare", "--recipe", "r.toml", "-o", "1", "--json", cwd=tmp_path).stdout)
    by_flag = json.loads(
        run("prepare", "--recipe", "r.toml", "--documents", "line", "-o", "2", "--json", cwd=tmp_path).stdout
    )
    assert (by_file["recipe"]["documents"], by_file["recipe"]["shuffle"]) == ("separator", "keyed:5")
    assert (by_flag["recipe"]["documents"], by_flag["recipe"]["separator"]) == ("line", None)


def test_plan_says_what_prepare_would_do_and_does_nothing(tmp_path):
    done = run("plan", "sample", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Would make about ")
    assert "free: fits" in done.stdout
    assert run("prepare", "sample", "-o", "out", "--dry-run", cwd=tmp_path).stdout.splitlines()[2:] != []
    facts = json.loads(run("plan", "sample", "-o", "out", "--json", cwd=tmp_path).stdout)
    assert not (tmp_path / "out").exists()
    made = json.loads(run("prepare", "sample", "-o", "out", "--json", "-q", cwd=tmp_path).stdout)
    assert facts["fingerprint"] == made["fingerprint"]
    assert facts["n_units"] == made["run"]["n_units"]
    assert abs(facts["about_tokens"] / made["totals"]["n_tokens"] - 1) < 0.05
    assert abs(facts["about_documents"] / made["totals"]["n_documents"] - 1) < 0.05
    assert abs(facts["about_output_bytes"] / (made["totals"]["n_bytes"] + 420 * 28) - 1) < 0.05


def test_plan_knows_limits_and_filters(tmp_path):
    facts = json.loads(run("plan", "sample", "-o", tmp_path / "o", "--json", "--limit-documents", "42").stdout)
    assert facts["about_documents"] == 42
    assert 20_000 < facts["about_tokens"] < 60_000
    filtered = json.loads(run("plan", "sample", "-o", tmp_path / "o", "--json", "--where", "token_count > 900").stdout)
    assert 100 < filtered["about_documents"] < 300


def test_version_is_told():
    assert run("--version").stdout == f"tokenmill, version {tokenmill.__version__}\n"
