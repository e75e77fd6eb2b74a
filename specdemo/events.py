"""What happened, as plain data: the events of one race and the trace file that keeps them.

Events are append-only and hold ids, floats and text, never tensors or markup. A live run and a
recorded trace are the same list of events, so one renderer serves both. Knows nothing about torch
or gradio.

A trace file is one JSON object: ``{"format": "specdemo-trace", "version": 1, "events": [...]}``.
Every event is a flat JSON object whose ``kind`` names its class here. ``vocab`` fields map token id
(as a string) to that token's own text and are incremental: an id is sent with the first event that
uses it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .errors import UserError
from .files import atomic_write

FORMAT, VERSION = "specdemo-trace", 1
MAX_TRACE_BYTES = 20_000_000
SECONDS = ("seconds", "draft_seconds", "verify_seconds", "rest_seconds")


@dataclass
class Event:
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """This event as JSON-ready data, floats rounded to 6 significant digits."""
        return {"kind": self.kind} | {k: _plain(v) for k, v in vars(self).items()}


@dataclass
class Start(Event):
    """The race begins. ``params`` are the method's own, ``sampling`` the target's; times are absent
    here.
    """

    kind: ClassVar[str] = "start"
    prompt: str = ""
    prompt_ids: list[int] = field(default_factory=list)
    pair: str = ""
    method: str = ""
    rule: str = "match"  # match | ratio | point-mass
    params: dict[str, Any] = field(default_factory=dict)
    # temperature, top_k, top_p, min_p, repetition_penalty, seed
    sampling: dict[str, Any] = field(default_factory=dict)
    max_new_tokens: int = 0
    hardware: str = ""
    dtype: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    weights: str = ""  # which drafter weights were used, in words
    # rows -> milliseconds of one target pass, measured at load
    cost_ms: dict[str, float] = field(default_factory=dict)
    # the fastest plain pass (one row, masked kernel); speed-ups are taken against it if it beats
    # the plain lane
    one_row_ms: float | None = None
    ar_width: int = 1  # rows of the plain lane's pass
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Prefill(Event):
    """One lane has read the prompt and picked its first token; ``seconds`` is its time to first
    token.
    """

    kind: ClassVar[str] = "prefill"
    lane: str = "ar"  # ar | spec
    id: int = 0
    text: str = ""
    logprob: float | None = None
    seconds: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class ArToken(Event):
    """The plain lane wrote one token. ``clock`` is that lane's own decode clock in seconds after
    this token.
    """

    kind: ClassVar[str] = "ar_token"
    position: int = 0  # index in the output, 0 = the token of the prefill
    id: int = 0
    text: str = ""  # what this token adds to the text; empty while a character is incomplete
    logprob: float | None = None
    clock: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Denoise(Event):
    """One denoising step of one block. All lists run over the block's positions (depth 1 first)."""

    kind: ClassVar[str] = "denoise"
    round: int = 0
    step: int = 0
    steps: int = 1
    row: int = 0  # which of several blocks drafted together
    label: str = ""  # e.g. "block", "branch after 3", "draft 2 of 8"
    ids: list[int] = field(default_factory=list)  # best guess at each position
    masked: list[bool] = field(default_factory=list)  # still a mask after this step
    conf: list[float] = field(default_factory=list)  # drafter's probability of that guess
    # per position [[id, probability], ...] best first
    top: list[list[list[float]]] = field(default_factory=list)
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class DraftMade(Event):
    """The candidates of one round: a tree over the anchor, flattened so that parents come first.

    ``notes`` holds what is special about the method, each key optional:
    ``lattice`` [[[id, p], ...] per position], ``paths`` [{"ids": [...], "score": s}] with ``path``
    the index chosen, ``boundaries`` [r(0), r(1), ...] with ``branches`` [i, ...], ``drafts``
    [{"ids", "score"; "own", the drafter's score, where the target's decided}] with ``chosen``,
    ``length`` {"k", "gen", "acc"}, ``expected`` tokens this round, ``why`` a sentence (for instance
    why nothing was drafted).
    """

    kind: ClassVar[str] = "draft"
    round: int = 0
    tokens: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)  # -1 = the anchor
    q: list[float | None] = field(default_factory=list)  # drafter's probability of each node
    # where a node came from: block, branch, ngram, ar ...
    origin: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Verify(Event):
    """The target's verdict on one round.

    ``kept`` are the tokens written this round, in order, each ``{"id", "text", "source", "node",
    "logprob", "p", "q", "rank", "step"}``: source is ``accepted`` (a draft), ``correction`` (the
    target's own token where a draft was wrong), ``bonus`` (after everything was right) or ``plain``
    (nothing was drafted); node is the index in the draft or null; p is the target's probability of
    it, q the drafter's; rank is the place of the kept token among the drafter's candidates there (1
    = first; null = not among them).
    ``status`` has one word per node: ``accepted``, ``rejected`` (its parent was kept, it was not),
    ``unreached``, or ``dropped`` (accepted, but the answer had ended
    before it).
    """

    kind: ClassVar[str] = "verify"
    round: int = 0
    rows: int = 1  # width of the target pass
    kept: list[dict[str, Any]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    # target's probability of each node (null = not looked at)
    p: list[float | None] = field(default_factory=list)
    # target's own token after the anchor, then after each node
    picks: list[int | None] = field(default_factory=list)
    cut: int = 0  # tokens dropped by the stop rule after they were verified
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    rest_seconds: float = 0.0
    clock: float = 0.0  # the speculative lane's own decode clock after this round
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Done(Event):
    """Totals. ``result`` is exactly what ``race --json`` prints (see README); ``stopped`` is true
    when a person stopped it.
    """

    kind: ClassVar[str] = "done"
    result: dict[str, Any] = field(default_factory=dict)
    ar_text: str = ""
    spec_text: str = ""
    stopped: bool = False


KINDS: dict[str, type[Event]] = {
    c.kind: c for c in (Start, Prefill, ArToken, Denoise, DraftMade, Verify, Done)
}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def from_dict(data: Any) -> Event:
    """The event that ``data`` describes; unknown fields are ignored, unknown kinds refused."""
    cls = KINDS.get(data.get("kind")) if isinstance(data, dict) else None
    if cls is None:
        raise UserError(
            "This is not an event of a SpecDemo trace; load a file saved with “Download trace”."
        )
    names = {f.name for f in dataclasses.fields(cls)}
    return cls(**{k: v for k, v in data.items() if k in names})


def dump_trace(events: list[Event] | list[dict[str, Any]]) -> str:
    """A trace as JSON text."""
    rows = [e.to_dict() if isinstance(e, Event) else e for e in events]
    return json.dumps(
        {"format": FORMAT, "version": VERSION, "events": rows},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def save_trace(events: list[Event] | list[dict[str, Any]], path: str | Path) -> None:
    """Write a trace, whole or not at all; see :func:`.files.atomic_write`."""
    try:
        atomic_write(Path(path), dump_trace(events))
    except OSError as error:
        raise UserError(
            f"The trace could not be written to {path} ({error.strerror}); choose another place or"
            " free some space."
        ) from None


def parse_trace(text: str) -> list[Event]:
    """The events of a trace file's text; anything else is refused with one sentence."""
    if len(text) > MAX_TRACE_BYTES:
        raise UserError(
            "This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved by"
            " this page."
        )
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(
            "This file is not JSON, so it is not a SpecDemo trace; choose a file saved with"
            " “Download trace”."
        ) from None
    if (
        not isinstance(data, dict)
        or data.get("format") != FORMAT
        or not isinstance(data.get("events"), list)
    ):
        raise UserError(
            "This JSON file is not a SpecDemo trace; choose a file saved with “Download trace”."
        )
    if data.get("version") != VERSION:
        raise UserError(
            f"This trace has version {data.get('version')!r} and this app reads version {VERSION};"
            " record it again."
        )
    events = [from_dict(e) for e in data["events"]]
    if not events or not isinstance(events[0], Start):
        raise UserError("This trace does not begin with its start event; record it again.")
    if fault := misfit(events):
        raise UserError(
            f"The events of this trace do not fit together ({fault}), so it is not as it was"
            " recorded; choose a file saved with “Download trace”."
        )
    return events


def misfit(events: list[Event]) -> str | None:
    """What no race could have told in this order, or None. The beginning of a race fits: it may
    have been stopped. `static/parse.js` says the same.
    """
    written, clock, rounds, nodes, last = (
        {"ar": 0, "spec": 0},
        {"ar": 0.0, "spec": 0.0},
        0,
        0,
        len(events) - 1,
    )
    for at, e in enumerate(events):
        if isinstance(e, Start) and at:
            return "two starts"
        if isinstance(e, Done) and at < last:
            return "an end before the last event"
        if isinstance(e, Prefill):
            if e.lane not in ("ar", "spec") or written[e.lane]:
                return "a first token out of its place"
            written[e.lane] = 1
        if isinstance(e, ArToken):
            if e.position != written["ar"] or not written["ar"]:
                return "a token out of its place"
            written["ar"] += 1
        if isinstance(e, (Denoise, DraftMade, Verify)) and (
            e.round != rounds or not written["spec"]
        ):
            return "a round out of its place"
        if isinstance(e, DraftMade):
            if (
                not isinstance(e.tokens, list)
                or not isinstance(e.parent, list)
                or len(e.parent) != len(e.tokens)
                or not all(_number(p) and -1 <= p < i for i, p in enumerate(e.parent))
            ):
                return "a draft that is no tree"
            nodes = len(e.tokens)
        if isinstance(e, Verify):
            if not isinstance(e.status, list) or len(e.status) != nodes:
                return "a verdict on another draft"
            rounds, nodes = rounds + 1, 0
        if isinstance(e, (ArToken, Verify)):
            lane = "ar" if isinstance(e, ArToken) else "spec"
            if not _number(e.clock) or e.clock < clock[lane]:
                return "a clock that runs backwards"
            clock[lane] = e.clock
        if not all(_number(t) and t >= 0 for t in (vars(e).get(name, 0) for name in SECONDS)):
            return "a duration that is none"
    return None


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def load_trace(path: str | Path) -> list[Event]:
    """Read a trace from disk; see :func:`parse_trace`."""
    try:
        if Path(path).stat().st_size > MAX_TRACE_BYTES:
            raise UserError(
                "This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved"
                " by this page."
            )
        return parse_trace(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"The trace {path} cannot be read ({error.strerror}); check its name."
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            "This file is not text, so it is not a SpecDemo trace; choose a file saved with"
            " “Download trace”."
        ) from None
