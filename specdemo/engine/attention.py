"""Attention of one step over the static cache: the rows of a tree see the committed context and
their own ancestors.

Queries arrive grouped, ``[1, kv_heads, group * w, head_dim]`` (group = query heads that share one
key head, head-major), so keys and values are never copied per head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


class Masked:
    """The library's own kernel with an additive mask, or without one for a single row: the fastest
    way to decode plainly.

    Args:
        seen: ``[w, w]`` bool, which rows of this pass each row attends to (itself included).
        length: committed slots; the pass occupies the ``w`` slots after them.
        positions: ``[w]`` of the rows, on the host, so that nothing waits for the device.
    """

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        slots: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor | None = None,
    ):
        w = len(seen)
        self.end, self.bias = length + w, None
        if w > 1:
            bias = torch.zeros(w, self.end, dtype=dtype, device=seen.device)
            bias[:, length:].masked_fill_(~seen, float("-inf"))
            self.bias = bias.repeat(group, 1)

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """``q [1, g, group * w, D]``, ``keys, values [1, g, slots, D]`` -> ``[1, g, group * w,
        D]``
        """
        return F.scaled_dot_product_attention(
            q, keys[:, :, : self.end], values[:, :, : self.end], attn_mask=self.bias
        )


class LayoutInvariantAttention:
    """Attention whose bits do not depend on which slots a row's ancestors occupy, so that trees are
    as exact as chains.

    A kernel sums over slots in slot order, and a tree's accepted path lies in other slots than
    plain decoding would use: in bf16 that moved one rounding in a few thousand and flipped a
    near-tie now and then. Here the context far behind a row, whose slots are the same in any case,
    goes through the one masked kernel; the last ``NEAR`` to ``2 * NEAR`` positions and the block
    (everything, early in a text) are summed in float64, where the order no longer reaches a bit
    that is kept. The far part joins that sum as one more key, whose score is its log-sum-exp. The
    cut between the two depends on a row's position alone.
    """

    NEAR = 32  # the deepest draft, so that nothing before a row's cut can be a draft
    # rows before this position have no far part: summing so few in float64 costs less than a second
    # kernel and the merge
    SHORT = 192

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        slots: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor,
    ):
        w, device = len(seen), seen.device
        # [w], never past the committed context
        cut = torch.where(positions < self.SHORT, 0, (positions // self.NEAR - 1) * self.NEAR)
        first, last = int(cut.min()), int(cut.max())
        cut = cut.to(device)
        self.first, self.end = first, length + w
        at = torch.arange(max(slots, self.end), device=device)
        near = torch.ones(w, self.end - first, dtype=torch.bool, device=device)
        near[:, length - first :] = seen
        near &= at[first : self.end] >= cut[:, None]
        self.near = (
            torch.zeros(near.shape, dtype=torch.float64, device=device)
            .masked_fill_(~near, float("-inf"))
            .repeat(group, 1)
        )
        self.far, self.none, self.scale = None, None, None
        if last:
            # The kernel works in blocks of 512 keys. In bf16 masked keys behind the last cut change
            # nothing; in fp32 the product sums in another order when a block is shorter.
            self.far_end = last if dtype == torch.bfloat16 else min(slots, -(-last // 512) * 512)
            far = at[: self.far_end] < cut[:, None]
            self.far = (
                torch.zeros(far.shape, dtype=dtype, device=device)
                .masked_fill_(~far, float("-inf"))
                .repeat(group, 1)
            )
            if not first:
                self.none = (cut == 0).repeat(group)  # rows without a far part

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`Masked`."""
        if self.scale is None:
            # one element, so that the product is in float64
            self.scale = torch.full((1,), q.shape[-1] ** -0.5, dtype=torch.float64, device=q.device)
        k, v = (
            keys[0, :, self.first : self.end].double(),
            values[0, :, self.first : self.end].double(),
        )
        # [g, group * w, n]
        scores = torch.baddbmm(self.near[None], q[0] * self.scale, k.transpose(-1, -2))
        if self.far is None:
            return torch.bmm(scores.softmax(-1), v).to(q.dtype)[None]
        far, lse = attend_lse(q, keys[:, :, : self.far_end], values[:, :, : self.far_end], self.far)
        if self.none is not None:
            far, lse = (
                far.masked_fill(self.none[:, None], 0.0),
                lse.masked_fill(self.none, float("-inf")),
            )
        # here and in the sum below promotion to float64 spares a copy
        p = torch.cat((scores, lse[0, :, :, None]), -1).softmax(-1)
        return torch.addcmul(torch.bmm(p[..., :-1], v), far[0], p[..., -1:]).to(q.dtype)[None]


class Cascade:
    """D²SD's cascade attention (sec. 3): the committed context once for all rows without a mask,
    the block apart, merged by log-sum-exp.

    ``out = (e^a · o_context + e^b · o_block) / (e^a + e^b)`` with a, b the two parts' log-sum-exp.
    Where the paper attends each branch to its own copy of a shared prefix, the block here is the
    de-duplicated tree, so no token is computed twice.
    """

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        slots: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor | None = None,
    ):
        self.length, self.end = length, length + len(seen)
        self.bias = (
            torch.zeros(seen.shape, dtype=dtype, device=seen.device)
            .masked_fill_(~seen, float("-inf"))
            .repeat(group, 1)
        )

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`Masked`."""
        block, b = attend_lse(
            q, keys[:, :, self.length : self.end], values[:, :, self.length : self.end], self.bias
        )
        if not self.length:
            return block
        context, a = attend_lse(q, keys[:, :, : self.length], values[:, :, : self.length])
        share = torch.sigmoid(a - b)[..., None]  # e^a / (e^a + e^b), safe for any size of a and b
        return (context.float() * share + block.float() * (1 - share)).to(q.dtype)


def attend_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and the log-sum-exp of its scores: ``[1, g, n, D]`` and ``[1, g, n]`` float32
    (natural logarithm).
    """
    flash = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if flash is not None and q.device.type == "cpu":
        out, lse = flash(q, k, v, 0.0, False, attn_mask=bias)
        return out, lse.float()
    scores = torch.matmul(q, k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    lse = scores.logsumexp(-1)
    return torch.matmul((scores - lse[..., None]).exp().to(v.dtype), v), lse


KINDS = {"masked": Masked, "layout_invariant": LayoutInvariantAttention, "cascade": Cascade}
