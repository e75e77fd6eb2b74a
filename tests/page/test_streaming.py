"""Windows of events, the copy of recent runs, and engines that load on a thread of their own."""

from __future__ import annotations

import threading

import pytest
from fake_race import fake_events

from specdemo.errors import UserError
from specdemo.ui.engines import Engines
from specdemo.ui.streaming import Runs, windows


def test_windows_keep_every_event_in_order_and_their_distance():
    now = [0.0]

    def ticking():
        for event in fake_events(tokens=30):
            now[0] += 0.01
            yield event

    groups, times = [], []
    for group in windows(ticking(), 0.04, lambda: now[0]):
        groups.append(group)
        times.append(now[0])
    assert [e["kind"] for g in groups for e in g] == [e.kind for e in fake_events(tokens=30)]
    assert len(groups[0]) == 1, "the first event must not wait"
    assert all(b - a >= 0.04 - 1e-9 for a, b in zip(times[:-2], times[1:-1], strict=True))


def test_missing_events_are_given_from_the_place_asked_for():
    runs = Runs(kept=2)
    runs.open("a").extend([{"kind": "start"}, {"kind": "done"}])
    assert runs.missing({"run": "a", "from": 1}) == [{"kind": "done"}]
    for junk in (None, [], {"run": "zzz", "from": 0}, {"run": "a"}, {"run": "a", "from": "0"}):
        assert runs.missing(junk) == []
    runs.open("b")
    runs.open("c")
    assert runs.missing({"run": "a", "from": 0}) == []


def test_everything_that_computes_shares_one_thread():
    """Loading and every step of every race: two threads would bring two OpenMP teams, which halve
    each other's speed.
    """
    seen = []

    def steps():
        for n in range(3):
            seen.append(threading.current_thread().name)
            yield n
        raise UserError("The end.")

    engines = Engines(
        lambda pair, progress: seen.append(threading.current_thread().name) or "engine"
    )
    list(engines.wait("x"))
    got = []
    with pytest.raises(UserError, match="The end"):
        for n in engines.thread.each(steps()):
            got.append((n, len(seen)))
    assert got == [(0, 2), (1, 3), (2, 4)], "an item is computed when it is asked for, not before"
    assert (
        set(seen) == {"engine"} and engines.thread.submit(threading.current_thread).result().daemon
    )
    assert list(engines.thread.each(iter("ab"))) == [
        "a",
        "b",
    ], "a race that failed takes nothing with it"


def test_the_drawn_counts_go_with_their_runs():
    runs = Runs(kept=2)
    for name in "abc":
        runs.open(name)
        runs.note_drawn({"run": name, "count": 1})
    assert set(runs.drawn) == {"b", "c"}


def test_engines_load_once_and_report_progress():
    calls = []

    def factory(pair, progress):
        calls.append(pair)
        progress("half", 0.5)
        return pair.upper()

    engines = Engines(factory)
    list(engines.wait("x"))
    list(engines.wait("x"))
    assert engines.get("x") == "X" and calls == ["x"]
    list(engines.wait("y"))
    assert engines.get("y") == "Y"
    with pytest.raises(UserError):
        engines.get("x")


def test_a_failed_load_is_told_and_tried_again():
    attempts = []

    def factory(pair, progress):
        attempts.append(pair)
        if len(attempts) == 1:
            raise UserError("The disk is full; free some space.")
        return "engine"

    engines = Engines(factory)
    with pytest.raises(UserError, match="disk is full"):
        list(engines.wait("x"))
    list(engines.wait("x"))
    assert engines.get("x") == "engine"
