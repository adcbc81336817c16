"""The corpora known by name: every entry leads to an address, and what is wrong is said."""

import json
import re
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import write_parquet

import tokenmill
from tokenmill.cli import cli
from tokenmill.cli.options import recipe_from_flags
from tokenmill.errors import RecipeError, SourceError
from tokenmill.recipe import Recipe, recipe_from_mapping
from tokenmill.sources import KINDS, suffixes
from tokenmill.sources.catalog import (
    CATALOG,
    corpora,
    corpus_named,
    corpus_source,
    known_size,
    license_of,
    split_address,
)

EDU = "hf://datasets/HuggingFaceFW/fineweb-edu"
VERSIONS = [(name, version) for name, corpus in corpora().items() for version in corpus.versions]
REMOTE = [(name, version) for name, version in VERSIONS if name not in CATALOG]
PATTERNS = [(name, corpus.pattern.example) for name, corpus in corpora().items() if corpus.pattern]


def recipe_of(sources, **fields) -> Recipe:
    return recipe_from_mapping({"sources": sources, **fields}, where="the test")


@pytest.mark.parametrize(("name", "version"), REMOTE + PATTERNS)
def test_every_version_leads_to_an_address_on_the_hub(name, version):
    found = corpus_source(name, version)
    repository, path = split_address(found.source)
    assert repository == corpora()[name].repository
    assert path == found.size.path
    assert re.fullmatch(r"[A-Za-z0-9_.*/-]+", path)
    assert "." not in Path(path).name or suffixes(Path(path))[0] in KINDS or name == "wikipedia"
    assert found.text_column == corpora()[name].text_column


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_figures_come_with_where_they_come_from(name, version):
    size = corpora()[name].versions[version]
    assert size.source or (size.n_documents, size.n_bytes, size.n_tokens, size.n_files) == (None,) * 4


def test_no_name_of_a_version_means_two():
    for corpus in corpora().values():
        names = [name.lower() for key, version in corpus.versions.items() for name in (key, *version.aliases)]
        assert len(names) == len(set(names))
        assert corpus.default is None or corpus.default in corpus.versions


def test_what_ships_with_the_package_is_in_the_catalog_with_its_true_size():
    assert [name for name, corpus in corpora().items() if corpus.repository is None] == list(CATALOG) == ["sample"]
    size = corpus_source("sample").size
    path = CATALOG["sample"]
    assert (size.n_bytes, size.n_documents) == (path.stat().st_size, pq.read_metadata(path).num_rows)
    assert path.as_posix().endswith(size.path)


def test_the_catalog_is_strict():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"title": "x", "versions": {}, "licence": "mit"}, type(corpus_named("c4")))


@pytest.mark.parametrize("version", [None, "10B", "10b", "10BT", "10bt", "sample-10BT", "SAMPLE-10bt"])
def test_a_version_may_be_called_as_people_call_it(version):
    found = corpus_source("fineweb-edu", version)
    assert (found.version, found.source) == ("10B", f"{EDU}/sample/10BT")


def test_a_crawl_and_a_language_are_versions():
    assert corpus_source("fineweb", "cc-main-2024-10").source.endswith("HuggingFaceFW/fineweb/data/CC-MAIN-2024-10")
    assert corpus_source("fineweb-2", "FRA_latn").source.endswith("data/fra_Latn/train")
    assert corpus_source("fineweb-2", "swe_Latn").source.endswith("data/swe_Latn/train")
    with pytest.raises(RecipeError):
        corpus_source("fineweb", "CC-MAIN-2024-1")


def test_a_wrong_name_or_version_is_answered_with_the_right_ones():
    with pytest.raises(SourceError) as error:
        corpus_named("finewebedu")
    assert error.value.hint == "did you mean `fineweb-edu`?"
    with pytest.raises(RecipeError, match="`fineweb-edu` has no version `20B`") as error:
        corpus_source("fineweb-edu", "20B")
    for version in ("10B", "100B", "350B", "full", "CC-MAIN-YYYY-WW"):
        assert version in error.value.hint
    with pytest.raises(RecipeError, match="no default") as error:
        corpus_source("fineweb-2")
    assert "fra_Latn" in error.value.hint


def test_a_recipe_holds_the_address_and_the_column_of_the_corpus():
    recipe = recipe_of("fineweb-edu", version="100b")
    assert (recipe.sources, recipe.text_column) == ((f"{EDU}/sample/100BT",), "text")
    assert recipe_of(["starcoderdata"]).text_column == "content"
    assert recipe_of(["starcoderdata"], text_column="id").text_column == "id"
    assert recipe_of("sample").sources == recipe_of("sample", version="all").sources == ("sample",)
    assert recipe_of(["fineweb-edu", "crawl/a.parquet"]).sources == (f"{EDU}/sample/10BT", "crawl/a.parquet")
    with pytest.raises(RecipeError, match="different columns"):
        recipe_of(["fineweb-edu", "starcoderdata"])
    assert len(recipe_of(["fineweb-edu", "starcoderdata"], text_column="text").sources) == 2


def test_a_recipe_file_may_name_a_version(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('sources = ["fineweb"]\nversion = "350B"\n')
    assert Recipe.from_toml(path).sources == ("hf://datasets/HuggingFaceFW/fineweb/sample/350BT",)
    path.write_text('sources = ["wikitext"]\nversion = 103\n')
    with pytest.raises(RecipeError, match="version 103 is no text") as error:
        Recipe.from_toml(path)
    assert error.value.hint == 'write it in quotes: "103"'


def test_a_version_is_refused_with_anything_but_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_parquet(tmp_path / "a.parquet", ["text"])
    with pytest.raises(RecipeError, match="only corpora of the catalog have versions"):
        recipe_of(["fineweb-edu", "a.parquet"], version="10B")
    with pytest.raises(SourceError) as error:
        recipe_of("finweb-edu", version="10B")
    assert error.value.hint == "did you mean `fineweb-edu`?"


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fineweb-edu").mkdir()
    write_parquet(tmp_path / "fineweb-edu" / "a.parquet", ["one", "two"])
    manifest = tokenmill.prepare("fineweb-edu", out="out", executor="inline")
    assert manifest.inputs[0].path == str(tmp_path / "fineweb-edu" / "a.parquet")
    with pytest.raises(RecipeError, match="`fineweb-edu` is on disk"):
        tokenmill.prepare("fineweb-edu", out="out", version="10B")


def test_prepare_takes_a_version_from_python(tmp_path):
    with pytest.raises(RecipeError, match="`sample` has no version `10B`"):
        tokenmill.prepare("sample", tmp_path / "out", version="10B")
    manifest = tokenmill.prepare("sample", tmp_path / "out", version="all", executor="inline")
    assert manifest.recipe.sources == ("sample",)


@pytest.mark.parametrize("command", ["prepare", "plan"])
def test_the_option_of_a_command_is_not_that_of_the_program(command, tmp_path):
    arguments = [command, "fineweb-edu", "--version", "20B", "-o", str(tmp_path)]
    assert "no version `20B`" in str(CliRunner().invoke(cli, arguments).exception)
    assert CliRunner().invoke(cli, ["--version"]).output == f"tokenmill, version {tokenmill.__version__}\n"


@pytest.mark.parametrize(
    ("sources", "version", "said"),
    [
        (("fineweb-edu",), None, "note: version 10B of fineweb-edu; choose with `--version`\n"),
        (("fineweb-edu",), "100B", ""),
        (("sample", "openwebtext"), None, ""),  # they have but one
    ],
)
def test_the_version_that_nobody_named_is_said(sources, version, said, capsys):
    flags = {"shuffle": None, "separator": None, "documents": None, "version": version}
    recipe_from_flags(sources, None, False, flags)
    assert capsys.readouterr() == ("", said)
    recipe_from_flags(sources, None, False, flags, quiet=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("address", "license_name"),
    [
        (f"{EDU}/sample/10BT", "odc-by"),
        (f"{EDU}@87f09149ef4734204d70ed1d046ddc9ca3f2b8f9/sample/10BT/*.parquet", "odc-by"),
        (f"{EDU}@refs/convert/parquet/default", "odc-by"),
        ("hf://datasets/huggingfacefw/FineWeb-Edu", "odc-by"),
        ("hf://datasets/Skylion007/openwebtext@main", "cc0-1.0"),
        ("hf://datasets/karpathy/climbmix-400b-shuffle/shard_00000.parquet", None),
        ("hf://datasets/somebody/something", None),
        ("fineweb-edu/sample", None),
        ("s3://bucket/HuggingFaceFW/fineweb-edu", None),
    ],
)
def test_the_license_goes_by_the_repository(address, license_name):
    assert license_of(address) == license_name


def test_the_size_goes_by_the_address():
    assert known_size(f"{EDU}/sample/10BT").n_tokens == 9_972_918_177
    assert known_size(f"{EDU}@main/sample/10BT/").n_documents == 9_672_101
    assert known_size("sample").n_documents == 420
    assert known_size(f"{EDU}/data/CC-MAIN-2024-10") is None
    assert known_size("crawl/") is None


def test_datasets_lists_every_version_with_what_is_known():
    done = CliRunner().invoke(cli, ["datasets"])
    rows = [line.split() for line in done.output.splitlines()]
    assert ["fineweb-edu", "10B*", "9.67M", "28.5", "GB", "9.97B", "odc-by"] in rows
    assert ["fineweb-2", "fra_Latn", "333M", "?", "?", "odc-by"] in rows
    assert {(row[0], row[1].rstrip("*")) for row in rows if len(row) > 5} >= set(VERSIONS)


def test_datasets_tells_all_about_one_and_the_command_to_type():
    done = CliRunner().invoke(cli, ["datasets", "fineweb-edu"])
    assert "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu" in done.output
    assert re.search(r"10B\* .* 14 +about 19\.9 GB +sample/10BT", done.output)
    assert "is an estimate" in done.output
    assert done.output.endswith("    tokenmill prepare fineweb-edu --version 10B -o data/fineweb_edu\n")
    for name in corpora():
        command = CliRunner().invoke(cli, ["datasets", name]).output.splitlines()[-1].split()
        assert command[:3] == ["tokenmill", "prepare", name]
        assert corpus_source(name, command[4] if command[3] == "--version" else None)
    assert "no corpus is called `finewebedu`" in str(CliRunner().invoke(cli, ["datasets", "finewebedu"]).exception)


def test_datasets_as_json_has_the_numbers_and_the_addresses():
    entries = json.loads(CliRunner().invoke(cli, ["datasets", "--json"]).output)
    assert [entry["name"] for entry in entries] == list(corpora())
    entry = json.loads(CliRunner().invoke(cli, ["datasets", "fineweb-edu", "--json"]).output)
    assert entry in entries
    assert entry["versions"]["10B"]["bytes"] == 28_518_193_415
    assert entry["versions"]["10B"]["address"] == f"{EDU}/sample/10BT"
    assert entry["versions"]["350B"]["documents"] is None


def test_every_corpus_is_on_the_page():
    page = (Path(__file__).parent.parent / "docs" / "datasets.md").read_text()
    for name, corpus in corpora().items():
        (row,) = re.findall(rf"^\| `{name}`.*$", page, flags=re.MULTILINE)
        assert f"`{corpus.text_column}`" in row
        assert corpus.license is None or corpus.license in row
        assert len(corpus.version_names) == 1 or not corpus.default or f"**{corpus.default}**" in row


def test_every_corpus_and_version_that_the_docs_name_is_there():
    root = Path(__file__).parent.parent
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    named = {
        pair for page in pages for pair in re.findall(r"tokenmill \w+ ([\w-]+) --version ([\w.-]*\w)", page.read_text())
    }
    assert ("fineweb-edu", "10B") in named
    for name, version in named:
        assert corpus_source(name, version)
