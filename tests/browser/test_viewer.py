"""The viewer in a real browser."""

import re

import pytest
from conftest import ODD, SCRIPT
from playwright.sync_api import expect

NUMBER = {name: number for number, name in enumerate(ODD)}


def go_to(page, number):
    page.locator("#document-number").fill(str(number))
    page.locator("#jump-document button").click()
    expect(page.locator("#title")).to_contain_text(f"Document {number:,}")


def shown(page):
    """The text that is shown, without signs for what one cannot see."""
    return page.evaluate(
        """() => [...document.querySelectorAll("#text .line")].map((line) => {
            const copy = line.cloneNode(true);
            copy.querySelectorAll(".sign, .special").forEach((sign) => sign.remove());
            return copy.textContent;
        }).join("\\n")"""
    )


@pytest.mark.parametrize("name", ["english", "arabic", "hebrew", "chinese", "japanese", "emoji", "script", "eot"])
def test_a_document_is_shown_character_by_character(open_page, odd_view, picture, name):
    page = open_page(odd_view + f"#number={NUMBER[name]}")
    expect(page.locator("#text .token").first).to_be_visible()
    assert shown(page) == ODD[name]
    picture(page, f"view-{name}")


def test_a_document_full_of_script_shows_as_text_and_nothing_runs(open_page, odd_view):
    page = open_page(odd_view + f"#number={NUMBER['script']}")
    expect(page.locator("#text")).to_contain_text(SCRIPT)
    assert page.evaluate("window.taken") is None
    assert page.locator("#text script, #text img, #facts b").count() == 0


def test_inline_script_would_not_run_even_if_there_were_one(chromium, odd_view):
    page = chromium.new_page()
    page.goto(odd_view)
    page.evaluate("""() => { const s = document.createElement("script"); s.textContent = "window.taken = 1";
        document.body.append(s); const i = document.createElement("div");
        i.innerHTML = "<img src=x onerror='window.taken = 1'>"; document.body.append(i); }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.taken") is None
    page.close()


def test_control_characters_are_shown_by_signs_and_turn_nothing_around(open_page, odd_view, picture):
    page = open_page(odd_view + f"#number={NUMBER['controls']}")
    expect(page.locator("#text .token").first).to_be_visible()
    signs = page.locator("#text .sign.code").all_text_contents()
    assert signs == ["NUL", "BEL", "ESC", "DEL", "U+202E", "U+202C", "U+200B", "U+FEFF"]
    assert "\u202e" not in page.locator("#text").inner_text()
    picture(page, "view-controls")


def test_right_to_left_lines_begin_on_the_right(open_page, odd_view):
    page = open_page(odd_view + f"#number={NUMBER['arabic']}")
    lines = page.locator("#text .line")
    expect(lines.first).to_be_visible()
    assert lines.first.evaluate("line => getComputedStyle(line).direction") == "rtl"


def test_a_document_of_100000_tokens_opens_at_once_and_shows_more_when_asked(open_page, odd_view, picture):
    page = open_page(odd_view + f"#number={NUMBER['long']}")
    expect(page.locator("#facts")).to_contain_text(re.compile(r"10\d,\d{3} tokens"))
    expect(page.locator("#text .token").first).to_be_visible()
    n_first = page.locator("#text .token").count()
    assert n_first < 10_000
    page.locator("#more").scroll_into_view_if_needed()
    expect(page.locator("#more")).to_contain_text(re.compile(r"\((4|6|8),\d{3} of"))
    assert page.locator("#text .token").count() > n_first
    picture(page, "view-long")


def test_a_token_position_leads_into_the_middle_of_a_document(open_page, odd_view):
    page = open_page(odd_view)
    page.locator("#token-place").fill("50,000")
    page.locator("#jump-token button").click()
    expect(page.locator("#title")).to_contain_text(f"Document {NUMBER['long']}")
    expect(page.locator("#text .found")).to_have_attribute("data-place", "50000")
    expect(page.locator("#text .found")).to_be_in_viewport()
    first = int(page.locator("#text .token").first.get_attribute("data-place"))
    page.locator("#earlier").click()
    expect(page.locator("#text .token").first).to_have_attribute("data-place", str(first - 2000))


def test_a_source_file_and_row_lead_to_their_document(open_page, odd_view):
    page = open_page(odd_view)
    page.locator("#source-file").fill("odd <b>.parquet")
    page.locator("#source-row").fill("3")
    page.locator("#jump-source button").click()
    expect(page.locator("#title")).to_contain_text("Document 3 of")
    expect(page.locator("#facts")).to_contain_text("odd <b>.parquet, row 3")
    page.locator("#source-row").fill("99999")
    page.locator("#jump-source button").click()
    expect(page.locator("#message")).to_contain_text("no document came from row 99,999")


def test_search_finds_text_marks_it_and_says_how_far_it_came(open_page, odd_view, picture):
    page = open_page(odd_view)
    page.locator("#search-text").fill("猫である")
    page.keyboard.press("Enter")
    expect(page.locator("#hits button")).to_have_count(1)
    expect(page.locator("#search-status")).to_contain_text("Found 1 document; searched to the end")
    page.locator("#hits button").click()
    expect(page.locator("#title")).to_contain_text(f"Document {NUMBER['japanese']} of")
    expect(page.locator("#text .found").first).to_be_visible()
    assert "".join(page.locator("#text .found").all_text_contents()) == "猫である"
    picture(page, "view-search")
    page.locator("#search-text").fill("no such words anywhere")
    page.keyboard.press("Enter")
    expect(page.locator("#search-status")).to_contain_text("Found nothing up to the end")
    page.locator("#search-again").click()
    expect(page.locator("#search-again")).to_be_hidden()


def test_search_stops_at_some_hits_and_goes_on(open_page, odd_view):
    page = open_page(odd_view)
    page.locator("#search-text").fill("the")
    page.keyboard.press("Enter")
    expect(page.locator("#hits button")).to_have_count(20)
    page.locator("#search-more").click()
    expect(page.locator("#hits button")).to_have_count(40)
    page.locator("#search-more").click()
    expect(page.locator("#search-status")).to_contain_text("searched to the end")
    expect(page.locator("#search-more")).to_be_hidden()


def test_lengths_lead_to_the_longest_document(open_page, odd_view, picture):
    page = open_page(odd_view)
    page.locator("#lengths-start").click()
    expect(page.locator("#lengths-status")).to_contain_text("52 documents")
    page.get_by_role("button", name="the longest").click()
    page.locator("#listed button").first.click()
    expect(page.locator("#title")).to_contain_text(f"Document {NUMBER['long']} of")
    picture(page, "view-lengths")


def test_another_tokenizer_is_compared_side_by_side(open_page, odd_view, picture):
    page = open_page(odd_view + f"#number={NUMBER['japanese']}")
    page.locator("#compare-with").select_option("o200k_base")
    expect(page.locator("#comparison h3").nth(1)).to_contain_text("o200k_base: 32 tokens")
    expect(page.locator("#comparison p").first).to_contain_text("fewer tokens")
    assert page.locator("#comparison .differs").count() > 0
    picture(page, "view-compare")
    page.keyboard.press("Escape")
    page.locator("#next").click()
    expect(page.locator("#comparison h3").first).to_contain_text("gpt2")


def test_everything_is_done_by_keyboard_alone(open_page, odd_view, picture):
    page = open_page(odd_view)
    expect(page.locator("#title")).to_contain_text("Document 0 of")
    for number in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        expect(page.locator("#title")).to_contain_text(f"Document {number} of")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#title")).to_contain_text("Document 2 of")
    page.keyboard.press("g")
    page.keyboard.type("4")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_contain_text("Document 4 of")
    page.keyboard.press("/")
    expect(page.locator("#search-text")).to_be_focused()
    expect(page.locator("#text .token").first).to_be_visible()
    page.locator("#next").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator("#details")).to_contain_text("id 50256")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#details")).to_contain_text("2 tokens from")
    expect(page.locator("#details")).to_contain_text("bytes e5 90")
    expect(page.locator("#title")).to_contain_text("Document 4 of")
    picture(page, "view-keyboard")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title")).to_contain_text("Document 5 of")


def test_a_click_on_a_token_shows_it_and_leaves_the_arrow_keys_to_documents(open_page, odd_view):
    page = open_page(odd_view)
    page.locator("#text .token", has_text=" best").click()
    expect(page.locator("#details")).to_contain_text("id 1266, bytes 20 62 65 73 74")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title")).to_contain_text("Document 1 of")


def test_back_and_reload_lead_to_the_same_document(open_page, odd_view):
    page = open_page(odd_view)
    expect(page.locator("#title")).to_contain_text("Document 0 of")
    go_to(page, 5)
    go_to(page, 7)
    page.go_back()
    expect(page.locator("#title")).to_contain_text("Document 5 of")
    page.reload()
    expect(page.locator("#title")).to_contain_text("Document 5 of")


def test_end_of_text_is_marked_and_text_that_spells_it_is_not(open_page, odd_view):
    page = open_page(odd_view + f"#number={NUMBER['eot']}")
    expect(page.locator("#text .special")).to_have_count(1)
    expect(page.locator("#text .special")).to_have_text("<|endoftext|>")
    expect(page.locator("#text")).to_contain_text("spells <|endoftext|> and")


def test_a_number_that_is_not_there_is_refused_in_words(open_page, odd_view, picture):
    page = open_page(odd_view)
    page.locator("#document-number").fill("1000000")
    with page.expect_response(re.compile("api/document")):
        page.locator("#jump-document button").click()
    expect(page.locator("#message")).to_have_text("there is no document 1,000,000: the last is 51")


def test_shards_without_a_manifest_are_browsed_as_well(open_page, bare_view, picture):
    page = open_page(bare_view)
    expect(page.locator("#title")).to_contain_text("Document 0 of 52")
    expect(page.locator("#text .token").first).to_be_visible()
    assert shown(page) == ODD["english"]
    expect(page.locator("#jump-source")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title")).to_contain_text("Document 1 of 52")
    expect(page.locator("#text .token").first).to_be_visible()
    assert shown(page) == ODD["arabic"]
    picture(page, "view-bare")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("dark", {"dark": True}),
        ("narrow", {"width": 390, "height": 844}),
        ("narrow-dark", {"width": 390, "height": 844, "dark": True}),
    ],
)
def test_nothing_is_cut_off_at_any_width(open_page, odd_view, picture, name, options):
    page = open_page(odd_view + "#number=14", **options)
    expect(page.locator("#text .token").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    picture(page, f"view-{name}")
    if "width" in options:
        page.locator("#tools summary").click()
        page.locator("#lengths-start").click()
        expect(page.locator("#lengths-status")).to_contain_text("52 documents")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        picture(page, f"view-{name}-tools", full_page=True)
