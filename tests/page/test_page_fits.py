"""Words stand whole where a projector, a laptop or a phone has little room for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import page_state

pytestmark = pytest.mark.browser
RECORDINGS = Path(__file__).parents[2] / "assets" / "traces"

CUT = """[...document.querySelectorAll('%s')].filter((n) =>
  n.checkVisibility() && n.scrollWidth > n.clientWidth).map((n) => n.textContent)"""


def test_cells_titles_and_the_panel_of_a_token_hold_their_words(exported):
    events = json.loads((RECORDINGS / "best.json").read_text("utf-8"))["events"]
    page = exported(events, width=1280, height=720, reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    for width, height in ((1280, 720), (1000, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for index in (2, 8):  # "not reached", and the most cells
            page_state(page, f"(view.openRound({index}), view.draw())")
            assert page.locator(".sd-slot").count() >= 7
            assert page.evaluate(CUT % ".sd-slot-word, .sd-slot-said, .sd-lane h3") == []
    assert page.locator(".sd-lane-spec h3").inner_text() == "best", "the method, on a phone"

    # the panel of a token: its word is whole, and its rank is told of the pass it is in
    page.set_viewport_size({"width": 1280, "height": 720})
    token = page.locator(".sd-lane-spec .sd-correction").nth(1)
    token.hover()
    tip = page.locator(".sd-tip")
    assert tip.locator(".sd-bars-kept").first.inner_text().split()[1] == "numbers"
    assert page.evaluate(CUT % ".sd-bars-kept span") == []
    assert "rank 1 among the drafter's candidates, before the Markov head" in tip.inner_text()


def test_the_block_and_the_player_tell_of_one_moment(exported):
    events = json.loads((RECORDINGS / "d2sd.json").read_text("utf-8"))["events"]
    page = exported(events, width=1280, height=720, reduced_motion="reduce")
    page_state(page, "view.openRound(3)")
    where, cells = page.locator(".sd-where"), page.locator(".sd-slot")
    page.wait_for_function("document.querySelector('.sd-slot')")
    assert where.inner_text().endswith("round 4 of " + where.inner_text().split()[-2] + " verified")
    assert where.evaluate("(n) => n.getClientRects().length && n.offsetHeight") < 30, "one line"
    # four second drafts stand whole under the main row
    pane = page.locator(".sd-block-scroll")
    assert pane.evaluate("(n) => n.scrollHeight - n.clientHeight") <= 0
    # while a replay moves, the strip alone tells the stage
    page_state(page, "(view.player.playing = true, view.draw(), view.player.playing = false)")
    assert "," not in where.inner_text()
    # before the first round nothing of another is left
    page_state(page, "(view.player.go(-1), view.draw())")
    assert where.inner_text().endswith("before the first round")
    assert cells.count() == 0 and page.locator(".sd-block h3").inner_text() == "The block"
