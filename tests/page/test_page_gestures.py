"""Whatever a visitor does, the page goes on working and its console stays without errors."""

from __future__ import annotations

import os
import random

import pytest
from tools import WAIT, fill, press, view_of

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=WAIT)
pytestmark = pytest.mark.slow

GESTURES = 300
SEED = int(os.environ.get("SPECDEMO_SEED", "16"))
SIZES = ((1280, 720), (390, 844), (1440, 900), (700, 400), (320, 568))
KEYS = (
    *("Space", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp"),
    *("PageDown", "Tab", "Shift+Tab", "Enter", "Escape", "p", "b", "7", "Backspace"),
)
# where something on the screen can be pressed; links lead away, the footer is Gradio's own
PLACES = """() => {
  const pressed = "button, summary, input, select, textarea, label, [tabindex='0'], .sd-stage *";
  const places = [];
  for (const node of document.querySelectorAll(pressed)) {
    if (node.closest("footer, a, [inert], .sd-print, input[type=file]")) continue;
    const { x, y, width, height } = node.getBoundingClientRect();
    const at = [x + width / 2, y + height / 2];
    if (width > 1 && at[0] > 0 && at[1] > 0 && at[0] < innerWidth && at[1] < innerHeight)
      if (!document.elementFromPoint(...at)?.closest("a, footer")) places.push(at);
  }
  return places;
}"""


class Visitor:
    """Makes random gestures and remembers them."""

    def __init__(self, page, errors: list[str], seed: int):
        self.page, self.errors, self.random = page, errors, random.Random(seed)
        self.made: list[str] = []
        page.on("console", self.on_console)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("filechooser", lambda chooser: None)
        self.leaving = False

    def on_console(self, message) -> None:
        # a page that is left in the middle of a call: Gradio's client complains
        if message.type == "error" and not self.leaving:
            self.errors.append(message.text)

    def gesture(self) -> None:
        acts = (
            (self.click, 40),
            (self.key, 30),
            (self.drag, 8),
            (self.scroll, 8),
            (self.tab, 5),
            (self.run_or_stop, 5),
            (self.resize, 3),
            (self.theme, 2),
            (self.reload, 0.7),
        )
        (act,) = self.random.choices([a for a, _ in acts], [w for _, w in acts])
        self.made.append(act.__name__)
        act()

    def place(self) -> tuple[float, float]:
        places = self.page.evaluate(PLACES)
        return self.random.choice(places) if places else (5, 5)

    def click(self) -> None:
        at = self.place()
        self.made[-1] = f"click {at[0]:.0f} {at[1]:.0f}"
        self.page.mouse.click(*at)

    def key(self) -> None:
        key = self.random.choice(KEYS)
        self.made[-1] = key
        self.page.keyboard.press(key)

    def drag(self) -> None:
        (x, y), (to_x, to_y) = self.place(), self.place()
        self.made[-1] = f"drag {x:.0f} {y:.0f} {to_x:.0f} {to_y:.0f}"
        mouse = self.page.mouse
        mouse.move(x, y)
        mouse.down()
        mouse.move(to_x, to_y, steps=3)
        mouse.up()

    def scroll(self) -> None:
        self.page.mouse.wheel(0, self.random.choice((-2000, -300, 300, 900)))

    def tab(self) -> None:
        """On the narrowest screen some are in a menu, which :meth:`click` may open."""
        name = self.random.choice(("Race", "Lesson", "Bench"))
        self.made[-1] = name
        self.page.evaluate(
            "(name) => [...document.querySelectorAll('#tabs [role=tab]')]"
            ".find((tab) => tab.textContent.trim() === name)?.click()",
            name,
        )

    def run_or_stop(self) -> None:
        name = self.random.choice(("run", "run", "stop", "step"))
        self.made[-1] = name
        self.page.evaluate("(name) => document.getElementById(name).click()", name)

    def resize(self) -> None:
        width, height = self.random.choice(SIZES)
        self.made[-1] = f"{width} × {height}"
        self.page.set_viewport_size({"width": width, "height": height})

    def theme(self) -> None:
        self.page.evaluate("document.getElementById('theme').click()")

    def reload(self) -> None:
        self.leaving = True
        self.page.reload()
        # on the tab that the address names
        self.page.locator("#race-view .sd-lanes").first.wait_for(state="attached")
        self.leaving = False


def test_random_gestures_leave_a_page_that_works(served, browser):
    page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
    page.set_default_timeout(WAIT)
    errors: list[str] = []
    page.goto(served)
    view_of(page)
    visitor = Visitor(page, errors, SEED)
    for _ in range(GESTURES):
        visitor.gesture()
        assert not errors, (SEED, visitor.made, errors)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Race").click()
    press(page, "Stop")
    fill(page, "prompt", "It works")
    press(page, "Run")
    view = view_of(page)
    expect(view.locator(".sd-prompt")).to_have_text("It works")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    assert not errors, (SEED, visitor.made, errors)
    visitor.leaving = True
    page.context.close()
