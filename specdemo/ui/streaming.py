"""From the engine's events to what the page receives: windows of plain dicts, a copy of recent
runs, engines that load behind the page.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from ..errors import UserError
from ..events import Event

# at most 25 messages a second: the browser has no back-pressure and would lag behind a fast engine
WINDOW_SECONDS = 0.04
# the same where the browser shares the engine's processor: computing and drawing take turns
BESIDE_SECONDS = 0.35
# how long to wait until such a browser has drawn; a tab in the background never says so
DRAWN_SECONDS = 0.7
RUNS_KEPT = 16


def as_dict(event: Event | dict[str, Any]) -> dict[str, Any]:
    """An event as plain data; across a ZeroGPU process border it already is."""
    return event if isinstance(event, dict) else event.to_dict()


def windows(
    events: Iterable[Event | dict[str, Any]],
    gap: float = WINDOW_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[dict[str, Any]]]:
    """Group events so that two groups are at least ``gap`` seconds apart; the first and the last go
    out at once.

    Nothing waits: a group leaves with the first event that comes after its time is up, or with the
    end, also where the end is an error.
    """
    group: list[dict[str, Any]] = []
    due, broken = float("-inf"), None
    try:
        for event in events:
            group.append(as_dict(event))
            if clock() >= due:
                yield group
                group, due = [], clock() + gap
    except Exception as error:
        broken = error
    if group:
        yield group
    if broken is not None:
        raise broken


class OneThread:
    """A daemon thread on which everything that computes takes its turn.

    OpenMP keeps a team of threads for every thread that ever computed, and with two teams on the
    same cores each waits for the other at every
    step: measured on two cores, a model loaded on one thread and run on another decodes at half
    speed. Gradio asks for the next item of
    a generator on whichever thread is free.
    """

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="engine").start()

    def submit(self, call: Callable[..., Any], *args: Any) -> Future:
        done: Future = Future()
        self.jobs.put((done, call, args))
        return done

    def each(self, items: Iterator[Any]) -> Iterator[Any]:
        """``items``, each computed there, and only when asked for."""
        end = object()
        while (item := self.submit(next, items, end).result()) is not end:
            yield item

    def _work(self) -> None:
        while True:
            done, call, args = self.jobs.get()
            try:
                done.set_result(call(*args))
            except BaseException as error:  # whoever waits for it gets it
                done.set_exception(error)
            del done, call, args


class Runs:
    """The events of the last runs, so that a browser that missed a window can ask for it."""

    def __init__(self, kept: int = RUNS_KEPT):
        self.kept = kept
        self.lock = threading.Condition()
        self.runs: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self.drawn: dict[str, int] = {}  # events that the browser says it has on screen

    def open(self, run: str) -> list[dict[str, Any]]:
        with self.lock:
            self.runs[run] = events = []
            while len(self.runs) > self.kept:
                self.drawn.pop(self.runs.popitem(last=False)[0], None)
        return events

    def note_drawn(self, ask: Any) -> None:
        """The browser has ``count`` events of ``run`` on screen."""
        if (
            isinstance(ask, dict)
            and isinstance(ask.get("count"), int)
            and str(ask.get("run")) in self.runs
        ):
            with self.lock:
                self.drawn[str(ask["run"])] = ask["count"]
                self.lock.notify_all()

    def wait_drawn(self, run: str, count: int, patience: float = DRAWN_SECONDS) -> bool:
        """Wait until the browser has drawn ``count`` events; False if it did not say so in time."""
        with self.lock:
            return self.lock.wait_for(lambda: self.drawn.get(run, 0) >= count, patience)

    def missing(self, ask: Any) -> list[dict[str, Any]]:
        """Events ``from`` on of ``run``; an unknown run has none."""
        if not isinstance(ask, dict) or not isinstance(ask.get("from"), int):
            return []
        return self.runs.get(str(ask.get("run")), [])[max(0, ask["from"]) :]


class Engines:
    """Engines by pair, one in memory at a time, loaded behind the page by the thread that also runs
    them.
    """

    def __init__(self, factory: Callable[..., Any]):
        self.factory = factory
        self.changed = threading.Condition()
        self.pair: str | None = None
        self.engine: Any = None
        self.failed: Exception | None = None
        self.thread = OneThread()
        self.loading: Future | None = None
        self.message, self.fraction = "", None

    def warm(self, pair: str) -> None:
        """Begin to load ``pair`` unless it is there or on its way."""
        with self.changed:
            if self.pair == pair and self.failed is None:
                return
            if self.loading is not None and not self.loading.done():
                return  # another pair is loading; whoever waits for this one calls again
            self.pair, self.engine, self.failed = pair, None, None
            self.message, self.fraction = "Loading the model", None
            self.loading = self.thread.submit(self._load, pair)

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
        """Whether loading ``pair`` now would push no other pair out of memory, perhaps in the
        middle of somebody's race.
        """
        return self.pair in (None, pair)

    def ready(self, pair: str) -> bool:
        return self.pair == pair and self.engine is not None

    def wait(self, pair: str, patience: float = 0.5) -> Iterator[tuple[str, float | None]]:
        """Yields (message, fraction) while ``pair`` loads and returns when :meth:`get` will
        succeed; raises what the loading raised.
        """
        while not self.ready(pair):
            if self.pair == pair and self.failed is not None and self.loading.done():
                failed, self.failed, self.pair = self.failed, None, None  # the next run tries again
                raise failed
            self.warm(pair)
            with self.changed:
                self.changed.wait(patience)
                news = self.message, self.fraction
            yield news

    def get(self, pair: str) -> Any:
        if not self.ready(pair):
            raise UserError("The model is not in memory any more; press Run again.")
        return self.engine
