"""Records the races that ship in ``assets/traces``, on a machine that is otherwise idle:

python -m specdemo.ui.record_traces [NAME ...]
"""

from __future__ import annotations

import statistics
import sys
import threading
from typing import Any

from ..paths import ROOT
from ..request import Request
from ..traces import dump_trace, save_trace
from .backend import Backend
from .examples import EXAMPLES

FOLDER = ROOT / "assets" / "traces"
MAX_BYTES = 300_000
CODE, HEART, SKY, COPY = (
    EXAMPLES[name]
    for name in (
        "Code: the sum of a list",
        "Explain: the heart",
        "Explain: the blue sky",
        "Copy: repeat and change",
    )
)

# name -> (prompt, method, parameters, new tokens); the lesson names some of them
RECORDINGS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "best": (CODE, "best", {}, 64),
    "ar": (CODE, "ar", {}, 40),
    "lookup": (COPY, "lookup", {}, 48),
    "ar-draft": (CODE, "ar-draft", {}, 48),
    "specdiff": (HEART, "specdiff", {"gamma": 8, "steps": 2}, 48),
    "specdiff-few": (HEART, "specdiff", {"gamma": 8, "steps": 1}, 48),
    "specdiff-many": (HEART, "specdiff", {"gamma": 8, "steps": 4}, 48),
    "specdiff2": (CODE, "specdiff2", {}, 48),
    "diffuspec": (HEART, "diffuspec", {}, 48),
    "d2sd": (CODE, "d2sd", {}, 48),
    "tree": (HEART, "tree", {}, 48),
    "block": (CODE, "block", {}, 48),
    "hard": (SKY, "block", {}, 40),
}


def record(backend: Backend, engine: Any, name: str) -> list[Any]:
    """The events of one recording: greedy, seed 0, the exact rule. Fewer tokens if they would not
    fit in ``MAX_BYTES``.
    """
    prompt, method, params, tokens = RECORDINGS[name]
    while True:
        request = Request(prompt, method, params, max_new_tokens=tokens)
        events = list(backend.race(engine, request, threading.Event()))
        if len(dump_trace(events).encode()) < MAX_BYTES:
            return events
        tokens = tokens * 3 // 4


def quiet(events: list[Any]) -> bool:
    """Whether nothing else took the machine meanwhile: no plain step far above the median. The
    speed-up itself is never a reason to keep or drop a race.
    """
    clocks = [0.0] + [e.clock for e in events if e.kind == "ar_token"]
    steps = [b - a for a, b in zip(clocks, clocks[1:], strict=False)]
    return max(steps) < 2.5 * statistics.median(steps)


def main(names: list[str]) -> None:
    """Record ``names`` (all if none); the first race of each only warms up, and one that was
    disturbed runs again.
    """
    backend = Backend()
    engine = backend.load("smollm2-135m", lambda message, fraction: None)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or list(RECORDINGS):
        record(backend, engine, name)
        events = next(
            (e for e in (record(backend, engine, name) for _ in range(5)) if quiet(e)), None
        )
        if events is None:
            print(f"{name}: disturbed five times, not recorded; try again on an idle machine")
            continue
        save_trace(events, FOLDER / f"{name}.json")
        result = events[-1].result
        print(
            f"{name}: plain {result['ar']['tokens_per_second']:.1f} tokens/s, speed-up"
            f" {result['speedup']:.2f} (predicted {result['predicted_speedup']:.2f}), identical"
            f" {result['identical']}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
