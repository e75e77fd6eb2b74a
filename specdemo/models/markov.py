"""The Markov head: which of a slot's candidates follows the token chosen in the slot before.

A block drafter fills all slots at once, so neighbouring guesses may belong to different sentences.
A small head that bends a slot's logits by the token before it makes them follow from one another
(DSpark, arXiv 2607.05147); this one also sees the slot's state. It needs no further
pass of the network: one table answers for every pair of candidates of neighbouring slots.
Shapes: ``n`` slots, ``C`` candidates a slot, ``H`` hidden size, ``R`` rank, ``Vd`` draft
vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .linear import Linear

CANDIDATES = 32  # of a slot, in training and in use


class MarkovHead(nn.Module):
    """From a slot's state and the embedding of the token before it to a shift of that state; the
    bent logits are those of the shifted state.

    One further output shifts the log-probability of everything that is no candidate. A fresh head
    shifts nothing.
    """

    def __init__(self, size: int, rank: int):
        super().__init__()
        self.state, self.before, self.out = (
            nn.Linear(size, rank),
            nn.Linear(size, rank, bias=False),
            nn.Linear(rank, size + 1, bias=False),
        )
        nn.init.zeros_(self.out.weight)

    def forward(
        self, hidden: torch.Tensor, before: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """What is added to the log-probabilities of candidates and rest: ``[..., C + 1]``.

        Args:
            hidden, before: ``[..., H]`` states of the slots and target embeddings of the tokens
                before them. rows: ``[..., C, H]`` the target's head rows of the candidates.
        """
        shift = self.out(F.silu(self.state(unit(hidden)) + self.before(unit(before))))
        return torch.cat((torch.matmul(rows, shift[..., :-1, None])[..., 0], shift[..., -1:]), -1)


def unit(x: torch.Tensor) -> torch.Tensor:
    """``x`` in float32 with a mean square of one: states and embeddings on the same footing."""
    return F.normalize(x.float(), dim=-1) * x.shape[-1] ** 0.5


def shortlist(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The candidates of each slot, likeliest first: columns ``[..., C]`` of ``logits [..., Vd]``
    and their log-probabilities by the block alone.
    """
    best, columns = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    return columns, best - logits.logsumexp(-1, keepdim=True)


def with_rest(logp: torch.Tensor) -> torch.Tensor:
    """``[..., C]`` log-probabilities of candidates with that of everything else appended: ``[..., C
    + 1]``.
    """
    return torch.cat((logp, torch.log1p(-logp.exp().sum(-1, keepdim=True).clamp(max=1 - 1e-4))), -1)


class Follow:
    """The head in use. What depends on a word alone is worked out once for the whole draft
    vocabulary: ``2 x [Vd, R]``.

    Args:
        net: the trained head. embedding, rows: ``[Vd, H]`` of the target, for the draft vocabulary.
    """

    def __init__(self, net: MarkovHead, embedding: torch.Tensor, rows: torch.Tensor):
        dtype, out = rows.dtype, net.out.weight.detach().to(rows.device, torch.float32)
        weight = net.before.weight.detach().to(rows.device, torch.float32)
        self.before = torch.cat(
            [unit(part) @ weight.T for part in embedding.detach().split(8192)]
        ).to(dtype)
        # the last row is everything else
        self.words = torch.cat(
            [part.float() @ out[:-1] for part in rows.detach().split(8192)] + [out[-1:]]
        ).to(dtype)
        self.state, self.bias = (
            Linear(net.state.weight, rows.device, dtype),
            net.state.bias.detach().to(rows),
        )

    @torch.no_grad()
    def __call__(
        self, hidden: torch.Tensor, before: torch.Tensor, columns: torch.Tensor, logp: torch.Tensor
    ) -> torch.Tensor:
        """Probabilities ``[n, P, C]`` of the candidates of n slots behind each of P tokens.

        Args:
            hidden: ``[n, H]`` states. before: ``[n, P]`` and columns: ``[n, C]`` draft vocabulary;
                logp: ``[n, C]`` by the block alone, float32.
        """
        state = self.state(F.rms_norm(hidden, hidden.shape[-1:], eps=1e-6)) + self.bias
        inner = F.silu(F.embedding(before, self.before) + state[:, None])
        words = F.embedding(F.pad(columns, (0, 1), value=len(self.words) - 1), self.words)
        bend = torch.matmul(inner, words.transpose(1, 2)).float()
        return (bend + with_rest(logp)[:, None]).softmax(-1)[..., :-1]
