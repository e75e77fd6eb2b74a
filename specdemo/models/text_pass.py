"""A drafter's pass over text: rows that each see themselves and what stands before them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .compiled import MAX_ROWS
from .decoder import ROW_STEP, WindowCache, rms_norm, whole_steps
from .layers import TargetEmbeddings
from .reads import Reads, hide


@torch.no_grad()
def text_pass(
    net: TargetEmbeddings, x: torch.Tensor, position: int, cache: WindowCache, block: int = 0
) -> torch.Tensor:
    """Rows at positions from ``position`` on through the layers of ``net``; the cache then ends
    behind the text among them.

    Args:
        x: ``[n, H]`` embedded rows. block: how many of the last ones are a block's: they see each
            other, too, and as much text as the drafter's window has before the first of them. A
            row of text sees the window that ends with itself.

    Returns:
        ``[n, H]`` states after the final norm.
    """
    n, text = len(x), len(x) - block
    slot = cache.place(position, text, reading=True)
    cache.reserve(slot + n)
    # what pads a long chunk lies behind all that a row sees
    rows = n if n <= ROW_STEP or block else min(whole_steps(n), cache.capacity - slot)
    x, end = F.pad(x, (0, 0, 0, rows - n)), slot + rows
    first, seen = _seen(slot, text, rows, cache.window, x.device)
    group = net.config.num_attention_heads // net.config.num_key_value_heads
    cos, sin = net.rope_table.rows(position, rows)
    cache.length = slot + text
    if net.compiled is not None and rows <= MAX_ROWS:
        reads = Reads(first, first, end, None if seen is None else hide(seen, group))
        return net.compiled(x, cos, sin, cache, slot, reads)[0][:n]
    mask = None if seen is None else seen.repeat(group, 1)

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys, values = cache.write(layer, slot, k, v)
        return F.scaled_dot_product_attention(
            q, keys[None, :, first:end], values[None, :, first:end], attn_mask=mask
        )

    for layer in net.fused:
        x = layer(x, cos, sin, attend)
    return rms_norm(x, net.final_norm, net.config.rms_norm_eps)[:n]


def _seen(
    slot: int, text: int, rows: int, window: int | None, device: torch.device
) -> tuple[int, torch.Tensor | None]:
    """The first slot that any of the rows from ``slot`` on sees, and what each sees of the slots
    from there on: bool ``[rows, slot + rows - first]``, None for everything. The first ``text``
    rows are text, the others see each other.
    """
    end = slot + rows
    first = 0 if window is None else max(0, slot + (text > 0) - window)
    if text == 0 or rows == 1:
        return first, None
    slots = torch.arange(first, end, device=device)
    last = torch.arange(slot, end, device=device)  # the last slot that a row sees
    last[text:] = end - 1
    seen = slots[None] <= last[:, None]
    if window is not None:
        before = torch.arange(slot, end, device=device) - window
        before[text:] = slot + text - 1 - window
        seen &= slots[None] > before[:, None]
    return first, seen
