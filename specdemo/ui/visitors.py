"""Who waits and who runs. Each visitor has at most one ticket; a newer one, Stop, or a closed tab
ends the older.

Gradio's own cancelling would cut a race off before its last event and, in the wrong moment, show an
error; a ticket that was given back instead ends within one round when it runs, and at once when its
turn comes.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

REMEMBERED, GHOSTS = 1000, 20  # closed sessions, and tickets of theirs that nobody came for


@dataclass
class Ticket:
    """``wish`` is what was asked for when the button was pressed: a listener whose turn comes runs
    the visitor's latest wish.
    """

    wish: Any = None
    cancel: threading.Event = field(default_factory=threading.Event)
    started: bool = False
    counted: bool = True  # whether others are told that it stands before theirs


class Visitors:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tickets: dict[str, Ticket] = {}
        self.held: dict[str, str] = {}  # session -> ticket
        self.gone: OrderedDict[str, None] = OrderedDict()  # sessions whose tab was closed

    def enter(self, session: str, wish: Any = None) -> str:
        """A new ticket; the visitor's last one is given back."""
        number = uuid.uuid4().hex
        with self.lock:
            self._give_back(session)
            # A press may be dealt with after the tab was closed, and then nobody comes for its
            # ticket. If somebody does, it is as good as any.
            self.tickets[number] = Ticket(wish, counted=session not in self.gone)
            self.held[session] = number
            for ghost in [n for n, t in self.tickets.items() if not t.counted and not t.started][
                :-GHOSTS
            ]:
                del self.tickets[ghost]
        return number

    def leave(self, session: str) -> None:
        """The tab was closed (or its line broke): its ticket is given back, and what it asks for
        later is not counted.
        """
        with self.lock:
            self._give_back(session)
            self.gone[session] = None
            while len(self.gone) > REMEMBERED:
                self.gone.popitem(last=False)

    def ahead(self, number: str) -> int:
        """How many tickets came before this one and were not given back."""
        with self.lock:
            before = itertools.takewhile(lambda n: n != number, self.tickets)
            return sum(t.counted and not t.cancel.is_set() for t in map(self.tickets.get, before))

    def begin(self, number: str) -> Ticket | None:
        """Its turn has come; None if it was given back before, or has run already."""
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
        """Give the visitor's ticket back; True if it had not begun."""
        with self.lock:
            ticket = self.tickets.get(self.held.get(session, ""))
            self._give_back(session)
            return ticket is not None and not ticket.started

    def _give_back(self, session: str) -> None:
        number = self.held.pop(session, "")
        if (ticket := self.tickets.get(number)) is not None:
            ticket.cancel.set()
            # nobody may ever come for it: a tab can close between Run and getting in line
            if not ticket.started:
                del self.tickets[number]
