"""Published heads that make a block's tokens follow from one another: DSpark's Markov head and
DFlash 2's candidate selector.

Both score a slot's token together with the token before it, from left to right, the first behind
the anchor. Where DSpark's bias may lift any token, the selector chooses among a few candidates.

Shapes: ``n`` slots, ``P`` tokens before a slot, ``C`` candidates of a slot, ``H`` hidden size,
``R`` rank, ``V`` the target's vocabulary, ``Vd`` the drafter's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

KEPT = 8  # likeliest candidates that are kept behind each token


class Followed(NamedTuple):
    """What may follow what.

    Attributes:
        columns: ``[n, C]`` candidates of each slot by itself, of which the first P are those in
            ``probs`` that stand before.
        alone: ``[n, C]`` their probabilities.
        after: ``[n - 1, P, k]`` columns that follow them, likeliest first.
        probs: ``[n - 1, P, k]`` their probabilities.
        confidence: ``[n]`` predicted acceptance of the likeliest chain, where the head has that.
    """

    columns: torch.Tensor
    alone: torch.Tensor
    after: torch.Tensor
    probs: torch.Tensor
    confidence: torch.Tensor | None = None


class PairHead(Protocol):
    """A head in use.

    Attributes:
        candidates: C, of a slot; tokens: P, of them that may stand before the next slot.
    """

    candidates: int
    tokens: int
    has_confidence: bool

    def follow(
        self,
        hidden: torch.Tensor,
        logits: torch.Tensor,
        starts: Sequence[int],
        before: torch.Tensor,
        vocab_ids: torch.Tensor | None,
    ) -> Followed:
        """Candidates of neighbouring slots.

        Args:
            hidden: ``[n, H]``. logits: ``[n, Vd]`` float32, by the block alone.
            starts: slots that stand behind a known token instead of behind a slot.
            before: ``[len(starts)]`` target ids of those tokens.
            vocab_ids: ``[Vd]`` target ids of the columns, None: the same ids.
        """
        ...


# -- DSpark (arXiv 2607.05147; github.com/deepseek-ai/DeepSpec) ------------------------------------


class MarkovPairs(nn.Module):
    """A bias on a slot's logits from the token before it: ``W2 W1[before]``, ``gated`` by the
    slot's state.
    """

    def __init__(self, size: int, rows: int, columns: int, rank: int, gated: bool):
        super().__init__()
        self.markov_w1 = nn.Embedding(rows, rank)
        self.markov_w2 = nn.Linear(rank, columns, bias=False)
        self.gate_proj = nn.Linear(size + rank, rank) if gated else None


class Confidence(nn.Module):
    """The logit of a slot's acceptance, from its state and, with ``rank``, the token before."""

    def __init__(self, size: int, rank: int):
        super().__init__()
        self.proj = nn.Linear(size + rank, 1)


class DsparkPairs:
    """:class:`MarkovPairs` in use.

    Args:
        kept: ``[Vd]`` bool, columns that may be proposed; None: all.
    """

    candidates = tokens = 12

    def __init__(
        self,
        head: MarkovPairs,
        confidence: Confidence | None,
        with_token: bool,
        like: torch.Tensor,
        kept: torch.Tensor | slice,
    ):
        def of(weight: torch.Tensor) -> torch.Tensor:
            return weight.detach().to(like)

        self.first = of(head.markov_w1.weight)  # [V, R]
        self.second = of(head.markov_w2.weight)[kept]  # [Vd, R]
        gate = head.gate_proj
        self.gate = None if gate is None else (of(gate.weight), of(gate.bias))
        self.proj = None
        if confidence is not None:
            self.proj = (of(confidence.proj.weight), of(confidence.proj.bias))
        self.with_token, self.has_confidence = with_token, confidence is not None

    def _bias(self, before: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """float32 ``[..., Vd]`` behind target ids ``[...]``, for slots of states ``[..., H]``."""
        inner = self.first[before]
        if self.gate is not None:
            weight, bias = self.gate
            rows = torch.cat((hidden.expand(*inner.shape[:-1], -1), inner), -1)
            inner = torch.sigmoid(nn.functional.linear(rows, weight, bias)) * inner
        return nn.functional.linear(inner, self.second).float()

    def follow(
        self,
        hidden: torch.Tensor,
        logits: torch.Tensor,
        starts: Sequence[int],
        before: torch.Tensor,
        vocab_ids: torch.Tensor | None,
    ) -> Followed:
        """See :class:`PairHead`. From left to right, as the chain of likeliest tokens, for which
        every token of the vocabulary is looked at, as in the published code, is always among the
        candidates of a slot: what follows these says how it goes on.
        """

        def target(columns: torch.Tensor) -> torch.Tensor:
            return columns if vocab_ids is None else vocab_ids[columns]

        known = dict(zip(starts, before.split(1), strict=True))
        chain: list[torch.Tensor] = []
        tokens: list[torch.Tensor] = []  # before each slot of the chain
        columns: list[torch.Tensor] = []
        alone: list[torch.Tensor] = []
        behind: list[torch.Tensor] = []  # [P, Vd] of each slot but the first
        for slot in range(len(hidden)):
            row, state = logits[slot : slot + 1], hidden[slot : slot + 1]
            if slot:
                behind.append(row + self._bias(target(columns[-1][0]), state))
            if slot in known:
                token = known[slot]
                row = row + self._bias(token, state)
                choice = row.argmax(-1)
            else:
                token = target(chain[-1])
                place = (columns[-1] == chain[-1]).int().argmax(-1)
                choice = behind[-1].index_select(0, place).argmax(-1)
            chain.append(choice)
            tokens.append(token)
            for kept, new in zip(
                (alone, columns), with_chain(row, choice, self.candidates), strict=True
            ):
                kept.append(new)
        rows = columns[0].shape[-1]
        scores = torch.stack(behind) if behind else logits.new_empty(0, rows, logits.shape[-1])
        probs, after = scores.softmax(-1).topk(min(KEPT, scores.shape[-1]), -1)
        confidence = self._confidence(hidden, torch.cat(tokens))
        return Followed(torch.cat(columns), torch.cat(alone), after, probs, confidence)

    def _confidence(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor | None:
        if self.proj is None:
            return None
        rows = torch.cat((hidden, self.first[before]), -1) if self.with_token else hidden
        return torch.sigmoid(nn.functional.linear(rows, *self.proj).float())[:, 0]


def with_chain(
    logits: torch.Tensor, chain: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and columns ``[n, C]`` of the likeliest candidates of ``logits [n, Vd]``; where
    ``chain [n]`` is not among them it takes the last place.
    """
    probs = logits.softmax(-1)
    columns = probs.topk(min(count, probs.shape[-1]), -1).indices
    absent = (columns != chain[:, None]).all(-1)
    columns[:, -1] = torch.where(absent, chain, columns[:, -1])
    return probs.gather(-1, columns), columns


# -- DFlash 2 (github.com/z-lab/dflash) ------------------------------------------------------------


class CandidateSelector(nn.Module):
    """Scores a slot's candidate behind a token: ``<pred[before] * (P h), succ[candidate]>``."""

    def __init__(self, size: int, rows: int, rank: int):
        super().__init__()
        self.predecessor_codebook = nn.Embedding(rows, rank)
        self.successor_codebook = nn.Embedding(rows, rank)
        self.hidden_projection = nn.Linear(size, rank, bias=False)


class SelectorPairs:
    """:class:`CandidateSelector` in use: added to the logits of a slot's likeliest ``candidates``,
    which share the probability that they have together by the block alone.
    """

    has_confidence = False

    def __init__(self, head: CandidateSelector, candidates: int, like: torch.Tensor):
        self.candidates = self.tokens = candidates
        self.before = head.predecessor_codebook.weight.detach().to(like)
        self.candidate = head.successor_codebook.weight.detach().to(like)
        self.state = head.hidden_projection.weight.detach().to(like)

    def follow(
        self,
        hidden: torch.Tensor,
        logits: torch.Tensor,
        starts: Sequence[int],
        before: torch.Tensor,
        vocab_ids: torch.Tensor | None,
    ) -> Followed:
        """See :class:`PairHead`."""
        unary, columns = logits.topk(min(self.candidates, logits.shape[-1]), -1)
        alone = (unary - logits.logsumexp(-1, keepdim=True)).exp()
        together = alone.sum(-1, keepdim=True)
        state = nn.functional.linear(hidden, self.state)

        def behind(slots: Any, tokens: torch.Tensor) -> torch.Tensor:
            """Probabilities ``[m, P, C]`` of the slots' candidates behind ``tokens [m, P]``."""
            ids = columns[slots] if vocab_ids is None else vocab_ids[columns[slots]]
            inner = self.before[tokens] * state[slots][:, None]
            pairs = torch.matmul(inner, self.candidate[ids].transpose(1, 2))
            scores = unary[slots][:, None] + pairs.float()
            return scores.softmax(-1) * together[slots][:, None]

        # 1) a slot behind a known token: its candidates in another order
        first = torch.tensor(list(starts), device=logits.device)
        likeliest, order = behind(first, before[:, None])[:, 0].sort(-1, descending=True)
        alone = alone.index_copy(0, first, likeliest)
        unary = unary.index_copy(0, first, unary[first].gather(-1, order))
        columns = columns.index_copy(0, first, columns[first].gather(-1, order))
        # 2) what follows each of the candidates
        ids = columns if vocab_ids is None else vocab_ids[columns]
        probs, place = behind(slice(1, None), ids[:-1]).topk(min(KEPT, columns.shape[-1]), -1)
        after = columns[1:, None].expand(-1, place.shape[1], -1).gather(-1, place)
        return Followed(columns, alone, after, probs)
