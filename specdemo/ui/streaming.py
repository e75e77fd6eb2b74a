"""From the engine's events to what the page receives: windows of plain dicts, and a copy of recent
runs.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..events import Event

# seconds between two windows; the browser has no back-pressure and would lag behind a fast engine
WINDOW_INTERVAL = 0.04
# the same where the browser shares the engine's CPU: computing and drawing take turns
LOCAL_BROWSER_INTERVAL = 0.35
# how long to wait until such a browser has drawn; a tab in the background never confirms it
DRAWN_TIMEOUT = 0.7
RUNS_KEPT = 16


def as_dict(event: Event | dict[str, Any]) -> dict[str, Any]:
    """An event as plain data; from a ZeroGPU worker process it already is."""
    return event if isinstance(event, dict) else event.to_dict()


def windows(
    events: Iterable[Event | dict[str, Any]],
    interval: float = WINDOW_INTERVAL,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[dict[str, Any]]]:
    """Group events so that two groups are at least ``interval`` seconds apart; the first and the
    last go out at once.

    Nothing waits: a group leaves with the first event that comes after its time is up, or with the
    end, also where the end is an error.
    """
    group: list[dict[str, Any]] = []
    due, failure = float("-inf"), None
    try:
        for event in events:
            group.append(as_dict(event))
            if clock() >= due:
                yield group
                group, due = [], clock() + interval
    except Exception as error:
        failure = error
    if group:
        yield group
    if failure is not None:
        raise failure


class Runs:
    """The events of the last runs, so that a browser that missed a window can ask for it.

    Its condition wakes a race that waits until the browser has drawn what it was sent.
    """

    def __init__(self, kept: int = RUNS_KEPT):
        self.kept = kept
        self.changed = threading.Condition()
        self.runs: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self.drawn: dict[str, int] = {}  # events that the browser says it has on screen

    def open(self, run: str) -> list[dict[str, Any]]:
        """An empty list to which the run's events are appended; the oldest run is forgotten."""
        with self.changed:
            events: list[dict[str, Any]] = []
            self.runs[run] = events
            while len(self.runs) > self.kept:
                self.drawn.pop(self.runs.popitem(last=False)[0], None)
        return events

    def count(self, run: str) -> int:
        return len(self.runs.get(run, []))

    def note_drawn(self, ask: Any) -> None:
        """The browser has ``count`` events of ``run`` on screen."""
        if (
            isinstance(ask, dict)
            and isinstance(ask.get("count"), int)
            and str(ask.get("run")) in self.runs
        ):
            with self.changed:
                self.drawn[str(ask["run"])] = ask["count"]
                self.changed.notify_all()

    def wait_drawn(self, run: str, count: int, timeout: float = DRAWN_TIMEOUT) -> bool:
        """Wait until the browser has drawn ``count`` events; False if it does not confirm in
        time.
        """
        with self.changed:
            return self.changed.wait_for(lambda: self.drawn.get(run, 0) >= count, timeout)

    def missing(self, ask: Any) -> list[dict[str, Any]]:
        """Events ``from`` on of ``run``; an unknown run has none."""
        if not isinstance(ask, dict) or not isinstance(ask.get("from"), int):
            return []
        return self.runs.get(str(ask.get("run")), [])[max(0, ask["from"]) :]
