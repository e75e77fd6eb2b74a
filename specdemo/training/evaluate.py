"""How many drafted tokens the target keeps, on text it wrote for held-out prompts.

Under the *match* rule the target's text does not depend on the drafter, so a whole chain race can
be computed from one teacher-forced reading: ``run[p]`` is how many tokens a drafter anchored at
position p gets right in a row, and a round at p leads to p + run[p] + 1. That is the race itself,
not an estimate of it (a test goes through a tiny model step by step and gets the same rounds), at a
hundredth of its cost. The text may be greedy or sampled; drafts are the drafter's first choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .diffusion_net import DiffusionNet
from .markov import Chain
from .objectives import ROW_MULTIPLE, chunk_rows, pad_rows
from .overlap import Overlap
from .packed import HiddenStateTaps, packed_blocks, read_by

ANCHORS_AT_ONCE = 128
REVEALED_STRIDE = 4  # scores after revealed tokens are taken at every fourth anchor


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
class Rounds:
    """Rounds of one or several races: ``accepted`` drafts and ``written`` tokens (the target's own
    included) of each round.
    """

    accepted: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    def scores(self, depth: int) -> dict[str, Any]:
        """Tokens per round, accepted drafts per round and the share of rounds that keep at least 1,
        2, ... ``depth`` drafts.
        """
        accepted, rounds = np.array(self.accepted or [0]), max(len(self.written), 1)
        return {
            "rounds": len(self.written),
            "tokens_per_round": round(float(sum(self.written) / rounds), 4),
            "accepted_per_round": round(float(accepted.mean()), 4),
            "kept_at_least": [round(float((accepted >= k).mean()), 4) for k in range(1, depth + 1)],
        }


def add_rounds(run: np.ndarray, answer: np.ndarray, into: Rounds) -> None:
    """Race over every answer of one row: ``run [L]`` right drafts from each anchor, ``answer [L]``
    bool. The first answer token is the prefill's.
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], answer.astype(np.int8), [0]))))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        at = int(first)
        while at < end - 1:
            accepted = min(int(run[at]), end - 1 - at)
            step = min(accepted + 1, end - 1 - at)
            into.accepted.append(accepted)
            into.written.append(step)
            at += step


@torch.no_grad()
def first_choice(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """``[R, H]`` to each row's best draft-vocabulary index, chunk by chunk."""
    return torch.cat(
        [
            (part.to(head.dtype) @ head.T).float().max(-1).indices
            for part in hidden.split(chunk_rows(head))
        ]
    )


class Evaluator:
    """Measures drafters against one target.

    Args:
        head: ``[Vd, H]`` rows of the target's head. vocab_ids: ``[Vd]`` draft ids to target ids,
            None = the same. depth: drafted tokens a round.
        precision: of autocast, None = off.
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
        self.target, self.net, self.head, self.depth = target, net, head, depth
        self.vocab_ids, self.precision = vocab_ids, precision
        self.embedding = target.get_input_embeddings().weight
        # of the net's Markov head, as it is when an evaluation begins
        self.chain: Chain | None = None

    def _first_choice(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., H]`` to target ids ``[...]``."""
        best = first_choice(hidden.reshape(-1, hidden.shape[-1]), self.head)
        best = best if self.vocab_ids is None else self.vocab_ids[best]
        return best.view(hidden.shape[:-1])

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.embedding.device.type, self.precision, enabled=self.precision is not None
        )

    def refresh_head(self) -> None:
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
    ) -> torch.Tensor:
        """``[A]`` right tokens in a row after ``revealed`` true ones, for ``anchors [A]`` of one
        row ``tokens [L]``, drafted in one pass.
        """
        hidden, ids, truth, masked = self._fill(tokens, anchors, features, revealed)
        if self.chain is not None:
            ids = self.chain.guess(hidden, ids, masked)
        else:
            ids = torch.where(masked, self._first_choice(hidden), ids)
        return (ids == truth)[: len(anchors), revealed + 1 :].long().cumprod(-1).sum(-1)

    def _fill(
        self, tokens: torch.Tensor, anchors: torch.Tensor, features: torch.Tensor, revealed: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The drafter's states ``[A, B, H]``, and ``[A, B]``: ids, the true tokens (-1 behind the
        row's end), masks. ``A`` is padded to a whole step.
        """
        B, L, A = self.depth + 1, len(tokens), len(anchors)
        if not isinstance(self.net, DiffusionNet):  # whose every block is a text
            anchors = torch.cat((anchors, anchors[-1:].expand(-A % ROW_MULTIPLE)))
        slots = torch.arange(B, device=tokens.device)
        where = (anchors[:, None] + slots)[None]
        truth = torch.where(where < L, tokens[where.clamp(max=L - 1)], -1)
        ids, masked = truth.clamp(min=0), slots.expand(truth.shape) > revealed
        with self._autocast():
            if isinstance(self.net, DiffusionNet):
                hidden = self.net.fill(tokens[None], ids, masked, anchors[None])
            else:
                hidden = packed_blocks(
                    self.net, self.embedding, features, ids, masked, anchors[None]
                )
        return hidden[0], ids[0], truth[0], masked[0]

    @torch.no_grad()
    def _overlap(
        self,
        tokens: torch.Tensor,
        anchors: torch.Tensor,
        features: torch.Tensor,
        last: torch.Tensor,
        answer: torch.Tensor,
        into: Overlap,
    ) -> None:
        """Add the position-wise acceptance of blocks at ``anchors [A]`` of one row."""
        hidden = self._fill(tokens, anchors, features, 0)[0]
        padded = torch.cat((anchors, anchors.new_full((len(hidden) - len(anchors),), len(answer))))
        whole_head = self.target.get_output_embeddings().weight
        into.add(hidden, last, padded, answer, whole_head, self.vocab_ids)

    @torch.no_grad()
    def ar_runs(self, tokens: torch.Tensor) -> torch.Tensor:
        """``[L]`` right tokens in a row of the autoregressive drafter, at most ``depth``: a chain
        is kept while each greedy choice is right.
        """
        with self._autocast():
            hidden = self.net(F.embedding(pad_rows(tokens)[None], self.embedding).float())[0]
        L = len(tokens)
        right = torch.zeros(L + self.depth, dtype=torch.long, device=tokens.device)
        right[: L - 1] = (self._first_choice(hidden)[: L - 1] == tokens[1:]).long()
        return right.unfold(0, self.depth, 1)[:L].cumprod(-1).sum(-1)

    def evaluate(self, passages: Passages, kind: str, revealed: tuple[int, ...] = ()) -> dict:
        """Scores over all passages and by category.

        Args:
            kind: ``ar`` or anything else (a block drafter).
            revealed: also the mean right tokens after that many true tokens were shown, over every
                ``REVEALED_STRIDE``-th anchor.
        Returns:
            ``{"all": scores, "by_category": {name: scores}, "after_revealed": {l: mean},
            "expected_acceptance": [by slot]}`` with scores as in :class:`Rounds`, the last two with
            ``revealed`` alone (:mod:`.overlap`).
        """
        total = Rounds()
        parts: dict[str, Rounds] = {}
        after: dict[int, list[int]] = {l: [] for l in revealed}
        overlap = Overlap(self.depth) if revealed else None
        taps = None if kind == "ar" else HiddenStateTaps(self.target, self.net.layer_ids)
        self.refresh_head()
        try:
            for row, mask, name in zip(
                passages.tokens, passages.answer, passages.category, strict=True
            ):
                row = row[: int(np.flatnonzero(mask)[-1]) + 1] if mask.any() else row[:1]
                mask = mask[: len(row)]
                run = self._row_runs(row, mask, taps, after, overlap)
                for into in (total, parts.setdefault(name, Rounds())):
                    add_rounds(run, mask, into)
        finally:
            if taps is not None:
                taps.close()
        scores: dict[str, Any] = {
            "all": total.scores(self.depth),
            "by_category": {name: r.scores(self.depth) for name, r in sorted(parts.items())},
        }
        if overlap:
            scores["expected_acceptance"] = overlap.means()
            scores["after_revealed"] = {
                str(l): round(float(np.mean(runs)), 4) if runs else None
                for l, runs in after.items()
            }
        return scores

    def _row_runs(
        self,
        row: np.ndarray,
        mask: np.ndarray,
        taps: HiddenStateTaps | None,
        after: dict[int, list[int]],
        overlap: Overlap | None,
    ) -> np.ndarray:
        """``[L]`` right tokens in a row from each anchor of ``row [L]`` under ``mask [L]``; adds
        those after revealed tokens to ``after`` and the position-wise acceptance to ``overlap``.

        Args:
            taps: of the target; None for an autoregressive drafter.
        """
        device = self.embedding.device
        tokens = torch.from_numpy(row.astype(np.int64)).to(device)
        if taps is None:
            return self.ar_runs(tokens).cpu().numpy()
        # the padding stands behind every anchor and is never seen
        padded = pad_rows(tokens)[None]
        features, last = taps.forward(padded)
        if not isinstance(self.net, DiffusionNet):
            features = read_by(self.net, self.embedding, padded, features)
        anchors = torch.from_numpy(np.flatnonzero(mask)).to(device)
        run = torch.zeros(len(row), dtype=torch.long, device=device)
        for some in anchors.split(ANCHORS_AT_ONCE):
            run[some] = self.block_runs(tokens, some, features)
        if overlap:
            answer = torch.from_numpy(mask).to(device)
            for some in anchors[::REVEALED_STRIDE].split(ANCHORS_AT_ONCE):
                self._overlap(tokens, some, features, last[0], answer, overlap)
        for l, runs in after.items():
            usable = anchors[::REVEALED_STRIDE]
            usable = usable[usable + l + 1 < len(row)]
            for some in usable.split(ANCHORS_AT_ONCE) if len(usable) else ():
                runs += self.block_runs(tokens, some, features, revealed=l).tolist()
        return run.cpu().numpy()
