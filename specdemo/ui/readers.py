"""Who reads the answers that are being computed: a race that nobody reads does not hold the
queue.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UNREAD_SECONDS = 10.0  # how long a race goes on, or waits, without anybody reading
REMEMBERED = 2000

UNREAD = "Nobody read this race's answer, so it was ended; read it right after the call."


class Readers:
    """Which sessions have an open stream of answers, and since when the others have none.

    A client of ``/call/race`` names its event, not its session: :meth:`link` tells which belong
    together.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.lock = threading.Lock()
        self.streams: Counter[str] = Counter()
        self.sending: dict[object, tuple[str, float]] = {}  # by stream: session, since when
        self.last: OrderedDict[str, float] = OrderedDict()  # by session: when it was last read
        self.sessions: OrderedDict[str, str] = OrderedDict()  # by event

    def joined(self, session: str, event: str = "") -> None:
        """A call got in line; somebody has ``UNREAD_SECONDS`` to begin to read its answer."""
        with self.lock:
            self.sessions[event] = session
            self._touch(session)
            while len(self.sessions) > REMEMBERED:
                self.sessions.popitem(last=False)

    def opened(self, name: str) -> str:
        """A stream of a session, or of an event, is open. Its session, for :meth:`left`."""
        with self.lock:
            session = self.sessions.get(name, name)
            self.streams[session] += 1
            return session

    def left(self, session: str) -> None:
        with self.lock:
            self.streams[session] -= 1
            if self.streams[session] <= 0:
                del self.streams[session]
            self._touch(session)

    @contextmanager
    def send(self, stream: object, session: str) -> Iterator[None]:
        """A part of a stream is being sent. That takes as long as its client takes to read what
        was sent before, once the buffers between them are full.
        """
        with self.lock:
            self.sending[stream] = session, self.clock()
        try:
            yield
        finally:
            with self.lock:
                del self.sending[stream]

    def unread(self, session: str) -> bool:
        """Whether nobody has read for ``UNREAD_SECONDS``: no stream is open, or none moves. A
        session that never got in line, as in a test without a server, is not judged.
        """
        with self.lock:
            if session not in self.last:
                return False
            if session not in self.streams:
                return self._old(self.last[session])
            still = sum(s == session and self._old(since) for s, since in self.sending.values())
            return still >= self.streams[session]

    def _old(self, since: float) -> bool:
        return self.clock() - since > UNREAD_SECONDS

    def _touch(self, session: str) -> None:
        self.last[session] = self.clock()
        self.last.move_to_end(session)
        while len(self.last) > REMEMBERED:
            self.last.popitem(last=False)
