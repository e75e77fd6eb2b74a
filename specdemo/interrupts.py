"""Ctrl-C where it would be lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

LATER = b"specdemo: stopping as soon as the code is compiled; Ctrl-C again ends at once ...\n"


@contextmanager
def interrupt_after() -> Iterator[None]:
    """Inside, Ctrl-C is only noted, and said so on stderr; it is delivered at the end. A second one
    ends the process.

    For Numba's compiler: LLVM calls Python back, where an exception goes no further than a line
    “Exception ignored”, so that the program would go on as if nobody had asked it to stop.
    Threads other than the main one get no signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[FrameType | None] = []

    def note(_: int, frame: FrameType | None) -> None:
        if came:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        came.append(frame)
        with suppress(OSError):  # a buffered stream may be in the middle of a write
            os.write(2, LATER)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[0])
