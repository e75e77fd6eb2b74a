"""How much a text repeats itself. Drafters predict a looping text easily, so figures name it and
training drops it.
"""

from __future__ import annotations

from collections.abc import Sequence

# A share of distinct 4-grams below this counts as degenerate: two thirds of the text stood before.
DEGENERATE = 0.35


def uniqueness(ids: Sequence[int], n: int = 4) -> float:
    """Share of distinct n-grams among all n-grams; 1 for outputs shorter than n."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0
