"""A finished round as a ``Verify`` event: what was kept, what was rejected, and with which
probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from ..drafters.parts.base import Draft
from ..events import KeptToken, NodeStatus, TokenSource, Verify
from .accept import Accepted

BEST = 5  # of the target's likeliest tokens are recorded at each kept position


class RoundSeconds(NamedTuple):
    """The three parts of a round on the lane's clock."""

    draft: float
    verify: float
    rest: float

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.rest


class DecidedRows(Protocol):
    """The rows of a pass after acceptance, as far as they were looked at.

    Attributes:
        logits: ``[n, V]``.
    """

    logits: torch.Tensor

    def top2_gap(self, row: int) -> float:
        """How much the two best choices of a kept token were apart, in units of logits."""

    def logprob(self, row: int, token: int) -> float:
        """The model's own log-probability of a token."""

    def rule_prob(self, row: int, token: int) -> float | None:
        """The token's probability where the rule used another than the model's own."""

    def best(self, row: int, n: int) -> list[tuple[int, float]]:
        """The model's own likeliest tokens with their probabilities; none where they stay on the
        device.
        """


@dataclass(frozen=True)
class Round:
    """A round that has been decided.

    Attributes:
        width: rows of the target's pass.
        kept: (token, text) of what survived the stop rule, in order; never more than
            ``accepted.tokens``.
        predicted_ms: what the costs say the round should take.
        clock: the lane's decode clock in seconds after it.
    """

    number: int
    draft: Draft
    rows: DecidedRows
    accepted: Accepted
    kept: list[tuple[int, str]]
    width: int
    seconds: RoundSeconds
    predicted_ms: float
    clock: float


def verify_event(done: Round, vocab: Callable[[list[int]], dict[str, str]], record: bool) -> Verify:
    """The ``Verify`` event of a round.

    Args:
        vocab: each id's own text.
        record: work out probabilities and ranks, which only matter when somebody looks.
    """
    draft, accepted = done.draft, done.accepted
    # only the rows on the accepted path are worked out
    looked_at = set(accepted.rows) if record else set()
    picks: list[int | None] = [None] * (len(draft.tokens) + 1)
    for row, token in zip(accepted.rows, accepted.tokens, strict=True):
        picks[row] = token
    kept = _kept_tokens(done, record)
    looked = [(n, above + 1) for n, above in enumerate(draft.parent) if above + 1 in looked_at]
    top = [done.rows.best(row, BEST) for row in accepted.rows[: len(kept)]] if record else []
    return Verify(
        round=done.number,
        rows=done.width,
        kept=kept,
        status=_statuses(draft, accepted, len(kept)),
        p=[
            math.exp(done.rows.logprob(parent + 1, token)) if parent + 1 in looked_at else None
            for parent, token in zip(draft.parent, draft.tokens, strict=True)
        ],
        picks=picks,
        cut=len(accepted.tokens) - len(kept),
        draft_seconds=done.seconds.draft,
        verify_seconds=done.seconds.verify,
        rest_seconds=done.seconds.rest,
        predicted_ms=done.predicted_ms,
        clock=done.clock,
        vocab=vocab(
            [*(one["id"] for one in kept), *accepted.tokens, *(t for best in top for t, _ in best)]
        ),
        top=top if any(top) else None,
        rule_p=_by_node(draft, {n: done.rows.rule_prob(row, draft.tokens[n]) for n, row in looked}),
        rule_q=_by_node(draft, {n: _rule_q(draft, n) for n, _ in looked}),
    )


def _by_node(draft: Draft, known: dict[int, float | None]) -> list[float | None] | None:
    """A number for each node; None where there is none at all."""
    if all(value is None for value in known.values()):
        return None
    return [known.get(node) for node in range(len(draft.tokens))]


def _rule_q(draft: Draft, node: int) -> float | None:
    """What the node was sampled with, where the rule needs it; of several drafts that share the
    node, the first one's.
    """
    if draft.q is None:
        return None
    token = draft.tokens[node]
    if isinstance(draft.q, torch.Tensor) and draft.q.dim() == 2:
        return float(draft.q[node][token])
    owners = ((k, draw.index(node)) for k, draw in enumerate(draft.draws or ()) if node in draw)
    draw, depth = next(owners)
    return float(draft.q[draw][depth][token])


def _statuses(draft: Draft, accepted: Accepted, kept: int) -> list[NodeStatus]:
    """A word for each node, of whose path the first ``kept`` tokens were written."""
    on_path, written = set(accepted.path), set(accepted.path[:kept])
    walked = {-1, *accepted.path}

    def status(node: int) -> NodeStatus:
        if node in written:
            return "accepted"
        if node in on_path:
            return "dropped"
        return "rejected" if draft.parent[node] in walked else "unreached"

    return [status(node) for node in range(len(draft.tokens))]


def _kept_tokens(done: Round, record: bool) -> list[KeptToken]:
    draft, accepted = done.draft, done.accepted
    last = accepted.path[-1] if accepted.path else -1
    target_source: TokenSource = "correction"
    if not draft.tokens:
        target_source = "plain"
    elif accepted.path and last not in draft.parent:
        target_source = "bonus"
    kept: list[KeptToken] = []
    for index, (token, text) in enumerate(done.kept):
        node = accepted.path[index] if index < len(accepted.path) else None
        logprob = done.rows.logprob(accepted.rows[index], token) if record else None
        kept.append(
            {
                "id": token,
                "text": text,
                "source": target_source if node is None else "accepted",
                "node": node,
                "p": None if logprob is None else math.exp(logprob),
                "logprob": logprob,
                "q": None if node is None else draft.probs[node],
                "rank": _rank(draft, token, index) if record else None,
                "step": _settled_step(draft, token, index) if record else None,
            }
        )
    return kept


def _rank(draft: Draft, token: int, index: int) -> int | None:
    """Place of the token among the drafter's recorded candidates at that depth (1 = first)."""
    for frame in draft.frames:
        if index < len(frame.top) and frame.top[index]:
            ids = [int(i) for i, _ in frame.top[index]]
            return ids.index(token) + 1 if token in ids else None
    return None


def _settled_step(draft: Draft, token: int, index: int) -> int | None:
    """The denoising step after which the position held this token for good, by the frames of the
    first row.
    """
    first = draft.frames[0].row if draft.frames else 0
    steps = [f for f in draft.frames if f.row == first and index < len(f.ids)]
    if not steps or steps[-1].ids[index] != token:
        return None
    settled = steps[-1].step
    for frame in reversed(steps):
        if frame.masked[index] or frame.ids[index] != token:
            break
        settled = frame.step
    return settled
