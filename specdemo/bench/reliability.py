"""Whether drafters are right as often as they are sure: drafted tokens in ten bins by the drafter's
probability (a reliability diagram; DeGroot and Fienberg, 1983). D²SD's boundaries (arXiv
2606.04446, eq. 4) and the trees take that probability for the one of being accepted.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..events import DraftMade, Verify

COUNT = 10  # bins
Bins = list[list[float]]  # of each: tokens, the sum of their probabilities, accepted ones


def add_round(bins: Bins, draft: DraftMade, verdict: Verify) -> None:
    """Count a round's nodes in ``bins``, which are empty or :data:`COUNT`: those whose parent the
    target kept, so that it chose at their place, and whose drafter gives a probability.
    """
    for q, status in zip(draft.q, verdict.status, strict=True):
        if q is None or not 0 <= q <= 1 or status == "unreached":
            continue
        if not bins:
            bins += [[0, 0.0, 0] for _ in range(COUNT)]
        one = bins[min(int(q * COUNT), COUNT - 1)]
        one[0] += 1
        one[1] += q
        one[2] += status != "rejected"


def reliability(runs: Iterable[Bins]) -> Bins:
    """Of all runs together: [mean probability, share accepted, tokens] of every bin that has some,
    from the least sure on.
    """
    total: Bins = [[0, 0.0, 0] for _ in range(COUNT)]
    for bins in runs:
        for one, more in zip(total, bins, strict=False):
            for i, value in enumerate(more):
                one[i] += value
    return [[sure / n, accepted / n, n] for n, sure, accepted in total if n]
