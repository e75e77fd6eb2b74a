"""What the page's listeners do: run, stop, step, load, and the functions that the view calls. Knows
nothing about the layout.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..errors import UserError
from ..traces import MAX_TRACE_BYTES, dump_trace, load_trace, parse_trace
from .backend import NOT_HERE, Backend, loaded_words
from .choice import check_dtype, engine_key, split_key
from .client_address import address_of, is_local
from .controls import Limits
from .engines import Engines
from .export import export_html
from .jobs import BenchJob, RaceForm, RaceJob, make_job
from .messages import BEGINS, Advance, Ended, Error, Events, Queued, Run, Status, pack
from .picture_maker import PictureMaker
from .qr import qr_rows
from .race_queue import RaceQueue
from .readers import UNREAD, Readers
from .streaming import LOCAL_BROWSER_INTERVAL, WINDOW_INTERVAL, Runs, windows

if TYPE_CHECKING:
    from .gradio_queue import GuardedQueue

BROKEN = (
    "Something went wrong inside SpecDemo; the details are in the server log. Press Run to try"
    " again."
)
MAX_LAST = 1000  # pages of which the last form is remembered
# how long a turn may wait until a pair that is not here is fetched, while another is in memory
FETCH_TURN = 5.0


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
        self.engines, self.runs = Engines(backend.load, backend.fetch), Runs()
        self.traces = {path.stem: path for path in sorted(traces.glob("*.json"))}
        self.queue = RaceQueue(limits.queue, limits.per_address)
        self.race_lock, self.readers = threading.Lock(), Readers()
        self.pictures = PictureMaker(self.race_lock.locked)
        self.line: GuardedQueue | None = None  # Gradio's, once the page is built
        # digests of forms by session, to tell a step from a new run
        self.last: OrderedDict[str, str] = OrderedDict()
        # by session: what was chosen last, whose loading its page is told of
        self.chosen: OrderedDict[str, object] = OrderedDict()

    # -- functions that the view calls: small, stateless, and safe to call with anything -----------

    def recorded(self, name: str) -> list[dict[str, Any]]:
        return [e.to_dict() for e in load_trace(self.traces[name])] if name in self.traces else []

    def view_functions(self) -> list[Callable[[Any], Any]]:
        def missing_events(ask: Any) -> list[dict[str, Any]]:
            return self.runs.missing(ask)

        def recorded_trace(ask: Any) -> list[dict[str, Any]]:
            return self.recorded(str(ask.get("name"))) if isinstance(ask, dict) else []

        def export_page(ask: Any) -> dict[str, str]:
            ask = ask if isinstance(ask, dict) else {}
            complete = ask.get("complete")
            try:
                return {
                    "html": export_html(
                        parse_trace(_trace_text(ask.get("events"))),
                        complete if isinstance(complete, int) else None,
                    )
                }
            except UserError as error:
                return {"error": str(error)}

        def picture(ask: Any) -> dict[str, str]:
            ask = ask if isinstance(ask, dict) else {}
            try:
                text = _trace_text(ask.get("events"))
            except UserError as error:
                return {"error": str(error)}
            return self.pictures.make(text, ask.get("kind"), ask.get("round"))

        def qr_code(ask: Any) -> dict[str, Any]:
            text = ask.get("text") if isinstance(ask, dict) else None
            return {"rows": qr_rows(text) if isinstance(text, str) else None}

        def drawn(ask: Any) -> None:
            self.runs.note_drawn(ask)

        return [missing_events, recorded_trace, export_page, picture, qr_code, drawn]

    def pair_choices(self) -> list[tuple[str, str]]:
        """The pairs as a dropdown shows them, those that are not all here marked."""
        choices = []
        for name, pair in self.pairs.items():
            missing = self.backend.missing(pair)
            choices.append((f"{pair.title} ({missing})" if missing else pair.title, name))
        return choices

    # -- a race ------------------------------------------------------------------------------------

    def make_job(
        self, form: RaceForm, stepping: bool = False, local_browser: bool = False
    ) -> RaceJob:
        """Raises UserError where the form cannot run here."""
        return make_job(form, self.methods, self.pairs, self.limits, stepping, local_browser)

    def messages(
        self, job: RaceJob, cancel: threading.Event, session: Callable[[], str] = str
    ) -> Iterator[Status | Events | Ended]:
        """Messages of one race, which is ``session``'s: what it waits for, windows of events, the
        end. Raises UserError.

        With ``job.local_browser`` the browser draws on this machine. If the engine computes on its
        CPU too, they take turns: no lane's clock runs while a window is being drawn.
        """
        run = Run(uuid.uuid4().hex, stepping=job.stepping, request=job.to_dict())
        for message, fraction in self._ready(job.key):
            if self.readers.unread(session()):
                raise UserError(UNREAD)
            if cancel.is_set():
                yield Ended(run)
                return
            yield Status(f"{progress_text(message, fraction)} {BEGINS}", run)
            run = replace(run, request=None)  # the view has it
        events = self.runs.open(run.id)
        engine = self.engines.get(job.key)
        wait_drawn = job.local_browser and self.backend.runs_on_cpu(engine)
        interval = LOCAL_BROWSER_INTERVAL if wait_drawn else WINDOW_INTERVAL
        with self.race_lock:
            race = self.backend.race(engine, job.request, cancel)
            end, text = time.monotonic() + self.limits.race_seconds, ""
            try:
                for window in self.engines.thread.each(windows(race, interval)):
                    offset = len(events)
                    events.extend(window)
                    if not text and (text := self._why_end(session(), end)):
                        cancel.set()
                    yield Events(run, offset, pack(window), confirm=wait_drawn)
                    run = replace(run, request=None)
                    wait_drawn = wait_drawn and self.runs.wait_drawn(run.id, len(events))
                yield Ended(run, len(events), text)
            finally:
                race.close()  # a closed tab ends the engine's round here, and frees its memory

    def _ready(self, key: str) -> Iterator[tuple[str, float | None]]:
        """Yields (message, fraction) until the engine of ``key`` is in memory.

        Another pair stays there until the files of this one are on this computer. If they take
        long, the turn is given back, so that others go on racing meanwhile.

        Raises:
            UserError: they cannot be fetched, or are not here yet.
        """
        if not self.engines.free_for(key):
            end = time.monotonic() + FETCH_TURN
            for message, fraction in self.engines.fetch(key):
                if time.monotonic() > end:
                    done = "" if fraction is None else f" ({fraction:.0%} done)"
                    title = self.pairs[split_key(key)[0]].title
                    raise UserError(
                        f"{title} is being fetched{done}; press Run again in a"
                        " while. The pair in memory stays ready."
                    )
                yield message, fraction
        yield from self.engines.wait(key)

    def _why_end(self, session: str, end: float) -> str:
        """Why a race is ended before its time, if it is."""
        if self.readers.unread(session):
            return UNREAD
        if time.monotonic() > end:
            return (
                f"Stopped: a race may take {self.limits.race_seconds:.0f} seconds here; ask for"
                " fewer tokens."
            )
        return ""

    def run(self, request: gr.Request) -> Iterator[Any]:
        """The Run listener, when a page's turn has come: messages for the view. Ends at once when
        its ticket was cancelled meanwhile.
        """
        session = session_of(request)
        ticket = self.queue.begin(session, (RaceJob, UserError))
        if ticket is None:
            yield gr.skip()
            return
        run = None
        try:
            if isinstance(ticket.request, UserError):
                raise ticket.request
            for message in self.messages(ticket.request, ticket.cancel, lambda: ticket.session):
                run = message.run
                ticket.run = run.id if run else ""
                yield ticket.say(message.to_dict())
        except UserError as error:
            yield ticket.say(self._error(str(error), run))
        except gr.Error as error:  # ZeroGPU's: the visitor's share of the GPU is used up
            yield ticket.say(self._error(plain_text(error), run))
        except Exception:
            traceback.print_exc()
            yield ticket.say(self._error(BROKEN, run))
        finally:
            ticket.cancel.set()
            self.queue.finish(ticket)

    def measure_again(self, pair: str) -> Iterator[str]:
        """Sentences about measuring the passes of ``pair`` anew, if it is in memory."""
        if not self.engines.ready(pair):
            yield "This pair is not in memory yet; press **Run** first."
            return
        yield "Measuring the target's passes …"
        engine = self.engines.get(pair)
        yield self.engines.thread.submit(self.backend.measure_again, engine).result()

    def _error(self, text: str, run: Run | None) -> dict[str, Any]:
        return Error(text, run, self.runs.count(run.id) if run else 0).to_dict()

    def enter(self, request: gr.Request, form: RaceForm, stepping: bool = False) -> Any:
        """A ticket for a run of this form: what the view is told. Only what has been checked is
        kept.
        """
        session = session_of(request)
        job: RaceJob | UserError
        try:
            job = self.make_job(form, stepping, is_local(request))
        except UserError as error:
            job = error  # shown when its turn comes, after what runs now
        try:
            text = self._enter(request, job, stepping)
        except UserError as error:
            return self._error(str(error), None)
        remember(self.last, session, form.digest())
        asked = job.to_dict() if isinstance(job, RaceJob) else None
        return Queued(asked, text).to_dict() if asked or text else gr.skip()

    def enter_bench(self, request: gr.Request, job: BenchJob) -> str:
        """A ticket for a short bench: what its page is told. Raises UserError."""
        return self._enter(request, job)

    def _enter(self, request: gr.Request, job: Any, stepping: bool = False) -> str:
        address = address_of(request, self.limits.behind_proxy)
        ticket = self.queue.enter(session_of(request), job, address)
        calls = len(self.line.api_calls()) if self.line is not None else 0
        return _position_text(self.queue.position(ticket) + calls, stepping)

    def stop(self, request: gr.Request) -> dict[str, Any]:
        """Works within one round or chunk of the prompt: the engine looks at the ticket's event
        between two.
        """
        ticket = self.queue.stop(session_of(request))
        waiting = ticket is not None and not ticket.started
        return Ended(text="Stopped before it began." if waiting else "").to_dict()

    def step(self, request: gr.Request, form: RaceForm) -> Any:
        """As :meth:`enter`; the same form again only moves the playhead one round on."""
        if self.last.get(session_of(request)) == form.digest():
            return Advance().to_dict()
        return self.enter(request, form, stepping=True)

    def api(self, form: RaceForm, request: gr.Request) -> Iterator[str]:
        """Windows of events for the public endpoint, as JSON texts. Raises ``gr.Error`` for a
        UserError.
        """
        cancel = threading.Event()
        try:
            for message in self.messages(self.make_job(form), cancel, lambda: session_of(request)):
                if isinstance(message, Events):
                    yield message.events
        except (UserError, gr.Error) as error:
            raise gr.Error(plain_text(error), print_exception=False) from None
        except Exception:
            traceback.print_exc()
            raise gr.Error(BROKEN, print_exception=False) from None
        finally:
            cancel.set()

    def forget(self, request: gr.Request) -> None:
        """A tab was closed: end its race if no page comes back, drop what was remembered of it."""
        self.queue.leave(session_of(request), self.limits.return_seconds)
        self.last.pop(session_of(request), None)
        self.chosen.pop(session_of(request), None)

    def loading(self, pair: str, method: str, session: str = "", dtype: Any = "") -> Iterator[str]:
        """Sentences about the model being loaded, until it is there or the page chooses something
        else; or why a run of ``method`` on it is refused. Only a run, which waits its turn, may
        push another pair out of memory, or fetch one that is not the page's first.
        """
        wanted, mine = self.pairs[pair], object()
        remember(self.chosen, session, mine)
        if why := self.methods[method].refuse_pair(wanted) or self.backend.refuse(wanted):
            yield why
            return
        first = pair == next(iter(self.pairs))
        if not first and NOT_HERE in self.backend.missing(wanted):
            yield (
                f"{wanted.title} is not on this computer; **Run** fetches it, which needs network"
                " access."
            )
            return
        try:
            key = engine_key(pair, check_dtype(dtype, wanted, self.limits))
        except UserError as error:
            yield str(error)
            return
        if not self.engines.free_for(key):
            same = split_key(self.engines.pair or "")[0] == pair
            what = (
                "This pair is in memory in another dtype" if same else "Another pair is in memory"
            )
            yield f"{what}; this one is loaded when you press **Run**."
            return
        try:
            for message, fraction in self.engines.wait(key):
                if self.chosen.get(session) is not mine:
                    return
                yield progress_text(message, fraction)
            yield loaded_words(self.engines.get(key))
        except UserError as error:
            yield f"{error} The recordings and the lesson work without a model."
        except Exception:
            traceback.print_exc()
            yield (
                "The model could not be loaded; the details are in the server log. The recordings"
                " and the lesson work without it."
            )


def plain_text(error: Exception) -> str:
    """The sentence of an error; ZeroGPU's have links in them."""
    text = error.message if isinstance(error, gr.Error) else str(error)
    return re.sub(r"<[^<>]*>", "", str(text))


def remember(by_session: OrderedDict[str, Any], session: str, value: Any) -> None:
    """Keep ``value`` for a session, of the last ``MAX_LAST`` that kept one."""
    by_session[session] = value
    by_session.move_to_end(session)
    while len(by_session) > MAX_LAST:
        by_session.popitem(last=False)


def session_of(request: gr.Request) -> str:
    """The id of one open page."""
    return request.session_hash or ""


def _position_text(position: int, stepping: bool) -> str:
    if position:
        races = "One race is" if position == 1 else f"{position} races are"
        return f"{races} ahead of yours; it starts by itself, and Stop takes you out of the queue."
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
