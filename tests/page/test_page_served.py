"""The served page in a real browser: run, stop, step, saving and loading, links, lesson, bench, the
public endpoint.
"""

from __future__ import annotations

import json
import re

import pytest
from fake_backend import METHODS, FakeBackend
from fake_race import fake_events
from tools import fill, press, state, until, view_of

from specdemo.traces import dump_trace

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_recording_plays_then_run_stop_step(served, open_page, backend):
    page = open_page(served)
    view = view_of(page)
    expect(view.locator(".sd-badge")).to_have_text("recording")
    expect(page.locator("#status")).to_contain_text("Model loaded")
    fill(page, "prompt", "Go slowly and wait here")
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("live")
    page.wait_for_function(
        "document.querySelector('#race-view .sd-lane-spec .sd-count').textContent > 4"
    )
    press(page, "Stop")
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) => n.specdemo).specdemo.running"
        " === false"
    )
    written = int(view.locator(".sd-lane-spec .sd-count").inner_text())
    assert 4 < written < 96
    until(lambda: backend.running == 0)
    fill(page, "prompt", "And on")
    press(page, "Run")
    page.wait_for_function(
        "document.querySelector('#race-view .sd-lane-spec .sd-count').textContent == 96"
    )
    expect(view.locator(".sd-verdict-word")).to_have_text("identical")
    kinds = state(page, "view.trace.events.map((e) => e.kind)")
    assert kinds == [e.kind for e in fake_events(method="best", tokens=96)], (
        "no event lost, doubled or out of order"
    )
    press(page, "Step")
    expect(view.locator(".sd-where")).to_contain_text("round 1 of")
    press(page, "Step")
    expect(view.locator(".sd-where")).to_contain_text("round 2 of")


def test_what_a_run_has_loaded_is_not_said_to_wait_for_a_run(serve, open_page, assets):
    url, _ = serve(FakeBackend(), assets)
    expect(open_page(url).locator("#status")).to_contain_text("Model loaded")
    page = open_page(f"{url}?pair=slow")
    expect(page.locator("#status")).to_contain_text("Another pair is in memory")
    fill(page, "prompt", "A new question")
    press(page, "Run")
    expect(page.locator("#status")).to_contain_text("Model loaded")


def test_step_begins_a_run_of_its_own(served, open_page):
    page = open_page(served)
    view = view_of(page)
    fill(page, "prompt", "A new question")
    press(page, "Step")
    expect(view.locator(".sd-prompt")).to_have_text("A new question")
    assert (
        state(page, "view.player.pinned") is False
        and int(view.locator(".sd-lane-spec .sd-count").inner_text()) <= 1
    )
    press(page, "Step")
    expect(view.locator(".sd-where")).to_contain_text("round 1 of")


@pytest.mark.parametrize("prompt", ["   ", "refuse me", "break now"])
def test_refusals_are_shown_as_one_sentence(served, open_page, prompt):
    page = open_page(served)
    view = view_of(page)
    fill(page, "prompt", prompt)
    press(page, "Run")
    banner = view.locator(".sd-banner-error")
    expect(banner).to_be_visible()
    assert banner.inner_text().strip().endswith(".") and "Traceback" not in banner.inner_text()
    fill(page, "prompt", "And now a good one")
    press(page, "Run")
    expect(view.locator(".sd-prompt")).to_have_text("And now a good one")


def test_trace_and_page_round_trip(served, open_page, tmp_path):
    page = open_page(served)
    view = view_of(page)
    with page.expect_download() as saved:
        view.get_by_role("button", name="Download trace").click()
    trace = tmp_path / "t.json"
    saved.value.save_as(trace)
    assert (
        json.loads(trace.read_text())["events"]
        == json.loads(dump_trace(list(fake_events(method="best", tokens=24))))["events"]
    )
    other = tmp_path / "other.json"
    other.write_text(dump_trace(list(fake_events(prompt="From a file", method="tree", tokens=16))))
    view.locator("input[type=file]").set_input_files(other)
    expect(view.locator(".sd-prompt")).to_have_text("From a file")
    expect(view.locator(".sd-badge")).to_have_text("loaded trace")
    with page.expect_download() as made:
        view.get_by_role("button", name="Download as web page").click()
    html = tmp_path / "race.html"
    made.value.save_as(html)
    alone = open_page(html.as_uri(), offline=True)
    expect(alone.locator(".sd-prompt")).to_have_text("From a file")
    alone.get_by_label("Replay speed").select_option("4")
    expect(alone.locator(".sd-lane-spec .sd-count")).to_have_text("16")


def test_share_link_restores_prompt_method_seed_and_parameters(served, open_page):
    page = open_page(served)
    view = view_of(page)
    state(
        page,
        "(view.trace.start.method = 'specdiff', view.trace.start.prompt = 'Grüße & \"quotes\" <b>',"
        " view.trace.start.params = {gamma: 9, steps: 4, warmup: 16, reveal: 'left-to-right'},"
        " view.trace.start.rule = 'ratio', view.trace.start.sampling = {seed: 42, temperature: 0.7,"
        " top_p: 0.9}, view.trace.start.max_new_tokens = 33)",
    )
    view.get_by_role("button", name="Share link").click()
    link = view.locator(".sd-link").input_value()
    again = open_page(link)
    view_of(again)
    expect(again.locator("#prompt textarea")).to_have_value('Grüße & "quotes" <b>')
    expect(again.locator("#method input")).to_have_value("specdiff: Method specdiff")
    again.locator("#settings button").first.click()
    expect(again.locator("#seed input")).to_have_value("42")
    expect(again.locator("#new-tokens input[type=number]")).to_have_value("33")
    expect(again.locator("#rule input")).to_have_value(re.compile("ratio"))
    expect(again.get_by_label("number input for gamma").locator("visible=true")).to_have_value("9")
    expect(again.get_by_label("number input for steps").locator("visible=true")).to_have_value("4")


def test_a_dtype_that_was_chosen_is_part_of_the_link(served, open_page):
    page = open_page(f"{served}?dtype=int4&prompt=In%20four%20bits")
    page.locator("#settings button").first.click()
    expect(page.locator("#dtype input")).to_have_value("int4")
    page.keyboard.press("Escape")
    press(page, "Run")
    view = view_of(page)
    expect(view.locator(".sd-badge")).to_have_text("finished")
    assert "dtype=int4" in page.url
    view.get_by_role("button", name="Share link").click()
    assert "dtype=int4" in view.locator(".sd-link").input_value()
    page = open_page(f"{served}?dtype=fp64")
    expect(view_of(page).locator(".sd-banner")).to_contain_text("invalid values (dtype)")


def test_method_shows_its_own_controls(served, open_page):
    page = open_page(served)
    view_of(page)
    page.locator("#settings button").first.click()
    page.locator("#method input").click()
    page.get_by_role("option", name="specdiff: Method specdiff", exact=True).click()
    expect(page.locator("#explain")).to_contain_text(METHODS["specdiff"].explain)
    expect(page.get_by_label("number input for steps").locator("visible=true")).to_have_count(1)
    press(page, "Run")
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) =>"
        " n.specdemo).specdemo.trace.start.method === 'specdiff'"
    )
    assert state(page, "view.trace.start.params") == METHODS["specdiff"].params().model_dump()


def test_lesson_from_first_to_last_step(served, open_page):
    page = open_page(served, reduced_motion="reduce")
    view_of(page)
    page.get_by_role("tab", name="Lesson").click()
    view_of(page, "lesson-view")
    card = page.locator("#lesson-view .sd-lesson")
    titles = []
    for k in range(1, 19):
        expect(card.locator(".sd-lesson-head")).to_contain_text(f"step {k} of 18")
        titles.append(card.locator("h2").inner_text())
        expect(page.locator("#lesson-view .sd-point").first).to_be_visible()
        if card.locator(".sd-ask .sd-choices button").count():
            card.locator(".sd-ask .sd-choices button").last.click()
            expect(card.locator(".sd-answer, .sd-key").first).not_to_be_empty()
        if k < 18:
            card.get_by_role("button", name="Next").click()
    assert len(set(titles)) == 18
    expect(card.get_by_role("button", name="Next")).to_be_disabled()


def test_a_short_bench_runs_on_the_page(served, open_page):
    page = open_page(served)
    view_of(page)
    page.get_by_role("tab", name="Bench").click()
    expect(page.locator("#bench-words")).to_contain_text("is the fastest method")
    page.locator("#bench-here button").first.click()
    page.locator("#bench-run").click()
    expect(page.locator("#bench-status")).to_contain_text("Prompt 3 of 3")
    here = page.locator("#here-words")
    expect(here).to_contain_text("explain")
    button = page.locator("#bench-run").bounding_box()
    assert page.locator("#here-plot-0").bounding_box()["y"] > button["y"], "under the button"
    expect(page.locator("#bench-words")).not_to_contain_text("explain")


def test_endpoint_streams_to_a_client(served):
    client_of = pytest.importorskip("gradio_client")
    client = client_of.Client(served, verbose=False)
    api = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert list(api) == ["/race"], "everything else is private"
    job = client.submit(prompt="Over the wire", method="tree", max_new_tokens=20, api_name="/race")
    job.result(timeout=60)
    events = [e for text in job.outputs() for e in json.loads(text)]
    assert [e["kind"] for e in events] == [e.kind for e in fake_events(method="tree", tokens=20)]
    assert events[-1]["result"]["identical"] is True and len(job.outputs()) > 1
    with pytest.raises(Exception, match="no method"):
        client.predict(prompt="x", method="nope", api_name="/race")
