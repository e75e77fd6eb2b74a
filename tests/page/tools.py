"""A served page and its race view, for the tests of the page."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT = 30_000  # milliseconds; two busy cores are slow


@contextmanager
def serving(backend, assets: Path, methods=None, pairs=None, **more):
    """A page on a free port, with made-up methods and pairs unless given: (url, demo). A closed tab
    ends its race at once, not when no page has come back, so that no test waits for another's.
    """
    from fake_backend import METHODS, PAIRS

    from specdemo.ui.controls import Limits
    from specdemo.ui.page import build_demo, launch_options

    more.setdefault("limits", replace(Limits.from_env(), return_seconds=0.0))
    demo = build_demo(backend, methods or METHODS, pairs or PAIRS, assets=assets, **more)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options(demo))
    try:
        yield url, demo
    finally:
        demo.close()


def write_assets(folder: Path) -> Path:
    """Recordings of all methods, made up."""
    from fake_race import NAMES, fake_events

    from specdemo.traces import save_trace

    (folder / "traces").mkdir()
    (folder / "bench").mkdir()
    for name in NAMES:
        save_trace(list(fake_events(method=name, tokens=24)), folder / "traces" / f"{name}.json")
    for name in ("hard", "specdiff-few", "specdiff-many"):
        save_trace(
            list(fake_events(method="specdiff", tokens=24)), folder / "traces" / f"{name}.json"
        )
    from fake_backend import fake_report

    from specdemo.bench.report import save_report

    save_report(
        fake_report(["best", "block"], [("code", "one"), ("maths", "two")]),
        folder / "bench" / "made-up.json",
    )
    return folder


def view_of(page, name: str = "race-view"):
    """The race view's root element, when it is drawn."""
    view = (
        page.locator(f"#{name} .sd").last
        if name == "lesson-view"
        else page.locator(f"#{name} .sd").first
    )
    view.locator(".sd-lanes").wait_for()
    return view


def state(page, script: str, name: str = "race-view"):
    """Evaluate ``script`` with ``view`` (the renderer's object) in scope."""
    return page.evaluate(
        f"() => {{ const found = [...document.querySelectorAll('#{name} *')].find((n) =>"
        f" n.specdemo); const view = found.specdemo.view || found.specdemo; return {script}; }}"
    )


def page_state(page, script: str):
    """In an exported page: evaluate ``script`` with ``view`` in scope."""
    return page.evaluate(
        f"() => {{ const view = document.getElementById('race').specdemo; return {script}; }}"
    )


def open_every_view(page) -> dict[str, list]:
    """In an exported page: open all rounds in all views of a round. {"shown": [round, view] of
    those that show something, "empty": of those that do not}
    """
    return page.evaluate("""() => {
      const { specdemo: view } = document.getElementById("race");
      const found = { shown: [], empty: [] };
      for (const { index } of view.trace.rounds) {
        view.openRound(index);
        for (const tab of document.querySelectorAll(".sd-tabs [role=tab]")) {
          tab.click();
          const stage = document.querySelector(".sd-stage");
          const something = stage.innerText.trim() || stage.querySelector("svg");
          found[something ? "shown" : "empty"].push([index, tab.textContent]);
        }
      }
      return found;
    }""")


def until(holds, patience: float = 20.0):
    """Wait for something on the server's side."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def press(page, name: str):
    page.get_by_role("button", name=name, exact=True).first.click()


def fill(page, name: str, text: str):
    """Type, and see that it stays: on a busy machine Gradio may still be putting the page's first
    values in place. It has when the page says how the model is doing, and has drawn that.
    """
    page.wait_for_function("document.querySelector('#status').textContent.trim()")
    box = page.locator(f"#{name} textarea, #{name} input").first
    for _ in range(8):
        box.fill(text)
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
        if box.input_value() == text:
            return
    raise AssertionError(f"#{name} does not keep {text!r}")
