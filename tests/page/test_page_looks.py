"""What the page looks like, measured: contrast in both themes, kinds told apart in grey, narrow
screens, reduced motion.
"""

from __future__ import annotations

import itertools

import pytest
from fake_race import NAMES, fake_events
from tools import view_of

from specdemo.ui.export import export_html

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)

# Colours as the browser paints them; a text's ground is the first opaque thing behind it.
MEASURE = """
const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const painted = new Map();
function paint(under, css) {
  const key = `${under.join()} ${css}`;
  if (!painted.has(key)) {
    pixel.clearRect(0, 0, 1, 1);
    for (const style of [`rgb(${under.join()})`, css]) {
      pixel.fillStyle = style;
      pixel.fillRect(0, 0, 1, 1);
    }
    painted.set(key, [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3));
  }
  return painted.get(key);
}
function ground(node) {
  const chain = [];
  for (let n = node; n && n.nodeType === 1; n = n.parentElement) chain.push(n);
  let color = [255, 255, 255];
  for (const n of chain.reverse()) {
    color = paint(color, getComputedStyle(n).backgroundColor);
    const rect = n.tagName === "g" && n.querySelector(":scope > rect");
    if (rect) color = paint(color, getComputedStyle(rect).fill);
  }
  return color;
}
function light(rgb) {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgb.map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ratio(a, b) {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
function weak(root, least) {
  const out = [];
  for (const node of root.querySelectorAll("*")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const box = node.getBoundingClientRect();
    if (!own || !box.width || !box.height || node.closest(":disabled, .sd-sr, option")) continue;
    const style = getComputedStyle(node), under = ground(node);
    const ink = paint(under, node instanceof SVGElement ? style.fill : style.color);
    const found = ratio(ink, under);
    const name = node.getAttribute("class") || node.tagName;
    const text = node.textContent.slice(0, 20);
    if (found < least) out.push([name, text, ink.join(), under.join(), found.toFixed(2)]);
  }
  return out;
}
"""


@pytest.fixture
def drawn(tmp_path, open_page):
    def make(method="d2sd", **options):
        path = tmp_path / f"{method}.html"
        path.write_text(
            export_html(list(fake_events(method=method, tokens=40, differs=30))), encoding="utf-8"
        )
        page = open_page(path.as_uri(), reduced_motion="reduce", **options)
        expect(page.locator(".sd-lane-spec .sd-count")).to_have_text("40")
        return page

    return make


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_contrast(drawn, theme):
    for method in ("d2sd", "diffuspec", "specdiff", "specdiff2"):
        page = drawn(method, color_scheme=theme)
        assert page.locator(".sd").get_attribute("data-theme") == theme
        page.locator(".sd-lane-spec [tabindex='0']").focus()
        measured = page.evaluate(f"""() => {{
          {MEASURE}
          const {{ specdemo: view }} = document.getElementById("race");
          const moments = {{ "first step": () => view.player.go(0) }};
          for (const r of [0, 2, 6]) moments[`round ${{r}}`] = () => view.openRound(r);
          const found = {{}};
          for (const [moment, show] of Object.entries(moments)) {{
            show();
            for (const tab of document.querySelectorAll(".sd-tabs [role=tab]")) {{
              tab.click();
              found[`${{moment}}, ${{tab.textContent}}`] = weak(document.body, 4.5).slice(0, 8);
            }}
          }}
          return found;
        }}""")
        assert len(measured) == 12
        assert not any(measured.values()), (method, {k: v for k, v in measured.items() if v})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_kinds_of_tokens_differ_in_grey_and_in_shape(drawn, theme):
    page = drawn(color_scheme=theme)
    looks = page.evaluate(f"""() => {{
      {MEASURE}
      const out = {{}};
      for (const kind of ["accepted", "correction", "bonus", "plain", "rejected"]) {{
        const node = document.querySelector(`.sd-legend .sd-${{kind}}`);
        const style = getComputedStyle(node), before = getComputedStyle(node, "::before");
        const lines = [style.textDecorationLine, style.outlineStyle, style.borderBottomStyle];
        const shape = [...lines, style.boxShadow !== "none", before.content].join("|");
        out[kind] = [light(ground(node)), shape];
      }}
      return out;
    }}""")
    fills = {kind: looks[kind][0] for kind in ("accepted", "correction", "bonus", "plain")}
    for a, b in itertools.combinations(fills, 2):
        high, low = max(fills[a], fills[b]), min(fills[a], fills[b])
        assert (high + 0.05) / (low + 0.05) >= 1.25, (a, b, fills)
    shapes = [shape for _, shape in looks.values()]
    assert len(set(shapes)) == len(shapes), shapes


@pytest.mark.parametrize("method", NAMES)
def test_nothing_is_wider_than_a_phone(drawn, method):
    page = drawn(method, width=390, height=800)
    for tab in ("Denoising", "Lattice", "Tree"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for button in page.locator(".sd-player button:visible").all():
        box = button.bounding_box()
        assert box["height"] >= 32 and box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_reduced_motion_stands_still(drawn):
    page = drawn()
    assert page.evaluate("document.getElementById('race').specdemo.player.playing") is False
    assert page.evaluate(
        "getComputedStyle(document.querySelector('.sd-fill')).transitionDuration"
    ) in ("0s", "")


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (390, "light")])
def test_the_served_page_in_both_themes_and_widths(served, open_page, width, theme):
    page = open_page(f"{served}?__theme={theme}", width=width, height=850)
    view = view_of(page)
    assert view.get_attribute("data-theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    weak = page.evaluate(
        f"() => {{ {MEASURE}; return weak(document.getElementById('race-view'), 4.5); }}"
    )
    assert not weak, weak[:8]
    box = page.locator("#example input")
    assert box.evaluate("(n) => n.scrollWidth <= n.clientWidth")  # “Examples” is whole
    box.click()
    names = page.locator("#example .options")
    assert names.bounding_box()["x"] + names.bounding_box()["width"] <= width
    lines = names.locator("li").evaluate_all("(all) => all.map((one) => one.clientHeight)")
    assert len(set(lines)) == 1  # none is broken
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Lesson").click()
    view_of(page, "lesson-view")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    weak = page.evaluate(
        f"() => {{ {MEASURE}; return weak(document.getElementById('lesson-view'), 4.5); }}"
    )
    assert not weak, weak[:8]
    page.get_by_role("tab", name="Bench").click()
    expect(page.locator("#bench-words table").first).to_be_visible()
    expect(page.locator("#bench-plot-0 .js-plotly-plot")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_says_what_it_is_to_a_screen_reader(drawn):
    page = drawn()
    for role, name in (
        ("tablist", "Views of the round"),
        ("group", "Replay"),
        ("slider", "Moment of the race"),
        ("combobox", "Replay speed"),
        ("button", "Play"),
        ("tabpanel", "Tree"),
    ):
        expect(page.get_by_role(role, name=name)).to_have_count(1)
    page.evaluate("document.getElementById('race').specdemo.openRound(0)")
    expect(page.locator(".sd [aria-live=polite]")).to_have_text(
        "Round 1: 3 draft tokens accepted, 4 tokens generated."
    )
    unnamed = page.evaluate(
        "[...document.querySelectorAll('.sd button, .sd input, .sd select, .sd"
        " svg[role=img]')].filter((n) => !n.getAttribute('aria-label') && !n.textContent.trim() &&"
        " !n.closest('label')).length"
    )
    assert unnamed == 0


def test_the_sign_of_a_correction_stays_with_its_word(drawn):
    page = drawn("block")
    signs = 0
    for width in range(330, 520, 17):
        page.set_viewport_size({"width": width, "height": 800})
        tops = page.evaluate("""() => {
          const signs = [...document.querySelectorAll(".sd-lane-spec [data-at] > .sd-sign")];
          return signs.map((sign) => {
            const range = document.createRange(), text = sign.nextSibling;
            range.setStart(text, 0);
            range.setEnd(text, 1);
            return [sign.getBoundingClientRect().top, range.getBoundingClientRect().top];
          });
        }""")
        for sign, word in tops:
            signs += 1
            assert abs(sign - word) < 15, (
                f"{width} pixels: a sign stands at {sign}, its word at {word}"
            )
    assert signs > 30
    boxed = page.evaluate(
        "[...document.querySelectorAll('.sd-lane-spec .sd-correction[data-at]')].map((token) =>"
        " token.textContent)"
    )
    assert boxed and not any(text != text.lstrip() for text in boxed if text.strip()), (
        "the box begins with its word, so no sliver of it ends a line"
    )
    written, shown = page.evaluate("""() => {
      const lane = document.querySelector(".sd-lane-spec .sd-text").cloneNode(true);
      lane.querySelectorAll(".sd-rejected-here, .sd-pending").forEach((node) => node.remove());
      const { trace } = document.getElementById("race").specdemo;
      return [trace.spec.map((token) => token.text).join(""), lane.textContent];
    }""")
    assert shown == written
