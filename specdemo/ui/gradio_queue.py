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
from .readers import UNREAD

if TYPE_CHECKING:
    from .server import Server

QUEUE = "gpu"  # the concurrency id of all races and benches: one at a time, whoever asks
PER_SESSION = 5  # calls of one page in line: presses of its buttons
KEPT_RECORDS = 100  # of Gradio's statistics, which it computes anew after every event
KEPT_REFUSALS = 100  # that wait to be read
KEPT_SESSIONS = 2000


class GuardedQueue:
    """Checks every call before it gets in line, and counts those that are there."""

    def __init__(self, demo: gr.Blocks, server: Server):
        self.server, self.queue = server, demo._queue
        self.fns = demo.fns
        self.refused: OrderedDict[str, None] = OrderedDict()  # sessions
        self.push_unchecked = self.queue.push
        self.queue.push = self.push  # type: ignore[method-assign]
        self.queue.ANALYTICS_MAX_EVENTS = KEPT_RECORDS
        # Gradio looks for work 1,000 times a second (20 on Windows); the polling alone took 6 % of
        # a core away from the race
        self.queue.sleep_when_free = 0.05
        self.queue.progress_update_sleep_when_free = 0.1

    async def push(self, body: Any, request: Any, username: Any) -> Any:
        """In place of Gradio's ``push``: (True, event id, "success"). A refused call gets an event,
        too, which ends at once: every client shows that as it shows any error.
        """
        fn = self.fns.get(body.fn_index)
        if fn is None:
            return False, "There is no such function here.", "error"
        if fn.concurrency_id == QUEUE:
            await self.drop_unread()
            if fn.api_name == "race":
                why = self._refuse_call(body, request)
            else:
                why = self._refuse_page(body, request)
            if why:
                return True, self._refused(Event(body.session_hash, fn, request, username), why), ""
        self._keep_streams()
        result = await self.push_unchecked(body, request, username)
        if result[0]:
            self.server.readers.joined(body.session_hash, result[1])
        return result

    def _refused(self, event: Event, why: str) -> str:
        """The id of an event whose answer is an error."""
        session = event.session_hash
        self.queue.pending_messages_per_session.setdefault(session, asyncio.Queue())
        self.queue.pending_event_ids_session.setdefault(session, set()).add(event._id)
        self._send_error(event, why)
        self.refused[session] = None
        self.refused.move_to_end(session)
        if len(self.refused) > KEPT_REFUSALS:
            oldest, _ = self.refused.popitem(last=False)
            if oldest not in {other.session_hash for other in self.calls()}:
                self.queue.pending_messages_per_session.pop(oldest, None)
                self.queue.pending_event_ids_session.pop(oldest, None)
        return event._id

    def _send_error(self, event: Event, why: str) -> None:
        output = {"error": why, "title": "Error", "duration": 10, "visible": True}
        self.queue.send_message(event, ProcessCompletedMessage(output=output, success=False))

    def _keep_streams(self) -> None:
        """Gradio forgets the answers of the session that first came, be it a running one, and never
        the ids of events that nobody reads.
        """
        active = {event.session_hash for event in self.calls()}
        for session in active:
            if session in self.queue.pending_messages_per_session:
                self.queue.pending_messages_per_session.move_to_end(session)
        ids = self.queue.pending_event_ids_session
        for session in list(ids)[: max(0, len(ids) - KEPT_SESSIONS)]:
            if session not in active:
                del ids[session]

    def calls(self) -> list[Any]:
        """The calls of races and benches, the running one first."""
        running = [event for events in self.queue.active_jobs for event in events or []]
        line = self.queue.event_queue_per_concurrency_id.get(QUEUE)
        waiting = list(line.queue) if line else []
        return [event for event in running + waiting if event.concurrency_id == QUEUE]

    def api_calls(self) -> int:
        """Races of the public endpoint that run or wait."""
        return sum(event.fn.api_name == "race" for event in self.calls())

    async def drop_unread(self) -> None:
        """Take calls out of the line whose answer nobody reads."""
        for event in self.calls():
            if self.server.readers.unread(event.session_hash) and event not in self._running():
                self._send_error(event, UNREAD)
                await self.queue.clean_events(event_id=event._id)

    def _running(self) -> list[Any]:
        return [event for events in self.queue.active_jobs for event in events or []]

    def _refuse_call(self, body: Any, request: Any) -> str:
        if len(body.data) > FORM_VALUES:
            return f"/race takes at most {FORM_VALUES} values, not {len(body.data)}."
        body.data = with_all_values(body.data)
        most, proxy = self.server.limits.calls_per_address, self.server.limits.behind_proxy
        address = address_of(request, proxy)
        waiting = sum(
            event.fn.api_name == "race" and address_of(event.request, proxy) == address
            for event in self.calls()
        )
        if waiting >= most:
            return (
                f"{most} races from your network address run or wait already; try again when one"
                " has ended."
            )
        return ""

    def _refuse_page(self, body: Any, request: Any) -> str:
        calls, proxy = self.calls(), self.server.limits.behind_proxy
        if sum(event.session_hash == body.session_hash for event in calls) >= PER_SESSION:
            return "Several of your runs are waiting already; wait, or press Stop."
        address, most = address_of(request, proxy), self.server.limits.per_address
        if sum(address_of(event.request, proxy) == address for event in calls) >= most:
            return f"{most} races from your network address are waiting already; try again later."
        self.server.queue.claim(body.session_hash)
        return ""
