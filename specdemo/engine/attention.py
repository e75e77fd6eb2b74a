"""Attention of one pass over the static cache: the rows of a tree see the committed context and
their own ancestors.

Queries arrive grouped, ``[1, Hkv, G * w, D]`` (``G`` query heads that share one key head,
head-major; ``w`` rows), so keys and values are never copied per head.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
import torch.nn.functional as F

from ..models.reads import Reads, hide

AttentionKind = Literal["layout_invariant", "masked", "cascade"]


NEAR = 32  # the deepest draft, so that nothing before a row's cut can be a draft
# Rows of a compiled pass before this position have no far part: so few slots are read faster at
# once than in parts that are merged.
COMPILED_SHORT = 1024


def cuts(positions: torch.Tensor, short: int, step: int = NEAR) -> torch.Tensor:
    """``[w]``: the slots before a row's cut, a multiple of ``step``, are its far part, none before
    position ``short``. It depends on the row's position alone and never lies past the committed
    context.
    """
    return torch.where(positions < short, 0, (positions - NEAR) // step * step)


def far_end(last: int, capacity: int, dtype: torch.dtype) -> int:
    """Where the far part's slots end for rows whose last cut is ``last``.

    PyTorch's kernel works in blocks of 512 keys. In bf16 masked keys behind the last cut change
    nothing; in fp32 the product sums in another order when a block is shorter.
    """
    return last if dtype == torch.bfloat16 else min(capacity, -(-last // 512) * 512)


class TreeAttention(Protocol):
    """Attention of all layers of one pass.

    Args:
        seen: ``[w, w]`` bool, which rows of this pass each row attends to (itself included).
        length: committed slots; the pass occupies the ``w`` slots after them.
        capacity: slots of the cache.
        group: query heads that share one key head.
        dtype: of queries, keys and values.
        positions: ``[w]`` of the rows, on the host, so that nothing waits for the device.
    """

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        capacity: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor,
    ): ...

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """``q [1, Hkv, G * w, D]``, ``keys, values [1, Hkv, capacity, D]`` -> ``[1, Hkv, G * w,
        D]``
        """


def additive_mask(seen: torch.Tensor, dtype: torch.dtype, group: int) -> torch.Tensor:
    """0 where ``seen [w, S]`` is true and −inf elsewhere, once a query head: ``[G * w, S]``."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill_(~seen, float("-inf")).repeat(group, 1)


class MaskedAttention:
    """PyTorch's own kernel with an additive mask, or without one for a single row: the fastest way
    to decode plainly. Arguments as in :class:`TreeAttention`.
    """

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        capacity: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor,
    ):
        w = len(seen)
        self.end = length + w
        # the whole context is seen by every row
        whole = F.pad(seen, (length, 0), value=True)
        self.mask = additive_mask(whole, dtype, group) if w > 1 else None

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`TreeAttention`."""
        return F.scaled_dot_product_attention(
            q, keys[:, :, : self.end], values[:, :, : self.end], attn_mask=self.mask
        )


class LayoutInvariantAttention:
    """Attention whose bits do not depend on which slots a row's ancestors occupy, so that trees are
    as exact as chains. Arguments as in :class:`TreeAttention`.

    A kernel sums over slots in slot order, and a tree's accepted path lies in other slots than
    plain decoding would use: in bf16 that moved one rounding in a few thousand and flipped a
    near-tie now and then. Here the context far behind a row, whose slots are the same in any case,
    goes through the one masked kernel; the last ``NEAR`` to ``2 * NEAR`` positions and the block
    (everything, early in a text) are summed in float64, where the order no longer reaches a bit
    that is kept. The far part joins that sum as one more key, whose score is its log-sum-exp. The
    cut between the two depends on a row's position alone. (Batch-invariant kernels solve the same
    problem for the batch: He et al., "Defeating Nondeterminism in LLM Inference", 2025.)
    """

    NEAR = NEAR
    # rows before this position have no far part: summing so few in float64 costs less than a second
    # kernel and the merge
    SHORT = 192

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        capacity: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor,
    ):
        w, device = len(seen), seen.device
        cut = cuts(positions, self.SHORT)
        first, last = int(cut.min()), int(cut.max())
        cut = cut.to(device)
        self.first, self.end = first, length + w
        slots = torch.arange(max(capacity, self.end), device=device)
        near = torch.ones(w, self.end - first, dtype=torch.bool, device=device)
        near[:, length - first :] = seen
        near &= slots[first : self.end] >= cut[:, None]
        self.near = additive_mask(near, torch.float64, group)
        self.scale: torch.Tensor | None = None
        self.far: torch.Tensor | None = None
        self.no_far: torch.Tensor | None = None
        self.far_end = 0
        if last:
            self.far_end = far_end(last, capacity, dtype)
            self.far = additive_mask(slots[: self.far_end] < cut[:, None], dtype, group)
            if not first:
                self.no_far = (cut == 0).repeat(group)  # rows without a far part

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`TreeAttention`."""
        if self.scale is None:
            self.scale = self._scale_of(q.shape[-1])
        k = keys[0, :, self.first : self.end].double()
        v = values[0, :, self.first : self.end].double()
        # [Hkv, G * w, S]
        scores = torch.baddbmm(self.near[None], q[0] * self.scale, k.transpose(-1, -2))
        if self.far is None:
            return torch.bmm(scores.softmax(-1), v).to(q.dtype)[None]
        far, lse = attend_lse(q, keys[:, :, : self.far_end], values[:, :, : self.far_end], self.far)
        if self.no_far is not None:
            far = far.masked_fill(self.no_far[:, None], 0.0)
            lse = lse.masked_fill(self.no_far, float("-inf"))
        # here and in the sum below promotion to float64 spares a copy
        p = torch.cat((scores, lse[0, :, :, None]), -1).softmax(-1)
        return torch.addcmul(torch.bmm(p[..., :-1], v), far[0], p[..., -1:]).to(q.dtype)[None]

    def _scale_of(self, head_dim: int) -> torch.Tensor:
        """Of the scores; one element, so that the product is in float64."""
        return torch.full((1,), head_dim**-0.5, dtype=torch.float64, device=self.near.device)


def compiled_reads(
    seen: torch.Tensor,
    length: int,
    capacity: int,
    group: int,
    dtype: torch.dtype,
    positions: torch.Tensor,
    step: int = 0,
) -> Reads:
    """What the rows of a compiled pass read, whose kernel is layout-invariant in itself. Arguments
    as in :class:`TreeAttention`.

    Args:
        step: of :attr:`.compiled.CompiledLayers.far_step`.
    """
    end, cut = length + len(seen), cuts(positions, COMPILED_SHORT, step or NEAR)
    first, last = int(cut.min()), int(cut.max())
    if not last:
        return Reads(0, length, end, hide(seen, group))
    if step and first == last:
        return Reads(first, length, end, hide(seen, group), cut // step)
    slots = torch.arange(max(capacity, end))
    near = F.pad(seen, (length - first, 0), value=True) & (slots[first:end] >= cut[:, None])
    if step:
        return Reads(first, first, end, hide(near, group), cut // step)
    behind = far_end(last, capacity, dtype)
    far = additive_mask(slots[:behind] < cut[:, None], dtype, group)
    no_far = None if first else (cut == 0).repeat(group)
    return Reads(first, first, end, hide(near, group), None, behind, far, no_far)


class CascadeAttention:
    """D²SD's cascade attention (section 3): the committed context once for all rows without a mask,
    the block apart, merged by log-sum-exp. Arguments as in :class:`TreeAttention`.

    ``out = (e^a · o_context + e^b · o_block) / (e^a + e^b)`` with a, b the two parts' log-sum-exp.
    Where the paper attends each branch to its own copy of a shared prefix, the block here is the
    de-duplicated tree, so no token is computed twice.
    """

    def __init__(
        self,
        seen: torch.Tensor,
        length: int,
        capacity: int,
        group: int,
        dtype: torch.dtype,
        positions: torch.Tensor,
    ):
        self.length, self.end = length, length + len(seen)
        self.mask = additive_mask(seen, dtype, group)

    def __call__(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Shapes as in :class:`TreeAttention`."""
        block, b = attend_lse(
            q, keys[:, :, self.length : self.end], values[:, :, self.length : self.end], self.mask
        )
        if not self.length:
            return block
        context, a = attend_lse(q, keys[:, :, : self.length], values[:, :, : self.length])
        share = torch.sigmoid(a - b)[..., None]  # e^a / (e^a + e^b), safe for any size of a and b
        return (context.float() * share + block.float() * (1 - share)).to(q.dtype)


def attend_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and the log-sum-exp of its scores: ``[1, Hkv, n, D]`` and ``[1, Hkv, n]`` float32
    (natural logarithm).
    """
    flash = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if flash is not None and q.device.type == "cpu":
        out, lse = flash(q, k, v, 0.0, False, attn_mask=mask)
        return out, lse.float()
    scores = torch.matmul(q, k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    lse = scores.logsumexp(-1)
    return torch.matmul((scores - lse[..., None]).exp().to(v.dtype), v), lse


ATTENTIONS: dict[AttentionKind, type[TreeAttention]] = {
    "masked": MaskedAttention,
    "layout_invariant": LayoutInvariantAttention,
    "cascade": CascadeAttention,
}
