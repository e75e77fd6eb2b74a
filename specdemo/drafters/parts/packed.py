"""Candidates on their way from the device: one vector, and what an engine may compute there."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch


class PackedShape(NamedTuple):
    """Sizes of packed candidates: of ``states`` positions ``candidates`` each; with a head the
    ``kept`` likeliest tokens behind each of the first ``after`` candidates of the position before
    (0 and 0 without one), and, where it predicts that, the ``confidence`` of each position.
    """

    states: int
    candidates: int
    after: int
    kept: int
    confidence: int = 0

    @property
    def sizes(self) -> list[int]:
        """Numbers of each part: ids, probabilities, both of what follows, confidence."""
        alone, pairs = self.states * self.candidates, (self.states - 1) * self.after * self.kept
        return [alone, alone, max(pairs, 0), max(pairs, 0), self.states * self.confidence]

    @property
    def size(self) -> int:
        """Numbers in all."""
        return sum(self.sizes)


class DevicePass(Protocol):
    """A drafter's pass that an engine keeps on the device: its context follows the target there,
    and the pass over the anchor and its masks may have run before it is asked for.

    Attributes:
        shape: of its candidates.
    """

    shape: PackedShape

    def extend(self, features: torch.Tensor, start: int) -> None:
        """Add the prompt's features, as :meth:`.block_context.BlockContext.extend`."""

    def candidates(self) -> tuple[torch.Tensor, float]:
        """Those behind the current anchor, packed and on the host, and the milliseconds of their
        pass where it ran before this call (else 0).
        """
