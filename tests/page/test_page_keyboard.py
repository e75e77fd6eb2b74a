"""The keyboard alone does everything: choose, run, replay, inspect, configure, share, learn."""

from __future__ import annotations

import re

import pytest
from tools import state, view_of

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
pytestmark = pytest.mark.browser


def tab_to(page, selector: str, most: int = 70):
    """Press Tab until what the selector names has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"Tab does not come to {selector} within {most} presses")


def test_a_race_by_keyboard(served, open_page):
    page = open_page(served, reduced_motion="reduce")
    view = view_of(page)
    page.wait_for_function("document.querySelector('#status').textContent.trim()")
    keys = page.keyboard
    tab_to(page, "#method input")
    keys.press("ArrowUp")
    keys.press("Enter")
    expect(page.locator("#method input")).not_to_have_value("best: Method best")
    tab_to(page, "#settings > button")
    expect(page.locator("ul[role=listbox]")).to_have_count(0)
    keys.press("Enter")
    tab_to(page, "#seed input")
    keys.press("Control+a")
    keys.type("7")
    keys.press("Escape")
    expect(page.locator("#settings > button")).to_be_focused()
    expect(page.locator("#seed")).to_be_hidden()
    page.locator("#prompt textarea").focus()
    keys.press("Control+a")
    keys.type("Typed alone")
    keys.press("Control+Enter")
    expect(view.locator(".sd-prompt")).to_have_text("Typed alone")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    assert state(page, "view.trace.start.sampling.seed") == 7
    assert state(page, "view.trace.start.method") != "best"
    tab_to(page, ".sd-lane-spec .sd-tok")
    keys.press("End")
    expect(view.locator(".sd-tip")).to_be_visible()
    keys.press("Enter")
    last = state(page, "view.trace.rounds.length")
    expect(view.locator(".sd-block h3")).to_have_text(f"Round {last} of {last}")
    tab_to(page, ".sd-speed select")
    keys.press("p")  # the list's own key
    expect(page.locator("body")).not_to_have_class(re.compile("sd-presenting"))
    keys.press("Shift+Tab")
    keys.press("p")
    expect(page.locator("body")).to_have_class(re.compile("sd-presenting"))
    keys.press("PageUp")
    expect(view.locator(".sd-block h3")).to_have_text(f"Round {last - 1} of {last}")
    keys.press("Tab")  # the list again, where Escape still ends presenting
    keys.press("Escape")
    expect(page.locator("body")).not_to_have_class(re.compile("sd-presenting"))


def test_the_lesson_by_keyboard(served, open_page):
    page = open_page(served, reduced_motion="reduce")
    view_of(page)
    page.wait_for_function("document.querySelector('#status').textContent.trim()")
    keys = page.keyboard
    tab_to(page, "#tabs [role=tab][aria-selected=false]")
    keys.press("Enter")
    card = page.locator("#lesson-view .sd-lesson")
    expect(card).to_be_visible()
    tab_to(page, "#lesson-view .sd-choices .sd-btn")
    keys.press("Space")
    expect(card.locator(".sd-answer").first).not_to_be_empty()
    tab_to(page, "#lesson-view .sd-next")
    keys.press("Enter")
    expect(card.locator("h2")).to_be_focused()
    expect(card).to_contain_text("step 2 of")
