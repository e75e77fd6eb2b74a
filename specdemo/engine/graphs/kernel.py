"""Attention that sums in the order of positions, in Triton: bits do not depend on slots, width,
capacity or neighbouring rows, and nothing is summed in float64.

What a row at position p reads is split by p alone. Everything before the position
``cut(p) = 32 * (p // 32 - 1)`` is committed, so slot = position: tiles of 64 positions, in chunks
of 256, which 16 query rows share. The last 32 to 64 positions are gathered through the row's own
path from the anchor down. A tile that is masked for a row adds exact zeros to it, so rows may share
programs. Everything is summed in float32; products of half precision are exact in the tensor cores'
tf32. Under ``TRITON_INTERPRET=1`` the kernels run on a CPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..attention import LayoutInvariantAttention
from .attention import Attend, Rows

NEAR = LayoutInvariantAttention.NEAR
TILE = 2 * NEAR  # positions read at once
CHUNK = 4 * TILE  # positions of one program of the far part
QUERIES = 16  # query rows of one program: the least that tensor cores take


@triton.jit
def _cut(position, NEAR: tl.constexpr):
    """The first position that is gathered."""
    return tl.maximum((position // NEAR - 1) * NEAR, 0)


@triton.jit
def _step(q, k, v, seen, scale, top, total, out, PRECISION: tl.constexpr):
    """One tile of the online softmax: q [M, D], k, v [N, D], seen [M, N] bool; ``top [M]`` is the
    largest score so far, ``total [M]`` and ``out [M, D]`` are sums relative to it.
    """
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(seen, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp(scores - base[:, None])
    kept = tl.exp(top - base)
    total = total * kept + tl.sum(weights, 1)
    out = out * kept[:, None] + tl.dot(weights, v, input_precision="ieee")
    return new_top, total, out


@triton.jit
def _far_kernel(
    q_at, k_at, v_at, length_at, depth_at, out_at, sums_at, scale, width, slots,
    GROUP: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr, NEAR: tl.constexpr,
    TILE: tl.constexpr, CHUNK: tl.constexpr, QUERIES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk of positions for 16 query rows of one key head."""
    chunk, block, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows, dims = GROUP * width, tl.arange(0, PAD)
    row = block * QUERIES + tl.arange(0, QUERIES)
    live = row < rows
    depth = tl.load(depth_at + row % width, mask=live, other=0)
    cut = tl.where(live, _cut(tl.load(length_at) + depth, NEAR), 0)
    last = tl.max(cut, 0)
    if chunk * CHUNK < last:
        at = (head * rows + row)[:, None] * DIM + dims[None, :]
        inside = live[:, None] & (dims < DIM)[None, :]
        q = tl.load(q_at + at, mask=inside, other=0.0).to(tl.float32)
        top = tl.full((QUERIES,), float("-inf"), tl.float32)
        total = tl.zeros((QUERIES,), tl.float32)
        out = tl.zeros((QUERIES, PAD), tl.float32)
        for tile in range(CHUNK // TILE):
            position = chunk * CHUNK + tile * TILE + tl.arange(0, TILE)
            here = (head * slots + position)[:, None] * DIM + dims[None, :]
            stored = (position < last)[:, None] & (dims < DIM)[None, :]
            k = tl.load(k_at + here, mask=stored, other=0.0).to(tl.float32)
            v = tl.load(v_at + here, mask=stored, other=0.0).to(tl.float32)
            seen = position[None, :] < cut[:, None]
            top, total, out = _step(q, k, v, seen, scale, top, total, out, PRECISION)
        # [chunks, Hkv, G * W, ...]
        row = (chunk * tl.num_programs(2) + head) * rows + row
        tl.store(out_at + row[:, None] * PAD + dims[None, :], out, mask=live[:, None])
        tl.store(sums_at + 2 * row, top, mask=live)
        tl.store(sums_at + 2 * row + 1, total, mask=live)


@triton.jit
def _near_kernel(
    q_at, k_at, v_at, length_at, depth_at, path_at, part_at, sums_at, out_at, scale, width, slots,
    GROUP: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr, LONGEST: tl.constexpr,
    NEAR: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr, QUERIES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One row of the pass and one key head: its chunks in order, then its own last positions."""
    row, head = tl.program_id(0), tl.program_id(1)
    group, dims = tl.arange(0, QUERIES), tl.arange(0, PAD)
    live = group < GROUP
    length = tl.load(length_at)
    position = length + tl.load(depth_at + row)
    cut = _cut(position, NEAR)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    out = tl.zeros((QUERIES, PAD), tl.float32)
    # 1) The far part.
    query = head * GROUP * width + group * width + row
    for chunk in range((cut + CHUNK - 1) // CHUNK):
        part = chunk * tl.num_programs(1) * GROUP * width + query
        more = tl.load(part_at + part[:, None] * PAD + dims[None, :], mask=live[:, None], other=0.0)
        their_top = tl.load(sums_at + 2 * part, mask=live, other=float("-inf"))
        their_total = tl.load(sums_at + 2 * part + 1, mask=live, other=0.0)
        new_top = tl.maximum(top, their_top)
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        ours, theirs = tl.exp(top - base), tl.exp(their_top - base)
        total = total * ours + their_total * theirs
        out = out * ours[:, None] + more * theirs[:, None]
        top = new_top
    # 2) The last positions, wherever the row's path put them.
    at = query[:, None] * DIM + dims[None, :]
    inside = live[:, None] & (dims < DIM)[None, :]
    q = tl.load(q_at + at, mask=inside, other=0.0).to(tl.float32)
    near = cut + tl.arange(0, TILE)
    seen, below = near <= position, near - length
    node = tl.load(path_at + row * LONGEST + below, mask=seen & (below >= 0), other=0)
    slot = tl.where(below >= 0, length + node, near)
    here = (head * slots + slot)[:, None] * DIM + dims[None, :]
    stored = seen[:, None] & (dims < DIM)[None, :]
    k = tl.load(k_at + here, mask=stored, other=0.0).to(tl.float32)
    v = tl.load(v_at + here, mask=stored, other=0.0).to(tl.float32)
    every = tl.broadcast_to(seen[None, :], (QUERIES, TILE))
    top, total, out = _step(q, k, v, every, scale, top, total, out, PRECISION)
    out = out / total[:, None]
    tl.store(out_at + at, out.to(out_at.dtype.element_ty), mask=inside)


class PositionAttention:
    """See the module.

    Args:
        group: query heads that share one key head, at most 16.
    """

    name = "triton, by position"

    def __init__(self, group: int):
        if group > QUERIES:
            raise ValueError(f"{group} query heads share a key head; at most {QUERIES} can")
        self.group = group

    def of(self, rows: Rows, capacity: int) -> Attend:
        """See :class:`.attention.Attention`."""
        width, longest = rows.path.shape
        path, chunks = rows.path.contiguous(), triton.cdiv(capacity, CHUNK)
        shared = {"NEAR": NEAR, "TILE": TILE, "CHUNK": CHUNK, "QUERIES": QUERIES}

        def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            _, heads, queries, dim = q.shape
            q, out = q.contiguous(), torch.empty_like(q)
            pad = max(16, triton.next_power_of_2(dim))
            parts = q.new_empty(chunks, heads, queries, pad, dtype=torch.float32)
            sums = q.new_empty(chunks, heads, queries, 2, dtype=torch.float32)
            precision = "ieee" if q.dtype == torch.float32 else "tf32"
            sizes = {"GROUP": self.group, "DIM": dim, "PAD": pad, "PRECISION": precision, **shared}
            _far_kernel[(chunks, triton.cdiv(queries, QUERIES), heads)](
                q, keys, values, rows.length, rows.depth, parts, sums, dim**-0.5, width, capacity,
                **sizes,
            )  # fmt: skip
            _near_kernel[(width, heads)](
                q, keys, values, rows.length, rows.depth, path, parts, sums, out, dim**-0.5, width,
                capacity, LONGEST=longest, **sizes,
            )  # fmt: skip
            return out

        return attend
