"""What the page's listeners share: engines, recent runs, who runs what. Knows nothing about the
layout.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from ..errors import UserError
from ..traces import MAX_TRACE_BYTES, dump_trace, load_trace, parse_trace
from . import charts
from .backend import Backend
from .controls import LAST_SEED, Limits
from .export import export_html
from .streaming import BESIDE_SECONDS, WINDOW_SECONDS, Engines, Runs, windows
from .visitors import Visitors

PLOT_SECONDS = 0.5  # Gradio sends the whole figure every time
BROKEN = (
    "Something went wrong inside SpecDemo; the details are in the log of the program. Press Run to"
    " try again."
)


class Server:
    """What the listeners share: engines, recent runs, who runs what."""

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
        self.visitors, self.racing = Visitors(), threading.Lock()
        self.last: dict[str, str] = {}  # what each visitor ran last, to tell a step from a new run

    # -- server functions of the view: small, stateless, and safe to call with anything ------------

    def recorded(self, name: str) -> list[dict[str, Any]]:
        return [e.to_dict() for e in load_trace(self.traces[name])] if name in self.traces else []

    def server_functions(self) -> list[Any]:
        def missing_events(ask: Any):
            return self.runs.missing(ask)

        def recorded_trace(ask: Any):
            return self.recorded(str(ask.get("name"))) if isinstance(ask, dict) else []

        def export_page(ask: Any):
            try:
                events = ask.get("events") if isinstance(ask, dict) else None
                text = _trace_text(events)
                return {"html": export_html(parse_trace(text))}
            except UserError as refusal:
                return {"refusal": str(refusal)}

        def drawn(ask: Any):
            self.runs.note_drawn(ask)

        return [missing_events, recorded_trace, export_page, drawn]

    # -- a race ------------------------------------------------------------------------------------

    def ask(
        self,
        prompt: Any,
        method: Any,
        pair: Any,
        rule: Any,
        new_tokens: Any,
        temperature: Any,
        top_p: Any,
        seed: Any,
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        """A request as plain data, within the page's limits. Raises UserError."""
        prompt = prompt if isinstance(prompt, str) else ""
        pair, method, rule = str(pair), str(method), str(rule)
        if not prompt.strip():
            raise UserError("The prompt is empty; type a question or choose an example.")
        try:
            tokens, temperature, top_p, whole = (
                int(new_tokens),
                float(temperature),
                float(top_p),
                int(seed),
            )
        except (TypeError, ValueError, OverflowError):
            raise UserError(
                "New tokens, temperature, top-p and seed must be numbers; put in their usual values"
                " again."
            ) from None
        if tokens != float(new_tokens):
            raise UserError(f"New tokens must be a whole number, not {new_tokens}.")
        if whole != float(seed) or not 0 <= whole <= LAST_SEED:
            raise UserError(f"The seed must be a whole number from 0 to {LAST_SEED:,}, not {seed}.")
        self.limits.check(prompt, tokens)
        if pair not in self.pairs:
            raise UserError(
                f"There is no pair “{pair}” here; choose one of {', '.join(self.pairs)}."
            )
        if method not in self.methods:
            raise UserError(
                f"There is no method “{method}”; choose one of {', '.join(self.methods)}."
            )
        if why := self.methods[method].refuse_pair(self.pairs[pair]):
            raise UserError(why)
        ask = {
            "prompt": prompt,
            "method": method,
            "params": dict(params),
            "rule": rule,
            "max_new_tokens": tokens,
            "sampling": {"temperature": temperature, "top_p": top_p, "seed": whole},
        }
        self.backend.check(ask)
        return {"pair": pair} | ask

    def messages(
        self,
        ask: dict[str, Any],
        cancel: threading.Event,
        stepping: bool = False,
        beside: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Messages for the view: waiting, windows of events, the end. Raises UserError.

        ``beside``: the browser draws on this machine. If the engine computes on its processor too,
        they take turns: no lane's clock runs while
        a window is being drawn.
        """
        run = uuid.uuid4().hex
        head = {"run": run, "live": True, "stepping": stepping}
        pair = ask["pair"]
        for message, fraction in self.engines.wait(pair):
            if cancel.is_set():
                yield head | {"ended": True}
                return
            yield head | {"status": progress_words(message, fraction)}
        events = self.runs.open(run)
        engine = self.engines.get(pair)
        beside = beside and self.backend.on_processor(engine)
        # a race that Gradio cancelled in the middle of a step is closed first
        self.racing.acquire()
        race = self.backend.race(engine, {k: v for k, v in ask.items() if k != "pair"}, cancel)
        try:
            for window in self.engines.thread.each(
                windows(race, BESIDE_SECONDS if beside else WINDOW_SECONDS)
            ):
                before = len(events)
                events.extend(window)
                yield head | {"from": before, "events": pack(window), "ack": beside}
                beside = beside and self.runs.wait_drawn(run, len(events))
            yield head | {"ended": True, "total": len(events)}
        finally:
            race.close()  # a closed tab ends the engine's round here, and frees its memory
            self.racing.release()

    def run(self, number: str) -> Iterator[tuple[Any, Any]]:
        """The Run listener: (message for the view, figure or nothing). Ends at once when the ticket
        was given back meanwhile.
        """
        ticket = self.visitors.begin(number)
        if ticket is None:
            yield gr.skip(), gr.skip()
            return
        (values, stepping, beside), plotted, begun = ticket.wish, time.perf_counter(), {}
        try:
            ask = self.ask(*values)
            for message in self.messages(ask, ticket.cancel, stepping, beside):
                events = self.runs.runs.get(message["run"], [])
                now = time.perf_counter()
                # a browser on the engine's own processor draws Plotly's chart, unlike ours, after
                # it said it was done: there it waits for the end
                plot = bool(events) and (
                    "ended" in message or (now - plotted >= PLOT_SECONDS and not message.get("ack"))
                )
                if plot:
                    plotted = now
                first = not begun  # the chart of the race before goes when this one has begun
                begun = {
                    "run": message["run"],
                    "live": True,
                    "stepping": stepping,
                    "total": len(events),
                }
                # again, as Gradio may have dropped the message before this one
                told = {"ask": ask} if first else {}
                yield (
                    message | told,
                    (
                        charts.tokens_over_time(events if plot else [])
                        if plot or first
                        else gr.skip()
                    ),
                )
        except UserError as refusal:
            yield begun | {"nonce": uuid.uuid4().hex, "refusal": str(refusal)}, gr.skip()
        except Exception:
            traceback.print_exc()
            yield begun | {"nonce": uuid.uuid4().hex, "refusal": BROKEN}, gr.skip()
        finally:
            ticket.cancel.set()
            self.visitors.finish(number)

    def enter(self, request: gr.Request, *values: Any, stepping: bool = False) -> tuple[Any, str]:
        """(message or nothing, a ticket for a run with these values)."""
        self.last[request.session_hash] = repr(values)
        beside = request.client is not None and request.client.host in ("127.0.0.1", "::1")
        ticket = self.visitors.enter(request.session_hash, (values, stepping, beside))
        ahead = self.visitors.ahead(ticket)
        told = "Starting, one round at a time …" if stepping else ""
        if ahead:
            told = (
                f"{'One race is' if ahead == 1 else f'{ahead} races are'} before yours; it starts"
                " by itself, and Stop takes you out of the line."
            )
        try:
            known = {"ask": self.ask(*values)}  # the page keeps it in its address, for a reload
        except UserError:
            known = {}  # the run will say what is wrong
        return (
            ({"nonce": uuid.uuid4().hex} | known | ({"status": told} if told else {}))
            if known or told
            else gr.skip()
        ), ticket

    def stop(self, request: gr.Request) -> dict[str, Any]:
        """Works within one round: the engine looks at the event between two rounds."""
        waiting = self.visitors.stop(request.session_hash)
        return {"ended": True, "nonce": uuid.uuid4().hex} | (
            {"status": "Stopped before it began."} if waiting else {}
        )

    def step(self, request: gr.Request, *values: Any) -> tuple[dict[str, Any], Any]:
        """(message, ticket or no change): the same request again only moves the playhead one round
        on.
        """
        if self.last.get(request.session_hash) == repr(values):
            return {"advance": uuid.uuid4().hex}, gr.skip()
        return self.enter(request, *values, stepping=True)

    def api(self, *values: Any) -> Iterator[str]:
        """Windows of events for the public endpoint; refusals become the client's error."""
        cancel = threading.Event()
        try:
            for message in self.messages(self.ask(*values), cancel):
                if "events" in message:
                    yield message["events"]
        except UserError as refusal:
            raise gr.Error(str(refusal), print_exception=False) from None
        finally:
            cancel.set()

    def forget(self, request: gr.Request) -> None:
        """A tab was closed: end its race, drop what was remembered of it."""
        self.visitors.leave(request.session_hash)
        self.last.pop(request.session_hash, None)

    def loading(self, pair: str) -> Iterator[str]:
        """Words about the model being loaded, until it is there. Only a run, which waits its turn,
        may push another pair out.
        """
        if not self.engines.free_for(pair):
            yield "Another pair is in memory; this one is loaded when you press **Run**."
            return
        try:
            for message, fraction in self.engines.wait(pair):
                yield progress_words(message, fraction)
            yield "Model in memory."
        except UserError as refusal:
            yield f"{refusal} The recordings and the lesson work without a model."
        except Exception:
            traceback.print_exc()
            yield (
                "The model could not be loaded; the details are in the log of the program. The"
                " recordings and the lesson work without it."
            )


def pack(events: list[dict[str, Any]]) -> str:
    """Events as one string: Gradio would patch a nested value piece by piece from one message to
    the next.
    """
    return json.dumps(events, ensure_ascii=False, separators=(",", ":"))


def _trace_text(events: Any) -> str:
    text = dump_trace(events if isinstance(events, list) else [])
    if len(text) > MAX_TRACE_BYTES:
        raise UserError(
            "This trace is larger than 20 MB, too large for one page; run with fewer tokens."
        )
    return text


def progress_words(message: str, fraction: float | None) -> str:
    message = message[:1].upper() + message[1:]
    if fraction is None:
        return f"{message} …"
    full = round(20 * min(max(fraction, 0.0), 1.0))
    return f"{message} {'█' * full}{'░' * (20 - full)} {100 * fraction:.0f} %"
