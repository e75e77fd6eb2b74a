"""Ways in which a trace can be no race that ever ran, with the words by which it is refused. One
list for the page's reader and the command line's.
"""

from __future__ import annotations

import copy
from typing import Any

Events = list[dict[str, Any]]


def at(events: Events, kind: str, which: int = -1) -> dict[str, Any]:
    return [e for e in events if e["kind"] == kind][which]


def everywhere(events: Events, change) -> Events:
    """``change`` applied to every number behind the start."""

    def walk(x):
        if isinstance(x, dict):
            return {k: walk(v) for k, v in x.items()}
        return (
            [walk(v) for v in x]
            if isinstance(x, list)
            else change(x)
            if type(x) in (int, float)
            else x
        )

    return [events[0], *map(walk, events[1:])]


def put(kind: str, which: int = -1, **fields: Any):
    return lambda events: (at(events, kind, which).update(fields), events)[1]


def figure(lane: str | None, **fields: Any):
    """Other totals at the end, of a lane or of the race."""

    def change(events: Events) -> Events:
        result = events[-1]["result"]
        (result[lane] if lane else result).update(fields)
        return events

    return change


def without(kind: str, which: int):
    return lambda events: [e for e in events if e is not at(events, kind, which)]


DAMAGE = {
    "a part reversed": (lambda es: es[:10] + es[10:40][::-1] + es[40:], "out of order"),
    "a part cut out": (lambda es: es[:20] + es[30:], "out of order"),
    "told twice": (lambda es: es + es, "done is not the last event"),
    "told twice, ended once": (lambda es: es[:-1] + es, "two start events"),
    "numbers as text": (lambda es: everywhere(es, str), "invalid duration"),
    "numbers beyond measure": (
        lambda es: everywhere(es, lambda x: -1e308 if isinstance(x, float) else x),
        "invalid duration",
    ),
    "an end in the middle": (
        lambda es: [*es[:20], es[-1], *es[20:-1]],
        "done is not the last event",
    ),
    "a second first token": (
        lambda es: [*es[:3], es[1], *es[3:]],
        "prefill out of order",
    ),
    "a prompt read on after its end": (
        lambda es: [*es[:3], {"kind": "prefill_progress", "read": 1, "total": 2}, *es[3:]],
        "prefill out of order",
    ),
    "no first token": (
        lambda es: [es[0], *[e for e in es if e["kind"] != "prefill"][1:]],
        "out of order",
    ),
    "a lane nobody knows": (put("prefill", lane=["ar"]), "prefill out of order"),
    "a token missing": (without("ar_token", 3), "token out of order"),
    "a token twice": (put("ar_token", 3, position=2), "token out of order"),
    "a round missing": (without("verify", 2), "round out of order"),
    "a round elsewhere": (put("draft", 2, round=7), "round out of order"),
    "time running backwards": (put("ar_token", 5, clock=0.0), "clock runs backwards"),
    "a round before the last": (put("verify", 2, clock=0.001), "clock runs backwards"),
    "no time": (put("verify", clock=None), "clock runs backwards"),
    "a time in words": (put("verify", clock="soon"), "clock runs backwards"),
    "a drafting time below zero": (put("verify", draft_seconds=-1), "invalid duration"),
    "an endless prefill": (put("prefill", seconds="long"), "invalid duration"),
    "a parent of its own": (
        put("draft", 1, tokens=[1, 2], parent=[-1, 1]),
        "draft is not a tree",
    ),
    "a parent too few": (put("draft", 1, tokens=[1, 2], parent=[-1]), "draft is not a tree"),
    "tokens in words": (put("draft", 1, tokens="two"), "draft is not a tree"),
    "a verdict too short": (
        put("verify", 1, status=["accepted"]),
        "verify does not match its draft",
    ),
    "a speed-up that no lane had": (figure(None, speedup=99.0), "do not follow from them"),
    "a rate of its own": (figure("spec", tokens_per_second=900.0), "do not follow from them"),
    "seconds of its own": (figure("ar", seconds=9.0), "do not follow from them"),
    "more tokens than were written": (figure("spec", tokens=400), "do not follow from them"),
    "a verdict in a word": (put("verify", 1, status="good"), "verify does not match its draft"),
}

# of these, what is no number, list or lane at all; the command line's reader says so
WRONG_TYPE = {
    "numbers as text",
    "a lane nobody knows",
    "no time",
    "a time in words",
    "an endless prefill",
    "tokens in words",
    "a verdict in a word",
}


def damaged(events: Events) -> list[tuple[str, Events, str]]:
    """(name, events, words of the refusal) for every kind of damage to this race."""
    return [(name, harm(copy.deepcopy(events)), words) for name, (harm, words) in DAMAGE.items()]
