"""A moving average of a network's weights: what a run leaves behind at any step has the noise of
the last few hundred averaged out, before the learning rate has fallen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class WeightAverage:
    """Average of ``net``'s trained weights, average ← d·average + (1 − d)·weights after each step.

    Args:
        decay: d in the long run; after n steps at most (1 + n) / (10 + n), so that the beginning is
            soon forgotten.
    """

    def __init__(self, net: torch.nn.Module, decay: float):
        self.decay = decay
        self.weights = {n: p for n, p in net.named_parameters() if p.requires_grad}
        self.values = {n: p.detach().clone() for n, p in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after ``step`` steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(
            list(self.values.values()), [p.detach() for p in self.weights.values()], 1 - decay
        )

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside, the network computes with the average."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, weight in self.weights.items():
            weight.data, self.values[name] = self.values[name], weight.data
