"""Who waits and who runs, without a browser."""

from __future__ import annotations

from specdemo.ui.race_queue import RaceQueue


def test_a_press_that_arrives_after_its_tab_was_closed_is_not_counted():
    queue = RaceQueue()
    queue.leave("a")
    orphan = queue.enter("a", "too late")  # the tab is gone and nobody will come for it
    other = queue.enter("b")
    assert queue.position(other) == 0
    assert queue.begin(orphan).request == "too late", (
        "but if the line was only broken for a moment, it runs"
    )
    for k in range(200):
        queue.leave(f"s{k}")
        queue.enter(f"s{k}")
    assert len(queue.tickets) < 40 and queue.position(queue.enter("c")) <= 2
    assert queue.begin(other) is not None, "a visitor's own ticket is never thrown away"


def test_a_ticket_ends_by_a_newer_one_by_stop_and_by_leaving():
    queue = RaceQueue()
    first = queue.enter("a", "a request")
    running = queue.begin(first)
    assert running.request == "a request" and queue.begin(first) is None, "one ticket, one run"
    second = queue.enter("a")
    assert running.cancel.is_set(), "Run again means: this one instead"
    assert (
        queue.stop("a") is True and list(queue.tickets) == [first] and queue.begin(second) is None
    ), "given back while waiting, and forgotten at once"
    third = queue.enter("a")
    cancel = queue.begin(third).cancel
    assert queue.stop("a") is False and cancel.is_set()
    queue.finish(first)
    queue.finish(third)
    assert queue.stop("a") is False and queue.begin("never given out") is None
    other = queue.enter("b")
    queue.enter("a")
    third = queue.enter("c")
    assert (queue.position(other), queue.position(third)) == (0, 2)
    assert not queue.begin(other).cancel.is_set(), "one visitor's Stop is nobody else's"
    queue.stop("a")
    assert queue.position(third) == 1, "who gave up is not waited for"
    queue.stop("b")
    assert queue.position(third) == 0, "nor a race that is ending"
