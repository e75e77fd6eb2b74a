"""Your races: what this browser keeps of a visit, drawn over each other."""

from __future__ import annotations

import json
import re

import pytest
from tools import fill, press, view_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]
expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_the_races_of_a_visit_are_drawn_together_and_outlive_a_reload(served, open_page):
    page = open_page(served)
    view = view_of(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    badge = view.locator(".sd-badge")
    for prompt in ("The first <b>one</b>", "The second"):
        fill(page, "prompt", prompt)
        press(page, "Run")
        expect(view.locator(".sd-prompt")).to_have_text(prompt)
        expect(badge).to_have_text("finished")
    panel = view.locator("[data-part=races]")
    expect(panel.locator("summary")).to_contain_text("2 races of this visit")
    assert not any("plotly" in url.lower() for url in asked), "it loads when the panel is opened"
    panel.locator("summary").click()
    for part in ("time", "speedup", "accepted"):
        expect(panel.locator(f"[data-part=races-{part}] .main-svg").first).to_be_visible()
    assert sum(url.endswith("/specdemo/plotly.js") for url in asked) == 1
    lines = panel.locator("[data-part=races-time] .scatterlayer .trace")
    expect(lines).to_have_count(4)  # both races, each with its plain lane
    panel.get_by_role("checkbox").first.uncheck()
    expect(lines).to_have_count(2)
    expect(panel.locator("li").first).to_contain_text("The first <b>one</b>")
    assert panel.locator("b").count() == 0
    with page.expect_download() as saving:
        panel.get_by_role("button", name="Download JSON").click()
    saved = json.loads(saving.value.path().read_text("utf-8"))
    assert [race["prompt"] for race in saved] == ["The first <b>one</b>", "The second"]
    with page.expect_download() as saving:
        panel.get_by_role("button", name="Download CSV").click()
    assert len(saving.value.path().read_text("utf-8").splitlines()) == 3
    page.reload()
    panel = view_of(page).locator("[data-part=races]")
    expect(panel.locator("summary")).to_contain_text("2 races of this visit")
    panel.locator("summary").click()
    panel.get_by_role("button", name="Forget all").click()
    expect(panel.locator("summary")).to_contain_text("0 races")
    expect(panel.get_by_role("status")).to_have_text(re.compile("^There is no race of this visit"))
    assert not any(plot.is_visible() for plot in panel.locator("[data-part]").all())
