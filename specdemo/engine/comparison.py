"""A drafting lane beside plain decoding of the same race: how much faster, and the same tokens."""

from __future__ import annotations

from ..totals import ArTotals, LaneTotals, PlainComparison, predicted_speedup
from .exactness import first_difference
from .lane import Lane


def compare(lane: Lane, ar: Lane, plain: ArTotals, stopped: bool) -> PlainComparison:
    """What ``lane`` comes to beside the plain lane ``ar``, whose totals are ``plain``; ids are
    compared where the rule keeps them, as far as both got if a person stopped them.
    """
    decoded = len(lane.output) - 1
    found: PlainComparison = {
        "speedup": _speedup(plain, lane.totals()),
        "predicted_speedup": predicted_speedup(
            decoded, lane.baseline_ms / max(decoded, 1), lane.predicted_ms
        ),
        "identical": None,
        "first_difference": None,
    }
    if lane.request.rule == "match" or lane.request.sampling.greedy:
        difference = first_difference(lane, ar, prefix_only=stopped)
        found["identical"], found["first_difference"] = difference is None, difference
    return found


def over(lane: LaneTotals, other: LaneTotals) -> float | None:
    """The rate of one lane over another's."""
    rates = lane["tokens_per_second"], other["tokens_per_second"]
    return rates[0] / rates[1] if all(rates) else None


def _speedup(ar: ArTotals, spec: LaneTotals) -> float | None:
    """The speculative lane's rate over the baseline's: the faster of the plain lane and the one-row
    kernel.
    """
    baseline = max(ar["tokens_per_second"], ar["one_row_tokens_per_second"])
    return spec["tokens_per_second"] / baseline if baseline and spec["tokens_per_second"] else None
