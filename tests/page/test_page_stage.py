"""The first screen: everything about a race without scrolling, nothing over anything, and the block
strip that plays its rounds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_race import fake_events
from tools import fill, page_state, press, state, view_of

expect = pytest.importorskip("playwright.sync_api").expect
ROOT = Path(__file__).resolve().parents[2]
SIZES = [(1280, 720), (1440, 900), (390, 844)]

# What is cut off, covered by something else, or over another part. A part's own points are those
# where a click would reach it.
FAULTS = """(names) => {
  const parts = names.flatMap((name) => [...document.querySelectorAll(name)]
    .map((node) => [name, node, node.getBoundingClientRect()]));
  const faults = [];
  for (const [name, node, box] of parts) {
    if (!box.width || !box.height) faults.push(`${name} is not there`);
    const isInside = box.right <= innerWidth + 0.5 && box.bottom <= innerHeight + 0.5;
    if (box.left < 0 || box.top < 0 || !isInside)
      faults.push(`${name} is cut off: ${JSON.stringify(box)}`);
    for (const [x, y] of [[0.04, 0.1], [0.5, 0.5], [0.96, 0.9]]) {
      const there = document.elementFromPoint(box.left + x * box.width, box.top + y * box.height);
      if (!there || !(node.contains(there) || there.contains(node)))
        faults.push(`${name} is covered by ${there && there.className}`);
    }
    for (const [other, , place] of parts)
      if (name < other && Math.min(box.right, place.right) - Math.max(box.left, place.left) > 1
        && Math.min(box.bottom, place.bottom) - Math.max(box.top, place.top) > 1)
        faults.push(`${name} lies over ${other}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");
  if (scrollY) faults.push("the page has scrolled");
  return faults;
}"""
STAGE = [
    ".sd-lane-ar",
    ".sd-lane-spec",
    "[data-part=speedup]",
    "[data-part=verdict]",
    ".sd-block",
    ".sd-player",
]
CONTROLS = [
    "#title",
    "#theme",
    "#share",
    "#prompt",
    "#method",
    "#run",
    "#stop",
    "#step",
    "#settings",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_first_screen_shows_the_whole_race(served, open_page, width, height, theme):
    page = open_page(f"{served}?__theme={theme}", width, height, reduced_motion="reduce")
    view_of(page)
    names = [*CONTROLS, *(f"#race-view {part}" for part in STAGE)]
    page.wait_for_function("document.querySelector('#status').textContent.trim()")
    assert page.evaluate(FAULTS, names) == []
    fill(page, "prompt", "Everything on one screen, also while it runs and when it is over")
    page.locator("#prompt textarea").blur()
    press(page, "Run")
    page.wait_for_function("document.querySelector('#race-view .sd-badge').textContent == 'live'")
    assert page.evaluate(FAULTS, names) == [], "while it runs"
    expect(page.locator("#race-view .sd-badge")).to_have_text("finished")
    assert page.evaluate(FAULTS, names) == [], "when it is over"
    letters = page.evaluate(
        "parseFloat(getComputedStyle(document.querySelector('#race-view .sd-text')).fontSize)"
    )
    assert letters >= (17 if width < 700 else 20), "text can be read from the back of a room"


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_an_exported_page_has_the_same_stage(exported, width, height):
    events = list(fake_events(method="block", tokens=60))
    page = exported(events, width=width, height=height, reduced_motion="reduce")
    expect(page.locator(".sd-lane-spec .sd-count")).to_have_text("60")
    names = STAGE if width < 700 else [*STAGE, ".sd-legend"]
    assert page.evaluate(FAULTS, names) == []


def test_the_prompt_is_one_line_that_grows_with_the_focus(served, open_page):
    page = open_page(served, 1280, 720, reduced_motion="reduce")
    view_of(page)
    fill(page, "prompt", "A prompt of many words. " * 12)
    box = page.locator("#prompt textarea")
    assert box.bounding_box()["height"] > 120
    box.blur()
    assert box.bounding_box()["height"] < 50


def test_the_settings_slide_over_the_page(served, open_page):
    page = open_page(served, 1280, 720, reduced_motion="reduce")
    view = view_of(page)
    before = view.bounding_box()
    page.locator("#settings button").first.click()
    temperature = page.locator("#temperature")
    expect(temperature).to_be_visible()
    assert view.bounding_box() == before, "nothing moves"
    box = temperature.bounding_box()
    assert box["x"] > 700 and box["x"] + box["width"] <= 1280
    page.keyboard.press("Escape")
    expect(temperature).to_be_hidden()
    expect(page.locator("#settings button").first).to_be_focused()


def test_the_theme_can_be_switched(served, open_page):
    page = open_page(served, 1280, 720)
    view = view_of(page)
    for theme in ("dark", "light"):
        press(page, "Theme")
        expect(view).to_have_attribute("data-theme", theme)


def recorded(exported, name, **options):
    path = ROOT / "assets" / "traces" / f"{name}.json"
    events = json.loads(path.read_text("utf-8"))["events"]
    return exported(events, width=1280, height=720, **options)


SLOTS = "[...document.querySelectorAll('.sd-slot')].map((n) => n.className.split(' ')[1].slice(8))"


def test_the_strip_plays_a_round(exported):
    """From masks over guesses to the target's verdict, which walks; then the tokens are written."""
    page = recorded(exported, "block", reduced_motion="reduce")
    seen = page.evaluate(f"""() => {{
      const {{ specdemo: view }} = document.getElementById("race");
      const round = view.trace.rounds.find((r) => r.accepted > 2 && r.verify.kept.length > 3);
      const out = [];
      view.player.playing = true;
      view.player.pinned = false;
      for (let part = 0; part < 1; part += 0.02) {{
        view.player.t = round.t0 + part * (round.t1 - round.t0);
        view.player.at = view.player.stepAt(view.player.t);
        view.draw();
        const now = document.querySelector(".sd-phase-now").textContent;
        const said = document.querySelector(".sd-block-say").textContent;
        out.push([now, {SLOTS}, said]);
      }}
      view.player.pause();
      return out;
    }}""")
    phases = list(dict.fromkeys(phase for phase, _, _ in seen))
    assert phases == ["masks", "denoise", "verify", "keep"]
    assert set(seen[0][1]) == {"mask"}
    walk = [slots for phase, slots, _ in seen if phase == "keep"]
    accepted = [slots.count("accepted") for slots in walk]
    assert accepted == sorted(accepted) and len(set(accepted)) > 2, "one after the other"
    assert walk[-1].count("correction") + walk[-1].count("bonus") == 1
    assert not any(sum(map(slots.count, ("correction", "bonus"))) for slots in walk[:2])
    assert all(said for _, _, said in seen)


def test_a_replay_shows_a_round_a_second_and_flies_tokens(exported):
    page = recorded(exported, "block", reduced_motion="no-preference")
    rate, rounds, clock = page_state(
        page,
        "(view.player.play(), [view.player.rate, view.trace.rounds.length,"
        " view.trace.rounds.at(-1).t1])",
    )
    assert 0.6 < clock / rounds / rate < 1.7
    page.wait_for_selector(".sd-flying", state="attached")
    page_state(page, "view.player.pause()")
    expect(page.locator(".sd-flying")).to_have_count(0)


def test_with_reduced_motion_nothing_flies(exported):
    page = recorded(exported, "block", reduced_motion="reduce")
    page.evaluate("""() => {
      window.flown = 0;
      new MutationObserver((all) => all.forEach(({ addedNodes }) => addedNodes.forEach((node) => {
        if (node.classList?.contains("sd-flying")) window.flown += 1;
      }))).observe(document.querySelector(".sd"), { childList: true });
      document.getElementById("race").specdemo.player.play();
    }""")
    expect(page.locator(".sd-where")).to_contain_text("round 3 of")
    assert page.evaluate("window.flown") == 0


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [("specdiff2", "draft", "sd-thin"), ("d2sd", "branch after", "sd-thin")],
)
def test_further_rows_of_a_round(exported, name, rows, words):
    page = recorded(exported, name, reduced_motion="reduce")
    page_state(page, "view.openRound(1)")
    labels = [label.get_attribute("title") for label in page.locator(".sd-thin-label").all()]
    assert labels and all(label.startswith(rows) for label in labels)
    assert page.locator(f".{words}").count() >= len(labels)


def test_a_branch_mark_opens_the_tree(exported):
    page = recorded(exported, "tree", reduced_motion="reduce")
    fork = page.locator(".sd-fork").first
    assert "other branch" in fork.get_attribute("aria-label")
    fork.click()
    expect(page.get_by_role("tab", name="Tree")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tab", name="Tree")).to_be_in_viewport()


def test_a_branch_mark_keeps_the_focus_while_rounds_go_by(exported):
    page = recorded(exported, "tree", reduced_motion="reduce")
    page_state(page, "view.openRound(1)")
    page.locator(".sd-fork").first.focus()
    rounds = int(page_state(page, "view.trace.rounds.length"))
    for index in range(rounds):
        page_state(page, f"view.openRound({index})")
        expect(page.locator(".sd-block-grid:focus, .sd-fork:focus")).to_have_count(1)
    assert rounds > 5


def test_a_copy_is_quoted(exported):
    page = recorded(exported, "lookup", reduced_motion="reduce")
    page_state(page, "view.openRound(1)")
    expect(page.locator(".sd-quote mark")).to_have_text("red boat sails across the quiet lake")


def test_rejected_words_stand_in_the_lane_only_when_asked_for(exported):
    page = recorded(exported, "block", reduced_motion="reduce")
    rejected = page.locator(".sd-lane-spec .sd-rejected-here")
    assert rejected.count() > 2
    expect(rejected.first).to_be_hidden()
    page.get_by_label("show rejected").check()
    expect(rejected.first).to_be_visible()


def test_share_puts_the_link_on_the_screen(served, open_page):
    page = open_page(served, 1280, 720, reduced_motion="reduce")
    view_of(page)
    page.locator("#share").click()
    link = page.locator("#race-view .sd-link")
    expect(link).to_be_in_viewport()
    assert "method=" in link.input_value()
    page.get_by_label("show rejected").focus()  # Gradio takes the outline of checkboxes away
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_label("show rejected")).to_be_focused()
    expect(page.get_by_label("show rejected")).to_have_css("outline-style", "solid")
    assert state(page, "view.player.root.getBoundingClientRect().bottom <= innerHeight")
    state(page, "view.say('Stopped. What was written so far stays here.', 'status') || 1")
    page.locator("#race-view .sd-scores").evaluate("""async (scores) => {
      scores.querySelector("[data-part=verdict] .sd-unit").textContent =
        "stopped after 14 common tokens";
      await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
      const { bottom } = scores.getBoundingClientRect();
      for (const text of scores.querySelectorAll("strong, .sd-unit"))
        if (text.getBoundingClientRect().bottom > bottom - 4) throw Error(text.textContent);
    }""")
    page.keyboard.press("Escape")
    expect(link).to_be_hidden()
    expect(page.locator("#share")).to_be_focused()
    for leave in (
        lambda: page.locator("#race-view .sd-block-say").click(),
        lambda: state(page, "view.presenter.toggle(true) || 1"),
        lambda: state(page, "view.load(view.trace.events) || 1"),
    ):
        page.locator("#share").click()
        expect(link).to_be_visible()
        leave()
        expect(link).to_be_hidden()
        state(page, "view.presenter.toggle(false) || 1")


@pytest.mark.parametrize("present", [False, True])
def test_steps_keep_the_newest_text_in_sight(exported, present):
    """A clicker steps; nothing plays. What is scrolled away by hand stays where it is."""
    page = exported(fake_events(tokens=250), width=390, height=844, reduced_motion="reduce")
    if present:
        page.keyboard.press("p")
    text = page.locator(".sd-lane-spec .sd-text")
    page.keyboard.press("Home")
    for key in ("PageDown", "ArrowRight") * 40:
        page.keyboard.press(key)
    place = "(t) => [t.scrollTop, t.scrollHeight - t.clientHeight]"
    top, most = text.evaluate(place)
    assert top > 20 and abs(top - most) < 2, "the newest text is out of sight"
    text.hover()
    page.mouse.wheel(0, -500)
    expect(text).to_have_js_property("scrollTop", 0)
    page.keyboard.press("PageDown")
    assert text.evaluate(place)[0] == 0
    page.keyboard.press("End")
    top, most = text.evaluate(place)
    assert abs(top - most) < 2


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_presenting_shows_the_race_alone_in_large_type(served, open_page, width, height):
    page = open_page(served, width, height, reduced_motion="reduce")
    view = view_of(page)
    size = "parseFloat(getComputedStyle(document.querySelector('#race-view .sd-text')).fontSize)"
    before = page.evaluate(size)
    page.locator("#present").click()
    for name in ("#command", "#words", "#title"):
        expect(page.locator(name)).to_be_hidden()
    assert page.evaluate(FAULTS, [f"#race-view {part}" for part in STAGE]) == []
    assert page.evaluate(size) > before
    page.keyboard.press("Home")
    for number in (1, 2):  # a clicker's keys
        page.keyboard.press("PageDown")
        expect(view.locator(".sd-where")).to_contain_text(f"round {number} of")
    page.keyboard.press("PageUp")
    expect(view.locator(".sd-where")).to_contain_text("round 1 of")
    page.keyboard.press("b")
    expect(view.locator(".sd-blank")).to_be_visible()
    page.keyboard.press("b")
    expect(view.locator(".sd-blank")).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator("#command")).to_be_visible()


def test_typing_does_not_begin_to_present(served, open_page):
    page = open_page(served, 1280, 720, reduced_motion="reduce")
    view_of(page)
    page.locator("#prompt textarea").press("p")
    expect(page.locator("#command")).to_be_visible()


def test_the_first_screen_is_light(served, browser):
    """In kilobytes on the wire, in a browser that has nothing stored; Plotly comes with its tab."""
    context = browser.new_context()
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    sizes, names = {}, {}
    wire.on("Network.responseReceived", lambda e: names.update({e["requestId"]: e["response"]}))
    wire.on(
        "Network.loadingFinished",
        lambda e: sizes.update({e["requestId"]: e["encodedDataLength"]}),
    )
    page.goto(served)
    view_of(page)
    page.wait_for_function("document.querySelector('#status').textContent.trim()")
    assert len(sizes) > 20 and sum(sizes.values()) < 600_000
    assert not any("plotly" in answer["url"].lower() for answer in names.values())
    context.close()
