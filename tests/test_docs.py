"""What is there is documented."""

import re
from pathlib import Path

import pytest

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


def test_every_format_and_tokenizer_is_on_its_page():
    assert all(f"`{name}`" in (DOCS / "formats.md").read_text() for name in format_names())
    assert all(f"`{name}`" in (DOCS / "tokenizers.md").read_text() for name in tokenizer_names())


def test_links_in_the_readme_and_docs_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"
