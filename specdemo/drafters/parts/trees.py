"""Candidate trees: drafts merged by their common prefixes, the best-first tree, how many of its
nodes pay, and scores of a chain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .base import Draft

# token, its probability, the state it leads to (None: a leaf), a tag kept with its node
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
    # nodes that were asked for beyond the limit, as the tokens on their paths
    left_out: set[tuple[int, ...]] = field(default_factory=set)

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
    ) -> list[int]:
        """Merge one chain; returns its node indices, fewer than its ids where the limit cut it."""
        path: list[int] = []
        parent = -1
        for i, token in enumerate(ids):
            at = self.child(parent, token, probs[i] if probs else None, origin)
            if at is None:
                self.left_out |= {tuple(ids[: n + 1]) for n in range(i, len(ids))}
                break
            path.append(at)
            parent = at
        return path

    def draft(self, **more: Any) -> Draft:
        """The tree as the engine takes it."""
        return Draft(
            self.tokens,
            self.parent,
            self.probs,
            origin=self.origin,
            left_out=len(self.left_out),
            **more,
        )


class Node(NamedTuple):
    """One node of :func:`best_first`.

    Attributes:
        parent: index of its parent, -1 = the anchor.
        prob: its probability given its parent. path_prob: that of the whole path to it.
        tag: what its choice carried.
    """

    parent: int
    token: int
    prob: float
    path_prob: float
    tag: Any


def tree_draft(nodes: Sequence[Node], origin: Sequence[str], full: bool = False) -> Draft:
    """The nodes of :func:`best_first` as the engine takes them; ``full``: there would be more, but
    for the most that the engine verifies.
    """
    return Draft(
        [n.token for n in nodes],
        [n.parent for n in nodes],
        [n.prob for n in nodes],
        origin=list(origin),
        left_out=int(full),
    )


def expected_tokens(nodes: Sequence[Node]) -> float:
    """Tokens that a round with this tree is expected to write, the target's own included."""
    return 1 + sum(n.path_prob for n in nodes)


def best_first(
    expand: Callable[[Any], Sequence[Choice]], start: Any, budget: int, floor: float = 0.0
) -> list[Node]:
    """The ``budget`` likeliest nodes of a tree, likeliest first (DDTree, arXiv 2604.12989; here the
    choices may depend on the path).

    Args:
        expand: the choices in a state as (token, probability, next state or None, tag), likeliest
            first; called once for every node taken. :meth:`.candidates.CandidateTable.choices`
            gives those of one pass.
        start: state of the anchor.
        budget: most nodes.
        floor: nodes whose path probability is not above this are left out.
    Returns:
        Nodes, every prefix of which is a tree; no tree of that size has a larger sum of path
        probabilities.
    """
    nodes: list[Node] = []
    # -path probability, tie-break, parent, rank, parent's path probability, choices
    heap: list[tuple[float, int, int, int, float, Sequence[Choice]]] = []
    pushed = 0

    def push(parent: int, rank: int, parent_prob: float, choices: Sequence[Choice]) -> None:
        nonlocal pushed
        if rank < len(choices):
            entry = (-parent_prob * choices[rank][1], pushed, parent, rank, parent_prob, choices)
            heapq.heappush(heap, entry)
            pushed += 1

    push(-1, 0, 1.0, expand(start))
    while heap and len(nodes) < budget:
        # 1) the likeliest node that is not in the tree yet
        negative, _, parent, rank, parent_prob, choices = heapq.heappop(heap)
        if -negative <= floor:
            break
        token, prob, state, tag = choices[rank]
        nodes.append(Node(parent, token, prob, -negative, tag))
        # 2) its next sibling and its first child become possible
        push(parent, rank + 1, parent_prob, choices)
        if state is not None:
            push(len(nodes) - 1, 0, -negative, expand(state))
    return nodes


def nodes_that_pay(
    path_probs: Sequence[float], pass_ms: Callable[[int], float], draft_ms: float
) -> tuple[int, float]:
    """How many of the likeliest nodes to verify so that expected tokens per millisecond are highest
    (CaDDTree, arXiv 2606.01813).

    Args:
        path_probs: probability that each node and its path are right, falling.
        pass_ms: expected milliseconds of a target pass of that many rows (anchor included).
        draft_ms: milliseconds the draft has cost already.
    Returns:
        The number of nodes and the expected tokens per millisecond with them. Every size is tried,
        because a measured cost curve has steps.
    """
    best, best_rate, expected = 0, 1.0 / max(pass_ms(1) + draft_ms, 1e-9), 1.0
    for n, path_prob in enumerate(path_probs, 1):
        expected += path_prob
        rate = expected / max(pass_ms(n + 1) + draft_ms, 1e-9)
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


def branch_depths(parent: Sequence[int]) -> list[int]:
    """Depths i along the tree's first path after which it branches."""
    children: dict[int, list[int]] = {}
    for node, above in enumerate(parent):
        children.setdefault(above, []).append(node)
    out, at, depth = [], -1, 0
    while at in children:
        if len(children[at]) > 1:
            out.append(depth)
        at, depth = children[at][0], depth + 1
    return out
