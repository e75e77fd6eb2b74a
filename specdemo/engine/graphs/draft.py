"""The block drafter's pass on the device: its context follows the target's features round by round,
and the anchor and its masks are read where the last round left them.

Slot = position, in a cache as long as the target's; a drafter with a window masks what lies before
it. Shapes as in :mod:`.state`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from ...drafters.parts.block_context import BlockContext
from .state import LaneState


class DraftSteps:
    """The steps of one network beside one lane.

    Args:
        context: the network and its vocabulary; its own cache is not used.
        gamma: masks of the block. budget: the most of them that are looked at.
    """

    def __init__(self, context: BlockContext, gamma: int, budget: int, markov_head: bool):
        self.context, self.gamma, self.markov_head = context, gamma, markov_head
        columns = context.net.head.out_features
        self.shape = context.packed_shape(min(gamma, budget), columns, markov_head)

    def allocate(self, state: LaneState) -> None:
        """Its context cache and constants, for ``state``, whose ``out`` has room for its table."""
        net, device = self.context.net, state.out.device
        self.state, c = state, net.config
        self.masks = net.mask_row[None].repeat(self.gamma - c.row_offset, 1)
        self.width = len(self.masks) + 1
        # what a round writes behind the committed context stays inside
        self.capacity = state.cache.capacity + max(state.longest, self.width)
        shape = (c.num_hidden_layers, c.num_key_value_heads, self.capacity, c.head_dim)
        self.keys = torch.zeros(shape, dtype=net.embedding.dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        net.rope_table.reserve(self.capacity)
        self.cos, self.sin = net.rope_table.cos, net.rope_table.sin
        self.slots = torch.arange(self.capacity, device=device)

    def prompt(self, features: torch.Tensor, start: int) -> None:
        """Add ``features [n, F]`` of the positions from ``start`` on, of which the last window is
        enough; not part of a round.
        """
        window = self.context.net.config.context_window or len(features)
        start, features = start + max(0, len(features) - window), features[-window:]
        end = start + len(features)
        k, v = self.context.net.context_rows(features, self.cos[start:end], self.sin[start:end])
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v

    def extend(self) -> None:
        """Add the features of what the last round committed; rows behind it are overwritten by the
        next.
        """
        at = self.state.start + self.slots[: self.state.longest]
        k, v = self.context.net.context_rows(self.state.features, self.cos[at], self.sin[at])
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)

    def fill(self) -> None:
        """One pass over the anchor and its masks; the packed candidates go to ``state.out``."""
        net, state = self.context.net, self.state
        # 1) The context strictly before the anchor, at most the window, and the block.
        inside = self.slots - state.length
        known = {sight: sight.sees(inside, self.width) for sight in set(net.sights)}
        if net.config.context_window is not None:
            known = {s: seen & (inside >= -net.config.context_window) for s, seen in known.items()}
        at = state.length + self.slots[: self.width]

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys.index_copy_(1, at, k)
            values.index_copy_(1, at, v)
            seen = known[net.sights[layer]].repeat(q.shape[2] // self.width, 1)
            return F.scaled_dot_product_attention(q, keys[None], values[None], attn_mask=seen)

        # 2) The pass.
        x = torch.cat((net.embed(state.anchor), self.masks))
        hidden = net.run_layers(x, self.cos[at], self.sin[at], attend, self.width)
        states = hidden[1 - net.config.row_offset :][: self.shape.states]
        packed, _ = self.context.pack(states, self.markov_head, state.anchor)
        state.out[state.outcome_size :].copy_(packed)


class DeviceDraft:
    """Those steps as a drafter sees them: see ``DevicePass`` in
    :mod:`...drafters.parts.block_context`.

    Args:
        fill_now: run the pass behind the current anchor and wait for its candidates.

    Attributes:
        ready: whether it has read the prompt, which it does when it is first asked.
    """

    def __init__(self, steps: DraftSteps, fill_now: Callable[[], torch.Tensor]):
        self.steps, self.shape, self._fill_now = steps, steps.shape, fill_now
        self.ready = False
        self._ahead: tuple[torch.Tensor, float] | None = None

    def extend(self, features: torch.Tensor, start: int) -> None:
        self.steps.prompt(features, start)
        self.ready = True

    def has_run(self, packed: torch.Tensor, ms: float) -> None:
        """The pass behind the current anchor is done."""
        self._ahead = packed, ms

    def forget(self) -> None:
        """The anchor has moved."""
        self._ahead = None

    def candidates(self) -> tuple[torch.Tensor, float]:
        ahead, self._ahead = self._ahead, None
        return ahead or (self._fill_now(), 0.0)
