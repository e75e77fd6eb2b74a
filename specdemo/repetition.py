"""How much a text repeats itself. Drafters predict a looping text easily, so figures name it and
training drops it.
"""

from __future__ import annotations

from collections.abc import Sequence

# A share of distinct 4-grams below this counts as degenerate: two thirds of the text stood before.
DEGENERATE = 0.35
# An answer of which more than this share stands in its prompt counts as a copy of it.
ECHO = 0.5


def uniqueness(ids: Sequence[int], n: int = 4) -> float:
    """Share of distinct n-grams among all n-grams; 1 for outputs shorter than n."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def loop_start(ids: Sequence[int], least: int = 16) -> int | None:
    """Where the loop begins that ``ids`` end in; None where they end in none.

    A loop is a tail that repeats itself with some period at least three times and over at least
    ``least`` tokens. Of several periods the one whose loop begins first counts.
    """
    first = None
    for period in range(1, len(ids) // 3 + 1):
        start = len(ids) - period
        while start > 0 and ids[start - 1] == ids[start - 1 + period]:
            start -= 1
        if len(ids) - start >= max(3 * period, least) and (first is None or start < first):
            first = start
    return first


def echo(text: str, source: str, n: int = 5) -> float:
    """Share of the n-grams of words of ``text`` that stand in ``source`` too; 0 for shorter
    texts.
    """
    grams = _word_grams(text, n)
    known = set(_word_grams(source, n))
    return sum(gram in known for gram in grams) / len(grams) if grams else 0.0


def _word_grams(text: str, n: int) -> list[tuple[str, ...]]:
    words = text.lower().split()
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
