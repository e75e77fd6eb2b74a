"""How many drafted tokens the target keeps, on text it wrote for held-out prompts.

Under the *match* rule the target's text does not depend on the drafter, so a whole chain race can
be computed from one teacher-forced
reading: ``run[p]`` = how many tokens a drafter anchored at position p gets right in a row, and a
round at p leads to p + run[p] + 1. That is
the race itself, not an estimate of it (a test walks a tiny model step by step and gets the same
rounds), at a hundredth of its cost. The text may be greedy or sampled; drafts are the drafter's
first choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .markov import Chain
from .objectives import STEP, chunk_rows, evened
from .packed import Taps, packed_blocks


@dataclass
class Passages:
    """Held-out text: ``tokens``, ``answer`` [N, L] (numpy) and one ``category`` a row."""

    tokens: np.ndarray
    answer: np.ndarray
    category: list[str]

    def some(self, count: int) -> Passages:
        """About ``count`` of them, evenly spread."""
        step = max(len(self.category) // count, 1)
        return Passages(self.tokens[::step], self.answer[::step], self.category[::step])


@dataclass
class Walk:
    """Rounds of one or several races: ``accepted`` drafts and ``written`` tokens (the target's own
    included) of each round.
    """

    accepted: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    def scores(self, depth: int) -> dict[str, Any]:
        """Tokens per round, accepted drafts per round and the share of rounds that keep at least 1,
        2, ... ``depth`` drafts.
        """
        got, rounds = np.array(self.accepted or [0]), max(len(self.written), 1)
        return {
            "rounds": len(self.written),
            "tokens_per_round": round(float(sum(self.written) / rounds), 4),
            "accepted_per_round": round(float(got.mean()), 4),
            "kept_at_least": [round(float((got >= k).mean()), 4) for k in range(1, depth + 1)],
        }


def walk(run: np.ndarray, answer: np.ndarray, into: Walk) -> None:
    """Race over every answer of one row: ``run [L]`` right drafts from each anchor, ``answer [L]``
    bool. The first answer token is the prefill's.
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], answer.astype(np.int8), [0]))))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        at = int(first)
        while at < end - 1:
            got = min(int(run[at]), end - 1 - at)
            step = min(got + 1, end - 1 - at)
            into.accepted.append(got)
            into.written.append(step)
            at += step


@torch.no_grad()
def first_choice(hidden: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``[R, H]`` to each row's best draft-vocabulary index and its probability, chunk by chunk."""
    best, sure = [], []
    for part in hidden.split(chunk_rows(head)):
        logits = (part.to(head.dtype) @ head.T).float()
        top, index = logits.max(-1)
        best.append(index)
        sure.append((top - logits.logsumexp(-1)).exp())
    return torch.cat(best), torch.cat(sure)


class Judge:
    """Measures drafters against one target. ``vocab_ids [Vd]`` maps draft ids to target ids, None =
    the same.
    """

    def __init__(
        self,
        target: Any,
        net: Any,
        head: torch.Tensor,
        vocab_ids: torch.Tensor | None,
        depth: int,
        precision: torch.dtype | None = None,
    ):
        self.target, self.net, self.head, self.vocab_ids, self.depth = (
            target,
            net,
            head,
            vocab_ids,
            depth,
        )
        self.embedding = target.get_input_embeddings().weight
        self.precision = precision
        # of the net's Markov head, as it is when a judgement begins
        self.chain: Chain | None = None

    def _guess(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best, sure = first_choice(hidden.reshape(-1, hidden.shape[-1]), self.head)
        best = best if self.vocab_ids is None else self.vocab_ids[best]
        return best.view(hidden.shape[:-1]), sure.view(hidden.shape[:-1])

    def look(self) -> None:
        """Take the net's Markov head, if it has one, as it is now."""
        self.chain = (
            Chain(self.net, self.embedding, self.head, self.vocab_ids)
            if getattr(self.net, "markov", None) is not None
            else None
        )

    @torch.no_grad()
    def block_runs(
        self,
        tokens: torch.Tensor,
        anchors: torch.Tensor,
        features: torch.Tensor,
        revealed: int = 0,
        steps: int = 1,
    ) -> torch.Tensor:
        """``[A]`` right tokens in a row after ``revealed`` true ones, for ``anchors [A]`` of one
        row ``tokens [L]``.

        ``steps`` > 1: the most confident guesses are fixed after each denoise step (equal shares),
        as ``specdiff`` does.
        """
        B, L, A = self.depth + 1, len(tokens), len(anchors)
        anchors = torch.cat((anchors, anchors[-1:].expand(-A % STEP)))
        where = (anchors[:, None] + torch.arange(B, device=tokens.device))[None]
        truth = torch.where(where < L, tokens[where.clamp(max=L - 1)], -1)
        ids, masked = (
            truth.clamp(min=0),
            torch.arange(B, device=tokens.device).expand(truth.shape) > revealed,
        )
        for step in range(steps):
            with torch.autocast(
                tokens.device.type, self.precision, enabled=self.precision is not None
            ):
                hidden = packed_blocks(
                    self.net, self.embedding, features, ids, masked, anchors[None]
                )
            if self.chain is not None and steps == 1:
                ids = self.chain.guess(hidden[0], ids[0], masked[0])[None]
                break
            guess, sure = self._guess(hidden)
            ids = torch.where(masked, guess, ids)
            left = (B - 1 - revealed) * (steps - 1 - step) // steps
            if left == 0:
                break
            order = torch.where(masked, sure, 2.0).argsort(-1)  # least sure first; these stay masks
            masked = torch.zeros_like(masked).scatter(-1, order[..., :left], True)
        return (ids == truth)[0, :A, revealed + 1 :].long().cumprod(-1).sum(-1)

    @torch.no_grad()
    def ar_runs(self, tokens: torch.Tensor) -> torch.Tensor:
        """``[L]`` right tokens in a row of the autoregressive drafter, at most ``depth``: a chain
        is kept while each greedy choice is right.
        """
        with torch.autocast(tokens.device.type, self.precision, enabled=self.precision is not None):
            hidden = self.net(F.embedding(evened(tokens)[None], self.embedding).float())[0]
        right = torch.zeros(len(tokens) + self.depth, dtype=torch.long, device=tokens.device)
        right[: len(tokens) - 1] = (self._guess(hidden)[0][: len(tokens) - 1] == tokens[1:]).long()
        return right.unfold(0, self.depth, 1)[: len(tokens)].cumprod(-1).sum(-1)

    def judge(
        self,
        passages: Passages,
        kind: str,
        revealed: tuple[int, ...] = (),
        steps: int = 1,
        anchors_at_once: int = 128,
        stride: int = 4,
    ) -> dict:
        """Scores over all passages and by category.

        Args:
            kind: ``ar`` or anything else (a block drafter).
            revealed: also the mean right tokens after that many true tokens were shown, over every
                ``stride``-th anchor.
        Returns:
            ``{"all": scores, "by_category": {name: scores}, "after_revealed": {l: mean}}`` with
            scores as in :class:`Walk`.
        """
        total, parts, after = Walk(), {}, {l: [] for l in revealed}
        taps = None if kind == "ar" else Taps(self.target, self.net.layer_ids)
        device = self.embedding.device
        self.look()
        try:
            for row, mask, name in zip(
                passages.tokens, passages.answer, passages.category, strict=True
            ):
                row = row[: int(np.flatnonzero(mask)[-1]) + 1] if mask.any() else row[:1]
                mask = mask[: len(row)]
                tokens = torch.from_numpy(row.astype(np.int64)).to(device)
                if taps is None:
                    run = self.ar_runs(tokens)
                else:
                    # what stands behind an anchor is never seen
                    features = taps.read(evened(tokens)[None])[0]
                    spots = torch.from_numpy(np.flatnonzero(mask)).to(device)
                    run = torch.zeros(len(row), dtype=torch.long, device=device)
                    for some in spots.split(anchors_at_once):
                        run[some] = self.block_runs(tokens, some, features, steps=steps)
                    for l in revealed:
                        usable = spots[::stride][spots[::stride] + l + 1 < len(row)]
                        for some in usable.split(anchors_at_once) if len(usable) else ():
                            after[l] += self.block_runs(tokens, some, features, revealed=l).tolist()
                for into in (total, parts.setdefault(name, Walk())):
                    walk(run.cpu().numpy(), mask, into)
        finally:
            if taps is not None:
                taps.close()
        out = {
            "all": total.scores(self.depth),
            "by_category": {n: w.scores(self.depth) for n, w in sorted(parts.items())},
        }
        return out | (
            {
                "after_revealed": {
                    str(l): round(float(np.mean(v)), 4) if v else None for l, v in after.items()
                }
            }
            if revealed
            else {}
        )
