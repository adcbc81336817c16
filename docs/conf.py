"""The site: Sphinx with MyST over the Markdown of this folder, in the Furo theme. Nothing is loaded from elsewhere.

The pages are plain Markdown that reads well where it lies, so the navigation stands here and not in them.
"""

from pathlib import Path
from typing import Any

from tokenmill import __version__

HERE = Path(__file__).parent
# Pages that are not there yet are left out; one that is there and not named here fails the build.
NAVIGATION = {
    "Start": ["start", "from-the-hub-to-the-first-step"],
    "Guides": [
        "nanogpt",
        "llmc",
        "megatron",
        "nanotron",
        "huggingface-datasets",
        "remote",
        "clusters",
        "your-own-format",
        "your-own-tokenizer",
        "python",
        "scripts",
        "my-prepare-dies",
    ],
    "Concepts": [
        "how-it-works",
        "exactness",
        "delimiters",
        "determinism",
        "reliability",
        "manifest",
        "performance",
        "scale",
    ],
    "Commands": [
        "prepare",
        "plan",
        "status",
        "verify",
        "inspect",
        "stats",
        "report",
        "view",
        "convert",
        "merge",
        "push",
        "download",
        "datasets",
        "formats",
        "tokenizers",
        "doctor",
        "completion",
    ],
    "Reference": [
        "reference/commands",
        "reference/recipe",
        "reference/manifest",
        "reference/formats",
        "reference/errors",
        "reference/python",
    ],
}

project = "tokenmill"
version = release = __version__
html_title = f"tokenmill {version}"
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
highlight_language = "none"
exclude_patterns = ["conf.py"]


def add_navigation(app: Any, name: str, source: list[str]) -> None:
    """Put the tree of pages behind the text of the first page."""
    if name == "index":
        for caption, pages in NAVIGATION.items():
            there = [page for page in pages if (HERE / f"{page}.md").exists()]
            lines = ["", "", "```{toctree}", ":hidden:", f":caption: {caption}", "", *there, "```"]
            source[0] += "\n".join(lines)


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
