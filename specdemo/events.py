"""What happened, as plain data: the events of one race and the trace file that keeps them.

Events are append-only and hold ids, floats and text, never tensors or markup. A live run and a recorded
trace are the same list of events, so one renderer serves both. Knows nothing about torch or gradio.

A trace file is one JSON object: ``{"format": "specdemo-trace", "version": 1, "events": [...]}``.
Every event is a flat JSON object whose ``kind`` names its class here. ``vocab`` fields map token id (as a
string) to that token's own text and are incremental: an id is sent with the first event that uses it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .errors import Refusal

FORMAT, VERSION = "specdemo-trace", 1
MAX_TRACE_BYTES = 20_000_000


@dataclass
class Event:
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """This event as JSON-ready data, floats rounded to 6 significant digits."""
        return {"kind": self.kind} | {k: _plain(v) for k, v in vars(self).items()}


@dataclass
class Start(Event):
    """The race begins. ``params`` are the method's own, ``sampling`` the target's; times are absent here."""

    kind: ClassVar[str] = "start"
    prompt: str = ""
    prompt_ids: list[int] = field(default_factory=list)
    pair: str = ""
    method: str = ""
    rule: str = "match"  # match | ratio | point-mass
    params: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)  # temperature, top_k, top_p, min_p, repetition_penalty, seed
    max_new_tokens: int = 0
    hardware: str = ""
    dtype: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    weights: str = ""  # which drafter weights were used, in words
    cost_ms: dict[str, float] = field(default_factory=dict)  # rows -> milliseconds of one target pass, measured at load
    one_row_ms: float | None = None  # the fastest plain pass (one row, masked kernel); speed-ups are taken against it if it beats the plain lane
    ar_width: int = 1  # rows of the plain lane's pass
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Prefill(Event):
    """One lane has read the prompt and picked its first token; ``seconds`` is its time to first token."""

    kind: ClassVar[str] = "prefill"
    lane: str = "ar"  # ar | spec
    id: int = 0
    text: str = ""
    logprob: float | None = None
    seconds: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class ArToken(Event):
    """The plain lane wrote one token. ``clock`` is that lane's own decode clock in seconds after this token."""

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
    top: list[list[list[float]]] = field(default_factory=list)  # per position [[id, probability], ...] best first
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class DraftMade(Event):
    """The candidates of one round: a tree over the anchor, flattened so that parents come first.

    ``notes`` holds what is special about the method, each key optional:
    ``lattice`` [[[id, p], ...] per position], ``paths`` [{"ids": [...], "score": s}] with ``path`` the index chosen,
    ``boundaries`` [r(0), r(1), ...] with ``branches`` [i, ...], ``drafts`` [{"ids", "score"; "own", the drafter's score, where the target's decided}] with ``chosen``,
    ``length`` {"k", "gen", "acc"}, ``expected`` tokens this round, ``why`` a sentence (for instance why nothing was drafted).
    """

    kind: ClassVar[str] = "draft"
    round: int = 0
    tokens: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)  # -1 = the anchor
    q: list[float | None] = field(default_factory=list)  # drafter's probability of each node
    origin: list[str] = field(default_factory=list)  # where a node came from: block, branch, ngram, ar ...
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Verify(Event):
    """The target's verdict on one round.

    ``kept`` are the tokens written this round, in order, each ``{"id", "text", "source", "node", "logprob", "p", "q", "rank", "step"}``:
    source is ``accepted`` (a draft), ``correction`` (the target's own token where a draft was wrong), ``bonus`` (after everything
    was right) or ``plain`` (nothing was drafted); node is the index in the draft or null; p is the target's probability of it, q the drafter's;
    rank is the place of the kept token among the drafter's candidates there (1 = first; null = not among them).
    ``status`` has one word per node: ``accepted``, ``rejected`` (its parent was kept, it was not), ``unreached``, or ``dropped`` (accepted, but the answer had ended
    before it).
    """

    kind: ClassVar[str] = "verify"
    round: int = 0
    rows: int = 1  # width of the target pass
    kept: list[dict[str, Any]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    p: list[float | None] = field(default_factory=list)  # target's probability of each node (null = not looked at)
    picks: list[int | None] = field(default_factory=list)  # target's own token after the anchor, then after each node
    cut: int = 0  # tokens dropped by the stop rule after they were verified
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    rest_seconds: float = 0.0
    clock: float = 0.0  # the speculative lane's own decode clock after this round
    vocab: dict[str, str] = field(default_factory=dict)


@dataclass
class Done(Event):
    """Totals. ``result`` is exactly what ``race --json`` prints (see README); ``stopped`` is true when a person stopped it."""

    kind: ClassVar[str] = "done"
    result: dict[str, Any] = field(default_factory=dict)
    ar_text: str = ""
    spec_text: str = ""
    stopped: bool = False


KINDS: dict[str, type[Event]] = {c.kind: c for c in (Start, Prefill, ArToken, Denoise, DraftMade, Verify, Done)}


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
        raise Refusal("This is not an event of a SpecDemo trace; load a file saved with “Download trace”.")
    names = {f.name for f in dataclasses.fields(cls)}
    return cls(**{k: v for k, v in data.items() if k in names})


def dump_trace(events: list[Event] | list[dict[str, Any]]) -> str:
    """A trace as JSON text."""
    rows = [e.to_dict() if isinstance(e, Event) else e for e in events]
    return json.dumps({"format": FORMAT, "version": VERSION, "events": rows}, ensure_ascii=False, separators=(",", ":"))


def save_trace(events: list[Event] | list[dict[str, Any]], path: str | Path) -> None:
    """Write a trace beside its final name first, so that a full disk leaves no half file behind."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(dump_trace(events), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Refusal(f"The trace could not be written to {path} ({error.strerror}); choose another place or free some space.") from None


def parse_trace(text: str) -> list[Event]:
    """The events of a trace file's text; anything else is refused with one sentence."""
    if len(text) > MAX_TRACE_BYTES:
        raise Refusal("This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved by this page.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("This file is not JSON, so it is not a SpecDemo trace; choose a file saved with “Download trace”.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("events"), list):
        raise Refusal("This JSON file is not a SpecDemo trace; choose a file saved with “Download trace”.")
    if data.get("version") != VERSION:
        raise Refusal(f"This trace has version {data.get('version')!r} and this app reads version {VERSION}; record it again.")
    events = [from_dict(e) for e in data["events"]]
    if not events or not isinstance(events[0], Start):
        raise Refusal("This trace does not begin with its start event; record it again.")
    return events


def load_trace(path: str | Path) -> list[Event]:
    """Read a trace from disk; see :func:`parse_trace`."""
    try:
        if Path(path).stat().st_size > MAX_TRACE_BYTES:
            raise Refusal("This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved by this page.")
        return parse_trace(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"The trace {path} cannot be read ({error.strerror}); check its name.") from None
    except UnicodeDecodeError:
        raise Refusal("This file is not text, so it is not a SpecDemo trace; choose a file saved with “Download trace”.") from None
