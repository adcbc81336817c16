"""axe finds no serious fault."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from test_report import LOOKS, bare_report, odd_report  # noqa: F401 - fixtures


def faults(page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}): {node['html'][:200]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:3]
    ]


@pytest.mark.parametrize(("kind", "look"), [*(("odd", look) for look in LOOKS), ("bare", "light")])
def test_the_report_has_no_serious_fault(open_page, request, kind, look):
    page = open_page(request.getfixturevalue(f"{kind}_report"), **LOOKS[look])
    for closed in page.locator("details").all():
        closed.evaluate("details => details.open = true")
    assert faults(page) == []


@pytest.mark.parametrize("look", LOOKS)
def test_the_viewer_has_no_serious_fault(open_page, odd_view, look):
    page = open_page(odd_view + "#number=6", **LOOKS[look])
    page.evaluate("document.getElementById('tools').open = true")
    page.locator("#search-text").fill("the")
    page.locator("#search-form button").click()
    page.locator("#lengths-start").click()
    expect(page.locator("#lengths-status")).to_contain_text("52 documents")
    page.get_by_role("button", name="the longest").click()
    expect(page.locator("#hits button")).to_have_count(20)
    assert faults(page) == []
    page.locator("#compare-with").select_option("o200k_base")
    expect(page.locator("#comparison h3").first).to_be_visible()
    assert faults(page) == []


def test_the_viewer_says_what_is_wrong_without_a_fault(open_page, odd_view):
    page = open_page(odd_view + "#number=99999")
    expect(page.locator("#message")).to_be_visible()
    assert faults(page) == []
