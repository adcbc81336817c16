"""The report says what is in the shards, and nothing from them is taken for markup."""

import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import prepare_inline, write_parquet

from tokenmill import progress
from tokenmill.cli import cli
from tokenmill.inspect import open_shards
from tokenmill.manifest import MANIFEST, load_manifest
from tokenmill.reading import open_any
from tokenmill.reading.statistics import statistics
from tokenmill.recipe import RunOptions
from tokenmill.report import counting
from tokenmill.report.commands import reproducing_command
from tokenmill.report.counting import count_tokens
from tokenmill.report.facts import gather
from tokenmill.report.page import html_of
from tokenmill.sources.catalog import CATALOG

SAMPLE = CATALOG["sample"]
EVIL = "<img src=x onerror=alert(1)>"


class Tables(HTMLParser):
    """The tables of a page by caption, rows of cells as text; and all text and tags there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._rows: list[list[str]] = []
        self._in: str | None = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "caption":
            self._rows, self._in = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag):
        if tag == "caption":
            self.tables[self._in], self._in = self._rows, None
        elif tag == "table":
            self._rows = []

    def handle_data(self, data):
        self.texts.append(data)
        if self._in is not None:
            self._in += data
        elif self._rows and self._rows[-1]:
            self._rows[-1][-1] += data


def page_of(path, **options) -> str:
    return html_of(gather(open_any(path), **options))


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report") / "out"
    prepare_inline(SAMPLE, out, format="llmc", shard_tokens=100_000)
    return out


def bare(out: Path, folder: Path) -> Path:
    return shutil.copytree(out, folder, ignore=shutil.ignore_patterns("manifest.json", "index", "SHA256SUMS"))


@pytest.mark.parametrize("has_manifest", [True, False])
def test_its_numbers_are_those_of_stats(out, tmp_path, has_manifest):
    path = out if has_manifest else bare(out, tmp_path / "bare")
    found, page = statistics(path), Tables(page_of(path))
    assert f"{found.total.n_tokens:,}" in page.texts
    assert f"{found.total.n_documents:,}" in page.texts
    rows = {row[0]: row[1:3] for row in page.tables["Splits"][1:]}
    assert rows == {name: [f"{part.n_documents:,}", f"{part.n_tokens:,}"] for name, part in found.splits.items()}
    bins = [[int(cell.replace(",", "")) for cell in row[1:]] for row in page.tables["Documents by length"][1:]]
    assert bins == [[part.n_documents, part.n_tokens] for part in found.histogram]
    if has_manifest:
        (row,) = page.tables["Source files"][1:]
        (part,) = found.sources.values()
        assert row == [str(SAMPLE), f"{part.n_documents:,}", f"{part.n_tokens:,}", f"{found.bytes_per_token:.2f}"]


def test_percentiles_and_tokens_are_those_of_all_documents(out):
    facts, shards = gather(open_any(out)), open_shards(out)
    lengths = [len(document.tokens) for document in shards]
    expected = np.percentile(lengths, [1, 50, 99], method="inverted_cdf").tolist()
    assert facts.lengths.percentiles([1, 50, 99]) == expected
    ids = np.concatenate(list(shards.tokens()))
    assert facts.tokens.counts.tolist() == np.bincount(ids).tolist()
    assert sum(point.n_tokens for point in facts.tokens.points) >= len(ids) - 4096
    n_bytes = sum(point.n_bytes for point in facts.tokens.points)
    assert n_bytes == pytest.approx(shards.manifest.totals.n_text_bytes, rel=0.02)
    never = 50_257 - len(np.unique(ids))
    assert f"{never:,} of 50,257 ids" in page_of(out)


def test_of_many_tokens_a_seeded_sample_is_counted_and_said_to_be_one(out, monkeypatch):
    monkeypatch.setattr(counting, "STRETCH_TOKENS", 10_000)
    monkeypatch.setattr(counting, "MAX_STRETCHES", 5)
    counts = count_tokens(open_any(out))
    assert counts.n_read == 50_000
    assert np.array_equal(counts.counts, count_tokens(open_any(out)).counts)
    assert "Counted in a sample: 50,000 of 368,658 tokens" in page_of(out)


def test_documents_of_too_many_tokens_without_a_manifest_are_estimated(out, tmp_path):
    page = page_of(bare(out, tmp_path / "bare"), max_read_tokens=1000)
    assert "about 420" in page
    assert "By documents that lie whole in stretches" in page


def test_what_nothing_tells_is_left_out_and_said_so(out, tmp_path):
    page = page_of(bare(out, tmp_path / "bare"))
    assert "Not in this report" in page
    for title in ("Tokens by source file", "The run", "Recipe and provenance"):
        assert f"<h2>{title}</h2>" not in page
        assert f"{title}: only a manifest" in page
    assert "Not in this report" not in page_of(out)


def test_ids_of_a_tokenizer_that_is_not_known_are_reported_as_well(tmp_path):
    np.random.default_rng(0).integers(0, 60_000, 50_000).astype(np.uint16).tofile(tmp_path / "train.bin")
    page = page_of(tmp_path)
    assert "different ids occur" in page
    assert "Bytes a token: the tokenizer is not known" in page


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (Path(__file__).parent / "foreign").iterdir() if path.is_dir())
)
def test_shards_that_others_wrote_get_a_report(name):
    assert "</html>" in page_of(Path(__file__).parent / "foreign" / name)


def test_nothing_from_corpus_or_file_names_is_taken_for_markup(tmp_path):
    source = write_parquet(tmp_path / f"{EVIL}.parquet", [f"{EVIL}<script>alert(2)</script></div>\x00\u202e"] * 3)
    folder = tmp_path / "<b>out</b>".replace("/", "")
    prepare_inline(source, folder, format="llmc", val="none", where=None)
    found = Tables(page_of(folder))
    assert not {"img", "script", "b", "iframe", "link", "object"} & {tag for tag, _ in found.tags}
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    text = "".join(found.texts)
    assert f"{EVIL}.parquet" in text
    assert "<script>alert(2)</script>" in text
    assert "\x00" not in text
    assert "\u202e" not in text


def test_it_asks_nobody_for_anything(out):
    page = page_of(out)
    found = Tables(page)
    assert not any({"src", "srcset", "action"} & set(attributes) for _, attributes in found.tags)
    links = [attributes["href"] for tag, attributes in found.tags if tag == "a"]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "url(" not in page
    policies = [attributes["content"] for _, attributes in found.tags if "http-equiv" in attributes]
    assert [policy.split("; ")[:2] for policy in policies] == [["default-src 'none'", "style-src 'unsafe-inline'"]]
    assert len(page) < 400_000


def options_of(command: str, out: Path) -> list[str]:
    words = shlex.split(command)[1:]
    words[words.index("-o") + 1] = str(out)
    return words


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format": "llmc", "shard_tokens": 50_000, "eot": "last", "name": "my set".replace(" ", "-")},
        {"shuffle": "keyed:7", "val": 0.1, "min_chars": 100, "limit_documents": 50},
        {"shuffle": "none", "val": "none", "where": "language == 'en' and token_count > 300"},
        {"format": "mds", "sequence_length": 128, "tokenizer": "cl100k_base"},
        {"format": "parquet", "eot": "none", "text_column": "title"},
    ],
)
def test_the_command_in_it_makes_the_same_output_again(tmp_path, fields):
    manifest = prepare_inline(SAMPLE, tmp_path / "out", **fields)
    command = reproducing_command(manifest, tmp_path / "out")
    result = CliRunner().invoke(cli, [*options_of(command, tmp_path / "again"), "--workers", "1", "-q"])
    assert result.exception is None
    again = load_manifest(tmp_path / "again")
    assert again.fingerprint == manifest.fingerprint
    assert [shard.sha256 for shard in again.shards] == [shard.sha256 for shard in manifest.shards]


def test_the_command_of_a_converted_output_converts_again(tmp_path, out):
    runner = CliRunner()
    runner.invoke(cli, ["convert", str(out), "-o", str(tmp_path / "one"), "--format", "npy", "--shard-tokens", "70000"])
    manifest = load_manifest(tmp_path / "one")
    command = reproducing_command(manifest, tmp_path / "one")
    assert runner.invoke(cli, options_of(command, tmp_path / "two")).exception is None
    assert load_manifest(tmp_path / "two").fingerprint == manifest.fingerprint


def test_prepare_writes_it_on_request_and_the_output_stays_what_it_was(tmp_path):
    runner, folder = CliRunner(), tmp_path / "out"
    result = runner.invoke(cli, ["prepare", str(SAMPLE), "-o", str(folder), "--report", "--workers", "1"])
    assert result.exit_code == 0
    assert f"The report is in {folder / 'report.html'}" in result.output
    assert "</html>" in (folder / "report.html").read_text()
    assert runner.invoke(cli, ["verify", str(folder)]).exit_code == 0
    assert "Already done" in runner.invoke(cli, ["prepare", str(SAMPLE), "-o", str(folder)]).output


def test_the_report_goes_where_it_is_told_and_else_into_the_output(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert f"Wrote {out / 'report.html'}" in runner.invoke(cli, ["report", str(out)]).output
    assert "Wrote mine.html" in runner.invoke(cli, ["report", str(out), "-o", "mine.html"]).output
    folder = bare(out, tmp_path / "bare")
    assert "Wrote report.html" in runner.invoke(cli, ["report", str(folder)]).output
    (out / "report.html").unlink()


def test_mishaps_and_quarantine_are_marked_where_they_happened(tmp_path):
    manifest = prepare_inline(SAMPLE, tmp_path / "out")
    mishaps = (
        (0.1, "a worker was killed; another takes its unit"),
        (0.2, "it died again; the document goes to quarantine"),
    )
    run = msgspec.structs.replace(manifest.run, mishaps=mishaps, elapsed_seconds=1.0)
    changed = msgspec.structs.replace(manifest, run=run)
    (tmp_path / "out" / MANIFEST).write_bytes(msgspec.json.encode(changed))
    page = page_of(tmp_path / "out")
    rows = Tables(page).tables["Worker deaths, stalls and retries"][1:]
    assert rows == [["1", "0.1 s", mishaps[0][1]], ["2", "0.2 s", mishaps[1][1]]]
    assert page.count('class="event-line"') == page.count('class="event-quarantine"') == 1


def test_a_run_is_sampled_within_bounds_and_its_last_sample_has_all(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(progress, "MAX_SAMPLES", 8)
    manifest = prepare_inline(SAMPLE, tmp_path / "out", RunOptions(executor="inline", unit_bytes=20_000))
    samples = manifest.run.samples
    assert 3 < len(samples) <= 8
    assert [sample.seconds for sample in samples] == sorted(sample.seconds for sample in samples)
    assert samples[-1].n_tokens == manifest.totals.n_tokens
    assert samples[-1].n_text_bytes == manifest.totals.n_text_bytes
    assert samples[0].binding is None
    assert {sample.binding for sample in samples[2:]} <= {"reading", "encoding", "writing"}
    assert re.search(r'class="path"', page_of(tmp_path / "out"))


def test_a_manifest_from_before_there_were_samples_is_read(tmp_path):
    prepare_inline(SAMPLE, tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    content = msgspec.json.decode(path.read_bytes())
    del content["run"]["samples"]
    path.write_bytes(msgspec.json.encode(content))
    assert load_manifest(tmp_path / "out").run.samples == ()
    assert "Throughput" not in page_of(tmp_path / "out")
