"""Many visitors at once: one race at a time, each gets their own, and nothing is left running when
they stop, reload or leave.
"""

from __future__ import annotations

import json
import random

import pytest
from fake_backend import FakeBackend
from fake_race import NAMES, fake_events
from tools import WAIT, fill, press, until, view_of

from specdemo.ui.controls import Limits

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_two_visitors_wait_in_line_and_both_finish(assets, open_page, serve):
    held = FakeBackend()
    url, _ = serve(held, assets)
    one, two = open_page(url), open_page(url)
    prompts = {one: "Please wait here", two: "From the second visitor"}
    for page, prompt in prompts.items():
        view_of(page)
        fill(page, "prompt", prompt)
        press(page, "Run")
        if page is one:
            expect(page.locator("#race-view .sd-badge")).to_have_text("live")
    expect(two.locator("#race-view .sd-banner")).to_contain_text("One race is ahead of yours")
    press(two, "Stop")
    expect(two.locator("#race-view .sd-banner")).to_have_text("Stopped before it began.")
    prompts[two] = "Changed my mind"
    fill(two, "prompt", prompts[two])
    press(two, "Run")
    expect(two.locator("#race-view .sd-banner")).to_contain_text("One race is ahead of yours")
    held.gate.set()
    for page, prompt in prompts.items():
        page.wait_for_function(
            "document.querySelector('#race-view .sd-lane-spec .sd-count').textContent == 96"
        )
        expect(page.locator("#race-view .sd-prompt")).to_have_text(prompt)
        expect(page.locator("#race-view .sd-verdict-word")).to_have_text("identical")
    assert (
        held.most == 1
        and held.running == 0
        and [a.prompt for a in held.asked] == list(prompts.values())
    )


def test_a_closed_tab_leaves_nothing_running(assets, browser, serve):
    slow = FakeBackend()
    url, _ = serve(slow, assets)
    page = browser.new_page()
    page.goto(url)
    view_of(page)
    fill(page, "prompt", "Please wait here")
    press(page, "Run")
    page.wait_for_function("document.querySelector('#race-view .sd-badge').textContent == 'live'")
    page.close()
    until(lambda: slow.finished == 1 and slow.running == 0)


@pytest.mark.parametrize("many", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_many_visitors_some_of_whom_leave(assets, serve, many):
    """Many in line, every third gives up: the others get their own race, in order, one at a time,
    and nothing is left running.
    """
    client_of = pytest.importorskip("gradio_client")
    crowd = FakeBackend(pace=0.01)
    url, _ = serve(crowd, assets, limits=Limits(calls=20, calls_per_address=20))
    visitors = [client_of.Client(url, verbose=False, download_files=False) for _ in range(many)]
    jobs = [
        c.submit(
            prompt=f"Visitor {k}" + (" wait here" if k == 0 else ""),
            method=NAMES[k % 10],
            max_new_tokens=16,
            api_name="/race",
        )
        for k, c in enumerate(visitors)
    ]
    until(lambda: crowd.running == 1)
    left = [k for k in range(many) if k % 3 == 1]
    for k in left:
        jobs[k].cancel()
    crowd.gate.set()
    stayed = [k for k in range(many) if k not in left]
    for k in stayed:
        jobs[k].result(timeout=120)
        events = [e for text in jobs[k].outputs() for e in json.loads(text)]
        assert events[0]["prompt"].startswith(f"Visitor {k}") and events[-1]["kind"] == "done"
        assert [e["kind"] for e in events] == [
            e.kind for e in fake_events(method=NAMES[k % 10], tokens=16)
        ]
    until(lambda: crowd.running == 0)
    assert crowd.most == 1
    assert {int(a.prompt.split()[1]) for a in crowd.asked} >= set(stayed)


@pytest.fixture
def tabs(browser, serve, request):
    """Pages of visitors, each with a browser profile of its own (tabs of one profile share six
    connections).
    """
    contexts = [
        browser.new_context(viewport={"width": 390, "height": 700}, reduced_motion="reduce")
        for _ in range(request.param)
    ]
    yield [context.new_page() for context in contexts]
    for context in contexts:
        context.close()


# a tab is four seconds of work for two cores; 20 fill the queue
@pytest.mark.parametrize("tabs", [3, pytest.param(12, marks=pytest.mark.slow)], indirect=True)
def test_tabs_run_stop_and_reload_at_random(assets, tabs, serve, monkeypatch):
    """Whoever ended with Run sees their own race to its end, the others nobody else's; when all
    tabs are closed the server remembers none of them.
    """
    from specdemo.ui import page as layout

    servers, errors, rng, crowd = [], [], random.Random(51), FakeBackend(pace=0.002)
    monkeypatch.setattr(
        layout, "Server", lambda *a, real=layout.Server: servers.append(real(*a)) or servers[-1]
    )
    url, _ = serve(crowd, assets, limits=Limits(queue=40))
    queue, own, last = servers[0].queue, {t: set() for t in tabs}, {}
    for tab in tabs:
        tab.set_default_timeout(2 * WAIT)
        tab.on("pageerror", lambda e: errors.append(str(e)))
        tab.goto(url)
        view_of(tab)
        own[tab].add(tab.locator("#race-view .sd-prompt").inner_text())
    pressed = set()
    for n in range(3 * len(tabs)):
        tab = tabs[n] if n < len(tabs) else rng.choice(tabs)
        last[tab] = rng.choice(["run", "run", "stop", "reload"]) if n >= len(tabs) else "run"
        pressed.add(last[tab])
        if last[tab] == "reload":
            tab.reload()
            view_of(tab)
            continue
        if last[tab] == "run":
            prompt = f"Visitor {tabs.index(tab)}, prompt {n}"
            own[tab].add(prompt)
            fill(tab, "prompt", prompt)
        press(tab, last[tab].title())
        last[tab] = prompt if last[tab] == "run" else last[tab]
    assert pressed == {"run", "stop", "reload"}
    until(lambda: crowd.running == 0 and not queue.tickets, 60)
    for tab in tabs:
        if last[tab].startswith("Visitor"):
            expect(tab.locator("#race-view .sd-prompt")).to_have_text(last[tab])
            expect(tab.locator("#race-view .sd-verdict-word")).to_have_text("identical")
        else:
            assert tab.locator("#race-view .sd-prompt").inner_text() in own[tab]
    assert (
        sum(1 for how in last.values() if how.startswith("Visitor")) >= len(tabs) / 4
        and crowd.most == 1
        and not errors
    ), errors
    for tab in tabs:
        tab.close()
    until(lambda: not (queue.tickets or queue.held or servers[0].last), 30)
    assert crowd.running == 0 and len(servers[0].runs.runs) <= servers[0].runs.kept
