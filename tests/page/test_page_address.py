"""The address of the page: share links, reloads, and what it keeps of a run."""

from __future__ import annotations

import pytest
from tools import fill, press, state, view_of

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_a_broken_link_is_named(served, open_page):
    page = open_page(f"{served}?method=nope&seed=abc&new=999999&prompt=Still%20here")
    view = view_of(page)
    expect(view.locator(".sd-banner")).to_contain_text("(method, seed, new)")
    expect(page.locator("#prompt textarea")).to_have_value("Still here")
    # pages of their own: Gradio's own client complains on the console of a page that is left early
    page = open_page(f"{served}?method=block&params=%7B%22gamma%22%3A999%7D")
    expect(view_of(page).locator(".sd-banner")).to_contain_text("(gamma)")
    page = open_page(f"{served}?method=block&seed=4&new=20")
    view_of(page)
    page.locator("#settings button").first.click()
    expect(page.locator("#new-tokens input[type=number]")).to_have_value("20")
    expect(page.locator("#race-view .sd-banner")).to_be_hidden()


def test_a_shared_prompt_waits_for_run(served, open_page):
    """No recording of another prompt plays; recordings can be chosen, and the link be passed on."""
    page = open_page(f"{served}?prompt=Name%20three%20animals.&method=block")
    view = view_of(page)
    banner = view.locator(".sd-banner")
    expect(banner).to_contain_text("press Run")
    expect(page.locator("#prompt textarea")).to_have_value("Name three animals.")
    expect(view.locator(".sd-prompt")).to_have_text("Name three animals.")
    expect(view.locator(".sd-badge")).to_have_text("shared prompt")
    assert state(page, "view.trace.events.length") == 0 and not state(page, "view.player.playing")
    page.locator("#share").click()
    assert "prompt=Name%20three%20animals." in view.locator(".sd-link").input_value()
    view.locator(".sd-recordings select").select_option("block")
    expect(view.locator(".sd-badge")).not_to_have_text("shared prompt")
    expect(banner).to_be_hidden()


def test_a_reload_in_mid_run_brings_prompt_and_settings_back(served, open_page):
    page = open_page(f"{served}?__theme=dark")
    view_of(page)
    page.locator("#method input").click()
    page.get_by_role("option", name="specdiff: Method specdiff", exact=True).click()
    page.locator("#settings button").first.click()
    # else the number goes to the method before
    expect(page.get_by_label("number input for steps").locator("visible=true")).to_have_count(1)
    fill(page, "seed", "42")
    page.get_by_label("number input for gamma").locator("visible=true").fill("9")
    fill(page, "prompt", 'Grüße & "quotes" <b>, please wait here')
    press(page, "Run")
    expect(page.locator("#race-view .sd-badge")).to_have_text("live")
    # as a reload would; Gradio's own client complains on the console of a page that leaves in
    # mid-run
    page = open_page(page.url)
    view_of(page)
    expect(page.locator("#prompt textarea")).to_have_value('Grüße & "quotes" <b>, please wait here')
    expect(page.locator("#method input")).to_have_value("specdiff: Method specdiff")
    page.locator("#settings button").first.click()
    expect(page.locator("#seed input")).to_have_value("42")
    expect(page.get_by_label("number input for gamma").locator("visible=true")).to_have_value("9")
    assert "__theme=dark" in page.url


def test_what_was_asked_is_known_though_its_own_message_was_lost(served, open_page):
    """Gradio may merge two messages into the later one; the first of a run says once more what was
    asked.
    """
    page = open_page(served)
    view = view_of(page)
    state(
        page,
        "view.receive({type: 'status', text: 'Loading …', run: {id: 'x', live: true, request:"
        " {prompt: 'Merged', method: 'block', sampling: {seed: 3}}}})",
    )
    expect(view.locator(".sd-prompt")).to_have_text("Merged")
    expect(view.locator(".sd-banner")).to_have_text("Loading …")
    assert "prompt=Merged" in page.url and "seed=3" in page.url


def test_an_address_never_grows_past_what_servers_take(served, open_page):
    page = open_page(served)
    view_of(page)
    fill(page, "prompt", "長" * 3000 + " wait here")
    press(page, "Run")
    expect(page.locator("#race-view .sd-badge")).to_have_text("live")
    assert "method=" in page.url and "prompt=" not in page.url and len(page.url) < 8200
    page = open_page(page.url)
    view_of(page)
    expect(page.locator("#race-view .sd-banner")).to_be_hidden()
