"""Attention of one step over the static cache: the rows of a tree see the committed context and their own ancestors.

Queries arrive grouped, ``[1, kv_heads, group * w, head_dim]`` (group = query heads that share one key head, head-major), so keys
and values are never copied per head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


class Masked:
    """One kernel over the whole cache with an additive mask: the same sum in the same order for every width, which keeps steps bitwise equal.

    Args:
        seen: ``[w, w]`` bool, which rows of this pass each row attends to (itself included).
        length: committed slots; the pass occupies the ``w`` slots after them.
    """

    def __init__(self, seen: torch.Tensor, length: int, slots: int, group: int, dtype: torch.dtype, positions: torch.Tensor | None = None):
        w = len(seen)
        bias = torch.full((w, slots), float("-inf"), dtype=dtype, device=seen.device)
        bias[:, :length] = 0
        bias[:, length : length + w].masked_fill_(seen, 0)
        self.bias = bias.repeat(group, 1)

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """``q [1, g, group * w, D]``, ``keys, values [1, g, slots, D]`` -> ``[1, g, group * w, D]``"""
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self.bias)


class Placeless:
    """Attention whose bits do not depend on which slots a row's ancestors occupy, so that trees are as exact as chains.

    A kernel sums over slots in slot order, and a tree's accepted path lies in other slots than plain decoding would use: in bf16 that
    moved one rounding in a few thousand and flipped a near-tie now and then. Here the context far behind a row, whose slots are the same in
    any case, goes through the one masked kernel; the last ``NEAR`` to ``2 * NEAR`` positions and the block are summed in float64, where the
    order no longer reaches a bit that is kept. The two parts merge by log-sum-exp. The cut depends on a row's position alone.
    """

    NEAR = 64  # at least the deepest draft, so that nothing before a row's cut can be a draft

    def __init__(self, seen: torch.Tensor, length: int, slots: int, group: int, dtype: torch.dtype, positions: torch.Tensor):
        w = len(seen)
        cut = (positions.clamp(min=self.NEAR) // self.NEAR - 1) * self.NEAR  # [w], never past the committed context
        self.first, self.end = int(cut.min()), length + w
        at = torch.arange(slots, device=seen.device)
        visible = at[None, : self.end] < length
        visible = visible.expand(w, -1).clone()
        visible[:, length:] = seen
        near = visible[:, self.first :] & (at[None, self.first : self.end] >= cut[:, None])
        self.near = torch.zeros(near.shape, dtype=torch.float64, device=seen.device).masked_fill_(~near, float("-inf")).repeat(group, 1)
        self.far, self.none = None, None
        if int(cut.max()):
            far = at[None] < cut[:, None]
            self.far = torch.zeros(far.shape, dtype=dtype, device=seen.device).masked_fill_(~far, float("-inf")).repeat(group, 1)
            self.none = (cut == 0).repeat(group)

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`Masked`."""
        k, v = keys[:, :, self.first : self.end].double(), values[:, :, self.first : self.end].double()
        scores = torch.matmul(q.double() * q.shape[-1] ** -0.5, k.transpose(-1, -2)) + self.near
        near = torch.matmul(scores.softmax(-1), v)
        if self.far is None:
            return near.to(q.dtype)
        far, a = attend_lse(q, keys, values, self.far)
        share = torch.sigmoid(a.double() - scores.logsumexp(-1)).masked_fill_(self.none, 0.0)[..., None]
        far = far.double().masked_fill_(self.none[:, None], 0.0)
        return (far * share + near * (1 - share)).to(q.dtype)


class Cascade:
    """D²SD's cascade attention (sec. 3): the committed context once for all rows without a mask, the block apart, merged by log-sum-exp.

    ``out = (e^a · o_context + e^b · o_block) / (e^a + e^b)`` with a, b the two parts' log-sum-exp. Where the paper attends each
    branch to its own copy of a shared prefix, the block here is the de-duplicated tree, so no token is computed twice.
    """

    def __init__(self, seen: torch.Tensor, length: int, slots: int, group: int, dtype: torch.dtype, positions: torch.Tensor | None = None):
        self.length, self.end = length, length + len(seen)
        self.bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf")).repeat(group, 1)

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`Masked`."""
        block, b = attend_lse(q, keys[:, :, self.length : self.end], values[:, :, self.length : self.end], self.bias)
        if not self.length:
            return block
        context, a = attend_lse(q, keys[:, :, : self.length], values[:, :, : self.length])
        share = torch.sigmoid(a - b)[..., None]  # e^a / (e^a + e^b), safe for any size of a and b
        return (context.float() * share + block.float() * (1 - share)).to(q.dtype)


def attend_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and the log-sum-exp of its scores: ``[1, g, n, D]`` and ``[1, g, n]`` float32 (natural logarithm)."""
    flash = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if flash is not None and q.device.type == "cpu":
        out, lse = flash(q, k, v, 0.0, False, attn_mask=bias)
        return out, lse.float()
    scores = torch.matmul(q, k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    lse = scores.logsumexp(-1)
    return torch.matmul((scores - lse[..., None]).exp().to(v.dtype), v), lse


KINDS = {"masked": Masked, "placeless": Placeless, "cascade": Cascade}
