"""Position-wise acceptance α̃_j of SpecDiff-2 (arXiv 2511.00606, Eq. 4, Fig. 2): how much of the
target's probability a block's marginals share at each slot, along text the target wrote.
"""

from __future__ import annotations

import torch


@torch.no_grad()
def expected_acceptance(
    hidden: torch.Tensor,
    states: torch.Tensor,
    whole_head: torch.Tensor,
    vocab_ids: torch.Tensor | None,
) -> torch.Tensor:
    """``[R]`` Σ_v P(v)·q(v), the chance that a token drawn from q passes the target's point-mass
    rule, both at temperature 1.

    Args:
        hidden: ``[R, H]`` drafter states. states: ``[R, H]`` the target's last states for the same
            tokens. whole_head: ``[V, H]`` of the target.
        vocab_ids: ``[Vd]`` tokens that can be drafted, None = all; q is 0 elsewhere.
    """
    p = (states.to(whole_head.dtype) @ whole_head.T).float().softmax(-1)
    logits = hidden.to(whole_head.dtype) @ whole_head.T
    if vocab_ids is not None:
        logits, p = logits[:, vocab_ids], p[:, vocab_ids]
    return (logits.float().softmax(-1) * p).sum(-1)


class Overlap:
    """Mean of :func:`expected_acceptance` by slot, over any number of rows."""

    def __init__(self, depth: int):
        self.total, self.count = torch.zeros(depth), torch.zeros(depth)

    def add(
        self,
        hidden: torch.Tensor,
        last: torch.Tensor,
        anchors: torch.Tensor,
        answer: torch.Tensor,
        whole_head: torch.Tensor,
        vocab_ids: torch.Tensor | None,
    ) -> None:
        """Take in blocks of one row.

        Args:
            hidden: ``[A, B, H]`` states of blocks that show nothing but their anchor. last: ``[L,
                H]`` the target's last states. anchors: ``[A]``. answer: ``[L]`` bool; slots behind
                the answer's end do not count.
        """
        inside = torch.ones_like(anchors, dtype=torch.bool)
        end = len(answer) - 1
        for j in range(len(self.total)):
            spot = anchors + j
            inside &= (spot < end) & answer[(spot + 1).clamp(max=end)]
            states = last[spot.clamp(max=end)]
            share = expected_acceptance(hidden[:, j + 1], states, whole_head, vocab_ids)
            self.total[j] += (share * inside).sum().cpu()
            self.count[j] += inside.sum().cpu()

    def means(self) -> list[float | None]:
        """By slot; None where no block reached it."""
        return [
            round(float(total / count), 4) if count else None
            for total, count in zip(self.total, self.count, strict=True)
        ]
