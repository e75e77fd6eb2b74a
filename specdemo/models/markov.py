"""The Markov head: which of a slot's candidates follows the token chosen in the slot before.

A block drafter fills all slots at once, so neighbouring guesses may belong to different sentences.
A small head that shifts a slot's logits by the token before it makes them agree (DSpark, arXiv
2607.05147); this one also sees the slot's state. It needs no further pass of the network: one table
answers for every pair of candidates of neighbouring slots.

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
    """Shifts a slot's state by that state and the embedding of the token before it; the new logits
    are those of the shifted state.

    One further output shifts the log-probability of everything that is not a candidate. An
    untrained head shifts nothing.
    """

    def __init__(self, size: int, rank: int):
        super().__init__()
        self.state = nn.Linear(size, rank)
        self.before = nn.Linear(size, rank, bias=False)
        self.out = nn.Linear(rank, size + 1, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(
        self, hidden: torch.Tensor, before: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """What is added to the log-probabilities of candidates and rest.

        Args:
            hidden: ``[..., H]`` states of the slots.
            before: ``[..., H]`` target embeddings of the tokens before them.
            rows: ``[..., C, H]`` the target's head rows of the candidates.

        Returns:
            ``[..., C + 1]``, the rest last.
        """
        shift = self.out(F.silu(self.state(unit(hidden)) + self.before(unit(before))))
        return torch.cat((torch.matmul(rows, shift[..., :-1, None])[..., 0], shift[..., -1:]), -1)


def unit(x: torch.Tensor) -> torch.Tensor:
    """``x`` in float32 with a mean square of one, so that states and embeddings compare."""
    return F.normalize(x.float(), dim=-1) * x.shape[-1] ** 0.5


def shortlist(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The candidates of each slot, likeliest first: columns ``[..., C]`` of ``logits [..., Vd]``
    and their log-probabilities by the block alone.
    """
    best, columns = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    return columns, best - logits.logsumexp(-1, keepdim=True)


def with_rest(logp: torch.Tensor) -> torch.Tensor:
    """Candidates' log-probabilities ``[..., C]`` with that of everything else appended: ``[..., C +
    1]``.
    """
    return torch.cat((logp, torch.log1p(-logp.exp().sum(-1, keepdim=True).clamp(max=1 - 1e-4))), -1)


class MarkovTables:
    """The head in use. What depends on a token alone is computed once for the whole draft
    vocabulary: ``2 x [Vd, R]``.

    Args:
        head: the trained head.
        embedding: ``[Vd, H]`` of the target, for the draft vocabulary.
        rows: ``[Vd, H]`` of the target's head, for the draft vocabulary.
    """

    def __init__(self, head: MarkovHead, embedding: torch.Tensor, rows: torch.Tensor):
        dtype, device = rows.dtype, rows.device
        out = head.out.weight.detach().to(device, torch.float32)
        before = head.before.weight.detach().to(device, torch.float32)
        self.before = torch.cat(
            [unit(part) @ before.T for part in embedding.detach().split(8192)]
        ).to(dtype)
        # the last row is everything that is not a candidate
        self.candidates = torch.cat(
            [part.float() @ out[:-1] for part in rows.detach().split(8192)] + [out[-1:]]
        ).to(dtype)
        self.state = Linear(head.state.weight, device, dtype)
        self.bias = head.state.bias.detach().to(rows)

    @torch.no_grad()
    def __call__(
        self, hidden: torch.Tensor, before: torch.Tensor, columns: torch.Tensor, logp: torch.Tensor
    ) -> torch.Tensor:
        """Probabilities ``[n, P, C]`` of the candidates of n slots behind each of P tokens.

        Args:
            hidden: ``[n, H]`` states.
            before: ``[n, P]`` the tokens, as columns of the draft vocabulary.
            columns: ``[n, C]`` the candidates, likewise.
            logp: ``[n, C]`` the candidates' log-probabilities by the block alone, float32.
        """
        state = self.state(F.rms_norm(hidden, hidden.shape[-1:], eps=1e-6)) + self.bias
        inner = F.silu(F.embedding(before, self.before) + state[:, None])
        rest = len(self.candidates) - 1
        out = F.embedding(F.pad(columns, (0, 1), value=rest), self.candidates)
        shift = torch.matmul(inner, out.transpose(1, 2)).float()
        return (shift + with_rest(logp)[:, None]).softmax(-1)[..., :-1]
