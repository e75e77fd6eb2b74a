"""95 % bootstrap intervals of ratios of speeds.

Prompts are drawn anew, each with all its repeats, because which prompts were asked is most of the
chance in a benchmark; repeats of one prompt are not independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

RESAMPLES, SEED = 2000, 0


class Timed(NamedTuple):
    """Two ways to decode the same prompt in the same trial: decoded tokens and seconds of both."""

    prompt: str
    tokens: float
    seconds: float
    base_tokens: float
    base_seconds: float


def ratio(runs: Iterable[Timed]) -> float | None:
    """Summed tokens / summed seconds, over the same for the base. None where nothing was timed."""
    runs = list(runs)
    seconds = sum(run.seconds for run in runs)
    base_tokens = sum(run.base_tokens for run in runs)
    if not seconds or not base_tokens:
        return None
    rate = sum(run.tokens for run in runs) / seconds
    return rate * sum(run.base_seconds for run in runs) / base_tokens


def interval(runs: Iterable[Timed]) -> list[float] | None:
    """Bounds of :func:`ratio`. None below two prompts, of which nothing can be said."""
    by_prompt: dict[str, np.ndarray] = {}
    for run in runs:
        by_prompt[run.prompt] = by_prompt.get(run.prompt, np.zeros(4)) + np.array(run[1:], float)
    if len(by_prompt) < 2:
        return None
    sums = np.stack(list(by_prompt.values()))
    drawn = np.random.default_rng(SEED).integers(len(sums), size=(RESAMPLES, len(sums)))
    tokens, seconds, base_tokens, base_seconds = sums[drawn].sum(1).T
    low, high = np.quantile(tokens / seconds * base_seconds / base_tokens, [0.025, 0.975])
    return [float(low), float(high)]
