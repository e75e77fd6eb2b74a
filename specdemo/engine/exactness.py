"""Proof that nothing was lost: the answer again, one token a pass, compared bit for bit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ..request import Request
from ..totals import ExactCheck, FirstDifference
from .cost import VERIFY_WIDTH
from .graphs.lane import make_lane
from .lane import Lane

if TYPE_CHECKING:
    from .engine import Engine


def first_difference(one: Lane, other: Lane, prefix_only: bool = False) -> FirstDifference | None:
    """Where two lanes' outputs part, with the gap between ``other``'s two best logits there (0 = an
    exact tie, None = a filter left a single token); None if nowhere.
    """
    a, b = one.output, other.output
    for position, (mine, theirs) in enumerate(zip(a, b, strict=False)):
        if mine != theirs:
            gap = other.gaps[position]
            return {"position": position, "top2_gap": gap if math.isfinite(gap) else None}
    if len(a) != len(b) and not prefix_only:
        return {"position": min(len(a), len(b)), "top2_gap": None}
    return None


def check_exact(engine: Engine, request: Request, spec: Lane, limit: int) -> ExactCheck:
    """Compare a finished speculative lane with plain decoding at the fixed verify width (bit for
    bit) and with the one-row kernel (by token).
    """
    prompt = spec.ids[: spec.prompt_length]
    reference = (
        make_lane(engine, request, prompt, limit)
        if engine.rounds is not None
        else Lane(engine, request, prompt, limit, width=VERIFY_WIDTH)
    )
    one_row = Lane(engine, request, prompt, limit, width=1, attention="masked")
    _finish(reference)
    _finish(one_row)
    pairs = [(a.float(), b.float()) for a, b in zip(spec.logits, reference.logits, strict=False)]
    unequal = sum(not torch.equal(a, b) for a, b in pairs)
    difference = first_difference(spec, one_row)
    return {
        "identical": spec.output == reference.output and not unequal,
        "positions": len(pairs),
        "unequal": unequal,
        "max_difference": max((float((a - b).abs().max()) for a, b in pairs), default=0.0),
        "reference_width": reference.width,
        "one_row": {"identical": difference is None, "first_difference": difference},
    }


def _finish(lane: Lane) -> None:
    lane.prefill()
    while not lane.finish:
        lane.advance()
