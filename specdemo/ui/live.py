"""From the engine's events to what the page receives: windows of plain dicts, a copy of recent runs, engines that load behind the page."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import Refusal
from ..events import Event

WINDOW_SECONDS = 0.04  # at most 25 messages a second: the browser has no back-pressure and would lag behind a fast engine
RUNS_KEPT = 16


def as_dict(event: Event | dict[str, Any]) -> dict[str, Any]:
    """An event as plain data; across a ZeroGPU process border it already is."""
    return event if isinstance(event, dict) else event.to_dict()


def windows(events: Iterable[Event | dict[str, Any]], gap: float = WINDOW_SECONDS, clock: Callable[[], float] = time.perf_counter) -> Iterator[list[dict[str, Any]]]:
    """Group events so that two groups are at least ``gap`` seconds apart; the first and the last go out at once.

    Nothing waits: a group leaves with the first event that comes after its time is up, or with the end.
    """
    group: list[dict[str, Any]] = []
    due = float("-inf")
    for event in events:
        group.append(as_dict(event))
        if clock() >= due:
            yield group
            group, due = [], clock() + gap
    if group:
        yield group


class Runs:
    """The events of the last runs, so that a browser that missed a window can ask for it."""

    def __init__(self, kept: int = RUNS_KEPT):
        self.kept = kept
        self.lock = threading.Lock()
        self.runs: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def open(self, run: str) -> list[dict[str, Any]]:
        with self.lock:
            self.runs[run] = events = []
            while len(self.runs) > self.kept:
                self.runs.popitem(last=False)
        return events

    def missing(self, ask: Any) -> list[dict[str, Any]]:
        """Events ``from`` on of ``run``; an unknown run has none."""
        if not isinstance(ask, dict) or not isinstance(ask.get("from"), int):
            return []
        return self.runs.get(str(ask.get("run")), [])[max(0, ask["from"]):]


class Engines:
    """Engines by pair, one in memory at a time, loaded by a thread of its own so that the page is up at once."""

    def __init__(self, factory: Callable[..., Any]):
        self.factory = factory
        self.changed = threading.Condition()
        self.pair: str | None = None
        self.engine: Any = None
        self.failed: Exception | None = None
        self.thread: threading.Thread | None = None
        self.message, self.fraction = "", None

    def warm(self, pair: str) -> None:
        """Begin to load ``pair`` unless it is there or on its way."""
        with self.changed:
            if self.pair == pair and self.failed is None:
                return
            if self.thread is not None and self.thread.is_alive():
                return  # another pair is loading; whoever waits for this one calls again
            self.pair, self.engine, self.failed = pair, None, None
            self.message, self.fraction = "Loading the model", None
            self.thread = threading.Thread(target=self._load, args=(pair,), daemon=True, name=f"load {pair}")
            self.thread.start()

    def _load(self, pair: str) -> None:
        engine = failed = None
        try:
            engine = self.factory(pair, progress=self._progress)
        except Exception as error:  # kept for whoever waits, who shows it
            failed = error
        with self.changed:
            self.engine, self.failed = engine, failed
            self.changed.notify_all()

    def _progress(self, message: str, fraction: float | None = None) -> None:
        with self.changed:
            self.message, self.fraction = message, fraction
            self.changed.notify_all()

    def free_for(self, pair: str) -> bool:
        """Whether loading ``pair`` now would push no other pair out of memory, perhaps in the middle of somebody's race."""
        return self.pair in (None, pair)

    def ready(self, pair: str) -> bool:
        return self.pair == pair and self.engine is not None

    def wait(self, pair: str, patience: float = 0.5) -> Iterator[tuple[str, float | None]]:
        """Yields (message, fraction) while ``pair`` loads and returns when :meth:`get` will succeed; raises what the loading raised."""
        while not self.ready(pair):
            if self.pair == pair and self.failed is not None and not self.thread.is_alive():
                failed, self.failed, self.pair = self.failed, None, None  # the next run tries again
                raise failed
            self.warm(pair)
            with self.changed:
                self.changed.wait(patience)
                news = self.message, self.fraction
            yield news

    def get(self, pair: str) -> Any:
        if not self.ready(pair):
            raise Refusal("The model is not in memory any more; press Run again.")
        return self.engine
