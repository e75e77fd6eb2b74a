"""A browser and a served page for the tests of the page. Import the fixtures by name."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

CHROMIUM = "/usr/bin/chromium"
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WAIT = 30_000  # milliseconds; two busy cores are slow


@pytest.fixture(scope="session")
def browser():
    sync = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip("needs /usr/bin/chromium")
    with sync.sync_playwright() as p:
        made = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield made
        made.close()


@pytest.fixture
def open_page(browser):
    """Opens pages and fails the test for every error on their consoles."""
    errors, contexts = [], []

    def make(url: str, width: int = 1280, height: int = 900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.goto(url)
        return page

    yield make
    for context in contexts:
        context.close()
    assert not errors, errors


@contextmanager
def serving(backend, assets: Path, **more):
    """A page on a free port: (url, demo)."""
    from fake_race import METHODS, PAIRS

    from specdemo.ui.page import build_demo, launch_options

    demo = build_demo(backend, METHODS, PAIRS, assets=assets, **more)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False, server_port=None, **launch_options())
    try:
        yield url, demo
    finally:
        demo.close()


def write_assets(folder: Path) -> Path:
    """Recordings of all methods, made up."""
    from fake_race import NAMES, fake_events

    from specdemo.events import save_trace

    (folder / "traces").mkdir()
    (folder / "bench").mkdir()
    for name in NAMES:
        save_trace(list(fake_events(method=name, tokens=24)), folder / "traces" / f"{name}.json")
    for name in ("hard", "specdiff-few", "specdiff-many"):
        save_trace(list(fake_events(method="specdiff", tokens=24)), folder / "traces" / f"{name}.json")
    from fake_race import fake_report

    from specdemo.bench.report import save_report

    save_report(fake_report(["best", "block"], [("code", "one"), ("maths", "two")]), folder / "bench" / "made-up.json")
    return folder


@pytest.fixture(scope="session")
def assets(tmp_path_factory):
    return write_assets(tmp_path_factory.mktemp("assets"))


@pytest.fixture(scope="session")
def backend():
    from fake_race import FakeBackend

    return FakeBackend(pace=0.05)


@pytest.fixture(scope="session")
def served(backend, assets):
    """One page for all tests that do not need a special one."""
    with serving(backend, assets) as (url, _):
        yield url


def view_of(page, name: str = "race-view"):
    """The race view's root element, when it is drawn."""
    view = page.locator(f"#{name} .sd").last if name == "lesson-view" else page.locator(f"#{name} .sd").first
    view.locator(".sd-lanes").wait_for()
    return view


def state(page, script: str, name: str = "race-view"):
    """Evaluate ``script`` with ``view`` (the renderer's object) in scope."""
    return page.evaluate(f"() => {{ const found = [...document.querySelectorAll('#{name} *')].find((n) => n.specdemo); const view = found.specdemo.view || found.specdemo; return {script}; }}")
