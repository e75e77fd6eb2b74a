"""The tokens of a lane: those of one word stand together, and what the panel of a token says."""

from __future__ import annotations

import json

import pytest
from fake_race import fake_events
from tools import page_state

from specdemo.paths import ROOT

expect = pytest.importorskip("playwright.sync_api").expect


def test_tokens_of_one_word_stand_together(exported):
    """Whoever wrote a token: its colours and signs take no room between it and the next."""
    page = exported(list(fake_events(method="block", tokens=60)), reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    gaps = page.locator(".sd-lane-spec .sd-text").evaluate(
        """(lane) => {
          const texts = document.createTreeWalker(lane, NodeFilter.SHOW_TEXT);
          const gaps = [];
          let last = null;
          while (texts.nextNode()) {
            const range = document.createRange();
            range.selectNodeContents(texts.currentNode);
            const boxes = [...range.getClientRects()];
            if (last && boxes.length && Math.abs(boxes[0].bottom - last.bottom) < 4)
              gaps.push(boxes[0].left - last.right);
            last = boxes.at(-1) ?? last;
          }
          return gaps;
        }"""
    )
    assert len(gaps) > 40 and max(map(abs, gaps)) < 0.5, gaps


@pytest.mark.parametrize("height", [720, 240])
def test_the_panel_of_a_token_stays_inside_the_window(exported, height):
    """Beside its token; in a window lower than the panel it is as high as that, and scrolls."""
    page = exported(list(fake_events(method="block", tokens=60)), height=height)
    page_state(page, "view.player.finish()")
    page.evaluate("document.querySelector('.sd-lanes').scrollIntoView({block: 'end'})")
    places = page_state(
        page,
        "[...view.lanes.spec.nodes].map((node) => { view.tip.show(node,"
        " view.lanes.spec.describe(node)); const { top, bottom } ="
        " view.tip.box.getBoundingClientRect(); return [top, bottom]; })",
    )
    assert all(top >= 0 and bottom <= height for top, bottom in places), places
    tall = page_state(page, "view.tip.box.scrollHeight > view.tip.box.clientHeight")
    assert tall == (height == 240)


def test_a_token_shows_both_models_likeliest_tokens(exported):
    page = exported(list(fake_events(method="block", tokens=40)), reduced_motion="reduce")
    page.locator(".sd-lane-spec .sd-accepted[data-at]").first.hover()
    charts = page.locator(".sd-tip .sd-bars-chart")
    expect(charts).to_have_count(2)
    expect(charts.nth(0).locator(".sd-bars-row")).to_have_count(3)
    expect(charts.nth(1).locator(".sd-bars-row")).to_have_count(2)
    for k in (0, 1):  # the kept token has a mark of its own in both
        expect(charts.nth(k).locator(".sd-bars-kept span")).to_contain_text("✓")
    expect(page.locator(".sd-tip")).to_contain_text("the target's own choice is the same token")
    correction = page.locator(".sd-lane-spec .sd-correction[data-at]").first
    correction.focus()
    expect(page.locator(".sd-tip")).to_contain_text("in place of the draft's")


def test_recordings_without_the_targets_tokens_show_the_drafters(exported):
    events = json.loads((ROOT / "assets" / "traces" / "block.json").read_text("utf-8"))["events"]
    for event in events:
        if event["kind"] == "verify":
            event.pop("top")
    page = exported(events, width=1280, height=720, reduced_motion="reduce")
    page.locator(".sd-lane-spec .sd-accepted[data-at]").first.hover()
    expect(page.locator(".sd-tip .sd-bars-chart")).to_have_count(1)
