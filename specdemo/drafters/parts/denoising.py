"""Which masks a denoising step fills, as the samplers of the drafters' papers choose them.

Low-confidence remasking (MaskGIT, LLaDA, Dream): the most confident masks of an equal share. MDLM's
posterior (arXiv 2406.07524, eq. 7): from noise level t to s each mask is filled with probability
(t − s) / t, levels falling evenly from 1 to :data:`NOISE_LEFT`; what is left is filled by the last
step, where the paper takes one pass more. In a block-causal model a block is finished before the
next one begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

    from .block_context import BlockContext

Reveal = Literal["auto", "confidence", "left-to-right", "random"]

NOISE_LEFT = 1e-5  # of the last level, as in MDLM's sampler


def own_reveal(network: BlockContext) -> Reveal:
    """How the drafter's own sampler chooses."""
    return "random" if getattr(network.net.config, "random_order", False) else "confidence"


def masks_to_fill(
    network: BlockContext,
    reveal: Reveal,
    positions: Sequence[int],
    confidence: Sequence[float],
    step: int,
    steps: int,
    generator: torch.Generator | None = None,
) -> set[int]:
    """Indices into ``positions`` of the masks that step ``step`` of ``steps`` fills; all that are
    left in the last.

    Args:
        positions: of the masks in the text, ascending. confidence: the probability of the
            likeliest token at each.
    """
    import torch

    n, left = len(positions), steps - step
    if left <= 1:
        return set(range(n))
    keys: list[float] = [-c for c in confidence]
    count = math.ceil(n / left)
    if reveal == "left-to-right":
        keys = list(range(n))
    elif reveal == "random":  # a binomial number of them, each as likely as any
        where = "cpu" if generator is None else generator.device
        keys, coins = torch.rand(2, n, generator=generator, device=where).tolist()
        t, s = (1 - (1 - NOISE_LEFT) * k / steps for k in (step, step + 1))
        count = sum(coin < (t - s) / t for coin in coins)
    block = getattr(network.net.config, "block", None)
    order = sorted(range(n), key=lambda i: (positions[i] // block if block else 0, keys[i]))
    return set(order[:count])
