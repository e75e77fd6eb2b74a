"""Who waits and who runs. Each session (one open page) has at most one ticket; a newer one, Stop,
or a closed tab cancels the older.

Gradio's own cancelling would cut a race off before its last event and, at the wrong moment, show an
error. A cancelled ticket instead ends its race within one round, or at once when its turn comes.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

MAX_CLOSED = 1000  # closed sessions that are remembered
MAX_ORPHANS = 20  # tickets of closed sessions whose turn nobody may ever take


@dataclass
class Ticket:
    """``request`` is what was asked for when the button was pressed (a race's ``RaceJob``, a
    bench's ``BenchJob``, or the ``UserError`` why it cannot run).
    """

    request: Any = None
    cancel: threading.Event = field(default_factory=threading.Event)
    started: bool = False
    counted: bool = True  # whether others are told that it is before theirs


class RaceQueue:
    """The tickets in the order in which they were given out. Its lock makes each method one step
    for the listeners' threads.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tickets: dict[str, Ticket] = {}
        self.held: dict[str, str] = {}  # session -> ticket
        self.closed: OrderedDict[str, None] = OrderedDict()  # sessions whose tab was closed

    def enter(self, session: str, request: Any = None) -> str:
        """A new ticket; the session's last one is cancelled."""
        number = uuid.uuid4().hex
        with self.lock:
            self._cancel(session)
            # A press may be handled after the tab was closed, and then nobody takes the ticket's
            # turn. If somebody does, it is as good as any.
            self.tickets[number] = Ticket(request, counted=session not in self.closed)
            self.held[session] = number
            orphans = [n for n, t in self.tickets.items() if not t.counted and not t.started]
            for orphan in orphans[:-MAX_ORPHANS]:
                del self.tickets[orphan]
        return number

    def leave(self, session: str) -> None:
        """The tab was closed (or its connection broke): its ticket is cancelled, and what it asks
        for later is not counted.
        """
        with self.lock:
            self._cancel(session)
            self.closed[session] = None
            while len(self.closed) > MAX_CLOSED:
                self.closed.popitem(last=False)

    def position(self, number: str) -> int:
        """How many tickets that are not cancelled came before this one."""
        with self.lock:
            before = itertools.takewhile(lambda item: item[0] != number, self.tickets.items())
            return sum(t.counted and not t.cancel.is_set() for _, t in before)

    def begin(self, number: str) -> Ticket | None:
        """Its turn has come; None if it was cancelled before, or has run already."""
        with self.lock:
            ticket = self.tickets.get(number)
            if ticket is None or ticket.started:
                return None
            ticket.started = True
            return ticket

    def finish(self, number: str) -> None:
        with self.lock:
            self.tickets.pop(number, None)

    def stop(self, session: str) -> bool:
        """Cancel the session's ticket; True if it had not begun."""
        with self.lock:
            ticket = self.tickets.get(self.held.get(session, ""))
            self._cancel(session)
            return ticket is not None and not ticket.started

    def _cancel(self, session: str) -> None:
        number = self.held.pop(session, "")
        if (ticket := self.tickets.get(number)) is not None:
            ticket.cancel.set()
            # nobody may ever take its turn: a tab can close between Run and getting in line
            if not ticket.started:
                del self.tickets[number]
