"""What the browser tests share: Chromium, odd documents, a viewer that runs as users run it, screenshots."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect, sync_playwright

import tokenmill
from tokenmill.sources.catalog import CATALOG

expect.set_options(timeout=20_000)  # a loaded machine may take long to load a tokenizer
SCRIPT = '<script>document.title = "taken"; window.taken = true</script><img src=x onerror="window.taken = true">'
WORDS = "In the beginning there was the word, and after it came another one. "
ODD = {
    "english": "It was the best of times, it was the worst of times.\n\n\tIt was the age of wisdom; it was “odd”.",
    "arabic": "كان يا ما كان في قديم الزمان، وسالف العصر والأوان.\nسطر ثانٍ with English inside، وانتهى.",
    "hebrew": "בראשית ברא אלהים את השמים ואת הארץ.",
    "chinese": "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。",
    "japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "emoji": "Family 👨‍👩‍👧‍👦, flag 🇩🇪, thumb 👍🏽, heart ❤️ and a cat 🐈‍⬛.",
    "controls": "null \x00, bell \x07, escape \x1b[31m, delete \x7f, override \u202eterces\u202c, zero \u200bwidth,"
    " \ufeffmark.",
    "script": (SCRIPT + "\n") * 20 + "</pre></div>&lt;b&gt; <!-- -->",
    "eot": "A text that spells <|endoftext|> and goes on.",
    "empty line": "\n\n\n",
    "long": WORDS * 7_200,
    "one line": "a" * 3_000,
}


@pytest.fixture(scope="session")
def odd_out(tmp_path_factory) -> Path:
    """An output of odd documents, in the order of ODD, and then the sample."""
    folder = tmp_path_factory.mktemp("odd")
    texts = pq.read_table(CATALOG["sample"], columns=["text"]).column("text").to_pylist()
    pq.write_table(pa.table({"text": [*ODD.values(), *texts[:40]]}), folder / "odd <b>.parquet")
    tokenmill.prepare(folder / "odd <b>.parquet", out=folder / "out", format="llmc", shard_tokens=60_000, val="none")
    return folder / "out"


@pytest.fixture(scope="session")
def bare_out(odd_out, tmp_path_factory) -> Path:
    """The same shards without manifest and index."""
    folder = tmp_path_factory.mktemp("bare") / "shards"
    shutil.copytree(odd_out, folder, ignore=shutil.ignore_patterns("manifest.json", "index", "SHA256SUMS"))
    return folder


@contextmanager
def viewer(out, *options):
    """Run `tokenmill view` and give its address."""
    command = [sys.executable, "-m", "tokenmill", "view", str(out), "--no-browser", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def odd_view(odd_out):
    with viewer(odd_out) as url:
        yield url


@pytest.fixture(scope="session")
def bare_view(bare_out):
    with viewer(bare_out) as url:
        yield url


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """Give a function that opens a page; whatever the page complains of, or asks of others, fails the test."""
    complaints, contexts = [], []

    def opened(url, width=1280, height=860, dark=False, **options):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **options
        )
        contexts.append(context)
        page = context.new_page()
        own = url.split("/")[2]
        page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if leaves(request.url, own) else None)
        page.goto(url)
        if url.startswith("http"):  # of a viewer: it has to ask its server first
            expect(page.locator("#search-text")).to_be_enabled()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def is_complaint(message) -> bool:
    """A question that the server refuses in words is none."""
    return message.type in ("error", "warning") and "status of 400" not in message.text


def leaves(url: str, own: str) -> bool:
    return not url.startswith((f"http://{own}/", "file:", "data:", "blob:"))


@pytest.fixture(scope="session")
def picture():
    """Give a function that takes a screenshot into the folder named by SCREENSHOTS, if there is one."""
    folder = os.environ.get("SCREENSHOTS")

    def taken(page, name, full_page=False):
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=full_page)

    return taken
