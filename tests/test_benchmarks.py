"""The benchmark itself: what it counts, what it refuses to report, what it writes. No timing is asserted."""

import json
import re
import shutil
import sys
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from conftest import write_parquet

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import measure
from benchmarks.chart import Bar, bars_svg
from benchmarks.contenders.protocol import EOT, DocumentIds, divided, llmc_ids, nanogpt_ids
from benchmarks.corpus import digest, first_difference, linked, parquet_files, reference_ids
from benchmarks.figures import figure, rate
from benchmarks.measure import MAX_RUNS_A_TURN, OWN_FIGURES, Case, CaseError, measured, measured_cases, runs_a_turn
from benchmarks.report import between_markers, whole_report, write_pages
from benchmarks.targets import checks
from benchmarks.vocabulary import write_vocabulary

ROOT = Path(__file__).parent.parent


def ran(seconds, small=(), n_bytes=101_000_000, peak_bytes=10**8):
    one = {"n_read_bytes": 1, "n_written_bytes": 1, "n_disk_written_bytes": 1, "peak_bytes": peak_bytes}
    rounds, small_rounds = ([{"cpu_seconds": s, "wall_seconds": s} for s in given] for given in (seconds, small))
    record = {"title": "it", "wrong": None, "n_bytes": n_bytes, "n_small_bytes": 1_000_000 if small else 0}
    return record | {"rounds": rounds, "small_rounds": small_rounds, "first_run": one}


def results_of(**sections):
    machine = {"cpu": "a CPU", "n_cores": 2, "architecture": "x", "kernel": "1", "python": "3", "load_before": 0.0}
    corpus = {"name": "words", "n_files": 1, "n_documents": 2, "n_text_bytes": 3, "sha256": "0" * 64}
    facts = {"name": "n", "date": "2026-01-01", "command": "python -m benchmarks words", "rounds": 3}
    return facts | {"machine": machine, "corpus": corpus, "versions": {"a": {"b": "1"}}, "sections": sections}


def test_a_figure_is_the_median_with_the_least_and_the_greatest():
    assert figure([3.0, 1.0, 2.0, 10.0]) == (2.5, 1.0, 10.0)
    assert figure([2.0, 1.0, 3.0]).spread == 1.0


def test_a_rate_leaves_the_small_job_out():
    assert rate(ran([3.0, 5.0], [1.0, 1.0])) == pytest.approx(100 / 3)
    assert rate(ran([2.0])) == pytest.approx(101 / 2)
    assert isnan(rate(ran([1.0], [1.0])))
    assert rate(ran([3.0, 9.0, 4.0], [1.0, 7.0, 2.0])) == 50  # each against the small job right after it


def test_daemons_and_killed_processes_count(tmp_path):
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}], start_new_session=True)"
    killed = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', {burn + chr(10) + "print(1, flush=True); time.sleep(60)"!r}], stdout=-1)
child.stdout.readline(); child.kill(); child.wait()
"""
    for code in (orphan, killed):
        taken = measured([sys.executable, "-c", code], tmp_path, tmp_path, poll="memory")
        assert taken["cpu_seconds"] >= 0.2
    assert taken["peak_bytes"] > 0


def test_processes_that_nobody_waits_for_count_where_they_are_watched(tmp_path):
    burn = "import time\nwhile time.process_time() < 2: pass"
    code = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, '-c', {burn!r}]).wait()
"""
    assert measured([sys.executable, "-c", code], tmp_path, tmp_path)["cpu_seconds"] < 1
    assert measured([sys.executable, "-c", code], tmp_path, tmp_path, poll="cpu")["cpu_seconds"] > 1


def test_what_is_written_and_read_by_a_grandchild_counts(tmp_path):
    write = f"open({str(tmp_path / 'file')!r}, 'wb').write(bytes(3_000_000))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {write!r}], check=True)"
    assert measured([sys.executable, "-c", code], tmp_path, tmp_path)["n_written_bytes"] >= 3_000_000


def test_a_command_that_fails_says_what_it_said(tmp_path):
    with pytest.raises(CaseError, match="no such thing"):
        measured([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path, tmp_path)


@pytest.fixture(scope="module")
def words(tmp_path_factory, sample_texts):
    folder = tmp_path_factory.mktemp("words")
    write_parquet(folder / "a.parquet", sample_texts[:30])
    write_parquet(folder / "b.parquet", sample_texts[30:50])
    write_vocabulary(folder / "vocabulary")
    return linked("words", parquet_files(folder), folder)


@pytest.fixture
def vocabulary(words, monkeypatch):
    folder = words.folder.parent / "vocabulary"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder / "tiktoken"))
    return folder


def test_the_tokenizer_json_that_peers_get_gives_the_ids_of_tiktoken(words, vocabulary):
    right = reference_ids(words, "gpt2")
    assert digest(right) == digest(reference_ids(words, str(vocabulary / "tokenizer.json")))
    assert len(right.lengths) == 50


def test_other_forms_of_the_corpus_hold_the_same_documents(words):
    texts = [text for batch in words.texts() for text in batch]
    lines = b"".join(path.read_bytes() for path in sorted(words.form("jsonl").iterdir())).splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts
    assert [text for batch in words.times(2).texts() for text in batch] == texts * 2
    first = words.first("beginning", 20_000, n_files=2)
    n_taken = sum(len(batch) for batch in first.texts())
    assert 20_000 <= first.n_text_bytes < 40_000
    assert [text for batch in first.texts() for text in batch] == texts[:n_taken]


def test_ids_come_back_from_files_in_the_order_of_the_corpus(words, vocabulary, tmp_path):
    from conftest import prepare_inline

    right = reference_ids(words, "gpt2")
    prepare_inline(words.parquet, tmp_path / "nanogpt")
    prepare_inline(words.parquet, tmp_path / "llmc", format="llmc", val="none")
    assert first_difference(right, nanogpt_ids(tmp_path / "nanogpt")) is None
    assert first_difference(right, llmc_ids(tmp_path / "llmc")) is None


def test_flat_ids_are_cut_at_end_of_text():
    behind = divided(np.array([1, 2, EOT, EOT, 3, EOT]))
    before = divided(np.array([EOT, 1, 2, EOT, EOT, 3]), eot_first=True)
    for found in (behind, before):
        assert (found.ids.tolist(), found.lengths.tolist()) == ([1, 2, 3], [2, 0, 1])


def test_the_first_difference_is_named():
    right = DocumentIds(np.array([1, 2, 3, 4]), np.array([2, 2]))
    assert first_difference(right, right) is None
    assert first_difference(right, DocumentIds(right.ids, np.array([4]))) == "1 documents, not 2"
    other = DocumentIds(np.array([1, 2, 3, 9]), np.array([2, 2]))
    assert first_difference(right, other) == "document 1 differs at token 1: [9], not [4]"
    shorter = DocumentIds(np.array([1, 2, 3]), np.array([2, 1]))
    assert first_difference(right, shorter) == "document 1 differs at token 1: [], not [4]"
    moved = DocumentIds(right.ids, np.array([1, 3]))
    assert "document 0 differs at token 1" in first_difference(right, moved)


def test_a_contender_with_wrong_ids_gets_no_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "TURN_SECONDS", 3600)
    right = DocumentIds(np.array([1, 2]), np.array([2]))

    def case(name, ids):
        code = f"import numpy, sys; numpy.array({ids}, 'u2').tofile(sys.argv[1] + '/ids')"
        return Case(
            name=name,
            title=name,
            command=lambda source, out: [sys.executable, "-c", code, str(out)],
            source=tmp_path,
            n_bytes=10**6,
            check=lambda out: first_difference(right, divided(np.fromfile(out / "ids", "u2"))),
        )

    broken = Case("broken", "broken", lambda source, out: ["false"], tmp_path, 10**6)
    silent = replace(case("silent", []), command=lambda source, out: ["true"])
    cases = [case("good", [1, 2, EOT]), case("wrong", [1, 3, EOT]), broken, silent]
    records = measured_cases(cases, 2, tmp_path / "work")
    assert len(records["good"]["rounds"]) == 2 * MAX_RUNS_A_TURN
    assert records["good"]["wrong"] is None
    assert records["wrong"]["rounds"] == []
    assert "document 0 differs at token 1" in records["wrong"]["wrong"]
    assert "exit code 1" in records["broken"]["wrong"]
    assert "FileNotFoundError" in records["silent"]["wrong"]
    page = whole_report(results_of(field=records))
    assert "wrong or not there: document 0 differs at token 1: [3], not [2]" in page


def test_a_contender_that_fails_in_a_later_round_does_not_end_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "TURN_SECONDS", 3600)
    code = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); n = p.exists(); p.touch(); sys.exit(n)"
    failing = Case("it", "it", lambda source, out: [sys.executable, "-c", code, str(source / "seen")], tmp_path, 1)
    steady = Case("other", "other", lambda source, out: ["true"], tmp_path, 1)
    records = measured_cases([failing, steady], 2, tmp_path / "work")
    assert records["it"]["wrong"].startswith("round 1: exit code 1")
    assert len(records["other"]["rounds"]) == 2 * MAX_RUNS_A_TURN


def test_what_takes_long_is_run_once_a_turn():
    took = [runs_a_turn({"first_run": {"wall_seconds": seconds}}) for seconds in (0.1, 2.0, 5.0, 60.0)]
    assert took == [MAX_RUNS_A_TURN, 4, 1, 1]


def test_a_contender_may_time_a_stretch_of_itself(tmp_path):
    (tmp_path / OWN_FIGURES).write_text('{"cpu_seconds": 77}')
    assert measured(["true"], tmp_path, tmp_path)["cpu_seconds"] == 77


def test_targets_are_met_missed_or_not_measured():
    field = {"tokenmill-2": ran([2.0]), "tokenmill-nanogpt": ran([4.0]), "nanogpt-2": ran([100.0]), "llmc": ran([40.0])}
    sizes = {"1x": ran([1.0], peak_bytes=100), "8x": ran([1.0], peak_bytes=120)}
    found = {check.target: check for check in checks(results_of(field=field, sizes=sizes))}
    nanogpt, llmc = (one for one in checks(results_of(field=field)) if one.met is not None)
    assert (nanogpt.met, nanogpt.measured) == (False, "25 times")
    assert (llmc.met, llmc.measured) == (True, "20 times")
    assert found["peak memory, 8 times the files against 1"].met is False
    assert found["CPU per MB, 8 times the files against 1"].met is True
    assert found["a 1 MB job, wall time"].met is None


def outside_markers(text: str) -> str:
    return re.sub(r"(<!-- bench:(\w+) -->).*?(<!-- /bench:\2 -->)", r"\1\3", text, flags=re.DOTALL)


def test_the_report_goes_between_the_markers_and_nowhere_else(tmp_path):
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/performance.md", "docs/my-prepare-dies.md"):
        shutil.copy(ROOT / page, tmp_path / page)
    before = (tmp_path / "README.md").read_text()
    field = {"tokenmill-2": ran([2.0]), "nanogpt-2": ran([100.0]), "engine": ran([1.0])}
    write_pages(results_of(field=field), tmp_path)
    after = (tmp_path / "README.md").read_text()
    assert outside_markers(after) == outside_markers(before)
    assert "docs/performance.svg" in after.split("## How it compares")[0]
    assert "| it | 1.01 | 50 | 100 |" in after
    assert "python -m benchmarks words" in after
    assert (tmp_path / "docs/my-prepare-dies.md").read_text() == (ROOT / "docs/my-prepare-dies.md").read_text()
    assert "at least 30 times" in (tmp_path / "docs/performance.md").read_text()
    assert (tmp_path / "docs/performance.svg").read_text().count("<rect") == 3


def test_markers_stay_and_other_text_too():
    text = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb\n"
    assert between_markers(text, "x", "new\\1") == "a\n<!-- bench:x -->\nnew\\1\n<!-- /bench:x -->\nb\n"
    assert between_markers(text, "x", "") == text
    assert between_markers(text, "y", "new") == text


def test_the_chart_is_well_formed_and_knows_dark_pages():
    from xml.etree import ElementTree

    svg = bars_svg("a < b", [Bar("x & y", 3.0, "ours"), Bar("z", 0.0, "other")])
    assert ElementTree.fromstring(svg).tag.endswith("svg")  # noqa: S314
    assert "prefers-color-scheme: dark" in svg
