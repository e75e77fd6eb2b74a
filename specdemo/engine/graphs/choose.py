"""What the target chooses at every row of a pass, all rows at once and on the device: the
processors of :mod:`..sampling` as tensors, with the same numbers in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from ...request import Sampling
from ..noise import gumbel
from .state import Numbers


@dataclass(frozen=True)
class Processing:
    """Which processors a graph contains; their numbers are not part of it."""

    penalty: bool = False
    noise: bool = False
    filters: bool = False

    @classmethod
    def of(cls, sampling: Sampling) -> Processing:
        """Those that a request needs."""
        s = sampling
        return cls(
            penalty=s.repetition_penalty != 1,
            noise=not s.greedy,
            filters=not s.greedy and bool(s.top_k or s.top_p < 1 or s.min_p > 0),
        )


class Choice(NamedTuple):
    """Per row ``[n]``: the token chosen, the score that was largest, and by how much, in units of
    logits.
    """

    token: torch.Tensor
    score: torch.Tensor
    gap: torch.Tensor


def choose(
    logits: torch.Tensor,
    seen: torch.Tensor,
    positions: torch.Tensor,
    steps: torch.Tensor,
    numbers: Numbers,
    processing: Processing,
) -> Choice:
    """The target's own token at every row.

    Args:
        logits: ``[n, V]``.
        seen: ``[n, V]`` bool, the tokens of each row's own prefix; read by the penalty alone.
        positions: ``[n]`` absolute positions of the tokens that are chosen.
        steps: of the noise, see :func:`..noise.steps_of`.
    """
    scores = logits.float()
    if processing.penalty:
        lowered = torch.where(scores < 0, scores * numbers.penalty, scores / numbers.penalty)
        scores = torch.where(seen, lowered, scores)
    if processing.noise:
        scores = scores / numbers.temperature
    if processing.filters:
        scores = _filtered(scores, numbers)
    if processing.noise:
        scores = scores + gumbel(numbers.seed, positions, steps)
    best, token = scores.max(-1)  # of equal ones the first; NaN counts as the largest
    second = scores.scatter(-1, token[:, None], float("-inf")).amax(-1)
    gap = best - second
    return Choice(token, best, gap * numbers.temperature if processing.noise else gap)


def _filtered(scores: torch.Tensor, numbers: Numbers) -> torch.Tensor:
    """Top-k, then top-p, then min-p: −inf for what they drop."""
    dropped = float("-inf")
    # likeliest first, of equal ones the lowest id first
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scores.shape[-1], device=scores.device)
    ordered = ordered.masked_fill(rank >= numbers.top_k, dropped)
    # the sum runs from the unlikeliest, as transformers' does
    below = ordered.flip(-1).softmax(-1).cumsum(-1).flip(-1)
    ordered = ordered.masked_fill((below <= numbers.unlikely) & (rank > 0), dropped)
    low = ordered <= ordered[:, :1] + numbers.min_p
    ordered = ordered.masked_fill(low & (rank > 0), dropped)
    return torch.empty_like(scores).scatter_(-1, order, ordered)
