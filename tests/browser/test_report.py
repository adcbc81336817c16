"""The report in a real browser."""

import msgspec
import pytest
from conftest import SCRIPT
from playwright.sync_api import expect

from tokenmill.manifest import MANIFEST, load_manifest
from tokenmill.reading import open_any
from tokenmill.report.page import write_report

LOOKS = {
    "light": {},
    "dark": {"dark": True},
    "narrow": {"width": 390, "height": 844},
    "narrow-dark": {"width": 390, "height": 844, "dark": True},
}
MISHAPS = (
    (0.2, "worker 1 was killed (signal 9), likely for want of memory; its unit is tried again"),
    (0.4, "worker 2 died on the same document again; the document goes to quarantine"),
)


@pytest.fixture(scope="session")
def odd_report(odd_out, tmp_path_factory):
    """A report with everything in it, mishaps too."""
    manifest = load_manifest(odd_out)
    run = msgspec.structs.replace(manifest.run, mishaps=MISHAPS)
    data = (odd_out / MANIFEST).read_bytes()
    (odd_out / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, run=run)))
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(open_any(odd_out), path)
    (odd_out / MANIFEST).write_bytes(data)
    return path.as_uri()


@pytest.fixture(scope="session")
def bare_report(bare_out, tmp_path_factory):
    path = tmp_path_factory.mktemp("bare-report") / "report.html"
    write_report(open_any(bare_out), path)
    return path.as_uri()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", ["odd", "bare"])
def test_nothing_is_cut_off_in_any_light_at_any_width(open_page, request, picture, kind, look):
    page = open_page(request.getfixturevalue(f"{kind}_report"), **LOOKS[look])
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    for closed in page.locator("details").all():
        closed.evaluate("details => details.open = true")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    for closed in page.locator("details").all():
        closed.evaluate("details => details.open = false")
    picture(page, f"report-{kind}-{look}", full_page=True)


def test_labels_of_an_axis_do_not_touch_each_other(open_page, odd_report):
    for look in LOOKS.values():
        page = open_page(odd_report, **look)
        touching = page.evaluate(
            """() => [...document.querySelectorAll(".x")].filter((axis) => {
                const boxes = [...axis.children].map((label) => label.getBoundingClientRect())
                    .filter((box) => box.width);
                return boxes.some((box, i) => i && box.left < boxes[i - 1].right);
            }).map((axis) => axis.textContent)"""
        )
        assert touching == []


def test_what_the_corpus_says_shows_as_text_and_nothing_runs(open_page, odd_report):
    page = open_page(odd_report)
    assert page.evaluate("window.taken") is None
    assert page.locator("script, img, h1 b, section b").count() == 0
    expect(page.locator("body")).to_contain_text("odd <b>.parquet")
    assert SCRIPT not in page.content()


def test_it_is_read_by_keyboard_and_every_chart_says_itself_in_words(open_page, odd_report):
    page = open_page(odd_report)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="How long documents are")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#lengths")).to_be_in_viewport()
    page.locator("#lengths summary").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Documents by length")).to_be_visible()
    labels = [svg.get_attribute("aria-label") for svg in page.locator("svg[role=img]").all()]
    assert len(labels) >= 4
    assert all(len(label) > 30 for label in labels)


def test_mishaps_are_marked_in_the_chart(open_page, odd_report):
    page = open_page(odd_report)
    assert page.locator(".event").all_text_contents() == ["1", "2"]
    expect(page.get_by_role("table", name="Worker deaths, stalls and retries")).to_contain_text("goes to quarantine")


def test_it_prints(open_page, odd_report, tmp_path):
    page = open_page(odd_report)
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert len(page.pdf(path=tmp_path / "report.pdf")) > 20_000
