"""What the page says, keeps and saves when a race is over."""

from __future__ import annotations

import re

import pytest
from fake_race import fake_events
from tools import fill, page_state, press, state, view_of

from specdemo.traces import dump_trace
from specdemo.ui.export import export_html

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def timed(left: float, right: float, context: int = 8, tokens: int = 60) -> list[dict]:
    """The events of a race whose lanes took this times as long as the costs measured at load
    predict.
    """
    events = [e.to_dict() for e in fake_events(prompt=f"{left}, {right}", tokens=tokens)]
    cost, clock = 20.0, 0.0
    events[0] |= {
        "cost_ms": {str(w): cost for w in (1, 8, 64)},
        "ar_width": 1,
        "one_row_ms": cost,
        "baseline_ms": cost,
        "prompt_ids": [1] * context,
    }
    for e in events:
        if e["kind"] == "ar_token":
            e["clock"] = e["position"] * left * cost / 1000
        if e["kind"] == "verify":
            clock += right * cost / 1000
            e |= {"draft_seconds": 0.0, "predicted_ms": cost, "clock": clock}
    events[-1]["result"]["speedup"] = None
    return events


@pytest.mark.parametrize(
    ("left", "right", "context", "note"),
    [
        (1.0, 1.05, 8, "^$"),
        (1.0, 3.0, 8, r"^The machine was busy: rounds took 3\.00×, the left lane 1\.00× what the"),
        (3.0, 1.0, 8, r"^The machine was busy: rounds took 1\.00×, the left lane 3\.00× what the"),
        (2.0, 2.0, 8, "^The machine was busy"),
        (0.5, 0.5, 8, "^The machine was busy when the model was loaded"),
        (1.7, 1.8, 2000, "^Passes over a long text take longer: rounds took 1.80×"),
        (1.0, 3.0, 2000, "^The machine was busy"),
    ],
)
def test_a_speed_up_of_a_busy_machine_is_not_believed(exported, left, right, context, note):
    """What the lanes should have taken is known; a text that is long slows both alike."""
    page = exported(timed(left, right, context), reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    expect(page.locator(".sd-times-note")).to_have_text(re.compile(note))
    unreliable = "busy" in note
    figure = page.locator(".sd-times")
    assert ("sd-unreliable" in figure.get_attribute("class")) == unreliable
    word = page.locator("[data-part=speedup] .sd-unit").first
    expect(word).to_have_text(re.compile("^unreliable: " if unreliable else "^the speed of plain"))
    if unreliable:
        expect(page.locator(".sd-times-note")).to_have_text(re.compile(r"Predicted: \d\.\d\d×\.$"))
    colours = page_state(
        page,
        "[...document.querySelectorAll('[data-part=speedup] > *')].slice(0, 2)"
        ".map((n) => getComputedStyle(n).color)",
    )
    assert (colours[0] == colours[1]) == unreliable, "muted as the words beside it"
    if note == "^$":
        return
    chart = page.locator("[data-part=chart-speedup] .sd-note")
    page_state(page, "view.openRound(4)")
    expect(chart).to_contain_text(f"Measured {figure.inner_text()} for the same")


def test_the_badge_says_what_is_on_screen(served, open_page):
    page = open_page(served)
    view = view_of(page)
    badge = view.locator(".sd-badge")
    fill(page, "prompt", "Its badge")
    press(page, "Run")
    expect(badge).to_have_text("finished")
    expect(badge).to_have_class(re.compile("sd-badge-live"))
    press(page, "Step")
    expect(badge).to_have_text("paused")
    expect(badge).not_to_have_class(re.compile("sd-badge-live"))
    view.get_by_role("button", name="Play", exact=True).click()
    expect(badge).to_have_text("replay")
    page.keyboard.press("End")
    expect(badge).to_have_text("finished")


def test_nothing_of_the_race_before_is_read_aloud(exported):
    page = exported(fake_events(tokens=24))
    page_state(page, "view.openRound(2)")
    spoken = page.locator(".sd-sr[aria-live]")
    expect(spoken).to_have_text(re.compile("^Round 3: "))
    page_state(
        page, "view.receive({type: 'status', text: 'Loading', run: {id: 'next', live: true}})"
    )
    expect(spoken).to_be_empty()


def test_a_race_stopped_before_its_first_round_is_not_called_identical(exported):
    events = [e.to_dict() for e in fake_events(tokens=12) if e.kind in ("start", "prefill")]
    events.append({"kind": "done", "result": {}, "stopped": True})
    page = exported(events)
    page_state(page, "view.player.finish()")
    expect(page.locator(".sd-verdict-word")).to_have_text("–")
    expect(page.locator("[data-part=verdict] .sd-unit")).to_contain_text("stopped before there was")
    expect(page.locator(".sd-verdict-same")).to_have_count(0)


def test_a_race_too_large_for_one_page_is_shortened_there(served, open_page, tmp_path):
    page = open_page(served)
    view = view_of(page)
    events = [e.to_dict() for e in fake_events(prompt="A large one", tokens=60)]
    (last,) = [e for e in events if e["kind"] == "draft" and e["round"] == 6]
    last["notes"] = {"padding": "x" * 21_000_000}  # as thousands of denoising steps have
    state(page, f"(window.large = {dump_trace(events)}.events) && 1")
    state(page, "view.load(window.large) || 1")
    expect(view.locator(".sd-prompt")).to_have_text("A large one")
    with page.expect_download() as saving:
        view.get_by_role("button", name="Download as web page").click()
    expect(view.locator(".sd-banner")).to_contain_text("for the first 6 rounds only")
    saving.value.save_as(tmp_path / "saved.html")
    saved = open_page((tmp_path / "saved.html").as_uri(), offline=True)
    expect(saved.locator(".sd-banner")).to_contain_text("is kept for the first 6 rounds only")
    assert page_state(saved, "view.trace.rounds.length") == len(
        [e for e in events if e["kind"] == "verify"]
    )


def test_a_page_of_a_whole_race_says_nothing():
    assert 'data-note=""' in export_html(fake_events(tokens=8))
