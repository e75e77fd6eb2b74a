"""A pair that an engine serves, on the page in a real browser: both lanes, a badge that promises
nothing, and no address or key anywhere.
"""

from __future__ import annotations

import json
import os

import pytest
from scripted_engine import ScriptedEngine
from test_attached_failures import DRAFT
from tools import fill, press, state, view_of

from specdemo.drafters import METHODS
from specdemo.models.pairs import load_pairs
from specdemo.ui.backend import Backend

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
KEY = "sk-never-shown"
SAME = [line.replace('"draft_n":', '"x":').replace('"draft_n_accepted":', '"y":') for line in DRAFT]


@pytest.fixture()
def attached_page(tmp_path, monkeypatch, assets, serve, open_page):
    """A page whose pair has these endpoints: (page, the speculative one, what must stay secret)."""
    stack = []

    def make(speculative, plain=SAME):
        first = ScriptedEngine("llama.cpp", plain, speculates=False, key=KEY)
        second = ScriptedEngine("llama.cpp", speculative, key=KEY)
        engine = dict(kind="llama.cpp", plain=first.url, speculative=second.url, drafts="itself",
            key_env="THE_ENGINES_KEY")  # fmt: skip
        path = tmp_path / "pairs.yaml"
        path.write_text(json.dumps({"pairs": {"mine": {"title": "Mine", "engine": engine}}}))
        monkeypatch.setenv("SPECDEMO_MODELS", str(path))
        monkeypatch.setenv("THE_ENGINES_KEY", KEY)
        url, _ = serve(Backend(), assets, METHODS, load_pairs())
        stack.extend((first, second))
        page = open_page(url)
        return page, second, (first.url, second.url, KEY, first.url.removeprefix("http://"))

    yield make
    for engine in stack:
        engine.__exit__()


def run(page, prompt="Why is the sky blue?"):
    view = view_of(page)
    fill(page, "prompt", prompt)
    press(page, "Run")
    return view


def test_both_lanes_and_a_badge_that_promises_nothing(attached_page, tmp_path):
    page, _, secrets = attached_page([line for each in DRAFT for line in (each, 0.01)])
    expect(page.locator("#status")).to_contain_text("at most 1 at a time each (slots)")
    view = run(page)
    expect(view.locator(".sd-badge")).to_have_text("finished")
    expect(view.locator(".sd-verdict-word")).to_have_text("the same tokens")
    expect(view.locator(".sd-verdict-none")).to_contain_text("does not promise it")
    for lane in ("ar", "spec"):
        expect(view.locator(f".sd-lane-{lane} .sd-count")).to_have_text("40")
    ids = state(page, "[view.trace.ar.map((t) => t.id), view.trace.spec.map((t) => t.id)]")
    assert ids[0] == ids[1] and len(ids[0]) == 40
    expect(page.locator("#explain")).to_contain_text("An engine serves this pair")
    assert view.locator(".sd-phases li").all_inner_texts() == ["draft", "verify", "keep"]
    assert not view.locator(".sd-block-time").inner_text(), "no engine tells a round's parts"
    assert view.locator(".sd-tab:visible").all_inner_texts() == ["Tree"]
    assert "Where a round's time goes" not in view.inner_text()
    assert "identical" not in view.inner_text() and "llama.cpp b11549" in page.content()
    found = [page.content(), view.inner_text(), json.dumps(state(page, "view.trace.events"))]
    for name in ("Download trace", "Download as web page"):
        with page.expect_download() as saved:
            view.get_by_role("button", name=name).click()
        saved.value.save_as(tmp_path / "saved")
        found.append((tmp_path / "saved").read_text(encoding="utf-8"))
    view.get_by_role("button", name="Share link").click()
    link = view.locator(".sd-link").input_value()
    found.append(link.replace(page.url.partition("?")[0], ""))  # the page's own address may be
    for text in found:
        assert not [secret for secret in secrets if secret in text]
        assert "THE_ENGINES_KEY" not in text and str(os.environ["SPECDEMO_MODELS"]) not in text


def test_an_endpoint_that_breaks_keeps_what_had_come(attached_page):
    page, _, secrets = attached_page([*DRAFT[:9], "cut"])
    view = run(page)
    banner = view.locator(".sd-banner-error")
    expect(banner).to_contain_text("The speculative endpoint broke the connection; what had come")
    expect(view.locator(".sd-lane-ar .sd-count")).to_have_text("40")
    assert 0 < int(view.locator(".sd-lane-spec .sd-count").inner_text()) < 40
    assert not [secret for secret in secrets if secret in page.content()]


def test_stop_frees_the_engines_slot(attached_page):
    page, second, _ = attached_page([*DRAFT[:9], "hold"])
    view = run(page)
    assert second.held.wait(30)
    press(page, "Stop")
    expect(view.locator(".sd-badge")).to_have_text("stopped")
    assert second.gone.wait(2)
