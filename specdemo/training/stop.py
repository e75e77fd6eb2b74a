"""Ctrl-C and SIGTERM during training: the step finishes, an evaluation is cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class StopRequested(BaseException):
    """Somebody asked to stop while an evaluation, which changes nothing, was running."""


@contextmanager
def stop_requests(evaluating: Callable[[], bool]) -> Iterator[list[int]]:
    """Inside, Ctrl-C and SIGTERM add their number to the list this yields, instead of ending the
    process (in the main thread; other threads get no signals).

    Args:
        evaluating: whether an evaluation is running now; it is then left by StopRequested.
    """
    requests: list[int] = []

    def on_signal(number: int, _: Any) -> None:
        requests.append(number)
        if evaluating():
            raise StopRequested

    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    handlers = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield requests
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
