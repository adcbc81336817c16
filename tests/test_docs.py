"""What is there is documented."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from tokenmill.cli import cli
from tokenmill.shards import format_names
from tokenmill.tokenizers import tokenizer_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_has_a_page_and_the_readme_links_it(command):
    assert f"tokenmill {command}" in (DOCS / f"{command}.md").read_text()
    assert f"(docs/{command}.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_flag_is_on_its_page(command):
    page = (DOCS / f"{command}.md").read_text()
    flags = [flag for option in cli.commands[command].params for flag in option.opts if flag.startswith("-")]
    missing = [flag for flag in flags if flag not in page and flag not in ("--quiet", "--verbose", "--out")]
    assert not missing


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_no_page_of_a_command_names_a_flag_that_is_not_there(command):
    """Flags of `tokenmill COMMAND ...` lines, on every page."""
    there = {flag for option in cli.commands[command].params for flag in [*option.opts, *option.secondary_opts]}
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for line in re.findall(rf"tokenmill {command}\b([^\n`|&#]*)", page.read_text()):
            unknown = set(re.findall(r"(?<=[\s\[])--[a-z][a-z-]*", line)) - there
            assert not unknown, f"{page.name}: tokenmill {command}{line}"


def test_every_format_and_tokenizer_is_on_its_page():
    assert all(f"`{name}`" in (DOCS / "formats.md").read_text() for name in format_names())
    assert all(f"`{name}`" in (DOCS / "tokenizers.md").read_text() for name in tokenizer_names())


def test_every_public_name_is_in_the_reference():
    page = (DOCS / "reference" / "python.md").read_text()
    assert [name for name in tokenmill.__all__ if not name.startswith("__") and f"\n## {name}\n" not in page] == []


def test_the_reference_is_what_the_code_says():
    done = subprocess.run([sys.executable, ROOT / "tools" / "reference.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_in_the_readme_and_docs_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_page_is_in_the_navigation():
    named = {page for pages in runpy.run_path(str(DOCS / "conf.py"))["NAVIGATION"].values() for page in pages}
    assert {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - named == {"index"}


def test_the_batch_file_on_the_page_is_the_one_that_is_tested():
    assert f"```bash\n{(DOCS / 'tokenmill.sbatch').read_text()}```" in (DOCS / "clusters.md").read_text()
