"""What the bench measures: a runner answers one prompt by one method and returns a ``RunResult``.

Any engine fits in, because a runner is a plain function of (prompt, seed).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..events import Done, DraftMade, Event, Start, Verify, named
from ..repetition import uniqueness
from ..request import Request, Sampling
from .methods import BASELINE, MethodConfig
from .reliability import Bins, add_round

# the engine brings torch along, which reading a report or a help text need not wait for
if TYPE_CHECKING:
    from ..engine import Engine

# what a report names, from the race's Start event
FACTS = (
    "pair",
    "hardware",
    "dtype",
    "versions",
    "cost_ms",
    "one_row_ms",
    "ar_width",
    "weights",
    "params",
    "most_nodes",
    "rule",
)


@dataclass
class RunResult:
    """What one run of a method wrote and what it took.

    Attributes:
        ids: output token ids; the first belongs to the prefill, so ``len(ids) - 1`` were decoded in
            ``seconds``. Those that a serving engine does not name are ``events.UNNAMED``; empty
            where it does not even count them.
        text: the answer, cut at stop strings.
        one_row_rate: tokens per second of the one-row kernel, where the baseline lane uses another
            one (baseline only).
        accepted: accepted drafted tokens of every round, after the stop cut; empty for the
            baseline.
        totals: (rounds, accepted drafts) where a serving engine does not tell each round, None for
            what it does not tell at all.
        rows: width of the target's pass in every round; empty where it is not told.
        confidence: how often drafts of each confidence were accepted, see
            :func:`.reliability.add_round`; empty where nothing has one.
        predicted_seconds: decoding time by the pass costs measured at load and the measured
            drafting time; None where nothing was drafted or no costs are known.
        baseline_ms: milliseconds of the baseline's pass, by the same costs.
        unique: distinct 4-grams among all 4-grams of the output (1 = nothing repeats); None where
            tokens have no names.
        facts: hardware, dtype, versions, weights, params and the like: what a report must name.
    """

    ids: list[int]
    text: str
    seconds: float
    ttft_seconds: float
    finish: str = ""
    one_row_rate: float | None = None
    accepted: list[int] = field(default_factory=list)
    totals: tuple[int | None, int | None] | None = None
    rows: list[int] = field(default_factory=list)
    confidence: Bins = field(default_factory=list)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    predicted_seconds: float | None = None
    baseline_ms: float | None = None
    result: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def unique(self) -> float | None:
        return uniqueness(self.ids) if named(self.ids) else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``facts`` are kept once a session, not with every run."""
        out = asdict(self) | {"unique": self.unique}
        del out["facts"]
        elsewhere = ("output_ids", "hardware", "dtype", "pair")
        out["result"] = {k: v for k, v in self.result.items() if k not in elsewhere}
        return out


Runner = Callable[[str, int], RunResult]


class Stopped(Exception):
    """A person stopped the run in the middle of an answer; it does not count."""


class Broken(UserError):
    """What answers has gone, so no further run can be made; the one under way does not count."""


def make_runners(
    engine: Engine,
    configs: Sequence[MethodConfig],
    sampling: Sampling,
    max_new_tokens: int,
    cancel: threading.Event | None = None,
) -> dict[str, Runner]:
    """Runners on this project's engine, by label: the baseline first, then each method alone."""
    baseline = MethodConfig(BASELINE, method=BASELINE, rule="match")
    return {
        config.label: _make_runner(engine, config, sampling, max_new_tokens, cancel)
        for config in (baseline, *configs)
    }


def _make_runner(
    engine: Engine,
    config: MethodConfig,
    sampling: Sampling,
    max_new_tokens: int,
    cancel: threading.Event | None,
) -> Runner:
    from ..engine import race

    def run(prompt: str, seed: int) -> RunResult:
        request = Request(
            prompt,
            method=config.method,
            params=dict(config.params),
            sampling=replace(sampling, seed=seed),
            max_new_tokens=max_new_tokens,
            rule=config.rule,
            record=False,
            lanes="ar" if config.label == BASELINE else "spec",
        )
        return collect(race(engine, request, cancel))

    return run


def collect(events: Iterable[Event]) -> RunResult:
    """The ``RunResult`` of a race with one lane.

    Raises:
        Stopped: a person stopped the race.
    """
    start: Start | None = None
    rounds: list[Verify] = []
    confidence: Bins = []
    draft: DraftMade | None = None
    for event in events:
        if isinstance(event, Start):
            start = event
        elif isinstance(event, DraftMade):
            draft = event
        elif isinstance(event, Verify):
            rounds.append(event)
            if draft is not None:
                add_round(confidence, draft, event)
            draft = None
        elif isinstance(event, Done) and start is not None:
            if event.stopped:
                raise Stopped
            return replace(_run_result(start, rounds, event), confidence=confidence)
    raise RuntimeError("the race ended without its Done event")


def _run_result(start: Start, rounds: list[Verify], done: Done) -> RunResult:
    result = done.result
    ar, spec = result["ar"], result["spec"]
    lane = spec or ar
    assert lane is not None  # one of them ran
    return RunResult(
        ids=result["output_ids"],
        text=done.spec_text if spec else done.ar_text,
        seconds=lane["seconds"],
        ttft_seconds=lane["ttft_seconds"],
        finish=result["finish_reason"],
        one_row_rate=ar["one_row_tokens_per_second"] if ar and not spec else None,
        accepted=[sum(token["source"] == "accepted" for token in v.kept) for v in rounds],
        rows=[v.rows for v in rounds],
        draft_seconds=spec["draft_seconds"] if spec else 0.0,
        verify_seconds=spec["verify_seconds"] if spec else 0.0,
        predicted_seconds=_predicted_seconds(rounds),
        baseline_ms=_baseline_ms(start, rounds),
        result=dict(result),
        facts={name: getattr(start, name) for name in FACTS},
    )


def _baseline_ms(start: Start, rounds: list[Verify]) -> float | None:
    """The mean over the tokens: it changes with the number of threads."""
    tokens = sum(len(v.kept) for v in rounds)
    if start.baseline_ms is None or not tokens:
        return start.baseline_ms
    return sum(len(v.kept) * (v.baseline_ms or start.baseline_ms) for v in rounds) / tokens


def _predicted_seconds(rounds: list[Verify]) -> float | None:
    known = [v.predicted_ms for v in rounds if v.predicted_ms is not None]
    return sum(known) / 1e3 if rounds and len(known) == len(rounds) else None
