"""What people see and type: live lines, mistyped words, the Tab key."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import run

from tokenmill.cli import cli
from tokenmill.cli.display import fitting, rough

BIN = Path(sys.executable).parent


def shown_on_terminal(arguments, columns, cwd, stdout=subprocess.PIPE, **environment):
    """What a command writes to a terminal of so many columns on stderr, and its summary."""
    leader, follower = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *arguments],
        stderr=follower,
        stdout=follower if stdout is None else stdout,
        text=True,
        env=variables,
        cwd=cwd,
    )
    os.close(follower)
    shown = b""
    try:
        while data := os.read(leader, 65536):
            shown += data
    except OSError:  # Linux's word for the end of a terminal
        pass
    os.close(leader)
    summary, _ = process.communicate()
    assert process.returncode == 0
    return shown.decode(), summary


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "a.jsonl").write_text(('{"text": "' + "more words " * 500 + '"}\n') * 3000)
    return ["prepare", "a.jsonl", "-o", "out", "--workers", "1"]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_live_lines_fit_the_terminal_and_are_gone_at_the_end(corpus, columns, tmp_path):
    shown, summary = shown_on_terminal(corpus, columns, tmp_path)
    assert "units" in shown
    assert "…" not in shown  # nothing is cut off
    lines = [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", shown)]
    assert max(map(len, lines)) <= columns
    assert shown.rstrip().endswith(("\x1b[?25h", "\x1b[2K"))  # the lines are erased, and the cursor is back
    assert "\x1b[?25h" in shown
    assert all(len(line) <= 80 for line in summary.splitlines())


@pytest.mark.parametrize("command", ["formats", "tokenizers", "datasets"])
def test_a_list_fits_a_narrow_terminal(command, tmp_path):
    shown, _ = shown_on_terminal([command], 80, tmp_path, stdout=None, NO_COLOR="1")
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in shown.splitlines()[:-2]) <= 80  # then a sentence


def test_a_dumb_terminal_gets_plain_lines(corpus, tmp_path):
    shown, _ = shown_on_terminal(corpus, 80, tmp_path, TERM="dumb")
    assert shown.startswith("planned units=0/")
    assert "\x1b" not in shown


def test_without_color_the_lines_have_none(corpus, tmp_path):
    shown, _ = shown_on_terminal(corpus, 80, tmp_path, NO_COLOR="1")
    assert "units" in shown
    assert not re.search(r"\x1b\[[\d;]*(3|4|9)\d", shown)


def test_parts_of_a_line_are_left_out_whole():
    parts = ["12M tokens", "5 MB/s", "fetched 1.2 GB of 28.5 GB", "encoding binds"]
    assert fitting(parts, 200) == "12M tokens · 5 MB/s · fetched 1.2 GB of 28.5 GB · encoding binds"
    assert fitting(parts, 40) == "12M tokens · 5 MB/s · encoding binds"
    assert [rough(seconds) for seconds in (4.4, 75, 7500)] == ["4 s", "1:15", "2 h 5 min"]


@pytest.mark.parametrize(
    ("typed", "error", "hint"),
    [
        ("prepaer sample -o out", "no such command `prepaer`", "did you mean `prepare`?"),
        ("prepare sample -o out --fromat llmc", "no such option `--fromat`", "did you mean `--format`?"),
        ("prepare sample -o out --format nanogtp", "unknown format `nanogtp`", "did you mean `nanogpt`?"),
        ("prepare sample -o out --tokenizer gtp2", "unknown tokenizer `gtp2`", "did you mean `gpt2`?"),
        ("prepare finweb -o out", "no such file or folder: ", "did you mean `fineweb`?"),
        (
            "prepare sample -o out --eot frist",
            "invalid value for `--eot`: `frist` is not one of `first`, `last`, `none`",
            "did you mean `first`?",
        ),
        ("verify", "missing argument `OUT`", "see `python -m tokenmill verify --help`"),
        (
            "prepare sample -o out --val shrad",
            "val `shrad` is not known",
            "a fraction, a number of documents, `shard` or `none`",
        ),
        ("completion tcsh", "invalid value for `{bash|zsh|fish}`: `tcsh` is not one of `bash`, `zsh`, `fish`", None),
    ],
)
def test_a_mistyped_word_gets_the_right_one(typed, error, hint, tmp_path):
    done = run(*typed.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"error: {error}")
    assert hint is None or lines[1] == f"hint: {hint}"


def test_commands_are_listed_in_the_order_of_need_and_none_is_cut_off():
    listed = run("--help", env={**os.environ, "COLUMNS": "80"}).stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == list(cli.commands)
    assert "..." not in listed


def completions(line):
    """What the Tab key offers at the end of a line, as bash asks for it."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TOKENMILL_COMPLETE": "bash_complete"}
    done = subprocess.run([BIN / "tokenmill"], env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [item.split(",", 1)[1] for item in done.stdout.splitlines() if item.startswith("plain,")]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tokenmill pre", ["prepare"]),
        ("tokenmill prepare --shard", ["--shard-tokens"]),
        ("tokenmill prepare --format l", ["llmc", "litdata"]),
        ("tokenmill convert out --format me", ["megatron"]),
        ("tokenmill prepare --tokenizer o", ["o200k_base"]),
        ("tokenmill prepare tiny", ["tinystories"]),
        ("tokenmill datasets wiki", ["wikipedia", "wikitext"]),
        ("tokenmill prepare fineweb-edu --version 1", ["10B", "100B"]),
        ("tokenmill prepare --eot ", ["first", "last", "none"]),
    ],
)
def test_the_tab_key_offers_what_there_is(line, offered):
    assert completions(line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_asks_tokenmill(shell):
    done = run("completion", shell)
    assert done.returncode == 0
    assert f"_TOKENMILL_COMPLETE={shell}_complete" in done.stdout


def test_bash_completes_by_its_own_script(tmp_path):
    """The real shell: it loads the script, and calls the function that the script registers."""
    script = (
        'eval "$(tokenmill completion bash)"\n'
        "COMP_WORDS=(tokenmill prepare --format meg)\nCOMP_CWORD=3\n"
        '_tokenmill_completion tokenmill\necho "${COMPREPLY[@]}"\n'
    )
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == "megatron\n", done.stderr
