"""Differentiable passes over whole sequences: one reading of the context serves many anchors at
once.

Blocks stand in groups side by side behind their row's context features, and one fused attention
kernel serves a group: a query sees the features strictly before its anchor and the slots of its own
block, both directions. The products with other blocks of the group are wasted, which is why groups
are small. Same arithmetic as ``BlockDrafter.hidden`` with a cache, which a test holds it to (mask
as in DFlash section 4.2).
Shapes: ``N`` sequences of ``L`` tokens, ``A`` anchors each, ``B`` slots a block, ``Hq`` query and
``Hk`` key heads of ``D``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..models.block_drafter import BlockDrafter

GROUP = 384  # slots that share one attention call


class HiddenStateTaps:
    """Outputs of chosen target layers, caught on their way (HF's ``hidden_states[i + 1]``, without
    keeping the others).
    """

    def __init__(self, target: Any, layer_ids: tuple[int, ...]):
        self.body, self.layer_ids = target.get_decoder(), tuple(layer_ids)
        self.seen: dict[int, torch.Tensor] = {}
        # HF counts the last layer's output after the final norm
        self.end = len(self.body.layers) - 1
        self.hooks = [
            self.body.layers[i].register_forward_hook(self._keep(i))
            for i in self.layer_ids
            if i != self.end
        ]

    def _keep(self, index: int) -> Callable:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            self.seen[index] = output[0] if isinstance(output, tuple) else output

        return hook

    @torch.no_grad()
    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``ids [N, L]`` to (features ``[N, L, taps * H]``, states after the final norm ``[N, L,
        H]``).

        Rows are padded at their end, so causality alone keeps padding out of everything that
        counts.
        """
        # without a cache the library asks the device whether rows are packed, and waits
        last = self.body(input_ids=ids, use_cache=ids.is_cuda).last_hidden_state
        features = (
            torch.cat([last if i == self.end else self.seen[i] for i in self.layer_ids], dim=-1)
            if self.layer_ids
            else last[..., :0]
        )
        self.seen.clear()
        return features, last

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()


def packed_attention(anchors: torch.Tensor, length: int, block_size: int) -> Callable:
    """The ``attend`` of ``BlockDrafter.denoise`` for ``anchors [N, A]`` over ``length`` context
    features and ``A`` blocks side by side.
    """
    N, A, B, L = *anchors.shape, block_size, length
    groups = -(-A * B // GROUP)
    each = -(-A // groups)
    groups, spare = -(-A // each), -A % each
    spots = F.pad(anchors, (0, spare)).view(N * groups, each, 1, 1)
    device = anchors.device
    # context strictly before the anchor
    seen = (torch.arange(L, device=device) < spots).expand(-1, -1, B, L)
    own = (
        torch.eye(each, dtype=torch.bool, device=device)[:, None, :, None]
        .expand(N * groups, each, B, each, B)
        .reshape(-1, each, B, each * B)
    )
    mask = torch.cat((seen, own), -1).view(N * groups, 1, each * B, L + each * B)

    # [N, heads, A * B, D] -> [N * groups, heads, each * B, D]
    def grouped(x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, 0, 0, spare * B)).unflatten(2, (groups, each * B))
        return x.transpose(1, 2).flatten(0, 1)

    def attend(_layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        far, near = (
            [t[:, :, at].repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k.to(v.dtype), v)]
            for at in (slice(L), slice(L, None))
        )
        k, v = (
            torch.cat((f.repeat_interleave(groups, 0), grouped(n)), 2)
            for f, n in zip(far, near, strict=True)
        )
        out = F.scaled_dot_product_attention(grouped(q.to(v.dtype)), k, v, attn_mask=mask)
        return out.unflatten(0, (N, groups)).transpose(1, 2).flatten(2, 3)[:, :, : A * B]

    return attend


def packed_blocks(
    net: BlockDrafter,
    embedding: torch.Tensor,
    features: torch.Tensor,
    ids: torch.Tensor,
    masked: torch.Tensor,
    anchors: torch.Tensor,
) -> torch.Tensor:
    """Fill ``A`` blocks of each of ``N`` sequences in one pass, with gradients.

    Args:
        embedding: ``[V, H]`` of the target. features: ``[N, L, taps * H]``, once per sequence.
        ids: ``[N, A, B]`` true tokens; those under ``masked [N, A, B]`` are not looked at. anchors:
            ``[N, A]`` positions of slot 0.
    Returns:
        ``[N, A, B, H]`` states, slot k for the token at anchor + k.
    """
    N, A, B = ids.shape
    L = features.shape[1]
    mask_row = (
        net.mask_embedding
        if net.mask_embedding is not None
        else embedding[net.config.mask_token_id]
    )
    embeds = torch.where(
        masked[..., None], mask_row.float(), F.embedding(ids, embedding).float()
    ).view(N, A * B, -1)
    slots = (anchors[..., None] + torch.arange(B, device=anchors.device)).view(N, A * B)
    positions = torch.cat((torch.arange(L, device=anchors.device).expand(N, L), slots), 1)
    attend = packed_attention(anchors, L, B)
    # a norm of mixed precisions falls off the fused kernel
    context = net.hidden_norm(net.fc(features.float()).float())
    return net.denoise(embeds, context, positions, attend).view(N, A, B, -1)
