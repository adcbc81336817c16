"""Files in, documents out: every document once, whatever the cuts."""

import gzip
import json
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import jsonl_bytes, prepare_inline, write_arrow, write_parquet, zstd_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.errors import DataError, RecipeError, SourceError
from tokenmill.plan import cut_spans, pack_units, plan_units
from tokenmill.recipe import Recipe
from tokenmill.sources import list_inputs, source_for


def read_documents(path, unit_bytes=None, batch_bytes=1000, **fields) -> tuple[list[str], list[int]]:
    """Read all documents through plan and source, with their rows in the file."""
    recipe = Recipe(sources=(str(path),), **fields).resolve()
    plan = plan_units(recipe, unit_bytes)
    texts, rows, first_row = [], [], 0
    for unit in plan.units:
        for span in unit.spans:
            entry = plan.inputs[span.input]
            for documents in source_for(entry).read(entry, span, recipe, batch_bytes):
                texts += documents.texts.to_pylist()
                rows += (documents.rows + first_row).tolist()
                first_row += documents.n_rows
    return texts, rows


SEPARATORS = ["<|endoftext|>", "\n\n", "aba", "--", "\n", "é"]


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.text(alphabet="ab-\né ", max_size=8), max_size=30),
    separator=st.sampled_from(SEPARATORS),
    unit_bytes=st.integers(1, 40),
    batch_bytes=st.integers(1, 40),
)
def test_separator_cuts_a_file_as_python_splits_it(pieces, separator, unit_bytes, batch_bytes, tmp_path_factory):
    text = separator.join(pieces)
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes(text.encode())
    expected = text.split(separator)
    if expected and expected[0] == "":
        expected = expected[1:]
    if expected and expected[-1] == "":
        expected = expected[:-1]
    if not text:
        return
    texts, rows = read_documents(path, unit_bytes, batch_bytes, separator=separator)
    assert texts == expected
    assert rows == list(range(len(expected)))


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.text(alphabet="ab \r\té", max_size=6), min_size=1, max_size=30),
    unit_bytes=st.integers(1, 40),
    batch_bytes=st.integers(1, 40),
)
def test_lines_and_paragraphs_do_not_depend_on_the_cuts(lines, unit_bytes, batch_bytes, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes("\n".join(lines).encode())
    if not path.stat().st_size:
        return
    texts, rows = read_documents(path, unit_bytes, batch_bytes, documents="line")
    assert texts == [line.removesuffix("\r") for line in lines if line.strip()]
    assert rows == [i for i, line in enumerate(lines) if line.strip()]

    paragraphs, current = [], []
    for line in [*lines, ""]:
        if line.strip(" \t\r"):
            current.append(line)
        elif current:
            paragraphs.append("\n".join(current))
            current = []
    texts, _ = read_documents(path, unit_bytes, batch_bytes, documents="paragraph")
    assert [t.rstrip("\r") for t in texts] == [p.rstrip("\r") for p in paragraphs]


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=30),
    blank_every=st.integers(1, 5),
    unit_bytes=st.integers(1, 200),
    batch_bytes=st.integers(1, 200),
)
def test_jsonl_rows_are_lines_whatever_the_cuts(texts, blank_every, unit_bytes, batch_bytes, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "a.jsonl"
    lines, expected_rows = [], []
    for i, text in enumerate(texts):
        if i % blank_every == 0:
            lines.append("  " if i % 2 else "")
        expected_rows.append(len(lines))
        lines.append(json.dumps({"n": i, "text": text, "more": {"text": "no"}}, ensure_ascii=i % 2 == 0))
    path.write_bytes("\n".join(lines).encode())
    found, rows = read_documents(path, unit_bytes, batch_bytes)
    assert found == texts
    assert rows == expected_rows


def test_text_without_a_separator_is_one_document_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert read_documents(tmp_path / "a.txt") == (["one\n\ntwo\n"], [0])


def test_endoftext_is_recognized_by_itself(tmp_path):
    (tmp_path / "a.txt").write_text("one<|endoftext|>two<|endoftext|>")
    assert read_documents(tmp_path / "a.txt") == (["one", "two"], [0, 1])


def test_large_text_without_a_separator_is_refused_with_the_choices(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.sources.text.AUTO_BYTES", 1000)
    (tmp_path / "a.txt").write_text("x" * 1001)
    with pytest.raises(SourceError, match="cannot tell where documents end") as error:
        read_documents(tmp_path / "a.txt")
    assert "--separator" in error.value.hint
    assert "--documents line" in error.value.hint


def test_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone<|endoftext|>two")
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + jsonl_bytes(["one", "two"]))
    assert read_documents(tmp_path / "a.txt")[0] == ["one", "two"]
    assert read_documents(tmp_path / "a.jsonl")[0] == ["one", "two"]


def test_several_gzip_members_and_zstd_frames_are_all_read(tmp_path):
    first, second = jsonl_bytes(["a", "b"]), jsonl_bytes(["c"])
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(first) + gzip.compress(second))
    (tmp_path / "a.jsonl.zst").write_bytes(zstd_bytes(first) + zstd_bytes(second))
    assert read_documents(tmp_path / "a.jsonl.gz")[0] == ["a", "b", "c"]
    assert read_documents(tmp_path / "a.jsonl.zst")[0] == ["a", "b", "c"]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_truncated_compressed_file_is_refused(ending, tmp_path):
    data = jsonl_bytes([str(np.random.default_rng(0).bytes(50_000))])
    packed = gzip.compress(data) if ending == "gz" else zstd_bytes(data)
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="Truncated"):
        read_documents(path)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_parquet_text_column_of_any_string_type_is_read_without_its_nulls(kind, tmp_path):
    texts = ["a", None, "", "b", None]
    array = pa.array(texts, pa.string())
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
    pq.write_table(pa.table({"nested": [{"x": 1, "y": 2}] * 5, "text": array}), tmp_path / "a.parquet")
    assert read_documents(tmp_path / "a.parquet") == (["a", "", "b"], [0, 2, 3])
    assert prepare_inline(tmp_path / "a.parquet", tmp_path / "out", val="none").skipped == {"null": 2}


def test_arrow_file_and_stream_are_cut_between_record_batches(tmp_path):
    texts = [f"document {i}" for i in range(25)]
    for stream in (True, False):
        path = write_arrow(tmp_path / "a.arrow", texts, stream=stream, batch_rows=4)
        for unit_bytes in (1, 60, 10_000):
            assert read_documents(path, unit_bytes) == (texts, list(range(25)))


def test_invalid_utf8_is_refused_with_its_place(tmp_path):
    write_parquet(tmp_path / "a.parquet", [b"fine", b"also fine", b"bad \xff"], kind=pa.binary(), row_group_size=2)
    with pytest.raises(DataError, match=r"invalid UTF-8 in .*a\.parquet`, row 2"):
        read_documents(tmp_path / "a.parquet", unit_bytes=1)
    (tmp_path / "a.txt").write_bytes(b"ab<|endoftext|>c\xffd")
    with pytest.raises(DataError, match=r"invalid UTF-8 in .*a.txt` at byte 16: 0xff"):
        read_documents(tmp_path / "a.txt", unit_bytes=1)


def test_bad_json_is_refused_with_file_and_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["a"] * 50) + b'{"text": 3}\n')
    with pytest.raises(DataError, match="line 51: Expected `str`, got `int`"):
        read_documents(tmp_path / "a.jsonl", unit_bytes=100)
    (tmp_path / "b.jsonl").write_bytes(jsonl_bytes(["a"] * 50) + b"{nonsense}\n")
    with pytest.raises(DataError, match=r"invalid JSON in .*b\.jsonl`, line 51"):
        read_documents(tmp_path / "b.jsonl", unit_bytes=100)
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "a"} {"text": "b"}\n')
    with pytest.raises(DataError, match="line 1"):
        read_documents(tmp_path / "c.jsonl")


def test_missing_column_lists_the_columns(tmp_path):
    pq.write_table(pa.table({"content": ["a"], "n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(RecipeError, match=r"column `text` not found in .*\n  columns: `content`, `n`") as error:
        read_documents(tmp_path / "a.parquet")
    assert error.value.hint == "pass `--text-column content`"
    with pytest.raises(RecipeError, match=r"column `n` .* is of type int64, not text"):
        read_documents(tmp_path / "a.parquet", text_column="n")


def test_folder_is_read_at_any_depth_sorted_without_hidden_files(tmp_path):
    for name in ("b/2.jsonl", "a/1.jsonl", "c.jsonl", ".hidden/x.jsonl", "_temporary/y.jsonl", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(jsonl_bytes([name]))
    assert read_documents(tmp_path)[0] == ["a/1.jsonl", "b/2.jsonl", "c.jsonl"]


def test_folder_of_several_kinds_is_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a"])
    (tmp_path / "license.txt").write_text("free")
    with pytest.raises(SourceError, match="holds files of several kinds"):
        read_documents(tmp_path)


def test_sources_keep_their_order_and_may_repeat(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl_bytes([name]))
    paths = tuple(str(tmp_path / f"{name}.jsonl") for name in "bab")
    inputs = list_inputs(Recipe(sources=paths).resolve())
    assert [entry.path[-7:] for entry in inputs] == ["b.jsonl", "a.jsonl", "b.jsonl"]


@given(sizes=st.lists(st.integers(1, 100), max_size=50), unit_bytes=st.integers(1, 200))
def test_spans_cover_every_atom_once_and_units_every_span(sizes, unit_bytes):
    spans = cut_spans(0, sizes, unit_bytes, divisible=False)
    assert [i for span in spans for i in range(span.start, span.stop)] == list(range(len(sizes)))
    assert sum(span.n_bytes for span in spans) == sum(sizes)
    units = pack_units(spans, unit_bytes)
    assert [span for unit in units for span in unit.spans] == spans
    assert all(unit.n_bytes <= unit_bytes or len(unit.spans) == 1 for unit in units)


def test_small_files_share_a_unit_and_large_plain_files_are_cut(tmp_path):
    for i in range(20):
        (tmp_path / f"{i:02}.jsonl").write_bytes(jsonl_bytes(["x" * 50]))
    plan = plan_units(Recipe(sources=(str(tmp_path),)).resolve())
    assert len(plan.units) == 1
    big = tmp_path / "big.txt"
    with big.open("wb") as file:  # sparse: planning must not read it
        file.write(b"a<|endoftext|>b")
        file.truncate(40_000_000_000)
    plan = plan_units(Recipe(sources=(str(big),)).resolve())
    assert len(plan.units) > 64
    assert max(unit.n_bytes for unit in plan.units) <= 48_000_000


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.parquet", "no such file or folder"),
        ("*.parquet", "no file matches"),
        (".", "has an ending that tokenmill reads"),
        ("a.bin", "cannot tell what"),
        ("a.parquet.gz", "is a compressed parquet file"),
        ("empty.jsonl", "nothing to read"),
        ("fake.parquet", "as Parquet"),
        ("fake.arrow", "as an Arrow file or stream"),
    ],
)
def test_unreadable_source_is_refused(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.bin", "a.parquet.gz", "empty.jsonl", "fake.parquet", "fake.arrow"):
        if source == name:
            (tmp_path / name).write_bytes(b"" if name == "empty.jsonl" else b"nonsense that is long enough to look at")
    with pytest.raises((SourceError, DataError), match=message):
        plan_units(Recipe(sources=(source,)).resolve())


def test_one_empty_file_among_others_is_no_trouble(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["a"]))
    (tmp_path / "b.jsonl").write_bytes(b"")
    assert read_documents(tmp_path)[0] == ["a"]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_file_without_a_byte_is_truncated(ending, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["a"]))
    (tmp_path / f"b.jsonl.{ending}").write_bytes(b"")
    with pytest.raises(DataError, match="truncated"):
        read_documents(tmp_path)


def test_blank_runs_of_any_length_are_passed_in_linear_time(tmp_path):
    for line_break in (b"\r\n", b"\n", b" \n"):
        (tmp_path / "a.txt").write_bytes(b"a" + line_break * 200_000 + b"  b\r\n\r\nc" + line_break * 200_000)
        texts, _ = read_documents(tmp_path / "a.txt", unit_bytes=50_000, batch_bytes=50_000, documents="paragraph")
        assert [text.strip() for text in texts] == ["a", "b", "c"]
        assert texts[1] == "  b"


def test_paragraph_cut_inside_a_blank_run_at_the_edge_of_a_window(tmp_path):
    """A blank line whose spaces reach over the edge of what is searched at once."""
    for n_spaces in (5, 100_000):
        for before in range(65_530, 65_545):
            data = b"x" * (before - 1) + b"\n\n" + b" " * n_spaces + b"\nsecond" + b"y" * 200_000
            (tmp_path / "a.txt").write_bytes(data)
            texts, _ = read_documents(tmp_path / "a.txt", unit_bytes=32_000, documents="paragraph")
            assert [len(text) for text in texts] == [before - 1, 200_006]


def test_long_run_of_a_separator_that_overlaps_itself(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a" + b"\n" * 300_001 + b"b")
    texts, _ = read_documents(tmp_path / "a.txt", unit_bytes=30_000, batch_bytes=70_000, separator="\n\n")
    assert texts == ["a", *[""] * 149_999, "\nb"]


def test_records_that_do_not_keep_to_lines_are_refused_whatever_the_cuts(tmp_path):
    for data in (
        b'{"text":"a"} {"text":"b"}\n\n{"text":"c"}\n',
        b'{"text":\n"a"}{"text":"b"}\n',
        b'{"text":\n"a"}\n{"text":"b"} {"text":"c"}\n',
    ):
        (tmp_path / "a.jsonl").write_bytes(data)
        for unit_bytes in (1, 5, 1000):
            with pytest.raises(DataError, match="line 1"):
                read_documents(tmp_path / "a.jsonl", unit_bytes)


def test_deeply_nested_json_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a", "deep": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
    with pytest.raises(DataError, match="line 1"):
        read_documents(tmp_path / "a.jsonl")


def test_flipped_byte_in_parquet_with_page_checksums_is_found(tmp_path):
    path = tmp_path / "a.parquet"
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"text": ["some text that is long enough"] * 100}), path, **options)
    data = bytearray(path.read_bytes())
    data[data.index(b"long enough", 1000)] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"(?i)crc|checksum"):
        read_documents(path)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "file"])
def test_flipped_bits_in_an_arrow_file_never_crash(stream, tmp_path):
    path = write_arrow(tmp_path / "a.arrow", [f"document {i}" for i in range(40)], stream=stream, batch_rows=10)
    data = path.read_bytes()
    for i in range(0, len(data) * 8, 37):
        damaged = bytearray(data)
        damaged[i // 8] ^= 1 << i % 8
        path.write_bytes(damaged)
        with suppress(DataError, RecipeError):
            read_documents(path)


def test_compressed_and_dictionary_arrow_is_read(tmp_path):
    texts = [f"document {i % 7}" for i in range(50)]
    table = pa.table({"text": pa.array(texts).dictionary_encode()})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for opened in (pa.ipc.new_stream, pa.ipc.new_file):
        with opened(str(tmp_path / "a.arrow"), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=8)
        assert read_documents(tmp_path / "a.arrow", unit_bytes=50)[0] == texts


def test_columns_of_one_name_are_refused_and_dotted_names_are_found(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), twice.schema) as writer:
        writer.write_table(twice)
    with pytest.raises(RecipeError, match="2 columns named `text`"):
        read_documents(tmp_path / "a.arrow")
    pq.write_table(pa.table({"meta": [{"text": 1}], "meta.text": ["yes"]}), tmp_path / "b.parquet")
    assert read_documents(tmp_path / "b.parquet", text_column="meta.text")[0] == ["yes"]


def test_glob_in_a_folder_with_brackets_reads_that_folder(tmp_path, monkeypatch):
    for folder, text in (("data[1]", "right"), ("data1", "wrong")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(jsonl_bytes([text]))
    monkeypatch.chdir(tmp_path / "data[1]")
    assert read_documents("*.jsonl")[0] == ["right"]
    assert read_documents("a.jsonl")[0] == ["right"]


def test_folder_and_glob_give_one_order_and_no_file_twice(tmp_path):
    for name in ("a/x", "a b/x", "a-b/x", "a.x/x"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl_bytes([name]))
    texts = read_documents(tmp_path)[0]
    assert texts == ["a b/x", "a-b/x", "a.x/x", "a/x"]
    assert read_documents(tmp_path / "*/*.jsonl")[0] == texts
    assert read_documents(tmp_path / "**/**/*.jsonl")[0] == texts


def test_linked_folders_are_read_and_loops_end(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(jsonl_bytes(["a"]))
    (tmp_path / "elsewhere" / "b.jsonl").write_bytes(jsonl_bytes(["b"]))
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "in")
    assert read_documents(tmp_path / "in")[0] == ["a", "b"]


def test_unread_compressions_are_refused_and_side_files_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["a"]))
    (tmp_path / "dataset_info.json").write_text("{}")
    assert read_documents(tmp_path)[0] == ["a"]
    (tmp_path / "b.jsonl.xz").write_bytes(b"")
    with pytest.raises(SourceError, match=r"b\.jsonl\.xz` has a compression that tokenmill does not read"):
        read_documents(tmp_path)


def test_output_inside_the_source_folder_is_no_source(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl_bytes(["a", "b"]))
    first = prepare_inline(tmp_path, tmp_path / "out1", val=1)
    assert prepare_inline(tmp_path, tmp_path / "out2", val=1).totals == first.totals


def test_splitting_options_without_plain_text_are_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a"])
    with pytest.raises(RecipeError, match="are for plain text"):
        read_documents(tmp_path / "a.parquet", documents="line")


def test_name_that_is_not_utf8_is_refused(tmp_path):
    with pytest.raises(SourceError, match="is not UTF-8"):
        Recipe(sources=("caf\udce9.jsonl",)).resolve()


def test_what_is_wrong_with_a_skipped_line_of_json_is_counted_by_its_name(tmp_path):
    lines = [
        b'{"text": "a"}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"text": "b", "n": NaN}',
        b'{"text": "c"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    manifest = prepare_inline(tmp_path / "a.jsonl", tmp_path / "out", val=1, on_bad_document="skip")
    assert manifest.skipped == {"lone surrogate": 1, "invalid UTF-8": 1, "invalid JSON": 1}
    assert manifest.totals.n_documents == 2
