"""Differentiable passes over whole sequences: one reading of the context serves many anchors at once.

The attention of packed blocks has two parts, scored apart and normalised together: every query against the context features strictly
before its anchor (one dense product, nothing copied per anchor), and against the slots of its own block, both directions. Same
arithmetic as ``BlockDrafter.hidden`` with a cache, which a test holds it to (mask as in DFlash section 4.2).
Shapes: ``N`` sequences of ``L`` tokens, ``A`` anchors each, ``B`` slots a block, ``Hq`` query and ``Hk`` key heads of ``D``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..models.block import BlockDrafter


class Taps:
    """Outputs of chosen target layers, caught on their way (HF's ``hidden_states[i + 1]``, without keeping the others)."""

    def __init__(self, target: Any, layer_ids: tuple[int, ...]):
        self.body, self.layer_ids = target.get_decoder(), tuple(layer_ids)
        self.seen: dict[int, torch.Tensor] = {}
        self.end = len(self.body.layers) - 1  # HF counts the last layer's output after the final norm
        self.hooks = [self.body.layers[i].register_forward_hook(self._keep(i)) for i in self.layer_ids if i != self.end]

    def _keep(self, index: int) -> Callable:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            self.seen[index] = output[0] if isinstance(output, tuple) else output

        return hook

    @torch.no_grad()
    def read(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``ids [N, L]`` to (features ``[N, L, taps * H]``, states after the final norm ``[N, L, H]``).

        Rows are padded at their end, so causality alone keeps padding out of everything that counts.
        """
        last = self.body(input_ids=ids, use_cache=False).last_hidden_state
        features = torch.cat([last if i == self.end else self.seen[i] for i in self.layer_ids], dim=-1) if self.layer_ids else last[..., :0]
        self.seen.clear()
        return features, last

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()


def packed_attention(anchors: torch.Tensor, length: int, block_size: int) -> Callable:
    """The ``attend`` of ``BlockDrafter.denoise`` for ``anchors [N, A]`` over ``length`` context features and ``A`` blocks side by side."""
    seen = torch.arange(length, device=anchors.device) < anchors[..., None]  # [N, A, L]: context strictly before the anchor
    N, A, B, L = *anchors.shape, block_size, length

    def attend(_layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        Hq, D, Hk = q.shape[1], q.shape[3], k.shape[1]
        G = Hq // Hk
        q = (q * D**-0.5).view(N, Hk, G, A, B, D).transpose(2, 3).reshape(N, Hk, A, G * B, D)
        q, k, v = q.to(v.dtype), k.to(v.dtype), v
        near_k, near_v = (t[:, :, L:].view(N, Hk, A, B, D) for t in (k, v))
        far = (q.view(N, Hk, A * G * B, D) @ k[:, :, :L].transpose(2, 3)).view(N, Hk, A, G * B, L)
        far = far.masked_fill(~seen[:, None, :, None], float("-inf"))
        weight = torch.cat((far, q @ near_k.transpose(3, 4)), -1).softmax(-1, dtype=torch.float32).to(v.dtype)
        out = (weight[..., :L].reshape(N, Hk, A * G * B, L) @ v[:, :, :L]).view(N, Hk, A, G * B, D) + weight[..., L:] @ near_v
        return out.view(N, Hk, A, G, B, D).transpose(2, 3).reshape(N, Hq, A * B, D)

    return attend


def packed_blocks(
    net: BlockDrafter, embedding: torch.Tensor, features: torch.Tensor, ids: torch.Tensor, masked: torch.Tensor, anchors: torch.Tensor
) -> torch.Tensor:
    """Fill ``A`` blocks of each of ``N`` sequences in one pass, with gradients.

    Args:
        embedding: ``[V, H]`` of the target. features: ``[N, L, taps * H]``, once per sequence.
        ids: ``[N, A, B]`` true tokens; those under ``masked [N, A, B]`` are not looked at. anchors: ``[N, A]`` positions of slot 0.
    Returns:
        ``[N, A, B, H]`` states, slot k for the token at anchor + k.
    """
    N, A, B = ids.shape
    L = features.shape[1]
    mask_row = net.mask_embedding if net.mask_embedding is not None else embedding[net.config.mask_token_id]
    embeds = torch.where(masked[..., None], mask_row.float(), F.embedding(ids, embedding).float()).view(N, A * B, -1)
    slots = (anchors[..., None] + torch.arange(B, device=anchors.device)).view(N, A * B)
    positions = torch.cat((torch.arange(L, device=anchors.device).expand(N, L), slots), 1)
    attend = packed_attention(anchors, L, B)
    context = net.hidden_norm(net.fc(features.float()).float())  # a norm of mixed precisions falls off the fused kernel
    return net.denoise(embeds, context, positions, attend).view(N, A, B, -1)
