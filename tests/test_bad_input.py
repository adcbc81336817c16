"""Bad input gets one clear message and the right exit code: the whole message, as it is printed."""

import gzip
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import jsonl_bytes, write_arrow, write_parquet, zstd_bytes

import tokenmill
from tokenmill.cli import exit_code


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command line in a folder of its own; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tokenmill", *map(str, arguments)])
        code = exit_code()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        errors = printed.err[printed.err.index("error:") :] if "error:" in printed.err else ""
        return code, printed.out, errors.replace(str(tmp_path), "HERE")

    return run


def truncated(path, data, keep):
    path.write_bytes(data[:keep])


def make_files(folder):
    """One file for each kind of trouble."""
    write_parquet(folder / "good.parquet", [f"text {i}" for i in range(10)])
    good = (folder / "good.parquet").read_bytes()
    truncated(folder / "truncated.parquet", good, len(good) - 50)
    write_arrow(folder / "good.arrow", ["a"] * 10, batch_rows=5)
    arrow = (folder / "good.arrow").read_bytes()
    truncated(folder / "truncated.arrow", arrow, len(arrow) - 60)
    lines = jsonl_bytes([f"{i} " * 200 for i in range(100)])
    truncated(folder / "truncated.jsonl.gz", gzip.compress(lines), 500)
    truncated(folder / "truncated.jsonl.zst", zstd_bytes(lines), 500)
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "no.parquet").write_bytes(b"this is no Parquet file at all")
    table = {"content": ["a"], "nested": [{"text": "b"}], "n": [1], "lists": [["a"]]}
    pq.write_table(pa.table(table), folder / "columns.parquet")
    for name, line in {
        "syntax": b'{"text": "a",}',
        "missing": b'{"content": "a"}',
        "null": b'{"text": null}',
        "number": b'{"text": 3}',
        "list": b'{"text": ["a"]}',
        "surrogate": b'{"text": "\\ud800"}',
    }.items():
        (folder / f"{name}.jsonl").write_bytes(jsonl_bytes(["first"]) + line + b"\n")
    (folder / "latin1.txt").write_bytes("café".encode("latin-1"))
    write_parquet(folder / "latin1.parquet", [b"fine", "café".encode("latin-1")], kind=pa.binary())
    (folder / "bad.toml").write_text('tokeniser = "gpt2"\n')
    (folder / "file").write_text("")
    (folder / "a.bin").write_text("")


MESSAGES = [
    (
        ["nowhere.parquet"],
        2,
        """error: no such file or folder: `HERE/nowhere.parquet`
hint: a source is a file, a folder, a glob, or the name of a known corpus
""",
    ),
    (["no*.jsonl"], 2, "error: no file matches `HERE/no*.jsonl`\n"),
    (["sampel"], 2, "error: no such file or folder: `HERE/sampel`\nhint: did you mean `sample`?\n"),
    (
        ["a.bin"],
        2,
        """error: cannot tell what `HERE/a.bin` is by its ending
hint: known endings: .parquet, .pq, .arrow, .feather, .ipc, .jsonl, .ndjson, .json, .txt, .text; jsonl and text also with .gz or .zst
""",
    ),
    (
        ["empty.jsonl"],
        2,
        """error: nothing to read: `HERE/empty.jsonl` holds no documents
hint: are these the right files?
""",
    ),
    (
        ["no.parquet"],
        1,
        "error: cannot read `HERE/no.parquet` as Parquet: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.\n",
    ),
    (
        ["truncated.parquet"],
        1,
        "error: cannot read `HERE/truncated.parquet` as Parquet: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.\n",
    ),
    (
        ["truncated.arrow"],
        1,
        "error: cannot read `HERE/truncated.arrow` as an Arrow file or stream: Expected to be able to read ",
    ),
    (["truncated.jsonl.gz"], 1, "error: cannot read `HERE/truncated.jsonl.gz`: Truncated compressed stream\n"),
    (["truncated.jsonl.zst"], 1, "error: cannot read `HERE/truncated.jsonl.zst`: Truncated compressed stream\n"),
    (
        ["columns.parquet"],
        2,
        """error: column `text` not found in `HERE/columns.parquet`
  columns: `content`, `nested`, `n`, `lists`
hint: pass `--text-column content`
""",
    ),
    (
        ["columns.parquet", "--text-column", "nested"],
        2,
        "error: column `nested` of `HERE/columns.parquet` is of type struct<text: string>, not text\n",
    ),
    (
        ["columns.parquet", "--text-column", "lists"],
        2,
        "error: column `lists` of `HERE/columns.parquet` is of type list<element: string>, not text\n",
    ),
    (
        ["columns.parquet", "--text-column", "n"],
        2,
        "error: column `n` of `HERE/columns.parquet` is of type int64, not text\n",
    ),
    (
        ["syntax.jsonl"],
        1,
        """error: invalid JSON in `HERE/syntax.jsonl`, line 2, column 14: trailing comma in object
hint: `--on-bad-document skip` leaves such lines out
""",
    ),
    (
        ["missing.jsonl"],
        1,
        """error: `HERE/missing.jsonl`, line 2: Object missing required field `text`
hint: pass `--text-column FIELD` if the text is not in `text`, or `--on-bad-document skip`
""",
    ),
    (["null.jsonl"], 1, "error: `HERE/null.jsonl`, line 2: Expected `str`, got `null` - at `$.text`\n"),
    (["number.jsonl"], 1, "error: `HERE/number.jsonl`, line 2: Expected `str`, got `int` - at `$.text`\n"),
    (["list.jsonl"], 1, "error: `HERE/list.jsonl`, line 2: Expected `str`, got `array` - at `$.text`\n"),
    (
        ["surrogate.jsonl"],
        1,
        "error: invalid JSON in `HERE/surrogate.jsonl`, line 2: a lone surrogate in an escape is no Unicode text",
    ),
    (
        ["latin1.txt"],
        1,
        """error: invalid UTF-8 in `HERE/latin1.txt` at byte 3: 0xe9
hint: convert the file to UTF-8, for example with `iconv`, or pass `--on-bad-document skip`
""",
    ),
    (
        ["latin1.parquet"],
        1,
        """error: invalid UTF-8 in `HERE/latin1.parquet`, row 1
hint: the text column must hold UTF-8; `--on-bad-document skip` leaves such rows out
""",
    ),
    (
        ["good.parquet", "-o", "file"],
        2,
        "error: cannot make the folder `file/.work`: a file of that name is in the way\n",
    ),
    (
        ["good.parquet", "-o", "/proc/nothing/out"],
        2,
        "error: cannot write to `/proc/nothing/out`: no such file or directory\n",
    ),
    (["."], 2, "error: `HERE` holds files of several kinds"),
    (["good.parquet", "--tokenizer", "gpt-2"], 2, "error: unknown tokenizer `gpt-2`\nhint: did you mean `gpt2`?\n"),
    (
        ["good.parquet", "--tokenizer", "file"],
        2,
        """error: `HERE/file` is no tokenizer
hint: a `tokenizer.json`, its folder, or a `.tiktoken` rank file
""",
    ),
    (["good.parquet", "--format", "lmc"], 2, "error: unknown format `lmc`\nhint: did you mean `llmc`?\n"),
    (
        ["good.parquet", "--recipe", "bad.toml"],
        2,
        "error: unknown key `tokeniser` in `bad.toml`\nhint: did you mean `tokenizer`?\n",
    ),
    (
        ["good.parquet", "--format", "npy", "--shard-tokens", "10Q"],
        2,
        """error: `10Q` is not a whole number
hint: sizes look like `100M`, `1.5B` or `10_000`
""",
    ),
    (
        ["good.parquet", "--where", "text =="],
        2,
        """error: cannot understand the filter: expected a text in quotes, a number, true or false
  text ==
         ^
hint: for example: --where "int_score >= 3 and language == 'en'"
""",
    ),
    (
        ["good.parquet", "--val", "10"],
        2,
        """error: nothing to train on: the corpus has 10 documents with tokens, and val takes all of them
hint: pass a smaller `--val`, or `--val none`
""",
    ),
    (
        ["good.parquet", "--format", "llmc"],
        2,
        """error: `val shard` needs two shards, and 30 tokens fill only one of 100,000,000
hint: pass fewer `--shard-tokens`, or `--val 0.01`, or `--val none`
""",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), MESSAGES, ids=lambda value: str(value)[:40] if isinstance(value, list) else ""
)
def test_message_and_exit_code(arguments, code, message, command, tmp_path):
    make_files(tmp_path)
    out = [] if "-o" in arguments else ["-o", "out"]
    found = command("prepare", *arguments, *out, "--workers", "1", "--progress", "off")
    assert found[0] == code
    assert found[1] == ""
    assert found[2].startswith(message)
    assert not (tmp_path / "out").exists()


def test_output_of_a_different_recipe_names_the_differing_fields(command, tmp_path):
    make_files(tmp_path)
    assert command("prepare", "good.parquet", "-o", "out", "--val", "1", "-q")[0] == 0
    assert command("prepare", "good.parquet", "-o", "out", "--val", "2", "--eot", "first") == (
        2,
        "",
        """error: `out` holds the output of another recipe
  eot: `last` there, `first` now
  val: `1` there, `2` now
hint: pass another folder with `-o`, or delete this one
""",
    )


def test_source_that_is_also_the_output_is_refused(command, tmp_path):
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "a.parquet", ["a", "b"])
    assert command("prepare", "data", "-o", "data", "--progress", "off") == (
        2,
        "",
        """error: the source `HERE/data` is also the output
hint: pass another folder with `-o`
""",
    )


def test_byte_order_mark_is_accepted_and_crlf_kept(command, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n<|endoftext|>three")
    assert command("prepare", "a.txt", "-o", "out", "--val", "none", "--no-shuffle", "-q")[0] == 0
    shards = tokenmill.open_shards("out")
    assert [shards.text(document) for document in shards] == ["one\r\ntwo\r\n", "three"]


NASTY = [
    "",
    "\0",
    "plain",
    "a" * 1_000_000,
    " " * 1_100_000 + "x",
    "<|fim_prefix|> spelled",
    "I'll they'VE \u017fs",
    "\U000323b0's \u088f'll",
    "日本語 한국어 👩‍👩‍👧 \u202e",
    "line\r\nbreaks\n\n\n",
    "\ufeff\ufffd\u2028\u0085",
    "last",
]


# p50k_base is tiktoken's alone, which takes seconds for the blanks.
@pytest.mark.parametrize(("tokenizer", "n_formats"), [("gpt2", None), ("o200k_base", None), ("p50k_base", 2)])
def test_a_corpus_laced_with_nasty_documents_is_the_same_from_every_format(tokenizer, n_formats, tmp_path):
    from conftest import digests, prepare_inline, write_every_format

    from tokenmill.recipe import Recipe, RunOptions

    fields = {"tokenizer": tokenizer, "format": "llmc", "shard_tokens": 1_000_000, "val": 1}
    expected = None
    for path in write_every_format(tmp_path, NASTY)[:n_formats]:
        manifest = prepare_inline(path, tmp_path / f"out-{path.name}", **fields)
        expected = expected or digests(manifest)
        if path.name.startswith("docs.txt"):  # a text file cannot begin with an empty document
            continue
        assert digests(manifest) == expected, path.name
    shards = tokenmill.open_shards(tmp_path / "out-docs.parquet")
    assert [shards.text(document) for document in shards] == NASTY
    recipe = Recipe(sources=(str(tmp_path / "docs.parquet"),), **fields)
    manifest = tokenmill.prepare_recipe(recipe, tmp_path / "workers", RunOptions(workers=2, unit_bytes=1000))
    assert digests(manifest) == expected


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_work_is_kept_when_a_source_goes_away(kind, tmp_path, sample_texts):
    from conftest import digests, jsonl_bytes, prepare_inline, write_parquet

    from tokenmill.errors import ReadError
    from tokenmill.recipe import Recipe, RunOptions

    folder, away = tmp_path / "in", tmp_path / "away"
    folder.mkdir()
    for name, texts in {"a": sample_texts[:60], "b": sample_texts[60:120]}.items():
        if kind == "parquet":
            write_parquet(folder / f"{name}.parquet", texts, row_group_size=10)
        else:
            (folder / f"{name}.jsonl").write_bytes(jsonl_bytes(texts))
    fields = {"format": "llmc", "shard_tokens": 10_000, "val": "none"}
    expected = digests(prepare_inline(folder, tmp_path / "expected", **fields))

    def take_away(progress):
        if progress.n_units_done == 2 and not away.exists():
            (folder / f"b.{kind}").rename(away)

    options = RunOptions(executor="inline", unit_bytes=20_000)
    with pytest.raises(ReadError, match="any more: no such file or directory"):
        tokenmill.prepare_recipe(Recipe(sources=(str(folder),), **fields), tmp_path / "out", options, take_away)
    away.rename(folder / f"b.{kind}")
    manifest = prepare_inline(folder, tmp_path / "out", options, **fields)
    assert manifest.run.n_units_resumed >= 2
    assert digests(manifest) == expected
