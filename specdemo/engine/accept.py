"""Which drafted tokens are kept, and which token the target adds: three rules over one tree of
candidates.

All three are lossless. *match* keeps the sample itself: every kept token is the one plain decoding
would have picked. *ratio* and *point-mass* keep the distribution: the text differs from plain
decoding's, its distribution does not. With a one-hot target distribution (greedy) the three
coincide. Pure functions; the only state is the generator that is handed in.

Rows are numbered as the target computes them: row 0 is what follows the anchor, row i + 1 what
follows node i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Protocol

import torch

from ..errors import UserError
from ..request import RULES
from .sampling import NOT_NUMBERS

if TYPE_CHECKING:
    from ..drafters.parts.base import Draft
    from ..totals import Rule


class Rows(Protocol):
    """The target's verdict, computed only for the rows that are asked for."""

    def pick(self, row: int) -> int:
        """The token the target itself chooses there (argmax, or Gumbel-max with noise keyed by
        position).
        """

    def probs(self, row: int) -> torch.Tensor:
        """``[V]`` float32, the target's processed distribution there (temperature, top-k, ...
        applied; one-hot when greedy).
        """


@dataclass
class Accepted:
    """What a round writes.

    Attributes:
        path: indices of the accepted nodes, from the anchor down.
        tokens: the accepted nodes' tokens and then the target's own: a correction, or a bonus when
            everything was accepted.
        chosen: which of ``draft.draws`` self-selection took, None where nothing was selected.
        target_scores: expected accepted tokens of each of ``draft.draws`` by the target's
            probabilities, where those decided, else empty.
    """

    path: list[int]
    tokens: list[int]
    chosen: int | None = None
    target_scores: list[float] = field(default_factory=list)

    @classmethod
    def along(cls, draft: Draft, path: list[int], token: int) -> Accepted:
        """The nodes of ``path``, then the target's own ``token``."""
        return cls(path, [*(draft.tokens[node] for node in path), token])

    @property
    def token(self) -> int:
        """The target's own token, the next anchor."""
        return self.tokens[-1]

    @property
    def rows(self) -> list[int]:
        """The target's row that chose each of ``tokens``."""
        return [0, *(node + 1 for node in self.path)]


class AcceptanceRng:
    """All randomness of one acceptance: at most ``most`` uniforms, drawn at once."""

    def __init__(self, generator: torch.Generator | None, most: int) -> None:
        device = generator.device if generator is not None else None
        self._uniforms = iter(
            torch.rand(most, generator=generator, device=device, dtype=torch.float64).tolist()
        )

    def bernoulli(self, chance: float) -> bool:
        """True with probability ``chance``. Strict, so that chance 0 (or NaN) never comes up and 1
        always does.
        """
        return next(self._uniforms) < chance

    def categorical(self, p: torch.Tensor) -> int:
        """A token from ``p`` [V] by inverting its running sum; never one of probability zero."""
        running = p.cumsum(0, dtype=torch.float64)
        total = float(running[-1])
        if not (total > 0 and math.isfinite(total)):
            raise UserError(NOT_NUMBERS)
        token = int(torch.searchsorted(running, next(self._uniforms) * total, right=True))
        # past the end only if the product was rounded up to the total
        return token if token < p.shape[0] else int(p.nonzero()[-1])


def accept(
    draft: Draft, rows: Rows, rule: Rule = "match", generator: torch.Generator | None = None
) -> Accepted:
    """Walk the draft from the anchor, keep what the rule allows, and add the target's own token.

    Args:
        draft: the candidates; an empty one yields the target's token alone.
        rows: the target's rows for this draft.
        rule: ``match``; ``ratio`` (Leviathan et al. 2023; recursive over siblings as in SpecInfer);
            ``point-mass`` (SpecDiff-2, sec. 5: accept with p(x); among ``draft.draws`` the one with
            the longest expected streak is taken first, Eq. 7).
        generator: randomness of *ratio* and *point-mass*; must be independent of the drafter's.

    Raises:
        UserError: *ratio* without ``draft.q``, or over siblings without ``draft.draws``; an unknown
            rule.
    """
    if rule == "match":
        return _walk(draft, range(len(draft.tokens)), rows.pick)
    if rule == "ratio":
        draws = _independent(draft)
        return _ratio(draft, draws, rows, AcceptanceRng(generator, sum(map(len, draws)) + 1))
    if rule == "point-mass":
        accept_rng = AcceptanceRng(generator, len(draft.tokens) + 1)
        if draft.draws:
            return _self_selection(draft, draft.draws, rows, accept_rng)
        return _point_mass(draft, rows, accept_rng)
    raise UserError(f"There is no acceptance rule “{rule}”; choose from: {', '.join(RULES)}.")


def _walk(draft: Draft, nodes: Iterable[int], choose: Callable[[int], int]) -> Accepted:
    """Follow the target's choices as long as they are among the drafted ``nodes``."""
    child = {(draft.parent[node], draft.tokens[node]): node for node in nodes}
    path: list[int] = []
    while True:
        last = path[-1] if path else -1
        token = choose(last + 1)
        node = child.get((last, token))
        if node is None:
            return Accepted.along(draft, path, token)
        path.append(node)


# -- point mass ------------------------------------------------------------------------------------


def _point_mass(draft: Draft, rows: Rows, accept_rng: AcceptanceRng) -> Accepted:
    """Try siblings in order: accept x with p(x), else go on with p without x, renormalised.

    Drawing y ~ p once and keeping the sibling that equals y is the same distribution (each x is
    kept with p(x), and otherwise y follows p without the siblings), with no renormalising that
    could run out of mass.
    """
    return _walk(
        draft, range(len(draft.tokens)), lambda row: accept_rng.categorical(rows.probs(row))
    )


def _self_selection(
    draft: Draft, draws: list[list[int]], rows: Rows, accept_rng: AcceptanceRng
) -> Accepted:
    """SpecDiff-2's Algorithm 1 with its two slips mended: it stops at the first rejection and adds
    the bonus token.

    The choice depends on p and on the drafts, never on the draws that accept, so the point-mass
    rule after it stays exact.
    """
    probs = cache(rows.probs)
    # 1) The draft with the most expected tokens.
    scores = expected_by_target(draft, draws, probs)
    chosen = max(range(len(draws)), key=scores.__getitem__)
    # 2) Point mass along it alone.
    kept = _walk(draft, draws[chosen], lambda row: accept_rng.categorical(probs(row)))
    return Accepted(kept.path, kept.tokens, chosen, scores)


def expected_by_target(
    draft: Draft, draws: list[list[int]], probs: Callable[[int], torch.Tensor]
) -> list[float]:
    """Of every draft the tokens that the point-mass rule is expected to accept: Σₘ Πⱼ≤ₘ p(xⱼ)
    (SpecDiff-2, eq. 7).

    Args:
        probs: ``[V]`` of a row, see :class:`Rows`.
    """
    p = {
        node: float(probs(draft.parent[node] + 1)[draft.tokens[node]])
        for node in {n for draw in draws for n in draw}
    }
    return [sum(accumulate((p[node] for node in draw), mul)) for draw in draws]


# -- ratio -----------------------------------------------------------------------------------------


def _independent(draft: Draft) -> list[list[int]]:
    """The drafts to try in order; a chain is a single one."""
    if not draft.tokens:
        return []
    if draft.q is None:
        raise UserError(
            "The ratio rule needs the distribution every drafted token was sampled from, which this"
            " method does not give; choose match or point-mass."
        )
    if draft.draws is not None:
        return draft.draws
    if len(set(draft.parent)) < len(draft.parent):
        raise UserError(
            "The ratio rule over a tree needs the independent drafts it was merged from, which this"
            " method does not give; choose match or point-mass."
        )
    return [_chain(draft.parent)]


def _chain(parent: list[int]) -> list[int]:
    below = {above: node for node, above in enumerate(parent)}
    chain = [below[-1]]
    while chain[-1] in below:
        chain.append(below[chain[-1]])
    return chain


def _ratio(draft: Draft, draws: list[list[int]], rows: Rows, accept_rng: AcceptanceRng) -> Accepted:
    """Recursive rejection: each draft that agrees with the path so far may place its next token;
    each failure takes its q out of p.

    Exact when the drafts are independent and q is the distribution each token was sampled from,
    given what was fixed before it. A token drafted twice is tried twice: its second try fails, but
    takes q out of p once more.
    """
    agreeing = list(range(len(draws)))
    path: list[int] = []
    while True:
        depth, last = len(path), path[-1] if path else -1
        p = rows.probs(last + 1)
        agreeing = [k for k in agreeing if len(draws[k]) > depth]
        for k in agreeing:
            node = draws[k][depth]
            q = _padded(_proposal(draft, node, k, depth), p.shape[0])
            p_x, q_x = float(p[draft.tokens[node]]), float(q[draft.tokens[node]])
            if accept_rng.bernoulli(p_x / q_x if q_x > 0 else 0.0):
                break
            p = _residual(p, q)
        else:
            return Accepted.along(draft, path, accept_rng.categorical(p))
        path.append(node)
        agreeing = [k for k in agreeing if draws[k][depth] == node]


def _proposal(draft: Draft, node: int, draw: int, depth: int) -> torch.Tensor:
    """``[V]`` the distribution a node was sampled from, see ``Draft.q``."""
    assert draft.q is not None
    by_node = isinstance(draft.q, torch.Tensor) and draft.q.dim() == 2
    return draft.q[node] if by_node else draft.q[draw][depth]


def _residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """norm((p - q)+), or p itself where nothing (or NaN) is left."""
    rest = (p - q).clamp_min(0)
    mass = float(rest.sum())
    return rest / mass if mass > 0 and math.isfinite(mass) else p


def _padded(q: torch.Tensor, size: int) -> torch.Tensor:
    """q over ``size`` ids: targets pad their vocabulary, and no drafter draws from the padding."""
    missing = size - q.shape[0]
    if missing < 0:
        raise UserError(
            "The drafter's vocabulary is larger than the target's; choose a drafter made for this"
            " target."
        )
    return torch.nn.functional.pad(q, (0, missing)) if missing else q
