"""An exported page in a real browser, so the renderer alone: replay, keyboard, loading, hostile
text, words and figures.
"""

from __future__ import annotations

import json
import re

import pytest
from corrupt_traces import damaged
from fake_race import HOSTILE, NAMES, fake_events
from tools import open_every_view, page_state

from specdemo.traces import dump_trace

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
VIEWS = ("Denoising", "Lattice", "Tree")


def test_exported_page_replays_offline(exported):
    page = exported(list(fake_events(tokens=30)))
    assert page_state(page, "view.player.playing"), "it begins by itself"
    assert 8 < page_state(page, "view.trace.end / view.player.rate") < 18, "in about twelve seconds"
    page.get_by_label("Replay speed").select_option("4")
    expect(page.locator(".sd-lane-spec .sd-count")).to_have_text("30")
    expect(page.locator(".sd-verdict-word")).to_have_text("identical")
    assert page.locator(".sd-chart").count() >= 5


@pytest.mark.parametrize("method", NAMES)
def test_every_method_shows_its_round(exported, method):
    events = list(fake_events(method=method, tokens=24))
    page = exported(events, reduced_motion="reduce")
    views = open_every_view(page)
    rounds = [e.round for e in events if e.kind == "verify"]
    assert not views["empty"] and rounds
    assert views["shown"] == [[r, tab] for r in rounds for tab in VIEWS]
    if method in ("d2sd", "best"):
        page_state(page, "view.openRound(0)")
        assert (
            page.locator(".sd-bound-chosen").count() == 1
            and page.locator(".sd-box-rejected").count() >= 1
        )
    if method in ("tree", "block"):
        page_state(page, "view.openRound(0)")
        page.get_by_role("tab", name="Denoising").click()
        expect(page.locator(".sd-denoise tbody th").nth(1)).to_have_text("Markov head")
        assert page.locator(".sd-denoise tbody tr").nth(1).locator(".sd-fresh").count() == 2, (
            "what the head changed is marked"
        )
        page_state(page, "view.player.go(1)")
        expect(page.locator(".sd-say")).to_contain_text("Markov head conditions each token")
    if method == "diffuspec":
        page.get_by_role("tab", name="Lattice").click()
        assert page.locator(".sd-way-chosen").count() == 1
        assert page.locator("[data-part=chart-length]").count() == 1


def test_hostile_text_stays_text(exported):
    events = list(
        fake_events(
            prompt="<img src=x onerror='window.pwned=4'> ${1+1} {{2+2}} `x`",
            tokens=40,
            words=HOSTILE,
        )
    )
    page = exported(events, reduced_motion="reduce")
    assert len(open_every_view(page)["shown"]) == 3 * sum(e.kind == "verify" for e in events)
    page_state(page, "view.player.finish()")
    text = page.locator(".sd-lane-spec .sd-text").inner_text()
    assert (
        "<script>" in text
        and "${window.pwned=2}" in text
        and "{{window.pwned}}" in text
        and "🙂" in text
    )
    assert "\u202e" not in text, "a character that turns the text around must not reach the page"
    assert "${1+1} {{2+2}} `x`" in page.locator(".sd-prompt").inner_text()
    assert (
        page.evaluate("window.pwned") is None
        and page.locator("#race img, #race script").count() == 0
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), (
        "a long word must not widen the page"
    )


def test_keyboard_alone_moves_the_race(exported):
    page = exported(list(fake_events(tokens=30)), reduced_motion="reduce")
    page.locator(".sd-scrub").focus()
    page.keyboard.press("Home")
    assert page_state(page, "[view.player.at, view.lanes.spec.shown]") == [-1, 1]
    page.keyboard.press("ArrowRight")
    assert page_state(page, "view.state.stage") == "denoise"
    page.keyboard.press("PageDown")
    assert page_state(page, "[view.state.stage, view.state.rounds]") == ["verify", 1]
    page.keyboard.press("PageDown")
    page.keyboard.press("PageUp")
    assert page_state(page, "view.state.rounds") == 1
    page.keyboard.press("End")
    assert page_state(page, "[view.lanes.ar.shown, view.lanes.spec.shown]") == [30, 30]
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    assert page_state(page, "view.player.playing") is True
    page.keyboard.press(" ")
    assert page_state(page, "view.player.playing") is False


def test_tokens_are_reached_and_spoken_by_keyboard(exported):
    page = exported(list(fake_events(tokens=30)), reduced_motion="reduce")
    first = page.locator(".sd-lane-spec .sd-tok[tabindex='0']")
    expect(first).to_have_count(1)
    first.focus()
    page.keyboard.press("ArrowRight")
    focused = page.locator(".sd-lane-spec .sd-tok:focus")
    expect(focused).to_have_attribute(
        "aria-label", re.compile(r"baker, accepted, position 1, round 1")
    )
    tip = page.locator(".sd-tip")
    expect(tip).to_be_visible()
    for words in ("p = 90 %", "q = 60 %", "rank 1 among", "step 1", "position 1"):
        expect(tip).to_contain_text(words)
    page.keyboard.press("Enter")
    assert page_state(page, "view.state.round.index") == 0
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_scrubbing_shows_exactly_what_had_happened(exported):
    events = [e.to_dict() for e in fake_events(tokens=40)]
    page = exported(events, reduced_motion="reduce")
    end = page_state(page, "view.trace.end")
    for share in (0.9, 0.1, 0.5, 0.0, 1.0, 0.33):
        t = end * share
        page_state(page, f"view.player.seek({t})")
        ar = 1 + sum(e["clock"] <= t for e in events if e["kind"] == "ar_token")
        spec = 1 + sum(len(e["kept"]) for e in events if e["kind"] == "verify" and e["clock"] <= t)
        assert page_state(page, "[view.lanes.ar.shown, view.lanes.spec.shown]") == [ar, spec]
        for lane, count in (("ar", ar), ("spec", spec)):
            assert (
                page.evaluate(
                    f"[...document.querySelectorAll('.sd-lane-{lane} [data-at]')].filter((n) =>"
                    " !n.hidden && !n.parentNode.hidden).length"
                )
                == count
            )


def test_the_strip_tells_nothing_of_rounds_to_come(exported):
    page = exported(list(fake_events(method="block", tokens=30)), reduced_motion="reduce")
    states = page.evaluate("""() => {
      const { specdemo: view } = document.getElementById("race");
      return [-1, ...view.trace.timeline.keys()].map((step) => {
        view.player.go(step);
        const bars = [...document.querySelectorAll(".sd-bar")];
        return [view.state.rounds, bars.map((bar) => [
          [...bar.children].some((i) => i.checkVisibility()),
          bar.title.includes("token"),
        ])];
      });
    }""")
    rounds = len(states[-1][1])
    assert rounds > 3 and {seen for seen, _ in states} == set(range(rounds + 1))
    for step, (seen, bars) in enumerate(states, -1):
        assert bars == [[k < seen, k < seen] for k in range(rounds)], step


def test_words_beside_the_speed_up(exported):
    """Live, the figure against the left lane and the one against the baseline differ by one
    factor, as both speak of the same tokens.
    """
    page = exported(
        [e for e in fake_events(tokens=40, one_row_ms=14.0) if e.kind != "done"],
        reduced_motion="reduce",
    )
    for share in (0.3, 0.5, 0.9):
        page_state(page, f"view.player.seek(view.trace.end * {share})")
        times, note = (
            page.locator(".sd-times").inner_text(),
            page.locator(".sd-times-note").inner_text(),
        )
        assert float(note.split("×")[0]) == pytest.approx(float(times[:-1]) * 21 / 14, abs=0.02)
    for events, said in (
        (
            fake_events(method="ar", tokens=20),
            "plain decoding against itself: any difference is timing noise",
        ),
        (fake_events(tokens=7), "too short for a speed-up"),
        (fake_events(tokens=1), "too short for a speed-up"),
    ):
        page = exported(list(events), reduced_motion="reduce")
        page_state(page, "view.player.finish()")
        expect(page.locator(".sd-score-cell").first).to_contain_text(said)
        assert not page_state(page, "view.score.times.classList.contains('sd-slower')")
    expect(page.locator("[data-part=verdict]")).to_contain_text("one token")
    even = list(fake_events(tokens=20))
    even[-1].result["speedup"] = 0.996
    page = exported(even, reduced_motion="reduce")
    page_state(page, "view.player.finish()")
    expect(page.locator(".sd-score-cell").first).to_contain_text("1.00×the speed of plain decoding")
    expect(page.locator(".sd-score-cell").first).not_to_contain_text("slower")


def test_a_difference_is_named_and_marked(exported):
    page = exported(list(fake_events(tokens=30, differs=12)), reduced_motion="reduce")
    expect(page.locator(".sd-verdict-word")).to_have_text("differs at 12")
    expect(page.locator("[data-part=verdict]")).to_contain_text("0.0123")
    expect(page.locator(".sd-differs")).to_have_count(2)


def test_other_rules_do_not_promise_the_same_sample(exported):
    page = exported(list(fake_events(tokens=20, rule="ratio")), reduced_motion="reduce")
    expect(page.locator(".sd-verdict-word")).to_have_text("same distribution")


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "{",
        "[]",
        '{"format":"specdemo-trace","version":9,"events":[{"kind":"start"}]}',
        '{"format":"specdemo-trace","version":1,"events":[]}',
        '{"format":"specdemo-trace","version":1,"events":[{"kind":"start"},{"kind":"toString"}]}',
        '{"format":"specdemo-trace","version":1,"events":[{"kind":"done"}]}',
    ],
)
def test_junk_files_are_refused_in_a_sentence(exported, junk):
    page = exported(list(fake_events(tokens=12)), reduced_motion="reduce")
    page.locator("input[type=file]").set_input_files(
        {"name": "x.json", "mimeType": "application/json", "buffer": junk.encode()}
    )
    expect(page.locator(".sd-banner-error")).to_be_visible()
    assert page_state(page, "view.trace.ar.length") == 12, "the race on screen stays"


def test_a_trace_that_no_race_has_told_is_refused(exported):
    page = exported(list(fake_events(tokens=12)), reduced_motion="reduce")
    for name, events, words in damaged([e.to_dict() for e in fake_events(tokens=40)]):
        page.locator("input[type=file]").set_input_files(
            {
                "name": "x.json",
                "mimeType": "application/json",
                "buffer": dump_trace(events).encode(),
            }
        )
        expect(page.locator(".sd-banner-error"), name).to_contain_text(words)
        assert page_state(page, "view.trace.ar.length") == 12, name
        page_state(page, "view.say('', 'status')")


def test_a_trace_with_wrong_types_inside_does_not_break_the_page(exported):
    wild = [
        {"kind": "start", "prompt": 5, "params": [], "sampling": {}, "cost_ms": {"a": "b"}},
        {"kind": "denoise", "ids": 5, "top": [5]},
        {
            "kind": "draft",
            "tokens": "x",
            "parent": [0, 7],
            "notes": {"paths": [None, 5], "boundaries": ["x"], "length": 5},
        },
        {
            "kind": "verify",
            "kept": [{}, {"text": 5, "source": "constructor"}],
            "status": "x",
            "p": 5,
            "picks": {},
        },
        {"kind": "done", "result": {"speedup": "x", "first_difference": 5}},
    ]
    page = exported(wild, reduced_motion="reduce")
    for tab in VIEWS:
        page.get_by_role("tab", name=tab).click()
    expect(page.locator(".sd-lane-spec")).to_be_visible()


@pytest.mark.parametrize("cut", ["start", "prefill", "denoise", "draft", "verify"])
def test_a_race_cut_short_anywhere_can_be_looked_at(exported, cut):
    events = [e.to_dict() for e in fake_events(tokens=30)]
    at = [k for k, e in enumerate(events) if e["kind"] == cut][-1 if cut != "prefill" else 0]
    page = exported(
        [*events[: at + 1], {"kind": "done", "result": {}, "stopped": True}],
        reduced_motion="reduce",
    )
    page_state(page, "[-1, ...view.trace.timeline.keys()].forEach((step) => view.player.go(step))")
    for tab in VIEWS:
        page.get_by_role("tab", name=tab).click()
    page_state(page, "view.player.finish()")
    expect(page.locator(".sd-where")).not_to_be_empty()


def test_drafts_behind_the_end_are_not_called_kept(exported):
    events = [e.to_dict() for e in fake_events(tokens=30)]
    last = next(e for e in events if e["kind"] == "verify" and e["round"] == 0)
    behind = [i for i, word in enumerate(last["status"]) if word == "accepted"][1:]
    last["status"] = ["dropped" if i in behind else word for i, word in enumerate(last["status"])]
    last["kept"], last["cut"] = last["kept"][:1], len(last["kept"]) - 1
    events = [*events[: events.index(last) + 1], events[-1]]
    page = exported(events, reduced_motion="reduce")
    page_state(page, f"view.openRound({last['round']})")
    page.get_by_role("tab", name="Tree").click()
    assert (
        page.locator(".sd-box-dropped").count() == len(behind)
        and page.locator(".sd-box-accepted").count() == 1
    )
    expect(page.locator("[data-part=round] .sd-key").last).to_contain_text(
        "– dropped after the end"
    )
    label = page.locator("[data-part=chart-accept] svg").get_attribute("aria-label")
    assert label == "Acceptance by position: +1 100 %", (
        "what was never asked is not counted as refused"
    )


def test_counted_things_have_whole_numbers_on_their_axes(exported):
    page = exported(list(fake_events(tokens=3)), reduced_motion="reduce")
    for chart in ("chart-rounds", "chart-time"):
        labels = page.locator(f"[data-part={chart}] .sd-ty").all_text_contents()
        assert len(labels) > 1 and all(label.isdigit() for label in labels), labels
    rounds = [
        t
        for t in page.locator("[data-part=chart-rounds] .sd-tx").all_text_contents()
        if t[0].isdigit()
    ]
    assert rounds and all(label.isdigit() for label in rounds), rounds


def test_a_missed_window_is_fetched_again(exported):
    events = [e.to_dict() for e in fake_events(tokens=30)]
    page = exported(events[:1], reduced_motion="reduce")
    text = json.dumps(events)
    kinds = page.evaluate(f"""async () => {{
      const view = document.getElementById('race').specdemo, all = {text};
      const pause = (ms) => new Promise((done) => setTimeout(done, ms));
      const run = {{ id: 'x', live: true }};
      const receive = (offset, to) => view.receive({{
        type: 'events', run, offset, events: JSON.stringify(all.slice(offset, to)),
      }});
      const until = async (count) => {{ while (view.trace.events.length < count) await pause(5); }};
      let asked = 0;
      const missing_events = async (ask) => {{
        asked += 1;
        await pause(20);
        return all.slice(ask.from, 60);
      }};
      view.options = {{ server: {{ missing_events }} }};
      receive(0, 10);
      receive(20, 30);
      receive(30, 40);
      await until(40);
      receive(50, 60);
      await until(60);
      receive(60);
      return [view.trace.events.map((e) => e.kind), asked];
    }}""")
    assert kinds[0] == [e["kind"] for e in events] and kinds[1] <= 3


def test_a_long_prompt_says_how_far_it_is_read(exported):
    """Until the first lane begins; the words then go."""
    start, *rest = [e.to_dict() for e in fake_events(tokens=12)]
    page = exported([start], reduced_motion="reduce")
    read = [{"kind": "prefill_progress", "read": n, "total": 600} for n in (256, 512)]
    run, banner = {"id": "long", "live": True}, page.locator(".sd-banner")
    for offset, event in enumerate([start, *read, rest[0]]):
        message = {"type": "events", "run": run, "offset": offset, "events": [event]}
        page_state(page, f"view.receive({json.dumps(message)})")
        if event == read[1]:
            expect(banner).to_have_text("Reading the prompt: 512 of 600 tokens.")
    expect(banner).to_be_hidden()
