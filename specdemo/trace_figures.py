"""Whether the totals at a trace's end follow from its events; ``ui/static/trace_figures.js`` asks
the same on the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .events import Done, LaneName
from .totals import LaneTotals

ROUNDED = 0.01  # totals and clocks have 6 digits, those of older recordings fewer
DO_NOT_FOLLOW = "the figures at its end do not follow from them"


def totals_follow(
    done: Done, written: Mapping[LaneName, int], clock: Mapping[LaneName, float]
) -> bool:
    """Whether lane tokens, seconds, rates and ratios are those of the events.

    Args:
        written: tokens of each lane's events. clock: seconds of each lane at its last event.
    """
    result = done.result
    served, against = result.get("served"), result.get("against")
    lanes: dict[LaneName, LaneTotals | None] = {"ar": result["ar"], "spec": result["spec"]}
    lanes["against"] = against["spec"] if against else None
    for name, lane in lanes.items():
        if lane is None:
            continue
        # a serving engine counts tokens that it does not show, and goes on where a race is stopped
        if not served and lane["tokens"] != written[name]:
            return False
        if not (served and done.stopped) and not _near(lane["seconds"], clock[name]):
            return False
        rate, decoded = lane["tokens_per_second"], lane["tokens"] - 1
        if rate and not _near(rate * lane["seconds"], decoded):
            return False
    ar, spec = result["ar"], result["spec"]
    if not ar or not spec:
        return result["speedup"] is None
    plain = max(ar["tokens_per_second"], ar["one_row_tokens_per_second"])
    pairs = [(result["speedup"], _over(spec["tokens_per_second"], plain))]
    if served and not (plain and spec["tokens_per_second"]):  # the same text in so many seconds
        pairs = [(result["speedup"], _over(ar["seconds"], spec["seconds"]))]
    if against:
        left = against["spec"]["tokens_per_second"]
        pairs += [
            (against["speedup"], _over(left, plain)),
            (against["ratio"], _over(spec["tokens_per_second"], left)),
        ]
    return all(told is None or (of is not None and _near(told, of)) for told, of in pairs)


def _over(rate: float, other: float) -> float | None:
    return rate / other if other else None


def _near(told: float, of: float) -> bool:
    return math.isclose(told, of, rel_tol=ROUNDED, abs_tol=1e-9)
