"""Runners on a serving engine: its plain endpoint is the baseline, its speculative one the method.
What it does not tell has no figure.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Literal

from .. import __version__
from ..attached.compare import finished
from ..attached.race import Attached, answer
from ..attached.tell import Log
from ..attached.wire import Refused
from ..events import UNNAMED
from ..models.served import METHOD
from ..request import Request, Sampling
from .methods import BASELINE
from .runners import Broken, Runner, RunResult, Stopped

ServedLane = Literal["ar", "spec"]


def served_runners(
    attached: Attached,
    sampling: Sampling,
    max_new_tokens: int,
    cancel: threading.Event | None = None,
) -> dict[str, Runner]:
    """Runners by label: the baseline first."""

    def runner(lane: ServedLane) -> Runner:
        def run(prompt: str, seed: int) -> RunResult:
            request = Request(
                prompt,
                method=BASELINE,
                sampling=replace(sampling, seed=seed),
                max_new_tokens=max_new_tokens,
                lanes=lane,
            )
            log = answer(attached, request, lane, cancel or threading.Event())
            if log.stopped:
                raise Stopped
            if log.error is not None:
                raise log.error if isinstance(log.error, Refused) else Broken(str(log.error))
            return _run_result(attached, request, lane, log)

        return run

    return {BASELINE: runner("ar"), METHOD: runner("spec")}


def _run_result(attached: Attached, request: Request, lane: ServedLane, log: Log) -> RunResult:
    done, totals, tokens = finished(attached, request, {lane: log}, None), log.totals(), log.tokens
    rounds, spec = log.steps[1:], lane == "spec"
    accepted = [step.accepted for step in rounds if step.accepted is not None]
    drafted = [step.drafted for step in rounds if step.drafted is not None]
    each = spec and log.sure != "totals"
    result = RunResult(
        ids=log.ids if len(log.ids) == tokens else [UNNAMED] * (tokens or 0),
        text=log.text,
        seconds=totals["seconds"],
        ttft_seconds=totals["ttft_seconds"],
        finish=done.result["finish_reason"],
        result=dict(done.result),
        facts={
            "pair": attached.pair,
            "hardware": f"served by {attached.title}",
            "dtype": "",
            "versions": {"specdemo": __version__},
            "weights": attached.served.drafts,
            "served": {"engine": attached.title, "drafts": attached.served.drafts},
        },
    )
    if each and len(accepted) == len(rounds):
        # the last pass may have accepted more than the answer has room for
        pairs = zip(accepted, rounds, strict=True)
        result.accepted = [min(n, len(step.pieces)) for n, step in pairs]
    elif spec:
        result.totals = log.spec_totals()["rounds"] or None, log.accepted
    if each and len(drafted) == len(rounds):
        result.rows = [n + 1 for n in drafted]
    return result
