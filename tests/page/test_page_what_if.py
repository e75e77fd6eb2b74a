"""What if: a recorded race with another draft, cost or batch, beside what it came to."""

from __future__ import annotations

import re

import pytest
from fake_race import fake_events
from tools import page_state

from specdemo.paths import ROOT
from specdemo.traces import load_trace

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_sliders_replay_the_recorded_race(exported):
    page = exported(load_trace(ROOT / "assets" / "traces" / "block.json"), reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    panel = page.locator("[data-part=what-if]")
    panel.locator("summary").click()
    words, how = panel.locator(".sd-what-words"), panel.locator(".sd-note")
    expect(words).to_have_text(
        re.compile(r"^Predicted: (\d\.\d\d×) .* measured, \1 by the same costs\.$")
    )
    before = words.inner_text()
    gamma = panel.locator("[data-knob=gamma]")
    assert gamma.input_value() == gamma.get_attribute("max") == "7"
    gamma.focus()
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    assert gamma.input_value() == "1", "the keys are the slider's, not the player's"
    expect(how).to_contain_text("begin inside a recorded one")
    assert words.inner_text() != before
    panel.locator("[data-knob=size]").fill("20")
    expect(how).to_contain_text("grows a tree of 20 nodes from the recorded candidates")
    panel.locator("[data-knob=batch]").fill("8")
    expect(how).to_contain_text("The batch is a formula: 8 streams")
    panel.get_by_role("button", name="As it was").click()
    expect(words).to_have_text(before)


def test_what_a_race_cannot_be_asked_is_said(exported):
    page = exported(fake_events(method="ar", tokens=12), reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    panel = page.locator("[data-part=what-if]")
    panel.locator("summary").click()
    expect(panel.locator(".sd-what-words")).to_have_text("Nothing was drafted in this race so far.")
    expect(panel.locator(".sd-what-knobs")).to_be_hidden()


def test_either_lane_of_two_methods_is_asked(exported):
    left = {"method": "block", "params": {}, "weights": "made up"}
    page = exported(fake_events(method="tree", tokens=40, against=left), reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    panel = page.locator("[data-part=what-if]")
    panel.locator("summary").click()
    words, lane = panel.locator(".sd-what-words"), panel.get_by_label("lane")
    for side, speedup in (("left", "done.against.speedup"), ("right", "done.speedup")):
        lane.select_option(side)
        measured = page_state(page, f"view.trace.{speedup}")
        expect(words).to_contain_text(f"The race itself: {measured:.2f}× measured")
        expect(panel.locator("option:checked")).to_have_text(
            "left: block" if side == "left" else "right: tree"
        )
