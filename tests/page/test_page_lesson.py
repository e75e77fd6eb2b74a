"""The lesson in a real browser, on the recordings that ship."""

from __future__ import annotations

import re

import pytest
from fake_backend import FakeBackend
from playwright.sync_api import expect
from tools import serving, state, view_of

from specdemo.paths import ROOT
from specdemo.ui import lesson

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def shipped():
    with serving(FakeBackend(), ROOT / "assets") as (url, _):
        yield url


def at_step(open_page, url: str, name: str):
    """The lesson's card and experiment at a step that the address names."""
    page = open_page(f"{url}#lesson-{name}", reduced_motion="reduce")
    view_of(page, "lesson-view")
    card = page.locator("#lesson-view .sd-lesson")
    title = next(s["title"] for s in lesson.STEPS if s["id"] == name)
    expect(card.locator("h2")).to_have_text(title)
    return page, card, page.locator("#lesson-view .sd-experiment")


def test_tokens_are_drawn_by_the_rule(shipped, open_page):
    page, _, experiment = at_step(open_page, shipped, "ratio")
    experiment.get_by_role("button", name="Draw once").click()
    expect(experiment.locator(".sd-answer")).to_have_text(
        re.compile("^Drafted “.*: (accepted|rejected; drawn from the residual: “.*)")
    )
    expect(experiment.locator("tr.sd-draw-kept")).to_have_count(1)
    experiment.get_by_role("button", name="Draw 200 times").click()
    expect(experiment.locator(".sd-key")).to_contain_text("201 draws")
    experiment.get_by_role("button", name="Begin again").click()
    expect(experiment.locator(".sd-key")).to_be_empty()


def test_the_mask_says_who_sees_whom_and_the_cache_keeps_one_branch(shipped, open_page):
    page, card, experiment = at_step(open_page, shipped, "mask")
    rows = experiment.locator("tbody tr")
    rows.first.wait_for()
    n = rows.count()
    assert n > 4
    rows.last.hover()
    expect(experiment.locator(".sd-answer")).to_contain_text("attends to the whole cache and to")
    expect(experiment.locator(".sd-cache-new")).to_have_count(n)
    experiment.get_by_role("button", name="The verdict").click()
    kept = experiment.locator(".sd-cache-kept").count()
    assert 1 < kept < n
    expect(experiment.locator(".sd-cache")).to_contain_text(f"{n - kept} rows of rejected")
    # the way on is in sight beside a long step; a phone shows all columns
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(card.get_by_role("button", name="Next")).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 390, "height": 844})
    pane = experiment.locator(".sd-mask-scroll")
    for name in ("Before the verdict", "The verdict"):
        assert pane.evaluate("(n) => n.scrollWidth - n.clientWidth") == 0
        experiment.get_by_role("button", name=name).click()


def test_a_student_drafts_and_the_target_checks(shipped, open_page):
    page, _, experiment = at_step(open_page, shipped, "be-the-drafter")
    experiment.get_by_role("button", name="Verify").click()
    expect(experiment.locator(".sd-answer")).to_contain_text("Choose a token for every position")
    for k in range(3):
        experiment.locator("select").nth(k).select_option(index=1)
    experiment.get_by_role("button", name="Verify").click()
    expect(experiment.locator(".sd-answer")).to_contain_text("The target keeps")
    expect(experiment.locator(".sd-key")).to_contain_text("in 1 round.")
    experiment.get_by_role("button", name="Next round").click()
    expect(experiment.locator("select").first).to_be_enabled()


def test_batches_and_training_show_their_curves(shipped, open_page):
    page, _, experiment = at_step(open_page, shipped, "batch")
    expect(experiment.locator(".sd-answer")).to_contain_text("1 user: plain decoding")
    expect(experiment.locator(".sd-note")).to_contain_text("by the pass alone as measured at load")
    experiment.get_by_role("slider").fill("16")
    expect(experiment.locator(".sd-answer")).to_contain_text("rows were not measured")
    page.evaluate("location.hash = '#lesson-training'")
    curve = page.locator("#lesson-view .sd-curve")
    expect(curve).to_be_visible()
    assert curve.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 100


def test_all_shapes_are_there_and_panes_say_where_more_is_hidden(shipped, open_page):
    page, card, _ = at_step(open_page, shipped, "correction")
    lane = page.locator("#lesson-view .sd-lane-spec")
    for shape in ("correction", "bonus", "rejected-here"):
        expect(lane.locator(f".sd-{shape}").first).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("location.hash = '#lesson-masks'")
    pane = page.locator("#lesson-view .sd-scroller", has=page.locator(".sd-denoise"))
    expect(pane).to_have_class(re.compile("sd-has-right"))
    # its first mask stands in it
    pane.scroll_into_view_if_needed()
    expect(pane.locator(".sd-masked").first).to_be_in_viewport()
    expect(lane.locator(".sd-rejected-here").first).to_be_hidden()


def test_a_favourable_recording_stands_beside_the_report_and_has_no_jargon(shipped, open_page):
    page, card, experiment = at_step(open_page, shipped, "gamma")
    expect(card.locator(".sd-lesson-words")).to_contain_text(
        re.compile(r"one prompt, whose speed-up is \d\.\d\d×\. Over the 108 prompts .* \d\.\d\d×")
    )
    page.evaluate("location.hash = '#lesson-steps'")
    expect(card.locator(".sd-ask")).to_contain_text("All settings need the same 24 rounds")
    expect(experiment.locator("h3")).to_have_text("Measured: SpecDiff, γ (tokens drafted)")
    assert "mdlm" not in card.inner_text() + experiment.inner_text()
    page.evaluate("location.hash = '#lesson-when'")
    expect(card.locator(".sd-ask")).to_contain_text("computed from the rounded numbers")


def test_each_wrong_answer_has_its_own_reply(shipped, open_page):
    page, card, _ = at_step(open_page, shipped, "one-token")
    for k, step in enumerate(lesson.STEPS):
        expect(card.locator(".sd-lesson-head")).to_contain_text(f"step {k + 1} of")
        if "ask" in step:
            choices = card.locator(".sd-ask").last.locator(".sd-choices button")
            expect(choices.first).to_be_visible()
            replies = set()
            for choice in choices.all():
                choice.click()
                replies.add(card.locator(".sd-answer").last.inner_text())
            assert len(replies) == choices.count() > 1, step["id"]
            assert sum(reply.startswith("✓") for reply in replies) == 1, step["id"]
        if k + 1 < len(lesson.STEPS):
            card.get_by_role("button", name="Next").click()


def test_steps_and_recordings_have_addresses(shipped, open_page):
    page, card, _ = at_step(open_page, shipped, "trees")
    card.get_by_role("button", name="Next").click()
    expect(page).to_have_url(re.compile("#lesson-mask$"))
    page, card, _ = at_step(open_page, shipped, "mask")
    expect(card.locator("h2")).to_have_text("The tree's attention mask")
    page.evaluate("location.hash = '#recording-lookup'")
    expect(page.get_by_role("tab", name="Race")).to_have_attribute("aria-selected", "true")
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) =>"
        " n.specdemo).specdemo.trace.start.method === 'lookup'"
    )
    page.locator("#race-view .sd-recordings select").select_option("tree")
    expect(page).to_have_url(re.compile("#recording-tree$"))
    page.wait_for_function(
        "[...document.querySelectorAll('#race-view *')].find((n) =>"
        " n.specdemo).specdemo.trace.start.method === 'tree'"
    )
    page.evaluate("location.hash = '#recording-nothing'")
    expect(page.locator("#race-view")).to_contain_text("names a recording that is not here")
    assert state(page, "view.trace.start.method") == "tree"


def test_glossary_and_papers(shipped, open_page):
    page, card, _ = at_step(open_page, shipped, "masks")
    card.get_by_text("Glossary").click()
    expect(card.locator(".sd-glossary dt")).to_have_count(len(lesson.GLOSSARY))
    expect(card.get_by_text("The last token that is certain.")).to_be_visible()
    card.get_by_text("Papers").click()
    links = card.locator(".sd-papers a")
    expect(links).to_have_count(len(lesson.PAPERS))
    assert all(
        link.get_attribute("href").startswith("https://arxiv.org/abs/") for link in links.all()
    )
