"""Gradio's queue, held to this page's limits. The only file that reaches into Gradio's internals;
its tests name what it relies on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.queueing import Event
from gradio.server_messages import ProcessCompletedMessage

from .client_address import address_of
from .jobs import FORM_VALUES, with_all_values
from .race_queue import FULL
from .readers import UNREAD

if TYPE_CHECKING:
    from .server import Server

QUEUE = "gpu"  # the concurrency id of all races and benches: one at a time, whoever asks
KEPT_RECORDS = 100  # of Gradio's statistics, which it computes anew after every event
KEPT_ANSWERS = 100  # of calls that never got in line, until they are read
KEPT_SESSIONS = 2000


class _Unread(asyncio.Queue):
    """What is sent to a page that has gone while its race goes on."""

    def put_nowait(self, item: Any) -> None:
        pass


class GuardedQueue:
    """Checks every call before it gets in line, and knows those that are there."""

    def __init__(self, demo: gr.Blocks, server: Server):
        self.server, self.queue = server, demo._queue
        self.fns = demo.fns
        self.answered: OrderedDict[str, None] = OrderedDict()  # sessions, see KEPT_ANSWERS
        self.push_unchecked = self.queue.push
        self.queue.push = self.push  # type: ignore[method-assign]
        self.clean_unchecked = self.queue.clean_events
        self.queue.clean_events = self.clean_events  # type: ignore[method-assign]
        self.queue.ANALYTICS_MAX_EVENTS = KEPT_RECORDS
        # Gradio looks for work 1,000 times a second (20 on Windows); the polling alone took 6 % of
        # a core away from the race
        self.queue.sleep_when_free = 0.05
        self.queue.progress_update_sleep_when_free = 0.1

    async def push(self, body: Any, request: Any, username: Any) -> Any:
        """In place of Gradio's ``push``: (True, event id, "success"). A call that does not get in
        line has an event, too, which ends at once: every client shows its error as it shows any.
        """
        fn = self.fns.get(body.fn_index)
        if fn is None or fn.fn is None:  # none, or one that only the browser runs
            return False, "There is no such function here.", "error"
        event = Event(body.session_hash, fn, request, username)
        if fn.concurrency_id == QUEUE:
            await self.drop_unread()
            if fn.api_name == "race":
                if why := self._refuse_call(body, request):
                    return True, self._answer(event, _error(why), False), "success"
            elif not self._has_a_turn_to_take(event):
                return True, self._answer(event, _nothing_new(fn), True), "success"
        self._keep_streams()
        result = await self.push_unchecked(body, request, username)
        if result[0]:
            self.server.readers.joined(body.session_hash, str(result[1]))
        return result

    async def clean_events(
        self, *, session_hash: str | None = None, event_id: str | None = None
    ) -> None:
        """In place of Gradio's, which ends what a page that has gone was waiting for: a race that
        the page may find again goes on, and keeps its turn. The server ends it if nobody comes.
        """
        if session_hash and self.server.queue.has_listener(session_hash):
            self.queue.pending_messages_per_session[session_hash] = _Unread()
            return
        await self.clean_unchecked(session_hash=session_hash, event_id=event_id)

    # -- who is in line ----------------------------------------------------------------------------

    def running(self) -> list[Event]:
        events = [event for events in self.queue.active_jobs for event in events or []]
        return [event for event in events if event.concurrency_id == QUEUE]

    def waiting(self) -> list[Event]:
        line = self.queue.event_queue_per_concurrency_id.get(QUEUE)
        return list(line.queue) if line else []

    def sessions(self) -> set[str]:
        """The pages and clients that wait, or whose turn has begun: it takes a moment, on a busy
        machine seconds, from there until a listener takes its ticket.
        """
        return {event.session_hash for event in self.running() + self.waiting()}

    def api_calls(self) -> list[Event]:
        """Races of the public endpoint that run or wait."""
        return [e for e in self.running() + self.waiting() if e.fn.api_name == "race"]

    async def drop_unread(self) -> None:
        """Take calls out of the line whose answer nobody reads."""
        for event in self.waiting():
            if self.server.readers.unread(event.session_hash):
                self._send(event, _error(UNREAD), False)
                await self.queue.clean_events(event_id=event._id)

    # -- who gets in line --------------------------------------------------------------------------

    def _has_a_turn_to_take(self, event: Event) -> bool:
        """Whether a page has a ticket, and is not in line with it already."""
        ticket = self.server.queue.held.get(event.session_hash)
        return (
            ticket is not None
            and not ticket.started
            and not any(
                other.session_hash == event.session_hash and other.fn.name == event.fn.name
                for other in self.waiting()
            )
        )

    def _refuse_call(self, body: Any, request: Any) -> str:
        """Why a race of the endpoint does not get in line; empty if it does."""
        if len(body.data) > FORM_VALUES:
            return f"/race takes at most {FORM_VALUES} values, not {len(body.data)}."
        body.data = with_all_values(body.data)
        limits, calls = self.server.limits, self.api_calls()
        address = address_of(request, limits.behind_proxy)
        own = sum(address_of(e.request, limits.behind_proxy) == address for e in calls)
        if own >= limits.calls_per_address:
            return (
                f"{own} races from your network address run or wait already; try again when one has"
                " ended."
            )
        return FULL if len(calls) > limits.calls else ""

    # -- answers -----------------------------------------------------------------------------------

    def _answer(self, event: Event, output: dict[str, Any], success: bool) -> str:
        """The id of an event that ends at once."""
        session = event.session_hash
        self.queue.pending_messages_per_session.setdefault(session, asyncio.Queue())
        self.queue.pending_event_ids_session.setdefault(session, set()).add(event._id)
        self._send(event, output, success)
        self.answered[session] = None
        self.answered.move_to_end(session)
        if len(self.answered) > KEPT_ANSWERS:
            oldest, _ = self.answered.popitem(last=False)
            if oldest not in {other.session_hash for other in self.running() + self.waiting()}:
                self.queue.pending_messages_per_session.pop(oldest, None)
                self.queue.pending_event_ids_session.pop(oldest, None)
        return event._id

    def _send(self, event: Event, output: dict[str, Any], success: bool) -> None:
        self.queue.send_message(event, ProcessCompletedMessage(output=output, success=success))

    def _keep_streams(self) -> None:
        """Gradio forgets the answers of the session that first came, be it a running one, and never
        the ids of events that nobody reads.
        """
        active = {event.session_hash for event in self.running() + self.waiting()}
        for session in active:
            if session in self.queue.pending_messages_per_session:
                self.queue.pending_messages_per_session.move_to_end(session)
        ids = self.queue.pending_event_ids_session
        for session in list(ids)[: max(0, len(ids) - KEPT_SESSIONS)]:
            if session not in active:
                del ids[session]


def _error(why: str) -> dict[str, Any]:
    return {"error": why, "title": "Error", "duration": 10, "visible": True}


def _nothing_new(fn: Any) -> dict[str, Any]:
    """What a listener returns that changes nothing."""
    return {"data": [gr.skip() for _ in fn.outputs], "is_generating": False}
