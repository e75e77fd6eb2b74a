"""What must hold on this very device before rounds run there: rows whose bits do not depend on
their place, and a kernel that computes attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..target import Target
from .attention import Attention, DoubleAttention, Rows
from .choose import Processing
from .rounds import LaneGraphs
from .state import packed_draft

# committed tokens before the rows that are compared: on both sides of the cuts that attention makes
# by position, and where it is long
CONTEXTS = (40, 61, 190, 383)
TEXT = 6  # tokens that are read in every way

# parents of a tree, and which of its nodes are the text's; the others are wrong
TREE = ((-1, 0, -1, 2, 2, 4, 5, 6, 5), (2, 4, 5, 6, 7))


def arbitrary_ids(target: Target, step: int, first: int, count: int) -> list[int]:
    """``count`` token ids that mean nothing."""
    return [(step * i + first) % (target.vocab_size - 1) for i in range(count)]


@torch.inference_mode()
def unequal_rows(graphs: LaneGraphs, context: int) -> int:
    """How many of ``TEXT`` rows behind ``context`` tokens do not have the very logits that they
    have one a pass, in two other layouts: a chain, and a tree among wrong branches.
    """
    target, state = graphs.target, graphs.state
    verify = graphs.verify(Processing())
    text = arbitrary_ids(target, 91, 7, TEXT)
    state.cache.length = 0
    target.prefill(state.cache, arbitrary_ids(target, 53, 29, context))

    def rows(at: int, anchor: int, tokens: Sequence[int], parent: Sequence[int]) -> torch.Tensor:
        state.length.fill_(at)
        state.anchor.fill_(anchor)
        state.upload(list(tokens), list(parent))
        verify()
        return state.logits.clone()

    # 1) One a pass, each committed by the next.
    alone = torch.stack([rows(context + i, token, [], [])[0] for i, token in enumerate(text)])
    # 2) As one chain.
    chain = rows(context, text[0], text[1:], range(-1, TEXT - 2))[:TEXT]
    # 3) As a tree: the text's nodes among others.
    parent, places = TREE
    tokens = arbitrary_ids(target, 17, 3, len(parent))
    for token, node in zip(text[1:], places, strict=True):
        tokens[node] = token
    tree = rows(context, text[0], tokens, parent)[[0, *(node + 1 for node in places)]]
    bad = (alone != chain).any(1) | (alone != tree).any(1)
    return int(bad.sum())


@torch.inference_mode()
def attention_gap(ours: Attention, target: Target, capacity: int = 512, width: int = 16) -> float:
    """The largest difference from attention in float64, over several lengths, in units of half
    precision's last place at each row's largest value.

    Raises:
        ArithmeticError: bits change when the same nodes lie in other slots.
    """
    shape, group = target.shape, target.shape.heads // target.shape.kv_heads
    rng = torch.Generator().manual_seed(0)
    largest = 0.0
    for length in CONTEXTS:
        # two orders of one tree: a wrong branch first, or last
        orders = ([-1, 0, -1, 2, 3, 4], [-1, 0, 1, 2, -1, 4])
        moved = [0, 3, 4, 5, 6, 1, 2]  # the first order's rows as the second numbers them

        def made(*sizes: int) -> torch.Tensor:
            return torch.randn(*sizes, generator=rng).to(target.device, target.dtype)

        q = made(1, shape.kv_heads, group, width, shape.head_dim)
        k, v = (made(shape.kv_heads, capacity, shape.head_dim) for _ in range(2))
        outs = []
        for number, parent in enumerate(orders):
            rows = _rows_of(length, parent, width, target.device)
            if number:
                q[:, :, :, :7] = q[:, :, :, moved]
                for stored in (k, v):
                    stored[:, length : length + 7] = stored[:, [length + row for row in moved]]
            flat = q.reshape(1, shape.kv_heads, group * width, shape.head_dim)
            out = ours.of(rows, capacity)(flat, k, v)
            exact = DoubleAttention(group).of(rows, capacity)(flat.double(), k, v)
            unit = exact.abs().amax(-1, keepdim=True) * 2**-8
            largest = max(largest, float(((out.double() - exact).abs() / unit).max()))
            outs.append(out.view(shape.kv_heads, group, width, shape.head_dim)[:, :, :7])
        if not torch.equal(outs[0][:, :, moved], outs[1]):
            raise ArithmeticError("the same rows in other slots have other bits")
    return largest


def _rows_of(length: int, parent: list[int], width: int, device: torch.device) -> Rows:
    path = torch.tensor(packed_draft([1] * len(parent), parent, width))[:, 1:].to(device)
    on_path = path >= 0
    place = torch.tensor([length]).to(device)
    index = torch.arange(width, device=device)
    return Rows(place, path, on_path, on_path.sum(1) - 1, index)
