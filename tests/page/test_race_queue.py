"""Who waits and who runs, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specdemo.errors import UserError
from specdemo.ui import race_queue
from specdemo.ui.gradio_queue import GuardedQueue
from specdemo.ui.race_queue import CLAIM_SECONDS, RaceQueue


def test_a_press_that_arrives_after_its_tab_was_closed_is_not_counted():
    queue = RaceQueue(most=300, per_address=300)
    queue.in_line = lambda: {"a", "b"} | {f"s{k}" for k in range(200)}
    queue.leave("a")
    orphan = queue.enter("a", "too late")  # the tab is gone and nobody will come for it
    other = queue.enter("b")
    assert queue.position(other) == 0
    assert queue.begin("a") is orphan and orphan.request == "too late", (
        "but if the line was only broken for a moment, it runs"
    )
    for k in range(200):
        queue.leave(f"s{k}")
        queue.enter(f"s{k}")
    assert len(queue.tickets) < 40 and queue.position(queue.enter("c")) <= 2
    assert queue.begin("b") is other, "a visitor's own ticket is never thrown away"


def test_a_ticket_ends_by_a_newer_one_by_stop_and_by_leaving():
    queue = RaceQueue()
    first = queue.enter("a", "a request")
    running = queue.begin("a")
    assert running is first and queue.begin("a") is None, "one ticket, one run"
    second = queue.enter("a")
    assert running.cancel.is_set(), "Run again means: this one instead"
    assert queue.stop("a") is second and not second.started
    assert queue.tickets == [first] and queue.begin("a") is None, (
        "given back while waiting, and forgotten at once"
    )
    third = queue.enter("a")
    assert queue.begin("a") is third
    assert queue.stop("a") is third and third.started and third.cancel.is_set()
    queue.finish(first)
    queue.finish(third)
    assert queue.stop("a") is None and queue.begin("never came") is None
    assert not queue.tickets and not queue.held
    queue.in_line = lambda: {"a", "b"}
    other = queue.enter("b")
    queue.enter("a")
    third = queue.enter("c")
    assert (queue.position(other), queue.position(third)) == (0, 2)
    assert not queue.begin("b").cancel.is_set(), "one visitor's Stop is nobody else's"
    queue.stop("a")
    assert queue.position(third) == 1, "who gave up is not waited for"
    queue.stop("b")
    assert queue.position(third) == 0, "nor a race that is ending"


def test_a_turn_is_taken_only_by_what_asked_for_it():
    """Measure, then Run: the bench's turn must not begin the race."""
    queue = RaceQueue()
    queue.enter("a", "a bench")
    race = queue.enter("a", 7)
    assert queue.begin("a", str) is None
    assert queue.begin("a", (int, UserError)) is race


def test_a_ticket_nobody_came_for_does_not_count_and_is_forgotten():
    now = [0.0]
    queue = RaceQueue(clock=lambda: now[0])
    queue.enter("never comes")
    queue.enter("in line")
    mine = queue.enter("mine")
    queue.in_line = lambda: {"in line", "mine"}
    assert queue.position(mine) == 1 and queue.waiting() == 2
    assert len(queue.tickets) == 3, "its page may still be on the way"
    now[0] = CLAIM_SECONDS + 1
    assert queue.position(mine) == 1 and len(queue.tickets) == 2
    assert isinstance(queue.begin("never comes").request, UserError)
    assert queue.begin("in line") is not None


def test_tickets_are_bounded_and_shared_among_addresses(monkeypatch):
    now = [0.0]
    queue = RaceQueue(most=3, per_address=4, clock=lambda: now[0])
    for k in range(4):
        queue.enter(f"a{k}", address="1.2.3.4")
    with pytest.raises(UserError, match="4 races from your network address"):
        queue.enter("a4", address="1.2.3.4")
    queue.enter("a0", address="1.2.3.4")  # one page, one ticket: the older is given back
    for k in range(2):
        queue.enter(f"b{k}", address="5.6.7.8")
    queue.in_line = lambda: {"a1", "b0"}
    monkeypatch.setattr(race_queue, "ON_THE_WAY", 4)
    queue.enter("c", address="9.9.9.9")
    assert "a2" not in queue.held, "the one that nobody came for since longest gives way"
    queue.in_line = lambda: {"a1", "b0", "c"}
    with pytest.raises(UserError, match="Too many races"):
        queue.enter("d", address="9.9.9.9")
    assert len(queue.tickets) == 6 and len(queue.held) == 6
    queue.in_line = set
    now[0] = CLAIM_SECONDS + 1
    queue.enter("c", address="9.9.9.9")
    assert len(queue.tickets) == 1
    lost = queue.begin("a2")
    assert "place in the line was lost" in str(lost.request), "who comes after all is told"
    queue.finish(lost)
    queue.enter("a1", address="1.2.3.4")
    assert queue.begin("a2") is None and queue.begin("a1").request is None
    queue.stop("b0")
    assert queue.begin("b0") is None, "who pressed Stop is told nothing"


def test_a_ticket_is_not_forgotten_between_the_line_and_its_turn():
    """Gradio takes a page out of its line before the listener runs that takes the ticket."""
    line = SimpleNamespace(
        waiting=lambda: [SimpleNamespace(session_hash="waits")],
        running=lambda: [SimpleNamespace(session_hash="begins")],
    )
    now = [0.0]
    queue = RaceQueue(clock=lambda: now[0])
    queue.in_line = lambda: GuardedQueue.sessions(line)
    for session in ("begins", "waits"):
        queue.enter(session, session)
    now[0] = CLAIM_SECONDS + 1
    queue.enter("comes")
    assert [queue.begin(session).request for session in ("begins", "waits")] == ["begins", "waits"]
