"""What a race comes to: totals of its lanes and of the whole, as plain data."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

# A speed-up is unreliable where it and its prediction are this many times apart, as on the page
# (figures.js): on a quiet machine either lane takes 0.96 to 1.07 of its predicted time.
UNRELIABLE = 1.3

Rule = Literal["match", "ratio", "point-mass"]
FinishReason = Literal["eos", "stop", "length", "stopped"]


class LaneTotals(TypedDict):
    """Decode figures of one lane; the first token belongs to the prefill and is not in the rate."""

    tokens: int
    seconds: float
    tokens_per_second: float
    ttft_seconds: float


class ArTotals(LaneTotals):
    """The plain lane: the width of its passes, and its rate scaled to the one-row kernel's cost."""

    width: int
    one_row_tokens_per_second: float


class SpecTotals(LaneTotals):
    """The speculative lane. ``accepted_per_round`` leaves the target's own token out,
    ``tokens_per_round`` counts it; in ``cut_rounds`` the draft's tree did not fit into a pass
    (absent: not known).
    """

    rounds: int
    cut_rounds: NotRequired[int]
    drafting_rounds: int
    accepted_per_round: float
    tokens_per_round: float
    draft_seconds: float
    verify_seconds: float


class FirstDifference(TypedDict):
    """Where two lanes part, and the gap of the two best logits there (0 = an exact tie)."""

    position: int
    top2_gap: float | None


class OneRowCheck(TypedDict):
    identical: bool
    first_difference: FirstDifference | None


class ExactCheck(TypedDict):
    """A finished lane against plain decoding at a fixed width, bit for bit.

    ``identical`` (tokens and every bit of the logits they were chosen from), ``positions``
    compared, ``unequal`` rows of logits, ``max_difference`` between them; ``one_row`` is the same
    by token for the one-row kernel.
    """

    identical: bool
    positions: int
    unequal: int
    max_difference: float
    reference_width: int
    one_row: OneRowCheck


class Served(TypedDict):
    """What is known of a race that a serving engine ran elsewhere.

    ``engine`` and what it ``drafts`` with, in words. ``clock``: whose seconds these are, the
    engine's or those of the arriving chunks. ``rounds``: whether the engine tells each (``told``),
    one chunk is taken for one pass (``inferred``), or only ``totals`` are known. ``comparison`` of
    the two texts, which no such engine promises to be the same, and the character at which they
    part. ``drafted`` and ``accepted`` are the engine's own totals. ``by_position``: of each drafted
    position the share of rounds that kept it, by the engine's counters, only where nobody else was
    served meanwhile.
    """

    engine: str
    drafts: str
    clock: Literal["engine", "arrival"]
    rounds: Literal["told", "inferred", "totals"]
    comparison: Literal["tokens", "text", "parted", "none"]
    parted_at: int | None
    drafted: int | None
    accepted: int | None
    by_position: list[float] | None


class PlainComparison(TypedDict):
    """A drafting lane beside plain decoding of the same race; None where it has no meaning."""

    speedup: float | None
    predicted_speedup: float | None
    identical: bool | None
    first_difference: FirstDifference | None


class AgainstResult(PlainComparison):
    """The left lane of a race between two methods, compared with plain decoding in the same race as
    the right one is. ``ratio`` is the right lane's rate over this one's.
    """

    method: str
    spec: SpecTotals
    ratio: float | None
    exact: NotRequired[ExactCheck]


class RaceResult(TypedDict):
    """Totals of a race, exactly what ``race --json`` prints. ``ar`` and ``spec`` are null for a
    lane that did not run; ratios and comparisons are null where they have no meaning, and
    ``against`` is there only in a race between two methods.
    """

    method: str
    pair: str
    rule: Rule
    hardware: str
    dtype: str
    prompt_tokens: int
    finish_reason: FinishReason
    ar: ArTotals | None
    spec: SpecTotals | None
    speedup: float | None
    predicted_speedup: float | None
    identical: bool | None
    first_difference: FirstDifference | None
    output_ids: list[int]
    note: str | None
    exact: NotRequired[ExactCheck]
    served: NotRequired[Served]
    against: NotRequired[AgainstResult]


def predicted_speedup(
    tokens: float, baseline_ms: float | None, predicted_ms: float | None
) -> float | None:
    """The speed-up that measured costs promise: the baseline's milliseconds for ``tokens`` decoded
    tokens over the sum of ``Verify.predicted_ms`` of the rounds that wrote them; None if unknown.
    """
    return tokens * baseline_ms / predicted_ms if tokens and baseline_ms and predicted_ms else None
