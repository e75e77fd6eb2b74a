"""axe-core, from node_modules, finds no serious fault of access on any tab in either theme."""

from __future__ import annotations

import pytest
from fake_backend import FakeBackend
from tools import serving, view_of

from specdemo.paths import ROOT
from specdemo.ui import lesson

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not in node_modules (npm install)"),
]

# all rules in the light theme; the dark one differs in its colours alone
FAULTS = """async (where) => {
  const look = async (theme, more) => {
    document.body.classList.toggle("dark", theme === "dark");
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    const options = { resultTypes: ["violations"], ...more };
    const { violations } = await axe.run(where || document, options);
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .flatMap(({ id, nodes }) => nodes.map((n) => [theme, id, `${n.target}`, n.html]));
  };
  const dark = await look("dark", { runOnly: ["color-contrast"] });
  return [...(await look("light")), ...dark];
}"""


@pytest.fixture(scope="module")
def shipped():
    with serving(FakeBackend(), ROOT / "assets") as (url, _):
        yield url


@pytest.fixture
def look(shipped, open_page):
    """A page, a function that looks at it, and what it has found by moment."""

    def make(**size):
        page = open_page(shipped, reduced_motion="reduce", **size)
        view_of(page)
        page.wait_for_function("document.querySelector('#status').textContent.trim()")
        page.add_script_tag(path=AXE)
        # colours that are still fading are neither theme's
        page.add_style_tag(content="* { transition: none !important; }")
        found: dict[str, list] = {}

        def note(moment: str, where: str = "") -> None:
            if faults := page.evaluate(FAULTS, where):
                found[moment] = faults

        return page, note, found

    return make


def test_the_race_and_its_drawers(look):
    page, note, found = look(height=720)
    note("at rest")
    page.locator("#settings button").first.click()
    page.locator("#seed input").wait_for()
    note("settings")
    page.keyboard.press("Escape")
    page.locator("#share").click()
    page.locator("#race-view .sd-link").wait_for()
    note("share")
    page.locator("#share").click()
    for tab in page.locator("#race-view .sd-tabs [role=tab]").all():
        tab.click()
        note(f"a round: {tab.text_content()}", "#race-view")
    page.locator("#race-view .sd-lane-spec [tabindex='0']").first.focus()
    note("a token", "#race-view")
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    note("all that unfolds")
    page.locator("#present").click()
    note("presenter")
    assert not found, found


def test_every_step_of_the_lesson(look):
    page, note, found = look()
    page.get_by_role("tab", name="Lesson").click()
    card = page.locator("#lesson-view .sd-lesson")
    card.locator("summary").first.click()
    note("the whole tab")
    for number, step in enumerate(lesson.STEPS):
        card.locator(".sd-dot").nth(number).click()
        assert card.locator("h2").text_content() == step["title"]
        if "experiment" in step:
            page.locator("#lesson-view .sd-experiments > *").first.wait_for()
        note(step["id"], "#lesson-view .sd-lesson, #lesson-view .sd-experiments")
    assert not found, found


def test_the_bench_and_a_phone(look):
    page, note, found = look(width=390, height=844)
    note("race on a phone")
    page.get_by_role("tab", name="Bench").click()
    page.locator(".js-plotly-plot").locator("visible=true").first.wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    note("bench")
    assert not found, found
