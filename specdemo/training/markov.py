"""Training a block drafter's Markov head, and its greedy chains: the block's states stay as they
are, only the head learns (DSpark, arXiv 2607.05147).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..models.markov import MarkovHead, MarkovTables, shortlist, with_rest
from .objectives import pad_rows

RANK = 512


def with_head(net: Any, rank: int = 0) -> Any:
    """``net`` with everything frozen but its Markov head, a new one if it has none (or another
    rank is asked for).
    """
    size = net.config.hidden_size
    if net.markov is None or (rank and rank != net.config.markov_rank):
        net.config.markov_rank = rank or RANK
        net.markov = MarkovHead(size, net.config.markov_rank)
    net.requires_grad_(False)
    net.markov.requires_grad_(True)
    return net


@torch.no_grad()
def candidates(
    hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, chunk: int = 2048
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the head chooses among.

    Args:
        hidden: ``[R, H]`` states. head: ``[Vd, H]``. labels: ``[R]`` index into the draft
            vocabulary.
    Returns:
        ``[R, C]`` columns, ``[R, C + 1]`` log-probabilities by the block alone, the last of
        everything else, and ``[R]`` where the label stands among them (C: it is no candidate).
    """
    parts = [shortlist((part.to(head.dtype) @ head.T).float()) for part in hidden.split(chunk)]
    columns = torch.cat([index for index, _ in parts])
    marginal = torch.cat([with_rest(logp) for _, logp in parts])
    hit = columns == labels[:, None]
    return columns, marginal, torch.where(hit.any(1), hit.int().argmax(1), columns.shape[1])


def markov_loss(
    net: Any,
    embedding: torch.Tensor,
    head: torch.Tensor,
    hidden: torch.Tensor,
    before: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor,
    chunk: int = 2048,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy over a slot's candidates and "anything else", given the true token before it.

    Args:
        hidden: ``[R, H]`` the block drafter's states. before: ``[R]`` target ids. labels: ``[R]``
            draft vocabulary. weight: ``[R]``.
    Returns:
        The weighted mean and ``[R]`` bool, whether the first choice is the label.
    """
    rows, hidden, before, labels, weight = (
        len(hidden),
        *(pad_rows(x) for x in (hidden, before, labels, weight)),
    )
    columns, marginal, place = candidates(hidden, head, labels, chunk)
    logits = marginal + net.markov(
        hidden, F.embedding(before, embedding), F.embedding(columns, head).float()
    )
    loss = F.cross_entropy(logits, place, reduction="none")
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6), (
        logits[:, :-1].argmax(1) == place
    )[:rows]


class Chain:
    """Greedy chains through blocks: every guess behind the guess, or the known token, before it."""

    def __init__(
        self, net: Any, embedding: torch.Tensor, head: torch.Tensor, vocab_ids: torch.Tensor | None
    ):
        ids = (
            torch.arange(len(head), device=head.device)
            if vocab_ids is None
            else vocab_ids.to(head.device)
        )
        self.tables, self.head, self.ids = MarkovTables(net.markov, embedding[ids], head), head, ids
        self.column = torch.full((len(embedding),), -1, device=head.device).scatter_(
            0, ids, torch.arange(len(ids), device=head.device)
        )

    @torch.no_grad()
    def guess(
        self, hidden: torch.Tensor, known: torch.Tensor, masked: torch.Tensor
    ) -> torch.Tensor:
        """``[A, B]`` target ids for states ``[A, B, H]``; ``known [A, B]`` stay where they are not
        ``masked``.

        A slot behind a token that the block was shown is decided by the block alone, which has seen
        that token itself.
        """
        out = known.clone()
        for k in range(1, known.shape[1]):
            state = hidden[:, k].to(self.head.dtype)
            columns, logp = shortlist((state @ self.head.T).float())
            before = self.column[out[:, k - 1]]
            probs = self.tables(state, before.clamp(min=0)[:, None], columns, logp)[:, 0]
            probs = torch.where((masked[:, k - 1] & (before >= 0))[:, None], probs, logp)
            choice = self.ids[columns.gather(1, probs.argmax(1, keepdim=True))[:, 0]]
            out[:, k] = torch.where(masked[:, k], choice, out[:, k])
        return out
