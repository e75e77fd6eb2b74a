"""Candidate trees: drafts merged by their common prefixes, the best-first tree of a table of
marginals, and how many nodes pay.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .base import Draft

# token, its probability, the state it leads to (None: nothing is known), a tag kept with its node
Choice = tuple[int, float, Any, Any]


@dataclass
class Trie:
    """A growing tree over the anchor in which two children of one parent never share a token;
    parents come before children.
    """

    limit: int
    tokens: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    probs: list[float | None] = field(default_factory=list)
    origin: list[str] = field(default_factory=list)
    children: dict[tuple[int, int], int] = field(default_factory=dict)

    def child(self, parent: int, token: int, prob: float | None, origin: str) -> int | None:
        """Index of that child, made if it is new; None if the tree is full."""
        at = self.children.get((parent, token))
        if at is None and len(self.tokens) < self.limit:
            at = self.children[parent, token] = len(self.tokens)
            self.tokens.append(token)
            self.parent.append(parent)
            self.probs.append(prob)
            self.origin.append(origin)
        return at

    def add(
        self,
        ids: Sequence[int],
        probs: Sequence[float | None] | None = None,
        origin: str = "draft",
        parent: int = -1,
    ) -> list[int]:
        """Merge one chain; returns its node indices, fewer than its ids where the limit cut it."""
        path: list[int] = []
        for i, token in enumerate(ids):
            at = self.child(parent, token, probs[i] if probs else None, origin)
            if at is None:
                break
            path.append(at)
            parent = at
        return path

    def draft(self, **more: Any) -> Draft:
        """The tree as the engine takes it."""
        return Draft(self.tokens, self.parent, self.probs, origin=self.origin, **more)


class Node(NamedTuple):
    """One node of :func:`best_first`: its parent's index (-1 = the anchor), its token, its own and
    its path's probability, and its choice's tag.
    """

    parent: int
    token: int
    prob: float
    weight: float
    tag: Any


def best_first(
    expand: Callable[[Any], Sequence[Choice]], start: Any, budget: int, floor: float = 0.0
) -> list[Node]:
    """The ``budget`` likeliest nodes of a tree of choices, likeliest first (DDTree, arXiv
    2604.12989, where choices may depend on the path).

    Args:
        expand: the choices in a state as (token, probability, next state or None, tag), likeliest
            first; asked once for every node taken. For what one pass says, see
            :meth:`.candidates.Table.choices`.
        start: state of the anchor.
        budget: most nodes.
        floor: nodes whose path is less likely than this are left out.
    Returns:
        Nodes, every prefix of which is a tree; no tree of that size has a larger sum of path
        probabilities.
    """
    nodes: list[Node] = []
    # -path probability, tie-break, parent, rank, parent's path probability, choices
    heap: list[tuple[float, int, int, int, float, Sequence[Choice]]] = []
    made = 0

    def offer(parent: int, rank: int, above: float, choices: Sequence[Choice]) -> None:
        nonlocal made
        if rank < len(choices):
            heapq.heappush(heap, (-above * choices[rank][1], made, parent, rank, above, choices))
            made += 1

    offer(-1, 0, 1.0, expand(start))
    while heap and len(nodes) < budget:
        weight, _, parent, rank, above, choices = heapq.heappop(heap)
        if -weight <= floor:
            break
        token, prob, after, tag = choices[rank]
        nodes.append(Node(parent, token, prob, -weight, tag))
        offer(parent, rank + 1, above, choices)
        if after is not None:
            offer(len(nodes) - 1, 0, -weight, expand(after))
    return nodes


def nodes_that_pay(
    weights: Sequence[float], row_ms: Callable[[int], float], draft_ms: float
) -> tuple[int, float]:
    """How many of the likeliest nodes to verify so that expected tokens per millisecond are highest
    (CaDDTree, arXiv 2606.01813).

    Args:
        weights: probability that each node is reached and right, falling.
        row_ms: expected milliseconds of a target pass of that many rows (anchor included).
        draft_ms: milliseconds the draft has cost already.
    Returns:
        The number of nodes and the expected tokens per millisecond with them. All sizes are looked
        at: a measured curve has steps.
    """
    best, best_rate, expected = 0, 1.0 / max(row_ms(1) + draft_ms, 1e-9), 1.0
    for n, weight in enumerate(weights, 1):
        expected += weight
        rate = expected / max(row_ms(n + 1) + draft_ms, 1e-9)
        if rate > best_rate:
            best, best_rate = n, rate
    return best, best_rate


def expected_streak(probs: Sequence[float]) -> float:
    """Σₘ Πⱼ≤ₘ pⱼ, the expected number of accepted tokens of one chain (SpecDiff-2, arXiv
    2511.00606, eq. 7).
    """
    total, product = 0.0, 1.0
    for p in probs:
        product *= p
        total += product
    return total


def boundary_scores(conf: Sequence[float]) -> list[float]:
    """r(i) = (Πₖ≤ᵢ cₖ)·(1 − cᵢ₊₁): how likely the first rejection comes right after i accepted
    tokens (D²SD, arXiv 2606.04446, eq. 4).

    ``conf[k-1]`` is c_k; the result runs over i = 0 … len(conf) − 1.
    """
    scores, product = [], 1.0
    for c in conf:
        scores.append(product * (1.0 - c))
        product *= c
    return scores


def branching(parent: Sequence[int]) -> list[int]:
    """Depths i along the tree's first path after which it branches: where the tree itself expects a
    boundary.
    """
    children: dict[int, list[int]] = {}
    for node, above in enumerate(parent):
        children.setdefault(above, []).append(node)
    out, at, depth = [], -1, 0
    while at in children:
        if len(children[at]) > 1:
            out.append(depth)
        at, depth = children[at][0], depth + 1
    return out
