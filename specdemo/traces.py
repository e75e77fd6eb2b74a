"""Trace files: the events of one race, written, read, checked and migrated.

A trace file is one JSON object ``{"format": "specdemo-trace", "version": 2, "events": [...]}`` with
the events of :mod:`.events`. ``python -m specdemo.traces`` prints its JSON schema, which is
``docs/trace.schema.json``. ``ui/static/parse.js`` reads the same files on the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from .drafters.parts.params import upgrade_params
from .errors import UserError
from .events import (
    AnyEvent,
    ArToken,
    Denoise,
    Done,
    DraftMade,
    Event,
    LaneName,
    Prefill,
    PrefillProgress,
    Start,
    Verify,
)
from .files import read_at_most, write_output
from .totals import predicted_speedup
from .trace_figures import DO_NOT_FOLLOW, totals_follow

FORMAT, VERSION = "specdemo-trace", 2
MAX_TRACE_BYTES = 20_000_000
TOO_LARGE = (
    "This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved by this page."
)
DURATIONS = ("seconds", "draft_seconds", "verify_seconds", "rest_seconds")

# fields this version does not know are ignored; a number in quotes is no number
_READING = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")
_EVENTS: TypeAdapter[list[AnyEvent]] = TypeAdapter(list[AnyEvent], config=_READING)


def dump_trace(events: Sequence[Event | Mapping[str, Any]]) -> str:
    """A trace as JSON text."""
    rows = [e.to_dict() if isinstance(e, Event) else e for e in events]
    return json.dumps(
        {"format": FORMAT, "version": VERSION, "events": rows},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def save_trace(events: Sequence[Event | Mapping[str, Any]], path: str | Path) -> str | None:
    """Write a trace, whole or not at all, see :func:`.files.atomic_write`; in the shorter form of
    :func:`shorten` where it would not be read again. Returns a sentence if it was shortened.
    """
    text, note = dump_trace(events), None
    if len(text.encode()) > MAX_TRACE_BYTES:
        whole = [e.to_dict() if isinstance(e, Event) else e for e in events]
        rows, complete = shorten(whole, MAX_TRACE_BYTES)
        text = dump_trace(rows)
        note = (
            "The trace would be larger than 20 MB, so how drafts were made is kept for the first"
            f" {complete} rounds only; all tokens and verdicts are in it."
        )
    write_output(Path(path), text, "The trace")
    return note


def shorten(rows: Sequence[Mapping[str, Any]], limit: int) -> tuple[list[dict[str, Any]], int]:
    """The events of a long race as a trace of at most ``limit`` bytes, and for how many rounds it
    is complete: behind them the denoising steps, the notes of drafts and the target's candidates
    are left out. ``static/shorten.js`` does the same.

    Raises:
        UserError: it is too large even without them.
    """

    def size(value: Any) -> int:
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) + 1

    # 1) What is always kept, and what each round would add to it.
    left, extra = limit - 100, dict[int, int]()
    for row in rows:
        whole = size(row)
        dropped = 0
        if row["kind"] == "denoise":
            dropped = whole - size(row["vocab"])
        elif row["kind"] == "draft":
            dropped = size(row["notes"])
        elif row.get("top"):
            dropped = size(row["top"])
        left -= whole - dropped
        extra[row.get("round", 0)] = extra.get(row.get("round", 0), 0) + dropped
    if left < 0:
        raise UserError(
            "The trace of this race would be larger than 20 MB, which nothing reads; ask for fewer"
            " new tokens."
        )
    # 2) The first rounds as long as they fit.
    complete = 0
    while complete in extra and (left := left - extra[complete]) >= 0:
        complete += 1
    # 3) The others without; a token's text that came with a dropped event comes with the next.
    kept: list[dict[str, Any]] = []
    vocab: dict[str, str] = {}
    for row in rows:
        behind = row.get("round", 0) >= complete
        if behind and row["kind"] == "denoise":
            vocab |= row["vocab"]
            continue
        out = dict(row)
        if behind and row["kind"] == "draft":
            out["notes"] = {}
        elif behind:
            out.pop("top", None)
        if vocab and "vocab" in row:
            out["vocab"], vocab = vocab | row["vocab"], {}
        kept.append(out)
    return kept, complete


def load_trace(path: str | Path) -> list[Event]:
    """Read a trace from disk; see :func:`parse_trace`."""
    try:
        raw = read_at_most(Path(path), MAX_TRACE_BYTES)
        if raw is None:
            raise UserError(TOO_LARGE)
        return parse_trace(raw.decode("utf-8-sig"))
    except OSError as error:
        raise UserError(
            f"The trace {path} cannot be read ({error.strerror}); check its name."
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            "This file is not text, so it is not a SpecDemo trace; choose a file saved with"
            " “Download trace”."
        ) from None


def parse_trace(text: str) -> list[Event]:
    """The events of a trace file's text, migrated to this version.

    Raises:
        UserError: the text is no trace, or no race can have recorded it.
    """
    if len(text) > MAX_TRACE_BYTES:
        raise UserError(TOO_LARGE)
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
    if data.get("version") not in (1, VERSION):
        raise UserError(
            f"This trace has version {data.get('version')!r} and this app reads versions 1 and"
            f" {VERSION}; record it again."
        )
    events = _validate(data["events"]) if data["version"] == VERSION else _migrated(data["events"])
    if not events or not isinstance(events[0], Start):
        raise UserError("This trace does not begin with its start event; record it again.")
    if problem := find_inconsistency(events):
        raise UserError(
            f"The events of this trace do not fit together ({problem}), so it is not as it was"
            " recorded; choose a file saved with “Download trace”."
        )
    return events


def _validate(rows: list[Any]) -> list[Event]:
    """Typed events. Raises UserError: a field has the wrong type, or an event is of no known
    kind.
    """
    try:
        return list(_EVENTS.validate_json(json.dumps(rows)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if len(first["loc"]) < 2:
            raise UserError(
                "This trace holds events that SpecDemo does not know; choose a file saved with"
                " “Download trace”."
            ) from None
        index, *place = first["loc"]
        field = ".".join(str(part) for part in place)
        raise UserError(
            f"Event {index} of this trace has a field of the wrong type ({field}: {first['msg']});"
            " choose a file saved with “Download trace”."
        ) from None


def find_inconsistency(events: Sequence[Event]) -> str | None:
    """What no race can have recorded in this order, or None. The beginning of a race is consistent:
    it may have been stopped. ``static/parse.js`` says the same.
    """
    written = dict.fromkeys(get_args(LaneName), 0)
    clock = dict.fromkeys(written, 0.0)
    rounds, nodes = dict.fromkeys(written, 0), dict.fromkeys(written, 0)
    for index, e in enumerate(events):
        if isinstance(e, Start) and index:
            return "two start events"
        if isinstance(e, Done) and index < len(events) - 1:
            return "done is not the last event"
        if isinstance(e, PrefillProgress) and any(written.values()):
            return "prefill out of order"
        if isinstance(e, Prefill):
            if written[e.lane]:
                return "prefill out of order"
            written[e.lane] = 1
        if isinstance(e, ArToken):
            if e.position != written["ar"] or not written["ar"]:
                return "token out of order"
            written["ar"] += 1
        lane = "ar" if isinstance(e, ArToken) else getattr(e, "lane", None) or "spec"
        if isinstance(e, (Denoise, DraftMade, Verify)) and (
            e.round != rounds[lane] or not written[lane]
        ):
            return "round out of order"
        if isinstance(e, DraftMade):
            if not _is_tree(e):
                return "draft is not a tree"
            nodes[lane] = len(e.tokens)
        if isinstance(e, Verify):
            if len(e.status) != nodes[lane]:
                return "verify does not match its draft"
            rounds[lane], nodes[lane] = rounds[lane] + 1, 0
            written[lane] += len(e.kept)
        if isinstance(e, (ArToken, Verify)):
            if e.clock < clock[lane]:
                return "clock runs backwards"
            clock[lane] = e.clock
        if any(getattr(e, name, 0) < 0 for name in DURATIONS):
            return "invalid duration"
    if isinstance(done := events[-1] if events else None, Done):
        return None if totals_follow(done, written, clock) else DO_NOT_FOLLOW
    return None


def _is_tree(draft: DraftMade) -> bool:
    return len(draft.parent) == len(draft.tokens) and all(
        -1 <= parent < node for node, parent in enumerate(draft.parent)
    )


# -- version 1 -------------------------------------------------------------------------------------


def migrate(data: Mapping[str, Any]) -> dict[str, Any]:
    """A trace of version 1, as parsed JSON, in version 2.

    Options and notes get their names of today, and what the costs predict is worked out from the
    recorded costs and durations, for each round and for the totals.

    Raises:
        UserError: its events are not those of a trace.
    """
    events = [e.to_dict() for e in _migrated(data["events"])]
    return {"format": FORMAT, "version": VERSION, "events": events}


def _migrated(rows: list[Any]) -> list[Event]:
    events = _validate([_renamed(row) for row in rows])
    if not events or not isinstance(start := events[0], Start):
        return events
    start.params = upgrade_params(start.method, start.params)
    costs = {int(w): ms for w, ms in start.cost_ms.items() if w.isdecimal() and len(w) < 6}
    plain = [ms for ms in (costs.get(start.ar_width), start.one_row_ms) if ms]
    start.baseline_ms = min(plain, default=None)
    rounds = [e for e in events if isinstance(e, Verify)]
    for e in rounds:
        pass_ms = min((ms for width, ms in costs.items() if width >= e.rows), default=None)
        if pass_ms is not None:
            e.predicted_ms = pass_ms + e.draft_seconds * 1e3
    if isinstance(done := events[-1], Done) and rounds:
        known = [e.predicted_ms for e in rounds if e.predicted_ms is not None]
        done.result["predicted_speedup"] = predicted_speedup(
            sum(len(e.kept) for e in rounds),
            start.baseline_ms,
            sum(known) if len(known) == len(rounds) else None,
        )
    return events


def _renamed(row: Any) -> Any:
    """An event of version 1 with today's keys in the notes of SpecDiff-2's drafts: ``own`` was the
    drafter's score where ``score`` was the target's, else ``score`` was the drafter's.
    """
    notes = row.get("notes") if isinstance(row, dict) else None
    if not isinstance(notes, dict) or not isinstance(notes.get("drafts"), list):
        return row
    renamed = []
    for draft in notes["drafts"]:
        if isinstance(draft, dict) and "score" in draft:
            rest = {k: v for k, v in draft.items() if k not in ("score", "own")}
            if "own" in draft:
                scores = {"drafter_score": draft["own"], "target_score": draft["score"]}
            else:
                scores = {"drafter_score": draft["score"]}
            draft = rest | scores
        renamed.append(draft)
    return row | {"notes": notes | {"drafts": renamed}}


# -- schema ----------------------------------------------------------------------------------------


def trace_schema() -> dict[str, Any]:
    """The JSON schema of a trace file of this version."""
    events = _EVENTS.json_schema()
    definitions = events.pop("$defs")
    for reference in events["items"]["oneOf"]:
        event = definitions[reference["$ref"].rpartition("/")[2]]
        event["required"] = ["kind", *event.get("required", [])]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SpecDemo trace",
        "description": "The events of one race; see docs/trace.md.",
        "type": "object",
        "properties": {
            "format": {"const": FORMAT},
            "version": {"const": VERSION},
            "events": events,
        },
        "required": ["format", "version", "events"],
        "$defs": definitions,
    }


if __name__ == "__main__":
    print(json.dumps(trace_schema(), indent=1, ensure_ascii=False))
