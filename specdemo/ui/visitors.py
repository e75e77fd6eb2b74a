"""Who waits and who runs. Each visitor has at most one ticket; a newer one, Stop, or a closed tab ends the older.

Gradio's own cancelling would cut a race off before its last event and, in the wrong moment, show an error; a ticket that was
given back instead ends within one round when it runs, and at once when its turn comes.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field


@dataclass
class Ticket:
    cancel: threading.Event = field(default_factory=threading.Event)
    started: bool = False


class Visitors:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tickets: dict[str, Ticket] = {}
        self.held: dict[str, str] = {}  # session -> ticket

    def enter(self, session: str) -> str:
        """A new ticket; the visitor's last one is given back."""
        number = uuid.uuid4().hex
        with self.lock:
            self._give_back(session)
            self.tickets[number] = Ticket()
            self.held[session] = number
        return number

    def begin(self, number: str) -> threading.Event | None:
        """Its turn has come: the event that ends it, or None if it was given back before."""
        with self.lock:
            ticket = self.tickets.get(number)
            if ticket is None or ticket.cancel.is_set():
                self.tickets.pop(number, None)
                return None
            ticket.started = True
            return ticket.cancel

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
        if (ticket := self.tickets.get(self.held.pop(session, ""))) is not None:
            ticket.cancel.set()
