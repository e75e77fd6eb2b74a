"""Gumbel noise that is a function of (seed, position, token) and of nothing else.

There is no generator whose state could differ between lanes: any row of any pass draws the noise of
its position, on the device that computes it. The bits are those of SplitMix64 (Steele, Lea, Flood,
"Fast splittable pseudorandom number generators", 2014), one stream for every (seed, position), in
wrap-around int64 arithmetic, which is the same on every device; the two logarithms are taken in
float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

GOLDEN = -7046029254386353131  # 2^64 / the golden ratio, odd: SplitMix64's step
FACTORS = (-4658895280553007687, -7723592293110705685)  # of SplitMix64's finaliser
SHIFTS = (30, 27, 31)
BITS = 52  # of a uniform; with the half that is added every one of them is exact in float64


def signed(number: int) -> int:
    """The int64 that has the lowest 64 bits of ``number``."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def steps_of(vocab_size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """``[V]`` int64, the step of every token in a stream."""
    return torch.arange(vocab_size, device=device) * GOLDEN


def gumbel(seed: torch.Tensor, positions: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Gumbel noise ``[n, V]`` float32 of ``n`` absolute positions.

    Args:
        seed: ``[1]`` int64.
        positions: ``[n]`` int64.
        steps: ``[V]`` of :func:`steps_of`, or ``[n, m]`` of other tokens at each position, for
            noise ``[n, m]``.
    """
    streams = _mixed(_mixed(positions * GOLDEN) + seed * GOLDEN)
    bits = _mixed(streams[:, None] + steps)
    bits.bitwise_right_shift_(64 - BITS).bitwise_and_((1 << BITS) - 1)
    uniform = bits.double().add_(0.5).mul_(2.0**-BITS)
    return uniform.log_().neg_().log_().neg_().float()


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finaliser of int64 numbers, in place."""
    shifted = torch.empty_like(x)
    for shift, factor in zip(SHIFTS, (*FACTORS, None), strict=True):
        torch.bitwise_right_shift(x, shift, out=shifted)
        x.bitwise_xor_(shifted.bitwise_and_((1 << (64 - shift)) - 1))  # a logical shift
        if factor is not None:
            x.mul_(factor)
    return x


class Noise:
    """The noise of one seed, the same in every lane."""

    def __init__(self, seed: int, vocab_size: int, device: torch.device | str = "cpu"):
        self._seed = torch.tensor([signed(seed)], device=device)
        self._steps = steps_of(vocab_size, device)

    def of(self, positions: Sequence[int], tokens: torch.Tensor) -> torch.Tensor:
        """``[n, m]`` for the ``tokens [n, m]`` at ``n`` absolute positions."""
        where = torch.tensor(list(positions), dtype=torch.int64, device=tokens.device)
        return gumbel(self._seed.to(tokens.device), where, tokens * GOLDEN)

    def at(self, position: int) -> torch.Tensor:
        """``[V]`` for an absolute position."""
        where = torch.full((1,), position, dtype=torch.int64, device=self._steps.device)
        return gumbel(self._seed, where, self._steps)[0]
