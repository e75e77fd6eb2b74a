"""The end of a race on a serving engine: totals, and what may be claimed of the two texts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from ..events import Done, LaneName, named
from ..request import Request
from ..totals import FinishReason, RaceResult, Served
from .client import Counters
from .settle import Sure
from .tell import Log

if TYPE_CHECKING:
    from .race import Attached

SETTLE_SECONDS = 1.0  # until an engine has counted an answer that it has ended
SURE: dict[Sure, str] = {
    "told": "",
    "inferred": "The engine does not tell each pass; one chunk is taken for one.",
    "totals": (
        "Chunks of several passes were merged on their way, so only totals are known; bursts are"
        " drawn as they came."
    ),
}


def finished(
    attached: Attached, request: Request, logs: Mapping[LaneName, Log], before: Counters | None
) -> Done:
    """The ``Done`` event of a race whose lanes have ended, or were stopped."""
    ar, spec = logs.get("ar"), logs.get("spec")
    answer = spec or ar or Log()
    stopped = any(log.stopped for log in logs.values()) or not logs
    sure: Sure = spec.sure if spec else "told"
    by_position, remark = (None, "")
    if spec and not stopped:
        by_position, remark = _by_position(attached, spec, before)
    comparison, parted_at = _compared(ar, spec, request, stopped)
    served: Served = {
        "engine": attached.title,
        "drafts": attached.served.drafts,
        "clock": "engine" if answer.engine_clock else "arrival",
        "rounds": sure,
        "comparison": comparison,
        "parted_at": parted_at,
        "drafted": _drafted(spec) if spec else None,
        "accepted": spec.accepted if spec else None,
        "by_position": by_position,
    }
    notes = [SURE[sure], remark, *(_cached(log) for log in logs.values()), _merged(ar)]
    result: RaceResult = {
        "method": "served",
        "pair": attached.pair,
        "rule": "match",
        "hardware": f"served by {attached.title}",
        "dtype": "",
        "prompt_tokens": answer.tail.prompt_tokens,
        "finish_reason": _finish(answer, request, stopped),
        "ar": ar.ar_totals() if ar else None,
        "spec": spec.spec_totals() if spec else None,
        "speedup": _speedup(ar, spec, comparison) if not stopped else None,
        "predicted_speedup": None,
        "identical": None,
        "first_difference": None,
        "output_ids": answer.ids,
        "note": " ".join(dict.fromkeys(filter(None, notes))) or None,
        "served": served,
    }
    return Done(result, ar.text if ar else "", spec.text if spec else "", stopped)


def _finish(log: Log, request: Request, stopped: bool) -> FinishReason:
    if stopped:
        return "stopped"
    if log.tail.finish == "length":
        return "length"
    return "stop" if request.stop else "eos"


def _drafted(log: Log) -> int | None:
    if log.tail.drafted is not None:
        return log.tail.drafted
    known = [step.drafted for step in log.steps[1:]]
    return sum(n or 0 for n in known) if known and None not in known else None


def _cached(log: Log) -> str:
    if not log.tail.cached:
        return ""
    return (
        f"{log.tail.cached} tokens of the prompt came from the engine's cache, so the time to the"
        " first token is not that of reading it."
    )


def _merged(ar: Log | None) -> str:
    if ar is None or all(len(step.pieces) == 1 for step in ar.steps):
        return ""
    return (
        "Some chunks of the plain endpoint held several tokens: they were merged on their way, or"
        " it speculates too."
    )


def _compared(
    ar: Log | None, spec: Log | None, request: Request, stopped: bool
) -> tuple[Literal["tokens", "text", "parted", "none"], int | None]:
    """What the two answers have in common. An unnamed token is equal to no other one, so ids count
    only where all are known.
    """
    if ar is None or spec is None or stopped or not request.sampling.greedy:
        return "none", None
    if named(ar.ids) and ar.ids == spec.ids:
        return "tokens", None
    if ar.text == spec.text:
        return "text", None
    pairs = zip(ar.text, spec.text, strict=False)
    shortest = min(len(ar.text), len(spec.text))
    return "parted", next((i for i, (a, b) in enumerate(pairs) if a != b), shortest)


def _speedup(ar: Log | None, spec: Log | None, comparison: str) -> float | None:
    """Tokens per second over the plain endpoint's; for the same text its seconds, where tokens are
    not counted.
    """
    if ar is None or spec is None:
        return None
    plain, fast = ar.totals(), spec.totals()
    if plain["tokens_per_second"] and fast["tokens_per_second"]:
        return fast["tokens_per_second"] / plain["tokens_per_second"]
    if comparison == "text" and fast["seconds"] > 0 and plain["seconds"] > 0:
        return plain["seconds"] / fast["seconds"]
    return None


def _by_position(
    attached: Attached, log: Log, before: Counters | None
) -> tuple[list[float] | None, str]:
    """Acceptance by position out of the counters' differences, and a sentence where they cannot
    say it.
    """
    if before is None or not before.by_position and before.rounds is None:
        return None, ""
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        after = attached.client.counters(attached.speculative)
        if after is None:
            return None, ""
        drafted = _gone_up(before.drafted, after.drafted)
        if drafted is not None and drafted < 0:
            return None, "The engine's counters went back: it was started again meanwhile."
        if drafted == _drafted(log) and not after.running or time.monotonic() > end:
            break
        time.sleep(0.05)
    accepted = _gone_up(before.accepted, after.accepted)
    if before.running or after.running or (drafted, accepted) != (_drafted(log), log.accepted):
        if drafted is None or not after.by_position:
            return None, ""
        return None, (
            "The engine served others meanwhile, so its counters do not say the acceptance by"
            " position of this answer."
        )
    rounds = _gone_up(before.rounds, after.rounds)
    if not rounds or not after.by_position:
        return None, ""
    return [
        (after.by_position[place] - before.by_position.get(place, 0.0)) / rounds
        for place in sorted(after.by_position)
    ], ""


def _gone_up(before: float | None, after: float | None) -> float | None:
    return after - (before or 0.0) if after is not None else None
