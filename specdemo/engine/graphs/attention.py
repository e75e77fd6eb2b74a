"""Attention of a round whose place in the text only the device knows: who sees whom is worked out
there, over the whole static cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from ..attention import additive_mask

# q [1, Hkv, G * W, D], keys and values [Hkv, S, D] of one layer -> [1, Hkv, G * W, D]
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Rows:
    """The rows of a pass.

    Attributes:
        length: ``[1]`` committed slots.
        path: ``[W, P]`` rows from the anchor down to each row itself, then -1.
        on_path: ``[W, P]`` bool, where that is a row.
        depth: ``[W]`` below the anchor. index: ``[W]`` 0, 1, 2, ….
    """

    length: torch.Tensor
    path: torch.Tensor
    on_path: torch.Tensor
    depth: torch.Tensor
    index: torch.Tensor

    @property
    def positions(self) -> torch.Tensor:
        return self.length + self.depth

    @property
    def slots(self) -> torch.Tensor:
        return self.length + self.index

    def seen(self, capacity: int) -> torch.Tensor:
        """``[W, S]`` bool: the committed context and each row's own ancestors, itself included."""
        w = len(self.path)
        among = torch.zeros(w, w + 1, dtype=torch.bool, device=self.path.device)
        among = among.scatter(1, torch.where(self.on_path, self.path, w), True)
        # the row in every slot; the last column collects what is none
        row = torch.arange(capacity, device=self.path.device) - self.length
        inside = (row >= 0) & (row < w)
        tree = among.index_select(1, torch.where(inside, row, w)) & inside
        return tree | (row < 0)


class Attention(Protocol):
    """One way to attend.

    Attributes:
        name: in words.
    """

    name: str

    def of(self, rows: Rows, capacity: int) -> Attend:
        """What all layers of one pass share."""


class DoubleAttention:
    """The whole context summed in float64, where the order of slots reaches no bit that is kept:
    see :class:`..attention.LayoutInvariantAttention`.
    """

    name = "float64"

    def __init__(self, group: int):
        self.group = group

    def of(self, rows: Rows, capacity: int) -> Attend:
        mask = additive_mask(rows.seen(capacity), torch.float64, self.group)[None]

        def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            scale = q.shape[-1] ** -0.5
            scores = torch.baddbmm(mask, q[0].double() * scale, keys.double().transpose(-1, -2))
            return torch.bmm(scores.softmax(-1), values.double()).to(q.dtype)[None]

        return attend


class MaskedKernel:
    """PyTorch's own kernel with a mask: the fastest way to decode plainly, whose bits depend on
    the layout.
    """

    name = "masked"

    def __init__(self, group: int, dtype: torch.dtype):
        self.group, self.dtype = group, dtype

    def of(self, rows: Rows, capacity: int) -> Attend:
        mask = additive_mask(rows.seen(capacity), self.dtype, self.group)

        def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, keys[None], values[None], attn_mask=mask)

        return attend
