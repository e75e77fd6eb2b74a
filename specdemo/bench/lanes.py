"""One answer by one lane, as the bench sees it. Any engine fits in: a lane is a function from
(prompt, seed) to a ``LaneRun``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..drafters import METHODS
from ..errors import UserError
from ..events import Done, Start, Verify

# the engine brings torch along, which reading a report or a help text need not wait for
if TYPE_CHECKING:
    from ..request import Sampling

BASELINE = "ar"


@dataclass
class LaneRun:
    """What one lane wrote and what it cost.

    Attributes:
        ids: output token ids; the first belongs to the prefill, so ``len(ids) - 1`` were decoded in
            ``seconds``.
        text: the answer, cut at stop strings.
        one_row_rate: tokens per second of the plainest kernel, where that is a different one
            (baseline lane only).
        accepted: accepted drafts of every round, after the stop cut; empty for a plain lane.
        rows: width of the target's pass in every round.
        predicted_seconds: decode time by the cost curve measured at load; ``plain_ms`` is the
            curve's plain step.
        unique: distinct 4-grams among all 4-grams of the output (1 = nothing repeats).
        facts: hardware, dtype, versions, weights, params and the like: whatever a report must name.
    """

    ids: list[int]
    text: str
    seconds: float
    ttft_seconds: float
    finish: str = ""
    one_row_rate: float | None = None
    accepted: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    predicted_seconds: float | None = None
    plain_ms: float | None = None
    result: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def unique(self) -> float:
        return uniqueness(self.ids)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``facts`` are kept once a session, not with every run."""
        out = asdict(self) | {"unique": self.unique}
        del out["facts"]
        out["result"] = {
            k: v
            for k, v in self.result.items()
            if k not in ("output_ids", "hardware", "dtype", "pair")
        }
        return out


Lane = Callable[[str, int], LaneRun]


def uniqueness(ids: Sequence[int], n: int = 4) -> float:
    """Share of distinct n-grams among all n-grams; 1 for outputs shorter than n."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


@dataclass(frozen=True)
class Spec:
    """One row of the table: a method with its parameters and rule. ``label`` is how the command
    line named it.
    """

    label: str
    method: str
    rule: str
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        extra = self.label.partition(":")[2]
        return METHODS[self.method].title + (f" ({extra.replace(':', ', ')})" if extra else "")


def parse_methods(text: str | Sequence[str]) -> tuple[Spec, ...]:
    """``block,tree:budget=15,specdiff2:rule=point-mass:K=8`` -> specs. The baseline is always run
    and is left out.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    specs = tuple(
        dict.fromkeys(word.strip() for word in words if word.strip() and word.strip() != BASELINE)
    )
    if not specs:
        raise UserError(
            "Name at least one method to measure against plain decoding; choose from:"
            f" {', '.join(m for m in METHODS if m != BASELINE)}."
        )
    return tuple(_spec(label) for label in specs)


def _spec(label: str) -> Spec:
    name, *settings = label.split(":")
    if name not in METHODS:
        raise UserError(f"There is no method “{name}”; choose from: {', '.join(METHODS)}.")
    method, params = METHODS[name], {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals and value):
            raise UserError(
                f"“{setting}” in “{label}” is not a setting; write {name}:parameter=value."
            )
        params[key] = value
    rule = params.pop("rule", method.rules[0])
    # all of it is refused here, before anything is loaded
    why = method.refuse(rule, method.parse_params(params))
    if why:
        raise UserError(why)
    return Spec(label, name, rule, params)


def race_lanes(
    engine: Any,
    specs: Sequence[Spec],
    sampling: Sampling,
    max_new_tokens: int,
    cancel: threading.Event | None = None,
) -> dict[str, Lane]:
    """The lanes of this project's engine: plain decoding first, then each method alone."""
    lanes: dict[str, Lane] = {
        BASELINE: _lane(engine, Spec(BASELINE, BASELINE, "match"), sampling, max_new_tokens, cancel)
    }
    for spec in specs:
        lanes[spec.label] = _lane(engine, spec, sampling, max_new_tokens, cancel)
    return lanes


def _lane(
    engine: Any, spec: Spec, sampling: Sampling, max_new_tokens: int, cancel: threading.Event | None
) -> Lane:
    from ..engine import race
    from ..request import Request

    plain = spec.label == BASELINE

    def run(prompt: str, seed: int) -> LaneRun:
        request = Request(
            prompt,
            method=spec.method,
            params=dict(spec.params),
            sampling=replace(sampling, seed=seed),
            max_new_tokens=max_new_tokens,
            rule=spec.rule,
            record=False,
            lanes="ar" if plain else "spec",
        )
        return collect(race(engine, request, cancel))

    return run


class Stopped(Exception):
    """A person stopped the run in the middle of an answer; it does not count."""


def collect(events: Any) -> LaneRun:
    """The ``LaneRun`` of a race with one lane."""
    start: Start | None = None
    rounds: list[Verify] = []
    for event in events:
        if isinstance(event, Start):
            start = event
        elif isinstance(event, Verify):
            rounds.append(event)
        elif isinstance(event, Done):
            if event.stopped:
                raise Stopped
            return _run(start, rounds, event)
    raise RuntimeError("the race ended without its Done event")


def _run(start: Start, rounds: list[Verify], done: Done) -> LaneRun:
    result = done.result
    plain = result["spec"] is None
    lane = result["ar" if plain else "spec"]
    cost = {int(rows): ms for rows, ms in start.cost_ms.items()}
    costs_known = bool(cost) and all(v.rows in cost for v in rounds)
    return LaneRun(
        ids=result["output_ids"],
        text=done.ar_text if plain else done.spec_text,
        seconds=lane["seconds"],
        ttft_seconds=lane["ttft_seconds"],
        finish=result["finish_reason"],
        one_row_rate=lane.get("one_row_tokens_per_second"),
        accepted=[sum(token["source"] == "accepted" for token in v.kept) for v in rounds],
        rows=[v.rows for v in rounds],
        draft_seconds=lane.get("draft_seconds", 0.0),
        verify_seconds=lane.get("verify_seconds", 0.0),
        predicted_seconds=(
            sum(cost[v.rows] / 1e3 + v.draft_seconds for v in rounds)
            if rounds and costs_known
            else None
        ),
        plain_ms=(
            min(
                [cost[w] for w in (1, start.ar_width) if w in cost]
                + [start.one_row_ms] * bool(start.one_row_ms)
            )
            if cost
            else None
        ),
        result=result,
        facts={
            "pair": start.pair,
            "hardware": start.hardware,
            "dtype": start.dtype,
            "versions": start.versions,
            "cost_ms": start.cost_ms,
            "one_row_ms": start.one_row_ms,
            "ar_width": start.ar_width,
            "weights": start.weights,
            "params": start.params,
            "rule": start.rule,
        },
    )
