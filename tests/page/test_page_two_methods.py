"""The left lane of the page is plain decoding, or any method."""

from __future__ import annotations

import re

import pytest
from tools import fill, press, state, view_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]
expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_a_method_in_the_left_lane_races_with_plain_decoding_beside(served, backend, open_page):
    page = open_page(f"{served}?method=tree&against=block&against_params=%7B%22gamma%22%3A3%7D")
    view = view_of(page)
    fill(page, "prompt", "Two methods")
    page.locator("#settings > button").click()
    expect(page.locator("#against-params textarea, #against-params input")).to_have_value("gamma=3")
    page.keyboard.press("Escape")
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    expect(view.locator(".sd-lane-ar h3")).to_have_text("Draft and verify: block")
    expect(view.locator(".sd-lane-spec h3")).to_have_text("Draft and verify: tree")
    assert backend.asked[-1].against == "block" and backend.asked[-1].against_params.gamma == 3
    texts = [view.locator(f".sd-lane-{lane} .sd-text").inner_text() for lane in ("ar", "spec")]
    assert texts[0] == texts[1] and texts[0].strip()
    expect(view.locator("[data-part=speedup]")).to_contain_text("the speed of the left lane")
    expect(view.locator(".sd-times-note")).to_have_text(
        re.compile(r"^Over plain decoding, a third lane of this race: \d\.\d\d× left, ")
    )
    expect(view.locator("[data-part=verdict]")).to_contain_text("of all three lanes")
    # a token of the left lane tells its own round; the strip stays the right lane's
    token = view.locator(".sd-lane-ar .sd-round [data-at]").first
    token.hover()
    expect(page.locator(".sd-tip")).to_contain_text("position 1")
    assert "against=block" in page.url
    assert state(page, "view.trace.against.rounds.length") > 0


def test_what_a_link_says_of_the_left_lane_and_cannot_be_is_told(served, open_page):
    page = open_page(f"{served}?against=nothing")
    expect(view_of(page).locator(".sd-banner")).to_contain_text("against")
    page = open_page(f"{served}?against=block&against_params=%7B%22gamma%22%3A99%7D")
    expect(view_of(page).locator(".sd-banner")).to_contain_text("gamma")
