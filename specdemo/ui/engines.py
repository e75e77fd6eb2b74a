"""Engines that load behind the page, and the one thread on which everything computes."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from ..errors import UserError


class EngineThread:
    """A daemon thread on which everything that computes takes its turn.

    OpenMP keeps a team of threads for every thread that ever computed, and with two teams on the
    same cores each waits for the other at every step: measured on two cores, a model loaded on one
    thread and run on another decodes at half speed. Gradio asks for the next item of a generator on
    whichever thread is free.

    A ``ThreadPoolExecutor`` would do, but Python waits for its threads at exit: Ctrl-C would then
    wait for the end of a race, or of a download.
    """

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="engine").start()

    def submit(self, call: Callable[..., Any], *args: Any) -> Future:
        done: Future = Future()
        self.jobs.put((done, call, args))
        return done

    def each(self, items: Iterator[Any]) -> Iterator[Any]:
        """``items``, each computed there, and only when asked for. They see the context variables
        of whoever asks for the first: ZeroGPU finds the visitor, whose share of the GPU a race
        uses, in one of Gradio's.
        """
        context, end = contextvars.copy_context(), object()
        while (item := self.submit(context.run, next, items, end).result()) is not end:
            yield item

    def _work(self) -> None:
        while True:
            done, call, args = self.jobs.get()
            try:
                done.set_result(call(*args))
            except BaseException as error:  # whoever waits for it gets it
                done.set_exception(error)
            del done, call, args


class Fetch:
    """The files of a pair on their way to this computer, on a thread of their own: whoever races on
    another pair goes on.
    """

    def __init__(self, fetch: Callable[..., Any], pair: str):
        self.message = "Looking for the model"
        self.fraction: float | None = None
        self.failure: Exception | None = None
        self.done = threading.Event()
        threading.Thread(target=self._work, args=(fetch, pair), daemon=True, name="fetch").start()

    def _progress(self, message: str, fraction: float | None = None) -> None:
        self.message, self.fraction = message, fraction

    def _work(self, fetch: Callable[..., Any], pair: str) -> None:
        try:
            fetch(pair, progress=self._progress)
        except Exception as error:  # kept for whoever waits, who shows it
            self.failure = error
        finally:
            self.done.set()


class Engines:
    """Engines by pair, one in memory at a time, loaded by the thread that also runs them.

    Its condition wakes the listeners that wait for an engine whenever its loading has progressed.

    Args:
        factory: ``factory(pair, progress)`` makes the engine.
        fetch: ``fetch(pair, progress)`` brings its files here, or raises; called before another
            engine is given up for it.
    """

    def __init__(
        self, factory: Callable[..., Any], fetch: Callable[..., Any] = lambda pair, progress: None
    ):
        self.factory, self.fetch_files = factory, fetch
        self.fetches: dict[str, Fetch] = {}
        self.changed = threading.Condition()
        self.pair: str | None = None
        self.engine: Any = None
        self.failure: Exception | None = None
        self.thread = EngineThread()
        self.loading: Future | None = None
        self.message = ""
        self.fraction: float | None = None

    def warm(self, pair: str) -> None:
        """Begin to load ``pair`` unless it is there or on its way."""
        with self.changed:
            if self.pair == pair and self.failure is None:
                return
            if self.loading is not None and not self.loading.done():
                return  # another pair is loading; whoever waits for this one calls again
            self.pair, self.engine, self.failure = pair, None, None
            self.message, self.fraction = "Loading the model", None
            self.loading = self.thread.submit(self._load, pair)

    def _load(self, pair: str) -> None:
        engine, failure = None, None
        try:
            engine = self.factory(pair, progress=self._progress)
        except Exception as error:  # kept for whoever waits, who shows it
            failure = error
        with self.changed:
            self.engine, self.failure = engine, failure
            self.changed.notify_all()

    def _progress(self, message: str, fraction: float | None = None) -> None:
        with self.changed:
            self.message, self.fraction = message, fraction
            self.changed.notify_all()

    def fetch(self, pair: str, timeout: float = 0.5) -> Iterator[tuple[str, float | None]]:
        """Yields (message, fraction) until the files of ``pair`` are on this computer; raises what
        the fetching raised. Who stops waiting does not stop it.
        """
        with self.changed:
            if pair not in self.fetches:
                self.fetches[pair] = Fetch(self.fetch_files, pair)
            fetch = self.fetches[pair]
        while not fetch.done.wait(timeout):
            yield fetch.message, fetch.fraction
        with self.changed:
            self.fetches.pop(pair, None)  # the next one looks again
        if fetch.failure is not None:
            raise fetch.failure

    def free_for(self, pair: str) -> bool:
        """Whether loading ``pair`` now would push no other pair out of memory, perhaps in the
        middle of somebody's race.
        """
        return self.pair in (None, pair)

    def ready(self, pair: str) -> bool:
        return self.pair == pair and self.engine is not None

    def wait(self, pair: str, timeout: float = 0.5) -> Iterator[tuple[str, float | None]]:
        """Yields (message, fraction) while ``pair`` loads and returns when :meth:`get` will
        succeed; raises what the loading raised.
        """
        while not self.ready(pair):
            failure, loading = self.failure, self.loading
            if self.pair == pair and failure is not None and loading and loading.done():
                self.failure, self.pair = None, None  # the next run tries again
                raise failure
            if not self.free_for(pair):
                yield from self.fetch(pair, timeout)
            self.warm(pair)
            with self.changed:
                self.changed.wait(timeout)
                news = self.message, self.fraction
            yield news

    def get(self, pair: str) -> Any:
        if not self.ready(pair):
            raise UserError("The model is not in memory any more; press Run again.")
        return self.engine
