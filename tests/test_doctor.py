"""The doctor: verdicts on a machine, and the documents of a corpus that kill."""

import json
import subprocess
import sys

import msgspec
import pyarrow as pa
import pytest
from conftest import jsonl_bytes, write_arrow, write_parquet
from test_machine import V1, V2, tree

from tokenmill.batches import INVALID_JSON, INVALID_UTF8, LONE_SURROGATE, WRONG_RECORD
from tokenmill.doctor.corpus import (
    LARGE,
    NUL,
    SPECIAL,
    UNREADABLE,
    WHITE_SPACE,
    WHITESPACE,
    WHITESPACE_CHARS,
    scan_corpus,
)
from tokenmill.doctor.machine import Facts, machine_facts, satisfies, verdicts
from tokenmill.recipe import Recipe
from tokenmill.sources import list_inputs

SOUND = Facts(
    cores=16,
    usable_cores=16,
    cpu_quota=None,
    cpu_count=16,
    memory_bytes=64_000_000_000,
    available_memory_bytes=60_000_000_000,
    memory_limit_bytes=None,
    oom_kills=0,
    system_oom_kills=0,
    shared_memory_bytes=32_000_000_000,
    shared_memory_free_bytes=32_000_000_000,
    out="/data/out",
    disk_free_bytes=500_000_000_000,
    out_writable=True,
    open_files=1024,
    start_method="fork",
    python="3.11.7",
    versions={
        "tiktoken": "0.14.0",
        "gigatoken": "0.10.0",
        "tokenizers": "0.23.3",
        "datasets": None,
        "pyarrow": "26.0.1",
        "numpy": "2.4.6",
    },
    required={"tiktoken": ">=0.14", "gigatoken": "<0.11,>=0.10", "numpy": ">=2.4"},
)


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "tokenmill", "doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60)


def verdict_on(about, workers=None, **changed):
    facts = msgspec.structs.replace(SOUND, **changed)
    (found,) = [one for one in verdicts(facts, workers) if one.about == about]
    return found.verdict, found.found, found.remedy


def test_a_sound_machine_has_nothing_to_say():
    assert {one.verdict for one in verdicts(SOUND)} == {"ok"}
    assert not any(one.remedy for one in verdicts(SOUND))


def test_workers_that_do_not_fit_in_memory_bite_and_the_number_that_fits_is_named():
    assert verdict_on("memory", memory_limit_bytes=4_000_000_000) == (
        "will bite",
        "64 GB, limited to 4 GB by a control group, 60 GB free",
        "16 workers at 0.5 GB do not fit in 4 GB, a quarter of it left to the system: pass `--workers 5`",
    )
    assert verdict_on("memory", 5, memory_limit_bytes=4_000_000_000)[0] == "ok"
    assert "pass `--workers 16`" in verdict_on("memory", 200)[2]
    assert "not even 1 worker at 0.5 GB" in verdict_on("memory", memory_limit_bytes=500_000_000)[2]
    assert verdict_on("memory", available_memory_bytes=2_000_000_000)[0] == "note"


def test_a_quota_is_told_with_what_it_does_to_scripts_that_count_cores():
    quota = {"cpu_quota": 1.5, "cpu_count": 2, "usable_cores": 8}
    assert verdict_on("cores", **quota) == (
        "note",
        "16, of which this process may use 8, with a CPU quota of 1.5",
        "scripts that ask os.cpu_count() start 16 processes: give them 2",
    )
    assert verdict_on("cores", 4, **quota)[2] == "4 workers only wait for each other: pass `--workers 2`"


@pytest.mark.parametrize(
    ("about", "changed", "verdict", "remedy"),
    [
        ("out of memory", {"oom_kills": 3}, "note", "fewer `--workers`"),
        ("out of memory", {"oom_kills": None, "system_oom_kills": 1}, "note", "fewer `--workers`"),
        ("shared memory", {"shared_memory_free_bytes": 64_000_000}, "note", "--shm-size"),
        ("disk", {"disk_free_bytes": 5_000_000_000}, "note", "10B tokens take 20 GB"),
        ("disk", {"disk_free_bytes": 500_000_000}, "will bite", "make room"),
        ("disk", {"out_writable": False}, "will bite", "`/data/out` cannot be written"),
        ("open files", {"open_files": 100}, "will bite", "`ulimit -n 1024`"),
        ("start method", {"start_method": "forkserver"}, "note", "`tokenmill doctor SCRIPT.py`"),
        ("datasets", {"versions": SOUND.versions | {"datasets": "5.2.0"}}, "note", "`num_proc=1` starts a worker too"),
        ("tiktoken", {"versions": SOUND.versions | {"tiktoken": "0.5.2"}}, "will bite", "pip install 'tiktoken>=0.14'"),
        ("gigatoken", {"versions": SOUND.versions | {"gigatoken": "0.11.0"}}, "will bite", "<0.11"),
        ("numpy", {"versions": SOUND.versions | {"numpy": None}}, "will bite", "pip install 'numpy>=2.4'"),
    ],
)
def test_what_bites_comes_with_what_to_do(about, changed, verdict, remedy):
    found = verdict_on(about, **changed)
    assert found[0] == verdict
    assert remedy in found[2]


@pytest.mark.parametrize(("files", "limit"), [(V1, 2_000_000_000), (V2, 4_000_000_000)], ids=["v1", "v2"])
def test_facts_are_read_from_any_root_and_judged(files, limit, tmp_path):
    facts = machine_facts(tmp_path / "not" / "there", tree(tmp_path, files))
    assert facts.memory_limit_bytes == limit
    found = {one.about: one.found for one in verdicts(facts)}
    assert f"limited to {limit // 10**9} GB by a control group" in found["memory"]
    assert "killed in this control group" in found["out of memory"]


def test_what_is_not_known_is_told_as_such(tmp_path):
    found = {one.about: one.found for one in verdicts(machine_facts(tmp_path, tmp_path))}
    assert found["memory"] == found["out of memory"] == found["shared memory"] == "not known here"


def test_versions_compare_as_numbers():
    assert satisfies("0.10.3", ">=0.10,<0.11")
    assert not satisfies("0.9.9", ">=0.10,<0.11")
    assert not satisfies("0.11.0rc1", ">=0.10,<0.11")
    assert satisfies("26.0.1+local.1", ">=26")


def test_the_command_tells_about_this_machine_as_text_and_as_json(tmp_path):
    text = run("-o", tmp_path / "out", "--workers", 1)
    assert "cores" in text.stdout
    assert f"free in {tmp_path}/out" in text.stdout
    facts = json.loads(run("-o", tmp_path / "out", "--json", "--workers", 1).stdout)
    assert facts["facts"]["out"] == f"{tmp_path}/out"
    assert {one["verdict"] for one in facts["verdicts"]} <= {"ok", "note", "will bite"}
    assert facts["ok"] == (text.returncode == 0)
    crowded = run("--workers", 100_000)
    assert crowded.returncode == 1
    assert "100000 workers at 0.5 GB do not fit" in crowded.stdout


WIDE_RUN = "\u3000\u2003 \x85" * 250_000
KILLERS = [
    "sound",
    "a" + " " * 1_100_000 + "x",
    "a nul \0 and \0 another",
    "it says <|endoftext|> here",
    WIDE_RUN,
    " " * (WHITESPACE_CHARS - 1) + "x" + "\x1c" * 1_000_000,
    "y" * 2_000_001,
    "<|endof" + "text|",
    "last \0 <|fim_prefix|>",
]
EXPECTED = [
    (1, WHITESPACE, "1,100,000 whitespace characters in a row"),
    (2, NUL, "2 NUL characters"),
    (3, SPECIAL, "spells <|endoftext|>"),
    (4, LARGE, "2.2 MB in one document"),
    (4, WHITESPACE, "1,000,000 whitespace characters in a row"),
    (6, LARGE, "2.0 MB in one document"),
    (8, NUL, "1 NUL character"),
    (8, SPECIAL, "spells <|fim_prefix|>"),
]
MAX_BYTES = 2_000_000


def scan(*sources, **fields):
    recipe = Recipe(sources=tuple(map(str, sources)), on_bad_document="skip", **fields).resolve()
    words = ["<|endoftext|>", "<|fim_prefix|>"]
    scanned = list(scan_corpus(recipe, list_inputs(recipe), words, MAX_BYTES))
    return [finding for one in scanned for finding in one.findings]


def test_every_kind_of_killer_is_named_with_its_row_in_every_format(tmp_path):
    files = [
        write_parquet(tmp_path / "a.parquet", KILLERS, row_group_size=2),
        write_parquet(tmp_path / "binary.parquet", [text.encode() for text in KILLERS], kind=pa.binary()),
        write_arrow(tmp_path / "stream.arrow", KILLERS, stream=True, batch_rows=2),
        write_arrow(tmp_path / "file.arrow", KILLERS, stream=False),
    ]
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(KILLERS))
    (tmp_path / "a.txt").write_text("=====".join(KILLERS), newline="")
    for path in files:
        assert [(one.row, one.kind, one.what) for one in scan(path)] == EXPECTED, path
    found = scan(tmp_path / "a.jsonl")
    assert [(one.row, one.kind, one.what) for one in found] == EXPECTED
    assert [one.line for one in found] == [row + 1 for row, _, _ in EXPECTED]
    found = scan(tmp_path / "a.txt", separator="=====")
    assert [(one.row, one.kind, one.what) for one in found] == EXPECTED
    found = scan(*files)
    assert [one.file for one in found] == [str(path) for path in files for _ in EXPECTED]


def test_broken_records_are_named_with_row_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        b'{"text": "x"}',
        b"",
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"text": 3}',
        b"{",
        b'{"text": "\\ud83d\\ude00"}',
    ]
    path.write_bytes(b"\n".join(lines))
    kinds = [(2, LONE_SURROGATE), (3, INVALID_UTF8), (4, WRONG_RECORD), (5, INVALID_JSON)]
    found = scan(path)
    assert [(one.row, one.kind) for one in found] == kinds
    assert [one.line for one in found] == [3, 4, 5, 6]
    (tmp_path / "a.txt").write_bytes(b"one\n\n\xff\nthree\n")
    (found,) = scan(tmp_path / "a.txt", documents="line")
    assert (found.row, found.line, found.kind) == (2, 3, INVALID_UTF8)
    (found,) = scan(write_parquet(tmp_path / "b.parquet", [b"one", b"\xed\xa0\x80"], kind=pa.binary()))
    assert (found.row, found.line, found.kind) == (1, None, INVALID_UTF8)


def test_rows_are_right_across_the_cuts_of_a_large_file(tmp_path):
    texts = ["x" * 1000] * 100_000
    texts[70_001] = "nul \0"
    texts[99_999] = "<|endoftext|>"
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl_bytes(texts))
    assert [one.row for one in scan(path)] == [70_001, 99_999]
    assert [one.row for one in scan(write_parquet(tmp_path / "a.parquet", texts))] == [70_001, 99_999]


def test_a_damaged_file_is_named_and_the_scan_goes_on(tmp_path):
    bad = tmp_path / "a.parquet"
    bad.write_bytes(b"PAR1 no")
    good = write_parquet(tmp_path / "b.parquet", ["\0"])
    first, second = scan(bad, good)
    assert (first.file, first.row, first.kind) == (str(bad), None, UNREADABLE)
    assert (second.file, second.row, second.kind) == (str(good), 0, NUL)


def test_whitespace_is_what_tiktoken_takes_for_it():
    import re
    import unicodedata

    import regex

    every = "".join(map(chr, range(sys.maxunicode + 1)))
    ours, theirs = set(re.findall(f"[{WHITE_SPACE}]", every)), set(regex.findall(r"\p{White_Space}", every))
    assert ours == theirs, [unicodedata.name(c, hex(ord(c))) for c in ours ^ theirs]


def test_the_command_lists_what_it_finds_and_exits_with_1(tmp_path):
    write_parquet(tmp_path / "a.parquet", KILLERS)
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text": "\\ud800"}\n')
    done = run("--input", "a.parquet", "b.jsonl", "--max-document-mb", "2", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("a.parquet, row 1: 1,100,000 whitespace characters in a row\n")
    assert "b.jsonl, row 1 (line 2): lone surrogate\n" in done.stdout
    assert "Found 9 in 10 documents, " in done.stdout
    assert "  2  whitespace run  tiktoken panics" in done.stdout
    assert done.stderr == ""
    done = run("--input", "a.parquet", "--json", cwd=tmp_path)
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert findings[0] == {
        "file": str(tmp_path / "a.parquet"),
        "row": 1,
        "line": None,
        "kind": "whitespace run",
        "what": "1,100,000 whitespace characters in a row",
        "kills": True,
    }
    assert [one["row"] for one in findings if not one["kills"]] == [2, 8]
    assert done.stderr.startswith("Found 6 in 9 documents")


def test_a_nul_alone_is_no_failure_and_a_long_list_is_cut(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["\0"] * 250)
    done = run("--input", "a.parquet", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("NUL character\n") == 100
    assert "... and 150 more: `--json` lists all\n" in done.stdout
    assert len(run("--input", "a.parquet", "--json", cwd=tmp_path).stdout.splitlines()) == 250


def test_the_sample_is_sound():
    done = run("--input", "sample")
    assert done.returncode == 0
    assert done.stdout.startswith("OK: nothing that kills in 420 documents, 1.58 MB of text")


def test_special_tokens_of_another_tokenizer_may_be_asked_for(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["<|fim_prefix|>", "<|endoftext|>"])
    found = run("--input", "a.parquet", "--tokenizer", "gpt2", "--json", cwd=tmp_path).stdout.splitlines()
    assert [json.loads(line)["row"] for line in found] == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "sample", "--patch", "1"], "`--patch` does not go with --input"),
        (["--patch", "1"], "`--patch` does not go with this machine"),
        (["x.py", "--workers", "3"], "`--workers` does not go with a script"),
        (["a.parquet"], "pass `--input a.parquet`"),
        (["x.py", "y.py"], "one script at a time"),
        (["nowhere.py"], "no such script: `nowhere.py`"),
        (["--input", "nowhere.parquet"], "no such file or folder"),
        (["--input", "sample", "--text-column", "txt"], "column `txt` not found"),
    ],
)
def test_a_mistake_in_the_command_is_told(arguments, message, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
