"""What visitors do that the page did not ask for: each is answered with a sentence, or simply
works, and nothing is lost.
"""

from __future__ import annotations

import json
import re

import pytest
from fake_backend import FakeBackend
from fake_race import fake_events
from tools import fill, press, serving, state, until, view_of

from specdemo.traces import dump_trace
from specdemo.ui.export import export_html

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
RUNS = "document.querySelector('#race-view .sd-badge').textContent == 'live'"


def slow_to_load() -> FakeBackend:
    """A backend that reads weights until its ``weights`` is set."""
    backend = FakeBackend()
    backend.weights.clear()
    return backend


@pytest.fixture(scope="module")
def held_page(assets):
    backend = FakeBackend()
    with serving(backend, assets) as (url, _):
        yield url, backend


@pytest.fixture
def held(held_page):
    """A page whose races wait for ``gate``: (url, backend)."""
    held_page[1].gate.clear()
    return held_page


@pytest.mark.parametrize("seed", ["-5", "1.5", "1000000000000"])
def test_a_seed_that_is_none_is_refused_in_words(served, open_page, seed):
    page = open_page(served)
    view = view_of(page)
    page.locator("#settings button").first.click()
    fill(page, "seed", seed)
    press(page, "Run")
    expect(view.locator(".sd-banner-error")).to_contain_text(
        "The seed must be a whole number from 0 to 2,147,483,647"
    )
    fill(page, "seed", "7")
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    expect(view.locator(".sd-banner-error")).to_have_count(0)


def test_a_temperature_that_the_command_line_takes_is_raced_with(served, open_page):
    """A slider puts what lies behind its end at its end, without a word."""
    page = open_page(served)
    page.locator("#settings button").first.click()
    fill(page, "temperature", "4.5")
    press(page, "Run")
    expect(view_of(page).locator(".sd-badge")).to_have_text("finished")
    assert "temperature=4.5" in page.url
    page.reload()
    page.locator("#settings button").first.click()
    expect(page.locator("#temperature input").first).to_have_value("4.5")


def test_a_trace_is_not_lost_in_a_running_race(held, open_page, tmp_path):
    url, backend = held
    page = open_page(url)
    view = view_of(page)
    fill(page, "prompt", "Please wait here")
    press(page, "Run")
    page.wait_for_function(RUNS)
    file = tmp_path / "other.json"
    file.write_text(dump_trace(list(fake_events(prompt="From a file", tokens=8))))
    view.locator("input[type=file]").set_input_files(file)
    expect(view.locator(".sd-banner")).to_contain_text("other.json is a valid trace, kept until")
    junk = tmp_path / "junk.json"
    junk.write_text("{")
    view.locator("input[type=file]").set_input_files(junk)
    expect(view.locator(".sd-banner-error")).to_contain_text("This file is not JSON")
    show = view.get_by_role("button", name="Show other.json")
    show.click()
    expect(view.locator(".sd-banner")).to_contain_text("press Stop or wait")
    expect(view.locator(".sd-prompt")).to_have_text("Please wait here")
    view.locator(".sd-halt").click()  # the player's own Stop
    until(lambda: backend.running == 0)
    expect(view.locator(".sd-halt")).to_be_hidden()
    show.click()
    expect(view.locator(".sd-prompt")).to_have_text("From a file")
    expect(show).to_be_hidden()


def test_the_last_words_of_a_replaced_run_do_not_bring_it_back(served, open_page):
    """A run's last windows travel for a while after Stop; what was loaded meanwhile stays."""
    page = open_page(served)
    view = view_of(page)
    old, new = (
        [e.to_dict() for e in fake_events(prompt=name, tokens=12)]
        for name in ("The old one", "From a file")
    )
    half = len(old) // 2
    send = lambda **message: state(page, f"view.receive({json.dumps(message)})")  # noqa: E731
    run = {"id": "old", "live": True}
    send(type="events", run=run, offset=0, events=old[:half])
    send(type="ended", total=0)
    file = {"id": "file", "live": False, "play": False}
    send(type="events", run=file, offset=0, events=new)
    for late in (
        {"type": "status", "text": "Loading the model …"},
        {"type": "events", "offset": half, "events": old[half:]},
        {"type": "ended", "total": len(old)},
    ):
        send(run=run, **late)
    expect(view.locator(".sd-prompt")).to_have_text("From a file")
    assert state(page, "[view.running, view.trace.events.length]") == [False, len(new)]


@pytest.mark.parametrize("prompt", ["   ", "refuse me", "break now"])
def test_a_refusal_takes_nothing_off_the_screen(served, open_page, prompt):
    page = open_page(served, reduced_motion="reduce")
    view = view_of(page)
    fill(page, "prompt", "This stays")
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    fill(page, "prompt", prompt)
    press(page, "Run")
    expect(view.locator(".sd-banner-error")).to_be_visible()
    expect(view.locator(".sd-prompt")).to_have_text("This stays")
    assert state(page, "[view.running, view.trace.done !== null, view.trace.ar.length]") == [
        False,
        True,
        96,
    ]


def test_a_race_that_breaks_off_keeps_what_it_wrote(held, open_page):
    url, backend = held
    page = open_page(url)
    view = view_of(page)
    fill(page, "prompt", "Please run out of memory")
    press(page, "Run")
    expect(view.locator(".sd-banner-error")).to_contain_text("ran out of memory")
    expect(view.locator(".sd-badge")).to_have_text("stopped")
    expect(view.locator(".sd-prompt")).to_have_text("Please run out of memory")
    assert state(page, "[view.running, view.trace.rounds.filter((r) => r.verify).length]") == [
        False,
        4,
    ]


def test_nothing_is_saved_before_there_is_something(open_page, serve, assets):
    backend = slow_to_load()
    page = open_page(serve(backend, assets)[0])
    view = view_of(page)
    fill(page, "prompt", "Not yet")
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("live")
    view.get_by_role("button", name="Download trace").click()
    expect(view.locator(".sd-banner")).to_contain_text("nothing to save yet")
    backend.weights.set()
    expect(view.locator(".sd-badge")).to_have_text("finished")


def test_a_recording_without_its_end_says_so(served, open_page, tmp_path):
    page = open_page(served)
    view = view_of(page)
    events = list(fake_events(prompt="Half of it", tokens=30))
    file = tmp_path / "half.json"
    file.write_text(dump_trace(events[: len(events) // 2]))
    view.locator("input[type=file]").set_input_files(file)
    expect(view.locator(".sd-prompt")).to_have_text("Half of it")
    expect(view.locator(".sd-banner")).to_contain_text("ends before its race did")


def test_a_refusal_is_seen_on_a_phone(served, open_page):
    page = open_page(served, 390, 844)
    view_of(page)
    page.evaluate("scrollTo(0, 0)")
    fill(page, "prompt", "  ")
    press(page, "Run")
    banner = page.locator("#race-view .sd-banner-error")
    expect(banner).to_contain_text("empty")
    expect(banner).to_be_in_viewport()
    player = page.locator("#race-view .sd-player").bounding_box()
    assert banner.bounding_box()["y"] + banner.bounding_box()["height"] <= player["y"]


def test_keys_work_with_nothing_focused(served, open_page):
    page = open_page(served, reduced_motion="reduce")
    view = view_of(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    expect(view.locator(".sd-where")).to_contain_text("before the first round")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(view.locator(".sd-where")).to_contain_text("round 1 of")
    assert page.evaluate("scrollY") == 0
    page.get_by_role("tab", name="Lesson").click()
    lesson = view_of(page, "lesson-view")
    expect(lesson.locator(".sd-prompt")).not_to_be_empty()  # its recording has come and plays
    where = view.locator(".sd-where").text_content()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Home")
    expect(lesson.locator(".sd-where")).to_contain_text("before the first round")
    assert view.locator(".sd-where").text_content() == where, (
        "a view that is not on screen keeps its place"
    )
    page.get_by_role("tab", name="Race").click()
    fill(page, "prompt", "Typed")
    page.locator("#prompt textarea").press("Home")
    page.keyboard.type("x ")
    expect(page.locator("#prompt textarea")).to_have_value("x Typed")


def test_a_full_line_says_how_many_are_before(held, open_page):
    url, backend = held
    first, second = open_page(url), open_page(url)
    for page, prompt in ((first, "Please wait here"), (second, "Next")):
        view_of(page)
        fill(page, "prompt", prompt)
        press(page, "Run")
        if page is first:
            page.wait_for_function(RUNS)
    expect(second.locator("#race-view .sd-banner")).to_contain_text("One race is ahead of yours")
    waiting = second.locator("#status")
    expect(waiting).to_have_attribute("data-waiting", re.compile("One race is ahead of yours"))
    tracker = second.locator("[data-testid=status-tracker]", has_text="queue:")  # Gradio's own
    assert tracker.evaluate_all("(all) => all.every((one) => getComputedStyle(one).opacity == 0)")
    backend.gate.set()
    expect(waiting).to_have_attribute("data-waiting", "")
    expect(second.locator("#race-view .sd-prompt")).to_have_text("Next")
    expect(second.locator("#race-view .sd-banner")).to_be_hidden()
    for page in (first, second):
        expect(page.locator("#race-view .sd-verdict-word")).to_have_text("identical")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (1366, 768), (390, 844)])
def test_a_running_race_is_on_screen(held, open_page, width, height):
    url, _ = held
    page = open_page(url, width, height)
    view = view_of(page)
    fill(page, "prompt", "Please wait here")
    press(page, "Run")
    page.wait_for_function(RUNS)
    # both lanes' heads and a few lines of text stand above the player
    page.wait_for_function("""() => {
      const [lane, player] = [".sd-lane-spec", ".sd-player"].map((name) =>
        document.querySelector(`#race-view ${name}`).getBoundingClientRect());
      return player.top - lane.top >= 170 && player.bottom <= innerHeight && scrollY === 0;
    }""")
    expect(view.locator(".sd-halt")).to_be_visible()
    press(page, "Stop")


def test_the_baseline_is_named_where_it_is_not_the_left_lane(served, open_page, tmp_path):
    page = open_page(served, reduced_motion="reduce")
    view = view_of(page)
    for one_row, note in (
        (
            14.0,
            "vs. left lane, which runs wider, padded passes so that its bits match verification",
        ),
        (20.9, ""),
    ):
        file = tmp_path / "t.json"
        file.write_text(
            dump_trace(list(fake_events(prompt=f"At {one_row}", tokens=24, one_row_ms=one_row)))
        )
        view.locator("input[type=file]").set_input_files(file)
        expect(view.locator(".sd-prompt")).to_have_text(f"At {one_row}")
        state(page, "view.player.finish()")
        expect(view.locator(".sd-times-note")).to_have_text(
            re.compile(f".*{re.escape(note)}.*" if note else "^$")
        )


def test_step_after_the_end_says_what_it_does(served, open_page):
    page = open_page(served)
    view = view_of(page)
    fill(page, "prompt", "To its end")
    press(page, "Run")
    page.wait_for_function(
        "document.querySelector('#race-view .sd-lane-spec .sd-count').textContent == 96"
    )
    press(page, "Step")
    expect(view.locator(".sd-where")).to_contain_text("round 1 of")
    expect(view.locator(".sd-banner")).to_contain_text("from its first round")


def test_figures_of_the_bench_are_seen_on_a_phone(served, open_page):
    page = open_page(served, 390, 844)
    view_of(page)
    page.get_by_role("tab", name="Bench").click()
    cell = page.locator("#bench-words td").first
    expect(cell).to_be_visible()
    box = cell.bounding_box()
    assert box["x"] + box["width"] <= 390
    scroll = page.locator("#bench-words .scroll").first
    scroll.evaluate("n => { n.scrollLeft = n.scrollWidth }")
    name = page.locator("#bench-words tbody th").first.bounding_box()
    assert name["x"] >= 0, "the method's name stays in sight"
    assert name["width"] < 160


def test_nothing_of_the_race_before_is_shown_as_live_while_a_model_loads(serve, assets, open_page):
    backend = slow_to_load()
    page = open_page(serve(backend, assets)[0])
    view = view_of(page)
    expect(view.locator(".sd-lane-spec .sd-count")).not_to_have_text("0")
    fill(page, "prompt", "A question of my own")
    page.locator("#method input").click()
    page.get_by_role("option", name="specdiff: Method specdiff", exact=True).click()
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("live")
    expect(view.locator(".sd-prompt")).to_have_text("A question of my own")
    assert state(page, "view.trace.events.length") == 0, "the model is still loading"
    assert (
        view.locator(".sd-times").inner_text() == "–"
        and view.locator(".sd-lane-spec .sd-count").inner_text() == "0"
    )
    assert (
        "specdiff" in view.locator(".sd-lane-spec h3").inner_text()
        and view.locator(".sd-verdict-word").inner_text() == "–"
    )
    backend.weights.set()
    expect(view.locator(".sd-badge")).to_have_text("finished")
    expect(view.locator(".sd-prompt")).to_have_text("A question of my own")


def test_a_race_stopped_while_its_model_loads_says_so_and_nothing_else(serve, assets, open_page):
    backend = slow_to_load()
    page = open_page(serve(backend, assets)[0])
    view = view_of(page)
    press(page, "Run")
    expect(view.locator(".sd-banner")).to_contain_text("Reading weights")
    press(page, "Stop")
    expect(view.locator(".sd-badge")).to_have_text("stopped")
    expect(view.locator(".sd-banner")).to_have_text(
        "Stopped before the race began; Run starts it again."
    )
    expect(view.locator(".sd-badge-live")).to_have_count(0)
    backend.weights.set()
    # its loading went on, and said so elsewhere
    expect(page.get_by_text("Model loaded.")).to_be_visible()
    expect(view.locator(".sd-banner")).to_have_text(
        "Stopped before the race began; Run starts it again."
    )
    assert state(page, "view.trace.events.length") == 0
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    expect(view.locator(".sd-banner")).to_be_hidden()


def test_a_race_stopped_before_its_first_round_says_so_when_stepped(open_page, tmp_path):
    events = [e for e in fake_events(tokens=12) if e.kind in ("start", "prefill")]
    path = tmp_path / "cut.html"
    path.write_text(export_html(events), encoding="utf-8")
    page = open_page(path.as_uri(), offline=True)
    # the exported page warns, too
    expect(page.locator(".sd-banner")).to_contain_text("ends before its race did")
    page.evaluate(
        "() => { const view = document.getElementById('race').specdemo; view.player.finish();"
        " view.receive({type: 'advance'}); }"
    )
    expect(page.locator(".sd-banner")).to_contain_text(
        "stopped before its first round; Run starts a new one"
    )
