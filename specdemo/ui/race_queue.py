"""Who waits and who runs. Each session (one open page) has at most one ticket; a newer one, Stop,
or a closed tab cancels the older.

Gradio's own cancelling would cut a race off before its last event and, at the wrong moment, show an
error. A cancelled ticket instead ends its race within one round, or at once when its turn comes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError

MAX_CLOSED = 1000  # closed sessions that are remembered
MAX_ORPHANS = 20  # tickets of closed sessions whose turn nobody may ever take
CLAIM_SECONDS = 10  # how long a ticket waits for its page to get in line
ON_THE_WAY = 100  # such tickets; the oldest gives way
FULL = "Too many races are waiting already; try again in a minute."
FORGOTTEN = "Your place in the line was lost, as this server is very busy; press Run again."


@dataclass(eq=False)
class Ticket:
    """``request`` is what was asked for when the button was pressed (a race's ``RaceJob``, a
    bench's ``BenchJob``, or the ``UserError`` why it cannot run).

    Attributes:
        listener: the session whose press of the button began it; ``session`` is the one that it
            belongs to now, another after a reload.
        address: the client's network address, of which no more than a share of all tickets is.
        counted: whether others are told that it is before theirs.
        run: the name of its race, which nobody can guess and only its own page is told.
        last: what its page was told last.
        over: set when its turn is over.
    """

    request: Any = None
    session: str = ""
    address: str = ""
    entered: float = 0.0
    cancel: threading.Event = field(default_factory=threading.Event)
    started: bool = False
    counted: bool = True
    listener: str = ""
    run: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def say(self, message: dict[str, Any]) -> dict[str, Any]:
        """Keeps a message for a page that is loaded again."""
        self.last = message
        return message

    @property
    def can_be_found(self) -> bool:
        """Whether a page that is loaded again may go on with it."""
        return self.started and bool(self.run) and not self.cancel.is_set()


class RaceQueue:
    """The tickets in the order in which they were given out. Its lock makes each method one step
    for the listeners' threads.

    Args:
        most: pages that stand in line.
        per_address: tickets of the pages at one network address.
        clock: seconds, for tests.

    Attributes:
        in_line: tells the sessions that stand in Gradio's line. A ticket of another one is not
            before anybody's, and forgotten after ``CLAIM_SECONDS``.
    """

    def __init__(
        self,
        most: int = 20,
        per_address: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most, self.per_address, self.clock = most, per_address, clock
        self.in_line: Callable[[], set[str]] = set
        self.lock = threading.Lock()
        self.tickets: list[Ticket] = []
        self.held: dict[str, Ticket] = {}  # by session
        self.closed: OrderedDict[str, None] = OrderedDict()  # sessions whose tab was closed
        self.forgotten: OrderedDict[str, None] = OrderedDict()  # whose ticket gave way meanwhile

    def enter(self, session: str, request: Any = None, address: str = "") -> Ticket:
        """A new ticket; the session's last one is cancelled.

        Raises:
            UserError: too many wait already, of all visitors or of those at this address.
        """
        with self.lock:
            self._cancel(session)
            self._forget_unclaimed()
            waiting = [t for t in self.tickets if not t.started]
            in_line = self.in_line()
            idle = [t for t in waiting if t.session not in in_line]
            if len(waiting) - len(idle) >= self.most:
                raise UserError(FULL)
            if sum(t.address == address for t in waiting) >= self.per_address:
                raise UserError(
                    f"{self.per_address} races from your network address are waiting already; press"
                    " Run again in a minute."
                )
            # the ones that nobody came for since longest
            self._forget(idle[: max(0, len(idle) + 1 - ON_THE_WAY)])
            # A press may be handled after the tab was closed, and then nobody takes the ticket's
            # turn. If somebody does, it is as good as any.
            counted = session not in self.closed
            ticket = Ticket(
                request, session, address, self.clock(), counted=counted, listener=session
            )
            self.tickets.append(ticket)
            self.held[session] = ticket
            orphans = [t for t in self.tickets if not t.counted and not t.started]
            self._forget(orphans[:-MAX_ORPHANS])
        return ticket

    def leave(self, session: str, patience: float = 0.0) -> None:
        """The tab was closed (or loaded again, or its connection broke): its ticket is cancelled,
        and what it asks for later is not counted. A race that runs is ended after ``patience``
        seconds, unless another session finds it before.
        """
        with self.lock:
            self.closed[session] = None
            while len(self.closed) > MAX_CLOSED:
                self.closed.popitem(last=False)
            ticket = self.held.get(session)
            if ticket is None or not ticket.can_be_found or not patience:
                self._cancel(session)
                return
        timer = threading.Timer(patience, self._abandon, (ticket,))
        timer.daemon = True
        timer.start()

    def _abandon(self, ticket: Ticket) -> None:
        """Nobody came back for it."""
        with self.lock:
            if self.held.get(ticket.session) is ticket and ticket.session in self.closed:
                self._cancel(ticket.session)

    def find(self, run: str, session: str) -> Ticket | None:
        """The ticket of a race that runs, which belongs to ``session`` from now on: its page was
        loaded again. None if there is no such race, or it is being ended.
        """
        with self.lock:
            ticket = next((t for t in self.tickets if t.can_be_found and t.run == run), None)
            if ticket is not None:
                self.held.pop(ticket.session, None)
                self._cancel(session)
                ticket.session = session
                self.held[session] = ticket
            return ticket

    def has_listener(self, session: str) -> bool:
        """Whether a race that may be found again was begun by this session."""
        with self.lock:
            return any(t.can_be_found and t.listener == session for t in self.tickets)

    def position(self, ticket: Ticket) -> int:
        """How many tickets that are not cancelled came before this one."""
        with self.lock:
            self._forget_unclaimed()
            in_line = self.in_line()
            before = itertools.takewhile(lambda other: other is not ticket, self.tickets)
            return sum(self._counts(t, in_line) for t in before)

    def waiting(self) -> int:
        """How many tickets a newcomer would find before theirs."""
        with self.lock:
            self._forget_unclaimed()
            in_line = self.in_line()
            return sum(self._counts(t, in_line) for t in self.tickets)

    def begin(self, session: str, kind: type | tuple[type, ...] = object) -> Ticket | None:
        """The turn of the session's ticket has come; None if it was cancelled before, has begun
        already, or asks for something else than ``kind``. Where its ticket was given up before it
        came, one whose request is the ``UserError`` that says so.
        """
        with self.lock:
            ticket = self.held.get(session)
            if ticket is None and session in self.forgotten:
                del self.forgotten[session]
                return Ticket(UserError(FORGOTTEN), session, started=True, counted=False)
            if ticket is None or ticket.started or not isinstance(ticket.request, kind):
                return None
            ticket.started = True
            return ticket

    def finish(self, ticket: Ticket) -> None:
        with self.lock:
            self._remove([ticket])
        ticket.over.set()

    def stop(self, session: str) -> Ticket | None:
        """Cancel the session's ticket and return it."""
        with self.lock:
            return self._cancel(session)

    def _cancel(self, session: str) -> Ticket | None:
        self.forgotten.pop(session, None)
        ticket = self.held.pop(session, None)
        if ticket is not None:
            ticket.cancel.set()
            # nobody may ever take its turn: a tab can close between Run and getting in line
            if not ticket.started:
                self._remove([ticket])
        return ticket

    @staticmethod
    def _counts(ticket: Ticket, in_line: set[str]) -> bool:
        there = ticket.started or ticket.session in in_line
        return ticket.counted and not ticket.cancel.is_set() and there

    def _forget_unclaimed(self) -> None:
        late, in_line = self.clock() - CLAIM_SECONDS, self.in_line()
        self._forget(
            [
                t
                for t in self.tickets
                if not t.started and t.entered < late and t.session not in in_line
            ]
        )

    def _forget(self, tickets: list[Ticket]) -> None:
        """Gives tickets up that nobody has come for; who still comes is told."""
        self._remove(tickets)
        for ticket in tickets:
            self.forgotten[ticket.session] = None
        while len(self.forgotten) > MAX_CLOSED:
            self.forgotten.popitem(last=False)

    def _remove(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if ticket in self.tickets:
                self.tickets.remove(ticket)
        self.held = {session: t for session, t in self.held.items() if t not in tickets}
