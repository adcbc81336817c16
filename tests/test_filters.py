"""Filters and limits take what they say, count the rest, and never evaluate anything."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import digests, jsonl_bytes, prepare_inline, write_parquet

import tokenmill
from tokenmill.errors import DataError, RecipeError
from tokenmill.filters import Where
from tokenmill.recipe import Recipe, RunOptions

ROWS = [
    {"text": "zero", "score": 0, "language": "en", "p": 0.5, "ok": True},
    {"text": "one", "score": 1, "language": "de", "p": 1.5, "ok": False},
    {"text": "two", "score": 2, "language": "en", "p": None, "ok": None},
    {"text": "three", "score": 3, "language": None, "p": 2.5, "ok": True},
    {"text": "four", "score": 4, "language": "it's", "p": -1.0, "ok": False},
]


def write_rows(folder, rows=ROWS):
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    with pa.ipc.new_stream(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [folder / f"a.{ending}" for ending in ("parquet", "arrow", "jsonl")]


def texts_of(out) -> list[str]:
    shards = tokenmill.open_shards(out)
    return [shards.text(document) for document in shards]


KEPT = [
    ("score >= 3", ["three", "four"]),
    ("score = 1 or score == 2", ["one", "two"]),
    ("score != 2 and not score < 1", ["one", "three", "four"]),
    ("score <> 2 and score <= 1", ["zero", "one"]),
    ("language == 'en'", ["zero", "two"]),
    ('language in ("en", "de")', ["zero", "one", "two"]),
    ("language not in ('en')", ["one", "four"]),
    ("language is null", ["three"]),
    ("language is not null and p is not null", ["zero", "one", "four"]),
    ("p > -2 AND (p < 0 OR p > 2)", ["three", "four"]),
    ("language = 'it\\'s'", ["four"]),
    ("ok == true", ["zero", "three"]),
    ("`score` > 3.5", ["four"]),
    ("not (score == 1 or score == 2) and text != 'zero'", ["three", "four"]),
]


@pytest.mark.parametrize(("where", "kept"), KEPT)
def test_the_same_rows_are_taken_from_every_source(where, kept, tmp_path):
    for i, path in enumerate(write_rows(tmp_path)):
        manifest = prepare_inline(path, tmp_path / str(i), where=where, val="none", shuffle="none")
        assert texts_of(tmp_path / str(i)) == kept, path
        assert manifest.skipped == {"where": 5 - len(kept)}
        rows = [document.row for document in tokenmill.open_shards(tmp_path / str(i))]
        assert [ROWS[row]["text"] for row in rows] == kept
        assert manifest.inputs[0].n_rows == 5


def test_row_groups_ruled_out_by_statistics_are_not_read(tmp_path):
    """The text of the groups that cannot match is damaged: nobody may look at it."""
    path = tmp_path / "a.parquet"
    rows = [{"text": f"text number {i}", "n": i} for i in range(100)]
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=10, **options)
    data = bytearray(path.read_bytes())
    data[data.index(b"text number 5", 4)] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError):
        prepare_inline(path, tmp_path / "1", val="none")
    manifest = prepare_inline(path, tmp_path / "2", where="n >= 72 and n < 90", val="none", shuffle="none")
    assert texts_of(tmp_path / "2") == [f"text number {i}" for i in range(72, 90)]
    assert manifest.skipped == {"where": 82}
    assert [d.row for d in tokenmill.open_shards(tmp_path / "2")] == list(range(72, 90))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score >> 3", "expected a text in quotes, a number, true or false\n  score >> 3\n         ^"),
        ("score >= ", "expected a text in quotes, a number, true or false\n  score >= \n           ^"),
        ("score 3", "expected a comparison, `in` or `is`\n  score 3\n        ^"),
        ("(score > 3", "expected `)`\n  (score > 3\n            ^"),
        ("score > 3 score", "expected `and`, `or` or the end\n  score > 3 score\n            ^"),
        ("3 > score", "expected the name of a column\n  3 > score\n  ^"),
        ("score > 3 and $", "cannot read this\n  score > 3 and $\n                ^"),
        ("__import__('os')", "expected a comparison, `in` or `is`\n  __import__('os')\n            ^"),
        ("", "expected the name of a column"),
    ],
)
def test_a_malformed_filter_is_shown_with_a_caret_under_the_place(text, message):
    with pytest.raises(RecipeError) as error:
        Where(text)
    assert message in error.value.message
    assert "--where" in error.value.hint


def test_filter_that_does_not_fit_the_columns_is_refused(tmp_path):
    for i, path in enumerate(write_rows(tmp_path)):
        with pytest.raises((RecipeError, DataError), match=r"does not fit the columns|line 1: `score` is 0"):
            prepare_inline(path, tmp_path / str(i), where="score == 'three'")
    with pytest.raises(RecipeError, match="column `scor` of the filter not found") as error:
        prepare_inline(tmp_path / "a.parquet", tmp_path / "out", where="scor > 1")
    assert error.value.hint == "did you mean `score`?"
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(RecipeError, match="plain text has none"):
        prepare_inline(tmp_path / "a.txt", tmp_path / "out", where="score > 1")


def test_lengths_in_characters_are_limited_and_counted(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", ["", "é", "日本語", "four", "fives"], row_group_size=2)
    manifest = prepare_inline(source, tmp_path / "out", min_chars=2, max_chars=4, val="none", shuffle="none")
    assert texts_of(tmp_path / "out") == ["日本語", "four"]
    assert manifest.skipped == {"min_chars": 2, "max_chars": 1}
    with pytest.raises(RecipeError, match="min_chars 5 is above max_chars 4"):
        prepare_inline(source, tmp_path / "other", min_chars=5, max_chars=4)


@pytest.mark.parametrize("limit", [1, 37, 100, 420, 1000])
def test_the_first_documents_are_taken_whatever_the_units(limit, tmp_path, sample_texts):
    fields = {"limit_documents": limit, "val": "none", "shuffle": "none"}
    manifest = prepare_inline("sample", tmp_path / "1", **fields)
    assert texts_of(tmp_path / "1") == sample_texts[:limit]
    options = RunOptions(workers=2, unit_bytes=200_000)
    recipe = Recipe(sources=("sample",), **fields)
    assert digests(tokenmill.prepare_recipe(recipe, tmp_path / "2", options)) == digests(manifest)
    assert manifest.totals.n_documents == manifest.inputs[0].n_documents == min(limit, 420)
    assert tokenmill.verify(tmp_path / "1").ok


def test_as_many_whole_documents_as_fit_the_tokens(tmp_path, sample_texts):
    lengths = [len(ids) + 1 for ids in tokenmill.Tokenizer("gpt2").encode_batch(sample_texts)]
    for n in (3, 250):
        exact = sum(lengths[:n])
        for limit, expected in ((exact, n), (exact - 1, n - 1), (exact + 1, n)):
            out = tmp_path / f"{limit}"
            options = RunOptions(executor="inline", unit_bytes=300_000)
            manifest = prepare_inline("sample", out, options, limit_tokens=limit, val="none", shuffle="none")
            assert manifest.totals.n_documents == expected
            assert manifest.totals.n_tokens <= limit


def test_limits_come_before_the_shuffle(tmp_path, sample_texts):
    prepare_inline("sample", tmp_path / "out", limit_documents=10)
    assert sorted(texts_of(tmp_path / "out")) == sorted(sample_texts[:10])


BAD_LINES = [
    b'{"text": 3}',
    b"{nonsense",
    b'{"content": "x"}',
    b'{"text": "\\ud800"}',
    b'{"text": "\xff"}',
    b'{"text": null}',
]


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_record_is_skipped_and_listed_if_the_user_says_so(line, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl_bytes(["a"] * 30) + line + b"\n\n" + jsonl_bytes(["b"]))
    with pytest.raises(DataError, match="line 31") as error:
        prepare_inline(path, tmp_path / "out", val="none")
    assert "--on-bad-document skip" in error.value.hint
    for unit_bytes in (50, 10_000):
        out = tmp_path / str(unit_bytes)
        options = RunOptions(executor="inline", unit_bytes=unit_bytes)
        manifest = prepare_inline(path, out, options, on_bad_document="skip", val="none", shuffle="none")
        assert texts_of(out) == ["a"] * 30 + ["b"]
        (listed,) = [json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines()]
        assert (listed["file"], listed["row"]) == (str(path), 30)
        assert manifest.skipped == {listed["reason"]: 1}
        assert tokenmill.verify(out).ok
        assert tokenmill.open_shards(out)[30].row == 32
    (out / "skipped.jsonl").write_text("")
    assert not tokenmill.verify(out).ok


def test_invalid_utf8_is_skipped_from_every_source_if_the_user_says_so(tmp_path):
    good = [b"one", b"", "zwölf".encode(), b"two"]
    values = [*good[:2], b"bad \xff", *good[2:], b"\xed\xa0\x80"]
    write_parquet(tmp_path / "a.parquet", [*values[:3], None, *values[3:]], kind=pa.binary(), row_group_size=2)
    (tmp_path / "a.txt").write_bytes(b"<|endoftext|>".join(values))
    (tmp_path / "lines.txt").write_bytes(b"\r\n".join(values))
    for name, documents, rows in [
        ("a.parquet", "auto", [2, 6]),
        ("a.txt", "auto", [2, 5]),
        ("lines.txt", "line", [2, 5]),
    ]:
        out = tmp_path / f"out-{name}"
        fields = {"on_bad_document": "skip", "val": "none", "shuffle": "none", "documents": documents}
        options = RunOptions(executor="inline", unit_bytes=10, batch_bytes=10)
        manifest = prepare_inline(tmp_path / name, out, options, **fields)
        assert texts_of(out) == [v.decode() for v in good if v or documents != "line"]
        listed = [json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines()]
        assert [entry["row"] for entry in listed] == rows
        assert manifest.skipped["invalid UTF-8"] == 2


def test_skipping_bad_records_never_makes_a_truncated_file_look_whole(tmp_path):
    import gzip

    data = gzip.compress(jsonl_bytes([str(i) * 50 for i in range(1000)]))
    (tmp_path / "a.jsonl.gz").write_bytes(data[:-100])
    with pytest.raises(DataError, match="Truncated"):
        prepare_inline(tmp_path / "a.jsonl.gz", tmp_path / "out", on_bad_document="skip")


def test_nan_is_treated_alike_whatever_the_row_groups(tmp_path):
    values = [5.0, float("nan"), 5.0, 5.0, 1.0, float("nan"), None, 7.0]
    table = pa.table({"text": [str(i) for i in range(8)], "x": values})
    for where in ("x != 5", "not (x <= 5)", "x not in (5.0)", "not (x < 100)"):
        found = []
        for row_group_size in (1000, 2):
            pq.write_table(table, tmp_path / "a.parquet", row_group_size=row_group_size)
            out = tmp_path / f"{where}-{row_group_size}"
            prepare_inline(tmp_path / "a.parquet", out, where=where, val="none", shuffle="none")
            found.append(texts_of(out))
        assert found[0] == found[1], where


def test_null_is_in_no_list_and_not_in_none(tmp_path):
    for i, path in enumerate(write_rows(tmp_path)):
        for j, where in enumerate(("language not in ('en')", "not language in ('en')", "not (language == 'en')")):
            prepare_inline(path, tmp_path / f"{i}{j}", where=where, val="none", shuffle="none")
            assert texts_of(tmp_path / f"{i}{j}") == ["one", "four"]


@pytest.mark.parametrize(
    ("where", "kept"),
    [("s is not null", [0, 1, 2, 4]), ("s is null", [3, 5]), ("n >= 2", [1, 2]), ("m in ('a', 'b')", [4])],
)
def test_fields_of_changing_type_do_not_depend_on_the_blocks(where, kept, tmp_path):
    rows = [
        {"text": "0", "s": {"a": 1}, "n": 1.5},
        {"text": "1", "s": [1], "n": 2**70},
        {"text": "2", "s": "x", "n": 2},
        {"text": "3", "s": None, "n": -2},
        {"text": "4", "s": 5, "m": "a"},
        {"text": "5", "m": "c"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for unit_bytes in (20, 60, 10_000):
        out = tmp_path / str(unit_bytes)
        options = RunOptions(executor="inline", unit_bytes=unit_bytes, batch_bytes=unit_bytes)
        prepare_inline(tmp_path / "a.jsonl", out, options, where=where, val="none", shuffle="none")
        assert [int(text) for text in texts_of(out)] == kept


@pytest.mark.parametrize(
    "where",
    ["score > 99999999999999999999999", "(" * 300 + "score > 1" + ")" * 300, " or ".join(["score > 1"] * 300)],
)
def test_filters_beyond_measure_are_refused(where):
    with pytest.raises(RecipeError, match=r"too large|terms"):
        Where(where)


def test_a_list_of_mixed_types_is_refused(tmp_path):
    path = write_rows(tmp_path)[0]
    with pytest.raises(RecipeError, match="does not fit the columns"):
        prepare_inline(path, tmp_path / "out", where="score in ('a', 1)")


def test_what_a_limit_leaves_unread_is_neither_counted_nor_listed(tmp_path):
    lines = [b'{"text": "%d", "n": %d}' % (i, i) if i % 3 else b"{bad" for i in range(60)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    found = []
    for unit_bytes, batch_bytes in ((10**6, 10**6), (200, 100), (1000, 300), (23, 1000)):
        options = RunOptions(executor="inline", unit_bytes=unit_bytes, batch_bytes=batch_bytes)
        out = tmp_path / f"{unit_bytes}-{batch_bytes}"
        fields = {"limit_documents": 10, "where": "n != 4", "on_bad_document": "skip", "val": 1, "min_chars": 2}
        manifest = prepare_inline(tmp_path / "a.jsonl", out, options, **fields)
        found.append((digests(manifest), manifest.skipped, manifest.inputs, (out / "skipped.jsonl").read_bytes()))
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0][1] == {"invalid JSON": 9, "min_chars": 5, "where": 1}


@pytest.mark.parametrize("column", ["text", "k"])
@pytest.mark.parametrize("where", ["k == 'fr'", "k == 'en'"])
def test_damaged_offsets_are_found_under_a_filter_too(column, where, tmp_path):
    table = pa.table({"text": [f"text {i}" for i in range(300)], "k": ["en", "fr", "de"] * 100})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    data = bytearray((tmp_path / "a.arrow").read_bytes())
    offsets = pa.array(table.column(column).to_pylist()).buffers()[1].to_pybytes()[: 301 * 4]
    place = data.index(offsets) + 50 * 4
    data[place : place + 4] = b"\0\0\0\x7f"
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(DataError, match="is damaged near row 0"):
        prepare_inline(tmp_path / "a.arrow", tmp_path / "out", where=where)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())], ids=str)
def test_filters_and_skips_work_on_every_kind_of_text_column(kind, tmp_path):
    values = [b"one", b"bad \xff", None, b"two", b"three"]
    array = pa.array(values, pa.binary())
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(pa.binary_view())
    if kind == pa.string_view():
        array = array.view(pa.string_view()) if hasattr(array, "view") else array
    table = pa.table({"text": array, "n": range(5)})
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    fields = {"where": "n < 4", "on_bad_document": "skip", "val": "none", "shuffle": "none"}
    manifest = prepare_inline(tmp_path / "a.arrow", tmp_path / "out", **fields)
    assert texts_of(tmp_path / "out") == ["one", "two"]
    assert manifest.skipped == {"invalid UTF-8": 1, "null": 1, "where": 1}
    with pytest.raises(DataError, match=r"invalid UTF-8 in .*, row 1"):
        prepare_inline(tmp_path / "a.arrow", tmp_path / "out2", val="none")


def test_vertical_tab_is_the_same_beside_a_bad_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\x0b\nb\n\xff\nc\n\x0b\n")
    results = []
    for size in (1, 4, 1000):
        options = RunOptions(executor="inline", unit_bytes=size, batch_bytes=size)
        fields = {"documents": "line", "on_bad_document": "skip", "val": "none", "shuffle": "none"}
        results.append(digests(prepare_inline(tmp_path / "a.txt", tmp_path / str(size), options, **fields)))
    assert results[0] == results[1] == results[2]


def test_plan_estimates_what_a_filter_leaves(tmp_path):
    rows = [{"text": f"text number {i} " * 20, "g": i // 2500} for i in range(20_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=2500)
    for where, expected in (("g == 0", 2500), ("g >= 4", 10_000), ("g in (1, 6)", 5000)):
        recipe = Recipe(sources=(str(tmp_path / "a.parquet"),), where=where)
        result = tokenmill.forecast(recipe, tmp_path / "out", RunOptions(unit_bytes=2_000_000))
        assert 0 <= result.about_documents <= 20_000
        whole = tokenmill.forecast(recipe, tmp_path / "out", RunOptions(unit_bytes=10**9))
        assert abs(whole.about_documents / expected - 1) < 0.02
