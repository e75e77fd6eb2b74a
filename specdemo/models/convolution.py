"""DFlash 2's convolutions: inputs and outputs of a layer's two halves, mixed with the slot before.

Per channel and row, y_t = sum over taps j of (base[j] + delta_t[j]) * x_{t-j}, where delta is
worked out from the row and shared by a group of channels, and nothing before the block's first slot
counts (github.com/z-lab/dflash, ``GroupedDynamicCausalConv``).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class GroupedConvolution(nn.Module):
    """One for each half of a layer.

    Args:
        size: channels. taps: slots that are mixed. group: channels that share a delta.
    """

    def __init__(self, size: int, taps: int, group: int):
        super().__init__()
        self.taps, self.group = taps, group
        self.base_kernel = nn.Parameter(torch.zeros(2, taps, size))
        self.kernel_projection = nn.Linear(size, 2 * taps * (size // group), bias=False)

    def before(self, x: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the half reads, and the deltas for what it writes.

        Args:
            x: ``[n, H]`` rows of blocks of ``width`` slots side by side.
        """
        deltas = self.kernel_projection(x).view(len(x), 2, self.taps, -1)
        return self._mix(x, self.base_kernel[0], deltas[:, 0], width), deltas[:, 1]

    def after(self, x: torch.Tensor, deltas: torch.Tensor, width: int) -> torch.Tensor:
        """What the half has written, ``[n, H]``, mixed."""
        return self._mix(x, self.base_kernel[1], deltas, width)

    def _mix(
        self, x: torch.Tensor, base: torch.Tensor, deltas: torch.Tensor, width: int
    ) -> torch.Tensor:
        blocks = x.view(-1, width, x.shape[-1])
        kernels = base.to(x.dtype) + deltas.repeat_interleave(self.group, -1)  # [n, taps, H]
        kernels = kernels.view(-1, width, self.taps, x.shape[-1])
        out = kernels[:, :, 0] * blocks
        for tap in range(1, self.taps):
            earlier = F.pad(blocks, (0, 0, tap, 0))[:, :width]
            out = out + kernels[:, :, tap] * earlier
        return out.view_as(x)
