"""Differentiable passes over whole sequences: one reading of the context serves many anchors at
once.

Blocks stand side by side behind their row's context features: a query sees the features strictly
before its anchor, as many as the drafter's window has, and the slots of its own block, both
directions. Same arithmetic as ``BlockDrafter.hidden`` with a cache, which a test holds it to (mask
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


class _JointSoftmax(torch.autograd.Function):
    """One softmax over two parts of a row of scores: the context, of which ``hidden`` is left out,
    and the own block.

    Probabilities alone are kept for the backward pass, in ``precision``.
    """

    @staticmethod
    def forward(ctx, far, own, hidden, precision):  # type: ignore[no-untyped-def]
        far, own = far.float().masked_fill(hidden, float("-inf")), own.float()
        top = torch.maximum(far.amax(-1, keepdim=True), own.amax(-1, keepdim=True))
        far, own = (far - top).exp(), (own - top).exp()
        scale = 1 / (far.sum(-1, keepdim=True) + own.sum(-1, keepdim=True))
        far, own = (far * scale).to(precision), (own * scale).to(precision)
        ctx.save_for_backward(far, own)
        return far, own

    @staticmethod
    def backward(ctx, far_grad, own_grad):  # type: ignore[no-untyped-def]
        far, own = ctx.saved_tensors
        by_far, by_own = far.float() * far_grad.float(), own.float() * own_grad.float()
        total = by_far.sum(-1, keepdim=True) + by_own.sum(-1, keepdim=True)
        far_slope = (by_far - far * total).to(far_grad.dtype)
        return far_slope, (by_own - own * total).to(own_grad.dtype), None, None


def packed_attention(
    anchors: torch.Tensor, length: int, block_size: int, window: int | None = None
) -> Callable:
    """The ``attend`` of ``BlockDrafter.denoise`` for ``anchors [N, A]`` over ``length`` context
    features and ``A`` blocks side by side.

    Context and own block are scored apart, each by one batched product, and share a softmax: no
    product with another block's slots. Plain products outrun the library's fused kernel on a CPU,
    whose backward pass was a quarter of a step.

    Args:
        window: how many features before its anchor a block sees; None: all of them.
    """
    N, A, B, L = *anchors.shape, block_size, length
    at = torch.arange(L, device=anchors.device)
    hidden = at >= anchors[..., None]  # what does not stand strictly before the anchor
    if window is not None and window < L:
        hidden |= at < anchors[..., None] - window
    hidden = hidden[:, None, :, None]

    def attend(_layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads, keys, D = q.shape[1], k.shape[1], q.shape[-1]
        each = heads // keys * B  # query rows of one block that share a key head
        q = (q.to(v.dtype) * D**-0.5).view(N, keys, heads // keys, A, B, D)
        q, k = q.transpose(2, 3).reshape(N * keys, A * each, D), k.to(v.dtype)
        far_k, far_v = (t[:, :, :L].flatten(0, 1) for t in (k, v))
        own_k, own_v = (t[:, :, L:].reshape(N * keys * A, B, D) for t in (k, v))
        far = (q @ far_k.transpose(1, 2)).view(N, keys, A, each, L)
        own = q.view(-1, each, D) @ own_k.transpose(1, 2)
        far, own = _JointSoftmax.apply(far, own.view(N, keys, A, each, B), hidden, v.dtype)
        out = (far.view(N * keys, A * each, L) @ far_v).view(-1, each, D)
        out = out + own.view(-1, each, B) @ own_v
        return out.view(N, keys, A, -1, B, D).transpose(2, 3).reshape(N, heads, A * B, D)

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
        embedding: ``[V, H]`` of the target. features: what :func:`read_by` gives.
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
    attend = packed_attention(anchors, L, B, net.config.context_window)
    if net.reads_text:
        states = _beside_text(net, features.float(), embeds, positions, attend)
        return states.view(N, A, B, -1)
    # a norm of mixed precisions falls off the fused kernel
    context = net.hidden_norm(net.fc(features.float()).float())
    return net.denoise(embeds, context, positions, attend).view(N, A, B, -1)


def read_by(
    net: BlockDrafter, embedding: torch.Tensor, ids: torch.Tensor, features: torch.Tensor
) -> torch.Tensor:
    """What a drafter reads of sequences ``ids [N, L]``: the target's ``features [N, L, taps * H]``,
    or, where it reads the text itself, embeddings ``[N, L, H]``.
    """
    return F.embedding(ids, embedding) if net.reads_text else features


def _beside_text(
    net: BlockDrafter,
    text: torch.Tensor,
    x: torch.Tensor,
    positions: torch.Tensor,
    attend: Callable,
) -> torch.Tensor:
    """Block rows ``x [N, A * B, H]`` beside the text ``[N, L, H]`` that the same layers read: each
    layer's blocks see the keys and values that the layer gives the text. Normed states.

    Args:
        positions: ``[N, L + A * B]`` of both. attend: of :func:`packed_attention`.
    """
    L = text.shape[1]
    rope = net.rope(positions, x.dtype)
    of_text = tuple(part[:, :L] for part in rope)
    own = causal_attention(L, net.config.context_window, x.device)
    for layer in net.layers:
        x = layer(x, layer.input_layernorm(text), rope, attend)
        if layer is not net.layers[-1]:
            text = layer(text, None, of_text, own)
    return net.norm(x)


def causal_attention(length: int, window: int | None, device: torch.device) -> Callable:
    """The ``attend`` of rows that each see themselves and what stands before them, at most
    ``window`` positions.
    """
    seen = None
    if window is not None and window < length:
        at = torch.arange(length, device=device)
        seen = (at <= at[:, None]) & (at > at[:, None] - window)

    def attend(_layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q.to(v.dtype), k.to(v.dtype), v, seen, is_causal=seen is None, enable_gqa=True
        )

    return attend
