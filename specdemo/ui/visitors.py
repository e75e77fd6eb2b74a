"""Who waits and who runs. Each visitor has at most one ticket; a newer one, Stop, or a closed tab ends the older.

Gradio's own cancelling would cut a race off before its last event and, in the wrong moment, show an error; a ticket that was
given back instead ends within one round when it runs, and at once when its turn comes.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Ticket:
    """``wish`` is what was asked for when the button was pressed: a listener whose turn comes runs the visitor's latest wish."""

    wish: Any = None
    cancel: threading.Event = field(default_factory=threading.Event)
    started: bool = False


class Visitors:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tickets: dict[str, Ticket] = {}
        self.held: dict[str, str] = {}  # session -> ticket

    def enter(self, session: str, wish: Any = None) -> str:
        """A new ticket; the visitor's last one is given back."""
        number = uuid.uuid4().hex
        with self.lock:
            self._give_back(session)
            self.tickets[number] = Ticket(wish)
            self.held[session] = number
        return number

    def ahead(self, number: str) -> int:
        """How many tickets came before this one and were not given back."""
        with self.lock:
            before = itertools.takewhile(lambda n: n != number, self.tickets)
            return sum(not self.tickets[n].cancel.is_set() for n in before)

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
            if not ticket.started:  # nobody may ever come for it: a tab can close between Run and getting in line
                del self.tickets[number]
