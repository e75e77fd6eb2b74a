"""The page on the embedded pair: what is on the screen is what the engine wrote."""

from __future__ import annotations

import re

import pytest
from tools import serving, state, view_of

from specdemo.drafters import METHODS
from specdemo.engine import race
from specdemo.request import Request
from specdemo.ui.backend import Backend

expect = pytest.importorskip("playwright.sync_api").expect


def test_a_real_race_on_the_page(engine_bf16, assets, open_page):
    class Loaded(Backend):
        def load(self, pair, progress):
            return engine_bf16

    prompt = "Name three colours of the rainbow."
    pairs = {engine_bf16.loaded.pair.id: engine_bf16.loaded.pair}
    with serving(Loaded(), assets, METHODS, pairs) as (url, _):
        page = open_page(f"{url}?method=d2sd&new=16")
        view = view_of(page)
        expect(page.locator("#method input")).to_have_value(re.compile(METHODS["d2sd"].title))
        page.locator("#prompt textarea").fill(prompt)
        page.get_by_role("button", name="Run", exact=True).first.click()
        expect(view.locator(".sd-badge")).to_have_text("finished", timeout=120_000)
        expect(view.locator(".sd-verdict-word")).to_have_text("identical")
        shown = state(
            page,
            "[view.trace.ar.map((t) => t.id), view.trace.spec.map((t) => t.id),"
            " view.trace.events.at(-1).result.output_ids]",
        )
    alone = list(race(engine_bf16, Request(prompt, "d2sd", max_new_tokens=16)))[-1].result[
        "output_ids"
    ]
    assert shown == [alone, alone, alone]
