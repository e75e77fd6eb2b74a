"""A page that was loaded again while its race ran finds it: the events so far, then the rest.

The page keeps the name of its run, which nobody can guess, in its own tab; no other is told it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from .jobs import RaceJob
from .messages import Ended, Events, Run, pack
from .race_queue import Ticket
from .server import Server, session_of
from .streaming import LOCAL_BROWSER_INTERVAL, WINDOW_INTERVAL

WAITED = "A reload gives up the place in the queue; press Run to take another."
GONE = "The race that ran before the page was loaded again has been ended; Run starts it anew."
# what the page sends: the name of its run, empty if none
KEPT_RUN = (
    "() => { try { return [sessionStorage.getItem('specdemo-run') || '']; }"
    " catch { return ['']; } }"
)
WAITING = "waiting"  # instead of a name: the turn had not come


def find_again(server: Server, name: Any, request: gr.Request) -> Iterator[Any]:
    """Messages for the view: all events so far of the run called ``name``, and those that follow
    until it ends or another page finds it.
    """
    if not isinstance(name, str) or not name:
        yield gr.skip()
        return
    session = session_of(request)
    ticket = server.queue.find(name, session)
    if ticket is None:
        yield from _what_is_left(server, name)
        return
    job: RaceJob = ticket.request
    run, sent, said = Run(name, stepping=job.stepping, request=job.to_dict()), 0, None
    interval = LOCAL_BROWSER_INTERVAL if job.local_browser else WINDOW_INTERVAL
    is_over = False
    while not is_over and ticket.session == session:
        is_over = ticket.over.wait(interval if sent else 0)
        if events := server.runs.missing({"run": name, "from": sent}):
            yield Events(run, sent, pack(events)).to_dict()
            sent += len(events)
        elif not sent and ticket.last is not said and ticket.last.get("type") == "status":
            said = ticket.last
            yield said | {"run": said["run"] | {"request": job.to_dict()}}
        elif not is_over:
            ticket.over.wait(interval)
    if is_over:
        yield _end(ticket, run, sent)


def _end(ticket: Ticket, run: Run, sent: int) -> dict[str, Any]:
    """What the race's own listener said last, or that it was ended."""
    is_said = ticket.last.get("type") in ("ended", "error")
    return ticket.last if is_said else Ended(run, sent).to_dict()


def _what_is_left(server: Server, name: str) -> Iterator[dict[str, Any]]:
    """Of a race that is over: its events, if they are still kept."""
    events = server.runs.missing({"run": name, "from": 0})
    if events:
        run = Run(name)
        yield Events(run, 0, pack(events)).to_dict()
        yield Ended(run, len(events)).to_dict()
    else:
        yield Ended(text=WAITED if name == WAITING else GONE).to_dict()
