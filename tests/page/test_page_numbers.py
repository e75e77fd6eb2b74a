"""The number fields of the settings: emptied or beyond their limits."""

from __future__ import annotations

import pytest
from tools import fill, press, view_of

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_no_number_is_emptied_into_another_or_limited_without_a_word(served, backend, open_page):
    page = open_page(served)
    view = view_of(page)
    fill(page, "prompt", "Numbers")
    page.locator("#settings > button").click()
    field = page.locator("#new-tokens input[type=number]")
    expect(field).to_have_value("96")
    field.fill("")
    field.press("Tab")
    expect(field).to_have_value("96")
    banner = view.locator(".sd-banner")
    expect(banner).to_have_text("New tokens cannot be empty; 96 stays.")
    field.fill("5000")
    field.press("Tab")
    expect(banner).to_have_text("New tokens goes from 1 to 1024; 5000 becomes 1024.")
    field.fill("24")
    field.press("Tab")
    seed = page.locator("#seed input")
    seed.fill("")
    seed.press("Tab")
    expect(seed).to_have_value("0")
    page.keyboard.press("Escape")
    press(page, "Run")
    expect(view.locator(".sd-badge")).to_have_text("finished")
    assert backend.asked[-1].max_new_tokens == 24 and backend.asked[-1].sampling.seed == 0
