"""A page that is loaded again while its race runs finds it; nobody else does."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_backend import FakeBackend
from tools import fill, press, serving, state, until, view_of

from specdemo.ui.controls import Limits
from specdemo.ui.found_again import GONE, WAITED, WAITING, find_again
from specdemo.ui.messages import Ended, Run, Status
from specdemo.ui.race_queue import RaceQueue
from specdemo.ui.streaming import Runs

pytestmark = pytest.mark.slow

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)


def test_a_race_belongs_to_the_session_that_finds_it():
    queue = RaceQueue()
    ticket = queue.enter("before")
    assert queue.begin("before") is ticket
    assert queue.find("", "thief") is None, "a race that has not begun has no name"
    ticket.run = "name"
    assert queue.find("other", "thief") is None
    queue.leave("before", patience=60)
    assert not ticket.cancel.is_set() and queue.has_listener("before")
    assert queue.find("name", "after") is ticket and ticket.session == "after"
    queue._abandon(ticket)
    queue.leave("before")
    assert not ticket.cancel.is_set(), "the page that has gone has nothing left to end"
    assert queue.stop("after") is ticket and ticket.cancel.is_set()
    assert queue.find("name", "again") is None and not queue.has_listener("before")


def test_a_race_that_no_page_comes_back_for_is_ended():
    queue = RaceQueue()
    ticket = queue.enter("a")
    queue.begin("a")
    ticket.run = "name"
    queue.leave("a", patience=0.01)
    assert ticket.cancel.wait(10) and not queue.held
    waiting = queue.enter("b")
    queue.leave("b", patience=60)
    assert waiting.cancel.is_set(), "a place in the queue is given up at once"


def test_what_is_left_of_a_race_that_is_over():
    runs, queue = Runs(), RaceQueue()
    runs.open("name").append({"kind": "start"})
    server, page = SimpleNamespace(runs=runs, queue=queue), SimpleNamespace(session_hash="after")
    events, ended = find_again(server, "name", page)
    assert (events["offset"], events["run"]["id"]) == (0, "name")
    assert (ended["type"], ended["total"]) == ("ended", 1)
    (gone,) = find_again(server, "another", page)
    assert gone["text"] == GONE and gone["run"] is None
    (waited,) = find_again(server, WAITING, page)
    assert waited["text"] == WAITED


def test_what_a_race_waits_for_is_said_again_after_a_reload():
    """A model that is being loaded: there are no events yet, and the listener goes on."""
    queue, request = RaceQueue(), SimpleNamespace(stepping=False, local_browser=False, to_dict=dict)
    server, page = SimpleNamespace(runs=Runs(), queue=queue), SimpleNamespace(session_hash="b")
    ticket = queue.enter("a", request)
    queue.begin("a")
    ticket.run = "name"
    ticket.say(Status("Loading …", Run("name")).to_dict())
    messages = find_again(server, "name", page)
    assert next(messages)["text"] == "Loading …"
    server.runs.open("name").append({"kind": "start"})
    assert next(messages)["type"] == "events"
    ticket.say(Ended(Run("name"), 1, "Stopped.").to_dict())
    queue.finish(ticket)
    assert next(messages)["text"] == "Stopped." and not list(messages)


@pytest.mark.browser
def test_a_reload_in_mid_run_goes_on_with_its_race(assets, browser):
    backend = FakeBackend()
    limits = replace(Limits(), return_seconds=60.0)
    with serving(backend, assets, limits=limits) as (url, demo):
        page = browser.new_context().new_page()
        page.goto(url)
        view = view_of(page)
        fill(page, "prompt", "Go on slowly, but wait here")
        press(page, "Run")
        expect(view.locator(".sd-badge")).to_have_text("live")
        until(lambda: state(page, "view.trace.rounds.length") > 2)
        page.reload()
        view = view_of(page)
        expect(view.locator(".sd-badge")).to_have_text("live")
        expect(view.locator(".sd-prompt")).to_have_text("Go on slowly, but wait here")
        until(lambda: state(page, "view.trace.rounds.length") > 2)
        assert backend.running == 1 and len(backend.asked) == 1
        backend.gate.set()
        expect(view.locator(".sd-badge")).to_have_text("finished")
        written = state(page, "view.trace.spec.length")
        assert written == state(page, "view.trace.start.max_new_tokens")
        assert page.evaluate("sessionStorage.getItem('specdemo-run')") is None
        until(lambda: not demo.races.queue.tickets)
        page.context.close()
