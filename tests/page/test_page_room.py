"""For a room: the link as a QR code, the quiz, the theme that is kept, the printed handout."""

from __future__ import annotations

import re

import pytest
from fake_backend import FakeBackend
from playwright.sync_api import expect
from tools import serving, state, view_of

from specdemo.paths import ROOT
from specdemo.ui import lesson, qr

pytestmark = pytest.mark.slow

browser = pytest.mark.browser


@pytest.fixture(scope="module")
def shipped():
    with serving(FakeBackend(), ROOT / "assets") as (url, _):
        yield url


def test_a_code_is_made_of_links_alone():
    pytest.importorskip("segno")
    rows = qr.qr_rows("https://example.org/?prompt=Hi")
    assert rows and len({len(row) for row in rows}) == 1 and len(rows) == len(rows[0])
    # the three corners by which a camera finds it
    for corner in (rows[0][:7], rows[0][-7:], rows[-7][:7]):
        assert corner == "1111111"
    assert qr.qr_rows("javascript:alert(1)") is None
    assert qr.qr_rows("https://example.org/" + "x" * qr.LONGEST) is None


@browser
def test_the_share_link_is_drawn_as_a_code(shipped, open_page):
    pytest.importorskip("segno")
    page = open_page(shipped, reduced_motion="reduce")
    view_of(page)
    page.locator("#share").click()
    box = page.locator("#race-view [role=dialog]")
    expect(box).to_contain_text("Link to this race")
    # served on this computer alone: a code would lead nowhere
    expect(box).to_contain_text("--host 0.0.0.0")
    code = box.locator(".sd-qr")
    expect(code).to_have_count(0)
    link = "http://192.168.1.5:7860/?prompt=Hi"
    state(page, f"(view.saveBar.shareBox.link.value = '{link}')")
    state(page, f"view.saveBar.shareBox.drawCode('{link}') && 1")
    expect(code).to_be_visible()
    size = len(qr.qr_rows(link)) + 8
    assert code.get_attribute("viewBox") == f"0 0 {size} {size}"


@browser
def test_the_quiz_stops_each_round_before_its_verdict(shipped, open_page):
    page = open_page(f"{shipped}#recording-block", reduced_motion="reduce")
    view_of(page)
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) =>"
        " n.specdemo).specdemo.trace.start.method === 'block'"
    )
    page.locator("#race-view .sd-quiz-switch input").check()
    page.locator("#race-view .sd-play").click()
    quiz = page.locator("#race-view .sd-quiz")
    expect(quiz).to_be_visible()
    expect(quiz).to_contain_text("How many will the target accept?")
    asked = state(page, "view.player.quiz.open.index")
    shown = state(page, "view.trace.rounds[view.player.quiz.open.index].first")
    page.wait_for_function(
        f"document.querySelector('#race-view .sd-lane-spec .sd-count').textContent === '{shown}'"
    )
    accepted = state(page, f"view.trace.rounds[{asked}].accepted")
    quiz.get_by_role("button", name=str(accepted), exact=True).click()
    expect(quiz).to_contain_text("1 of 1 question right")
    expect(page.locator("#race-view .sd-lane-spec .sd-count")).not_to_have_text(str(shown))
    quiz.get_by_role("button", name="Go on").click()
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) =>"
        f" n.specdemo).specdemo.player.quiz.open?.index > {asked}"
    )


@browser
def test_the_theme_is_kept_for_the_next_visit(shipped, open_page):
    page = open_page(shipped, reduced_motion="reduce")
    view_of(page)
    page.locator("#theme").click()
    expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
    again = page.context.new_page()  # a reload would cut off what still loads, which is an error
    again.goto(shipped)
    view_of(again)
    expect(again.locator("body")).to_have_class(re.compile(r"\bdark\b"))
    again.locator("#theme").click()
    expect(again.locator("body")).not_to_have_class(re.compile(r"\bdark\b"))
    again.close()


@browser
def test_the_teachers_notes_print_on_two_pages(shipped, open_page):
    page = open_page(f"{shipped}#lesson-one-token", reduced_motion="reduce")
    view_of(page, "lesson-view")
    handout = page.locator(".sd-handout")
    expect(handout).to_be_hidden()
    # answers and figures of the recordings, once they have come
    for step, said in (
        ("one-token", "It takes "),
        ("masks", "a pass of the target takes"),
        ("guess", "How many will the target accept?"),
        ("steps", "the speed of plain decoding"),
        ("when", "Break-even lies at"),
    ):
        address = f"{shipped.rstrip('/')}/#lesson-{step}"
        notes = handout.locator("section").filter(has_text=re.compile(re.escape(address)))
        expect(notes).to_contain_text(said)
    for step in lesson.STEPS:
        if "options" in step.get("ask", {}):
            right = step["ask"]["options"][step["ask"]["answer"]]
            expect(handout).to_contain_text(f"{right['text']}. {right['why']}")
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) == 2
    page.emulate_media(media="print")
    expect(page.locator(".sd-handout")).to_be_visible()
    expect(page.locator("#lesson-view .sd-lesson")).to_be_hidden()


@browser
def test_the_keys_are_listed(shipped, open_page):
    page = open_page(shipped, reduced_motion="reduce")
    keys = view_of(page).locator(".sd-keys")
    keys.get_by_text("Keys").click()
    expect(keys).to_contain_text("one round back or on")


@browser
def test_the_round_on_screen_is_saved_as_a_picture(shipped, open_page, tmp_path):
    page = open_page(f"{shipped}#recording-lookup", reduced_motion="reduce")
    view_of(page)
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) =>"
        " n.specdemo).specdemo.trace.start.method === 'lookup'"
    )
    with page.expect_download() as download:
        page.locator("#race-view .sd-pictures").get_by_text("SVG", exact=True).click()
    assert download.value.suggested_filename == "specdemo-lookup.svg"
    download.value.save_as(tmp_path / "round.svg")
    text = (tmp_path / "round.svg").read_text(encoding="utf-8")
    shown = state(page, "view.state.opened.index + 1")
    assert f"Round {shown} of" in text
