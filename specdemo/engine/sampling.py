"""What the target would write at each verified position, exactly as one-by-one decoding would.

``Rows`` turns the logits of one pass into choices: penalties and filters see each row's own prefix
(prompt, output and that node's ancestors), and at temperature above 0 the choice is Gumbel-max with
noise keyed by (seed, absolute position, token), so the same position gives the same token whatever
was drafted around it. Rows are worked out only when asked for: filters sort the vocabulary, and a
round asks only for the rows on its accepted path.

Where two tokens have exactly the same score, the one with the lower id counts as the likelier, in
greedy decoding and in every filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
)

from ..drafters.parts.base import Draft
from ..errors import UserError
from ..request import Sampling
from .noise import Noise

NOT_NUMBERS = (
    "The target's logits are not numbers here (NaN or infinite); try dtype float32, a higher"
    " temperature, or another target."
)


class TopK(LogitsProcessor):
    """The ``k`` likeliest tokens. transformers' own keeps every token that ties with the last."""

    def __init__(self, k: int):
        self.k = k

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        last = scores.topk(min(self.k, scores.shape[-1]), dim=-1).values[..., -1:]
        tied = scores == last
        room = self.k - (scores > last).sum(-1, keepdim=True)
        drop = (scores < last) | (tied & (tied.cumsum(-1) > room))  # NaN stays, to be found
        return cast(torch.FloatTensor, scores.masked_fill(drop, float("-inf")))


class TopP(LogitsProcessor):
    """The likeliest tokens that together have probability ``p``, at least one; transformers' own
    sum, with ties in order.
    """

    def __init__(self, p: float):
        self.p = p

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        # unlikeliest first; among ties the highest id first
        ordered, order = scores.flip(-1).sort(dim=-1, stable=True)
        drop = ordered.softmax(-1).cumsum(-1) <= 1 - self.p
        drop[..., -1] = False
        drop = torch.empty_like(drop).scatter_(-1, order, drop).flip(-1)
        return cast(torch.FloatTensor, scores.masked_fill(drop, float("-inf")))


class MinP(LogitsProcessor):
    """The likeliest token, and all whose probability is above ``p`` times its own."""

    def __init__(self, p: float):
        self.lowest = math.log(p)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        best, first = scores.max(-1, keepdim=True)
        drop = (scores <= best + self.lowest).scatter_(-1, first, False)
        return cast(torch.FloatTensor, scores.masked_fill(drop, float("-inf")))


def processors(sampling: Sampling) -> LogitsProcessorList:
    """Penalty, temperature and filters in the order in which ``generate`` applies them."""
    chain = LogitsProcessorList()
    if sampling.repetition_penalty != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if not sampling.greedy:
        if sampling.temperature != 1:
            chain.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k:
            chain.append(TopK(sampling.top_k))
        if sampling.top_p < 1:
            chain.append(TopP(sampling.top_p))
        if sampling.min_p > 0:
            chain.append(MinP(sampling.min_p))
    return chain


class Coupling:
    """A drafter's logits with the target's noise: their largest is the token that the target would
    choose at this position if its logits were the drafter's (Gumbel coupling: Daliri, Musco,
    Suresh, "Coupling without communication and drafter-invariant speculative decoding", 2024).

    They are ``logits + temperature · noise``: in the drafter's units, so that their softmax says at
    any temperature how likely each token is to be that choice, and at 0 is the drafter's own. The
    target's filters and penalty are left out: with top-p 0.9 a filtered drafter lost what the noise
    had won, as the filters of two distributions do not keep the same tokens.
    """

    CANDIDATES = 64  # of a position; noise for the whole vocabulary would take milliseconds

    def __init__(self, temperature: float, noise: Noise):
        self.temperature, self.noise = temperature, noise

    def __call__(
        self, logits: torch.Tensor, positions: Sequence[int], vocab_ids: torch.Tensor | None
    ) -> torch.Tensor:
        """Scores ``[n, Vd]`` float32, −inf but for the candidates.

        Args:
            logits: ``[n, Vd]`` of the drafter. positions: the absolute position of each row.
            vocab_ids: ``[Vd]`` the target's ids of the columns; None: the same.
        """
        best, columns = logits.topk(min(self.CANDIDATES, logits.shape[-1]), dim=-1)
        ids = columns if vocab_ids is None else vocab_ids[columns]
        scores = best + self.temperature * self.noise.of(positions, ids)
        return torch.full_like(logits, float("-inf")).scatter_(-1, columns, scores)


class Rows:
    """The target's choices in one pass. Row 0 follows the anchor, row i + 1 follows node i.

    Args:
        logits: ``[n + 1, V]`` of the pass, any float dtype.
        prefix: every token up to and including the anchor.
        draft: the nodes; decides each row's own prefix.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        prefix: list[int],
        draft: Draft,
        sampling: Sampling,
        noise: Noise,
    ):
        self.logits, self.prefix, self.draft = logits, prefix, draft
        self.sampling, self.noise = sampling, noise
        self._chain = processors(sampling)
        self._scores: dict[int, torch.Tensor] = {}
        self._noised: dict[int, torch.Tensor] = {}
        self._logprobs: dict[int, torch.Tensor] = {}
        self._plain = sampling.greedy and not self._chain
        # On a GPU one reduction and one copy serve the whole round; on a CPU only the rows on the
        # path are worth reducing.
        self._greedy = _best(logits) if self._plain and logits.is_cuda else None

    def path(self, row: int) -> list[int]:
        """Tokens from the anchor's child down to this row's node."""
        out, node = [], row - 1
        while node >= 0:
            out.append(self.draft.tokens[node])
            node = self.draft.parent[node]
        return out[::-1]

    def scores(self, row: int) -> torch.Tensor:
        """Processed logits ``[V]`` float32 (filtered tokens are -inf)."""
        if row not in self._scores:
            raw = self.logits[row : row + 1].float()
            if self._chain:
                ids = torch.tensor([self.prefix + self.path(row)], device=raw.device)
                raw = self._chain(cast(torch.LongTensor, ids), cast(torch.FloatTensor, raw))
            self._scores[row] = raw[0]
        return self._scores[row]

    def pick(self, row: int) -> int:
        """The target's own token at this row.

        Raises:
            UserError: the row holds NaN or +inf, or nothing above −inf.
        """
        if self._greedy is not None:
            score, token = self._greedy[row]
        else:
            scores = self.logits[row] if self._plain else self._choice_scores(row)
            ((score, token),) = _best(scores[None])
        if not math.isfinite(score):
            raise UserError(NOT_NUMBERS)
        return int(token)

    def probs(self, row: int) -> torch.Tensor:
        """The distribution ``[V]`` float32 the target samples from; one-hot when greedy."""
        scores = self.scores(row)
        if self.sampling.greedy:
            return torch.zeros_like(scores).index_fill_(0, scores.argmax(), 1.0)
        return scores.softmax(-1)

    def logprob(self, row: int, token: int) -> float:
        """The model's own log-probability of a token, untouched by temperature and filters, for
        display.
        """
        if row not in self._logprobs:
            self._logprobs[row] = self.logits[row].float().log_softmax(-1).cpu()
        return float(self._logprobs[row][token])

    def rule_prob(self, row: int, token: int) -> float | None:
        """The token's probability where the target samples from something else than the model's
        own distribution; None where it does not.
        """
        if self.sampling.greedy or not self._chain:
            return None
        return float(self.probs(row)[token])

    def best(self, row: int, n: int) -> list[tuple[int, float]]:
        """The model's own ``n`` likeliest tokens of a row with their probabilities, for display."""
        self.logprob(row, 0)  # keeps the row's log-probabilities
        top = self._logprobs[row].topk(min(n, self.logits.shape[-1]))
        return list(zip(top.indices.tolist(), top.values.exp().tolist(), strict=True))

    def _choice_scores(self, row: int) -> torch.Tensor:
        """``[V]`` the scores whose largest is the token picked: processed logits, with this
        position's noise where the target samples.
        """
        scores = self.scores(row)
        if self.sampling.greedy:
            return scores
        if row not in self._noised:
            self._noised[row] = scores + self.noise.at(len(self.prefix) + len(self.path(row)))
        return self._noised[row]

    def top2_gap(self, row: int) -> float:
        """How much the two best choices were apart, in units of logits whatever the temperature: 0
        is an exact tie.
        """
        first, second = (
            (self.logits[row].float() if self._plain else self._choice_scores(row))
            .topk(2)
            .values.tolist()
        )
        return (first - second) * (1.0 if self.sampling.greedy else self.sampling.temperature)


def _best(scores: torch.Tensor) -> list[tuple[float, float]]:
    """The largest score of every row of ``[n, V]`` and the first token that has it, in one copy to
    the host; NaN counts as the largest.
    """
    best = scores.max(-1)  # several times faster than argmax in bf16
    return [(s, t) for s, t in torch.stack((best.values.double(), best.indices)).T.tolist()]
