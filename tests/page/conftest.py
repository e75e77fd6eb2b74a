"""One browser and one served page for all tests of this folder."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from fake_backend import FakeBackend
from tools import ARGS, CHROMIUM, WAIT, serving, write_assets


@pytest.fixture(scope="session")
def browser():
    sync = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        (pytest.fail if os.environ.get("SPECDEMO_NEEDS_BROWSER") else pytest.skip)(
            "needs a Chromium on the PATH"
        )
    with sync.sync_playwright() as p:
        made = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield made
        made.close()


@pytest.fixture
def serve():
    """Serves pages of this test's own, (url, demo) each; the fixtures that open tabs are torn down
    first, so no tab sees its server go.
    """
    with ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(serving(*args, **more))


@pytest.fixture(scope="session")
def tabs_at_rest(browser):
    """Tabs between two tests, by whether they have a network. A new tab compiles all of Gradio, two
    seconds of work; one that showed the page before has it ready.
    """
    return {False: [], True: []}


@pytest.fixture
def open_page(browser, serve, tabs_at_rest):
    """Opens pages, each in a profile of its own, and fails the test for every error on their
    consoles. Nothing of one test's page is left in the next one's: storage is emptied, and the tab
    leaves the page, which ends its races.
    """
    errors, opened = [], []

    def on_console(message):
        if message.type == "error":
            errors.append(message.text)

    def on_error(error):
        errors.append(str(error))

    def make(
        url: str,
        width: int = 1280,
        height: int = 900,
        offline: bool = False,
        reduced_motion: str = "no-preference",
        color_scheme: str = "light",
    ):
        page = (
            tabs_at_rest[offline].pop()
            if tabs_at_rest[offline]
            else browser.new_context(offline=offline).new_page()
        )
        opened.append((page, offline))
        page.set_default_timeout(WAIT)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(reduced_motion=reduced_motion, color_scheme=color_scheme)
        page.on("console", on_console)
        page.on("pageerror", on_error)
        page.goto(url)
        return page

    yield make
    for page, offline in opened:
        page.remove_listener("console", on_console)
        page.remove_listener("pageerror", on_error)
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.context.clear_cookies()
        page.goto("about:blank")
        tabs_at_rest[offline].append(page)
    assert not errors, errors


@pytest.fixture(scope="session")
def assets(tmp_path_factory):
    return write_assets(tmp_path_factory.mktemp("assets"))


@pytest.fixture(scope="session")
def backend():
    return FakeBackend(pace=0.01)


@pytest.fixture(scope="session")
def served(backend, assets):
    """One page for all tests that do not need a special one."""
    with serving(backend, assets) as (url, _):
        yield url


@pytest.fixture
def exported(tmp_path, open_page):
    """Opens an exported page from disk, with the network switched off."""

    def make(events, name="race.html", **options):
        from specdemo.ui.export import export_html

        path = tmp_path / name
        path.write_text(export_html(events), encoding="utf-8")
        return open_page(path.as_uri(), offline=True, **options)

    return make
