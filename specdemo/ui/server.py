"""What the page's listeners do: run, stop, step, load, and the functions that the view calls. Knows
nothing about the layout.
"""

from __future__ import annotations

import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from ..errors import UserError
from ..traces import MAX_TRACE_BYTES, dump_trace, load_trace, parse_trace
from .backend import Backend
from .controls import Limits
from .engines import Engines
from .export import export_html
from .jobs import RaceForm, RaceJob, make_job
from .messages import Advance, Ended, Error, Events, Queued, Run, Status, pack
from .race_queue import RaceQueue
from .streaming import LOCAL_BROWSER_INTERVAL, WINDOW_INTERVAL, Runs, windows

BROKEN = (
    "Something went wrong inside SpecDemo; the details are in the log of the program. Press Run to"
    " try again."
)


class Server:
    """Engines, recent runs, who runs what.

    ``race_lock`` is held while a race is open: one whose listener Gradio ended in the middle of a
    step is closed before the next one begins.
    """

    def __init__(
        self,
        backend: Backend,
        methods: Mapping[str, Any],
        pairs: Mapping[str, Any],
        limits: Limits,
        traces: Path,
    ):
        self.backend, self.methods, self.pairs, self.limits = backend, methods, pairs, limits
        self.engines, self.runs = Engines(backend.load), Runs()
        self.traces = {path.stem: path for path in sorted(traces.glob("*.json"))}
        self.queue, self.race_lock = RaceQueue(), threading.Lock()
        self.last: dict[str, RaceForm] = {}  # by session, to tell a step from a new run

    # -- functions that the view calls: small, stateless, and safe to call with anything -----------

    def recorded(self, name: str) -> list[dict[str, Any]]:
        return [e.to_dict() for e in load_trace(self.traces[name])] if name in self.traces else []

    def view_functions(self) -> list[Callable[[Any], Any]]:
        def missing_events(ask: Any) -> list[dict[str, Any]]:
            return self.runs.missing(ask)

        def recorded_trace(ask: Any) -> list[dict[str, Any]]:
            return self.recorded(str(ask.get("name"))) if isinstance(ask, dict) else []

        def export_page(ask: Any) -> dict[str, str]:
            events = ask.get("events") if isinstance(ask, dict) else None
            try:
                return {"html": export_html(parse_trace(_trace_text(events)))}
            except UserError as error:
                return {"error": str(error)}

        def drawn(ask: Any) -> None:
            self.runs.note_drawn(ask)

        return [missing_events, recorded_trace, export_page, drawn]

    # -- a race ------------------------------------------------------------------------------------

    def make_job(
        self, form: RaceForm, stepping: bool = False, local_browser: bool = False
    ) -> RaceJob:
        """Raises UserError where the form cannot run here."""
        return make_job(form, self.methods, self.pairs, self.limits, stepping, local_browser)

    def messages(self, job: RaceJob, cancel: threading.Event) -> Iterator[Status | Events | Ended]:
        """Messages of one race: what it waits for, windows of events, the end. Raises UserError.

        With ``job.local_browser`` the browser draws on this machine. If the engine computes on its
        CPU too, they take turns: no lane's clock runs while a window is being drawn.
        """
        run = Run(uuid.uuid4().hex, stepping=job.stepping, request=job.to_dict())
        for message, fraction in self.engines.wait(job.pair):
            if cancel.is_set():
                yield Ended(run)
                return
            yield Status(progress_text(message, fraction), run)
            run = replace(run, request=None)  # the view has it
        events = self.runs.open(run.id)
        engine = self.engines.get(job.pair)
        wait_drawn = job.local_browser and self.backend.runs_on_cpu(engine)
        interval = LOCAL_BROWSER_INTERVAL if wait_drawn else WINDOW_INTERVAL
        with self.race_lock:
            race = self.backend.race(engine, job.request, cancel)
            try:
                for window in self.engines.thread.each(windows(race, interval)):
                    offset = len(events)
                    events.extend(window)
                    yield Events(run, offset, pack(window), confirm=wait_drawn)
                    run = replace(run, request=None)
                    wait_drawn = wait_drawn and self.runs.wait_drawn(run.id, len(events))
                yield Ended(run, len(events))
            finally:
                race.close()  # a closed tab ends the engine's round here, and frees its memory

    def run(self, number: str) -> Iterator[Any]:
        """The Run listener, when a ticket's turn has come: messages for the view. Ends at once when
        the ticket was cancelled meanwhile.
        """
        ticket = self.queue.begin(number)
        if ticket is None:
            yield gr.skip()
            return
        run = None
        try:
            if isinstance(ticket.request, UserError):
                raise ticket.request
            for message in self.messages(ticket.request, ticket.cancel):
                run = message.run
                yield message.to_dict()
        except UserError as error:
            yield self._error(str(error), run)
        except Exception:
            traceback.print_exc()
            yield self._error(BROKEN, run)
        finally:
            ticket.cancel.set()
            self.queue.finish(number)

    def _error(self, text: str, run: Run | None) -> dict[str, Any]:
        return Error(text, run, self.runs.count(run.id) if run else 0).to_dict()

    def enter(self, request: gr.Request, form: RaceForm, stepping: bool = False) -> tuple[Any, str]:
        """(message for the view, a ticket for a run of this form)."""
        self.last[session_of(request)] = form
        local = request.client is not None and request.client.host in ("127.0.0.1", "::1")
        job: RaceJob | UserError
        try:
            job = self.make_job(form, stepping, local)
        except UserError as error:
            job = error  # shown when its turn comes, after what runs now
        ticket = self.queue.enter(session_of(request), job)
        text = _position_text(self.queue.position(ticket), stepping)
        asked = job.to_dict() if isinstance(job, RaceJob) else None
        return (Queued(asked, text).to_dict() if asked or text else gr.skip()), ticket

    def stop(self, request: gr.Request) -> dict[str, Any]:
        """Works within one round: the engine looks at the ticket's event between two rounds."""
        waiting = self.queue.stop(session_of(request))
        return Ended(text="Stopped before it began." if waiting else "").to_dict()

    def step(self, request: gr.Request, form: RaceForm) -> tuple[Any, Any]:
        """(message, ticket or no change): the same form again only moves the playhead one round
        on.
        """
        if self.last.get(session_of(request)) == form:
            return Advance().to_dict(), gr.skip()
        return self.enter(request, form, stepping=True)

    def api(self, form: RaceForm) -> Iterator[str]:
        """Windows of events for the public endpoint, as JSON texts. Raises ``gr.Error`` for a
        UserError.
        """
        cancel = threading.Event()
        try:
            for message in self.messages(self.make_job(form), cancel):
                if isinstance(message, Events):
                    yield message.events
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None
        finally:
            cancel.set()

    def forget(self, request: gr.Request) -> None:
        """A tab was closed: end its race, drop what was remembered of it."""
        self.queue.leave(session_of(request))
        self.last.pop(session_of(request), None)

    def loading(self, pair: str) -> Iterator[str]:
        """Sentences about the model being loaded, until it is there. Only a run, which waits its
        turn, may push another pair out of memory.
        """
        if not self.engines.free_for(pair):
            yield "Another pair is in memory; this one is loaded when you press **Run**."
            return
        try:
            for message, fraction in self.engines.wait(pair):
                yield progress_text(message, fraction)
            yield "Model in memory."
        except UserError as error:
            yield f"{error} The recordings and the lesson work without a model."
        except Exception:
            traceback.print_exc()
            yield (
                "The model could not be loaded; the details are in the log of the program. The"
                " recordings and the lesson work without it."
            )


def session_of(request: gr.Request) -> str:
    """The id of one open page."""
    return request.session_hash or ""


def _position_text(position: int, stepping: bool) -> str:
    if position:
        races = "One race is" if position == 1 else f"{position} races are"
        return f"{races} before yours; it starts by itself, and Stop takes you out of the queue."
    return "Starting, one round at a time …" if stepping else ""


def _trace_text(events: Any) -> str:
    text = dump_trace(events if isinstance(events, list) else [])
    if len(text) > MAX_TRACE_BYTES:
        raise UserError(
            "This trace is larger than 20 MB, too large for one page; run with fewer tokens."
        )
    return text


def progress_text(message: str, fraction: float | None) -> str:
    """A sentence with a bar of 20 blocks where ``fraction`` (0 to 1) is known."""
    message = message[:1].upper() + message[1:]
    if fraction is None:
        return f"{message} …"
    full = round(20 * min(max(fraction, 0.0), 1.0))
    return f"{message} {'█' * full}{'░' * (20 - full)} {100 * fraction:.0f} %"
