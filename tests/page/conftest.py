"""One browser and one served page for all tests of this folder."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from fake_race import FakeBackend
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


@pytest.fixture
def open_page(browser, serve):
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


@pytest.fixture(scope="session")
def assets(tmp_path_factory):
    return write_assets(tmp_path_factory.mktemp("assets"))


@pytest.fixture(scope="session")
def backend():
    return FakeBackend(pace=0.08)


@pytest.fixture(scope="session")
def served(backend, assets):
    """One page for all tests that do not need a special one."""
    with serving(backend, assets) as (url, _):
        yield url
