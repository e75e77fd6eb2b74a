"""The round opened up, in an exported page: its strip, its views, and where it comes to rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_race import fake_events
from tools import page_state

expect = pytest.importorskip("playwright.sync_api").expect
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["tree", "best", "d2sd", "block"])
def test_denoising_and_lattice_show_what_the_round_kept(exported, name):
    """In the recordings, where the target often keeps another branch than the block's own chain."""
    recording = json.loads((ROOT / "assets" / "traces" / f"{name}.json").read_text("utf-8"))
    page = exported(recording["events"], reduced_motion="reduce")
    rounds = page.evaluate("""() => {
      const { specdemo: view } = document.getElementById("race");
      const open = (name) => document.querySelector(`[data-tab=${name}]`).click();
      const all = (selector) => [...document.querySelectorAll(`.sd-stage ${selector}`)];
      return view.trace.rounds.filter((round) => round.frames.length).map((round) => {
        view.openRound(round.index);
        open("denoise");
        const written = all("tbody").map((body) => body.querySelectorAll(".sd-w-accepted").length);
        const steps = all("tbody tr:first-child th").map((head) => head.textContent);
        open("lattice");
        const line = all(".sd-way-chosen").map((way) => way.getAttribute("points"));
        const isTree = round.draft.parent.some((node, i) => node !== i - 1);
        const columns = round.frames.at(-1).ids.length;
        return { accepted: round.accepted, written, steps, isTree, columns, line: line.join() };
      });
    }""")
    assert len(rounds) > 5 and any(round["isTree"] for round in rounds) == (name != "block")
    for round in rounds:
        assert set(round["written"]) == {round["accepted"]}
        if round["isTree"]:  # a chain's thick line is the path sent
            # copies may go deeper than the block has positions
            assert len(round["line"].split()) == min(round["accepted"], round["columns"])
        if name != "d2sd":  # whose second pass is a second step
            assert set(round["steps"]) == {"1/1"}


def test_bars_of_long_rounds_lie_inside_the_strip(exported):
    page = exported(list(fake_events(method="block", tokens=60, gamma=15)), reduced_motion="reduce")
    page.evaluate("""() => {
      const { specdemo: view } = document.getElementById("race");
      view.trace.rounds[0].accepted = 15;
      view.trace.rounds[0].count = 16;
      view.roundView.reset();
      view.draw();
    }""")
    page.locator(".sd-strip").scroll_into_view_if_needed()
    heights = page.evaluate("""() => [...document.querySelectorAll(".sd-bar")].map((bar) => {
      const parts = [...bar.children].map((part) => part.getBoundingClientRect());
      const place = bar.getBoundingClientRect();
      return [Math.min(...parts.map((part) => part.top)) - place.top, place.height];
    })""")
    assert heights[0][0] == pytest.approx(0, abs=0.5), "the longest round fills the strip"
    assert all(above > 5 for above, _ in heights[1:]), "shorter rounds are shorter"


def test_a_race_at_rest_shows_its_best_round(exported):
    page = exported(list(fake_events(method="best", tokens=40)), reduced_motion="reduce")
    last = page_state(page, "view.trace.rounds.length")
    for come_to_rest in (
        "null",
        "view.player.finish()",
        "(view.player.seek(0), view.player.play())",
    ):
        page_state(
            page, f"[view.player.setRate(4), view.player.autoSpeed = false, {come_to_rest}].length"
        )
        expect(page.locator(".sd-rounds h3")).to_contain_text("the best one")
        expect(page.locator(".sd-block-say")).to_contain_text("The best round: ")
        assert page_state(page, "view.roundView.round.draft.tokens.length") > 0
        assert page.locator(".sd-bar.sd-later").count() == 0, "all rounds have their bars"
    page_state(page, f"view.openRound({last - 1})")
    expect(page.locator(".sd-rounds h3")).to_have_text(f"Round {last} of {last}")


def test_the_speed_up_says_who_runs_on_borrowed_weights(exported):
    weights = "block weights (x), as there are none trained for mdlm yet"
    for made, borrowed, said in (
        (weights, True, "none are trained for this method yet."),
        ("block weights (x)", False, ""),
    ):
        events = list(fake_events(tokens=20, weights=made, borrowed=borrowed))
        page = exported(events, reduced_motion="reduce")
        expect(page.locator("[data-part=speedup]")).to_contain_text(said)
        assert bool(page.locator(".sd-weights-note").inner_text()) == bool(said)
        expect(page.locator(".sd-facts")).to_contain_text(made)  # in full


def test_the_end_of_a_race_says_what_its_note_says(exported):
    """For instance that the text is longer than what the drafter was trained on."""
    events = list(fake_events(tokens=20))
    events[-1].result["note"] = "The drafter reads only the last 432 tokens <b>."
    page = exported(events, reduced_motion="reduce")
    expect(page.locator(".sd-weights-note")).to_have_text(events[-1].result["note"])


def test_a_long_prompt_ends_in_an_ellipsis_and_opens(exported):
    prompt = "Tell me about the lighthouse and its keeper. " * 20
    page = exported(list(fake_events(prompt=prompt, tokens=20)), width=390, reduced_motion="reduce")
    shown = page.locator(".sd-prompt")
    expect(page.locator(".sd-method")).to_have_text("method: d2sd")
    lines = "(p) => p.clientHeight / parseFloat(getComputedStyle(p).lineHeight)"
    assert shown.evaluate(lines) == pytest.approx(1, abs=0.1), "one whole line only"
    shown.click()
    assert shown.evaluate(lines) > 6


def test_plain_decoding_has_no_words_about_drafts(exported):
    page = exported(list(fake_events(method="ar", tokens=20, weights="none")))
    page_state(page, "view.player.finish()")
    expect(page.locator(".sd-stage .sd-empty")).not_to_contain_text("Choose another round")
    expect(page.locator("[data-part=chart-time]")).not_to_contain_text("a jump is")
    expect(page.locator("[data-part=chart-rounds]")).to_have_count(1)
    expect(page.locator("[data-part=chart-accept]")).to_have_count(0)
    expect(page.locator(".sd-facts")).not_to_contain_text("none")
