"""A target and drafters whose every distribution is known, and the distribution that one round of
``accept`` leaves.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from specdemo.drafters.parts.base import Draft
from specdemo.engine import accept as module
from specdemo.engine.accept import Accepted, accept


def _law(*shape: int, seed: int, sharp: float = 1.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (
        (torch.randn(*shape, generator=generator, dtype=torch.float64) * sharp).softmax(-1).float()
    )


class World:
    """A target of three tokens over a small vocabulary, and what drafters of several kinds know."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.p = [
            _law(size, seed=seed),
            _law(size, size, seed=seed + 1),
            _law(size, size, size, seed=seed + 2),
        ]
        self.m = [_law(size, seed=seed + 3), _law(size, seed=seed + 4)]  # marginals of one pass
        # left to right: x1, then x2 given x1
        self.first, self.second = _law(size, seed=seed + 5), _law(size, size, seed=seed + 6)
        # out of order: x2, then x1 given x2
        self.late, self.early = _law(size, seed=seed + 7), _law(size, size, seed=seed + 8)

    def __call__(self, prefix: list[int]) -> torch.Tensor:
        return self.p[len(prefix)][tuple(prefix)]

    def strings(self):
        return itertools.product(range(self.size), repeat=2)

    def delta(self, token: int) -> torch.Tensor:
        return torch.eye(self.size)[token]


class Tree:
    """The target's rows on a draft."""

    def __init__(self, world: World, draft: Draft) -> None:
        self.world, self.draft, self.known = world, draft, {}

    def probs(self, row: int) -> torch.Tensor:
        if row not in self.known:
            prefix, node = [], row - 1
            while node >= 0:
                prefix.insert(0, self.draft.tokens[node])
                node = self.draft.parent[node]
            self.known[row] = self.world(prefix)
        return self.known[row]

    def pick(self, row: int) -> int:
        return int(self.probs(row).argmax())


def merge(strings: list[tuple[int, ...]], qs: list[list[torch.Tensor]]) -> Draft:
    """K drafted strings as one trie, with q by draft and depth."""
    draft, at, draws = Draft(), {}, []
    for string in strings:
        draws.append([])
        for depth in range(1, len(string) + 1):
            if string[:depth] not in at:
                at[string[:depth]] = len(draft.tokens)
                draft.tokens.append(string[depth - 1])
                draft.parent.append(at.get(string[: depth - 1], -1))
            draws[-1].append(at[string[:depth]])
    draft.q, draft.draws = torch.stack([torch.stack(q) for q in qs]), draws
    return draft


# Drafters: every string with its weight and the q it reports.
def marginals(w: World):
    return [(float(w.m[0][x] * w.m[1][y]), (x, y), [w.m[0], w.m[1]]) for x, y in w.strings()]


def left_to_right(w: World):
    return [
        (float(w.first[x] * w.second[x, y]), (x, y), [w.first, w.second[x]]) for x, y in w.strings()
    ]


def final_step(w: World):
    """x2 settles first; its q at the final step is a point mass, x1's is its row of that step."""
    return [
        (float(w.late[y] * w.early[y, x]), (x, y), [w.early[y], w.delta(y)]) for x, y in w.strings()
    ]


def reveal_time(w: World):
    """The same drafts with each q read when the token was revealed: wrong, for x1 was drawn knowing
    x2.
    """
    return [
        (float(w.late[y] * w.early[y, x]), (x, y), [w.early[y], w.late]) for x, y in w.strings()
    ]


def drafts(world: World, drafter, k: int) -> list[tuple[float, Draft]]:
    return [
        (
            math.prod(weight for weight, _, _ in group),
            merge([s for _, s, _ in group], [q for _, _, q in group]),
        )
        for group in itertools.product(drafter(world), repeat=k)
    ]


def streak(world: World, string: tuple[int, ...]) -> float:
    return float(
        sum(
            math.prod(float(world(list(string[:j]))[string[j]]) for j in range(m))
            for m in range(1, len(string) + 1)
        )
    )


def selected(world: World, k: int) -> list[tuple[float, Draft]]:
    """The best of K drafts handed over as if it were a single one."""
    out = []
    for group in itertools.product(marginals(world), repeat=k):
        _, string, q = max(group, key=lambda one: streak(world, one[1]))
        out.append((math.prod(weight for weight, _, _ in group), merge([string], [q])))
    return out


def forgetful(world: World, k: int) -> list[tuple[float, Draft]]:
    """K drafts whose repeats were lost in the merge."""
    out = drafts(world, marginals, k)
    for _, draft in out:
        kept = [i for i, draw in enumerate(draft.draws) if draw not in draft.draws[:i]]
        draft.draws, draft.q = [draft.draws[i] for i in kept], draft.q[kept]
    return out


class Script:
    """Takes the place of the random draws and walks every branch with its probability."""

    def __init__(self) -> None:
        self.prefix: list[int] = []

    def replay(self, *_) -> Script:
        self.at, self.weight, self.sizes = 0, 1.0, []
        return self

    def _take(self, chances: list[float]) -> int:
        if self.at == len(self.prefix):
            self.prefix.append(0)
        branch = self.prefix[self.at]
        self.at += 1
        self.sizes.append(len(chances))
        self.weight *= chances[branch]
        return branch

    def bernoulli(self, chance: float) -> bool:
        chance = min(chance, 1.0) if chance > 0 else 0.0
        return self._take([chance, 1 - chance]) == 0

    def categorical(self, p: torch.Tensor) -> int:
        return self._take(p.double().tolist())

    def advance(self) -> bool:
        while self.prefix and self.prefix[-1] + 1 == self.sizes[len(self.prefix) - 1]:
            self.prefix.pop()
        if self.prefix:
            self.prefix[-1] += 1
        return bool(self.prefix)


def text(draft: Draft, kept: Accepted) -> list[int]:
    return [draft.tokens[node] for node in kept.path] + [kept.token]


def outcomes(world: World, draft: Draft, rule: str, monkeypatch) -> list[tuple[float, list[int]]]:
    script = Script()
    monkeypatch.setattr(module, "AcceptanceRng", script.replay)
    out = []
    while True:
        kept = accept(draft, Tree(world, draft), rule)
        if script.weight > 0:
            out.append((script.weight, text(draft, kept)))
        if not script.advance():
            return out


def distance(world: World, cases, rule: str, monkeypatch) -> float:
    """Total variation between the target's distribution of three-token strings and that of one
    round, continued by the target.
    """
    p1, p2, p3 = (p.double() for p in world.p)
    target = p1[:, None, None] * p2[..., None] * p3
    got = torch.zeros_like(target)
    for weight, draft in cases:
        for chance, string in outcomes(world, draft, rule, monkeypatch):
            rest = {
                1: lambda s: p2[s[0]][:, None] * p3[s[0]],
                2: lambda s: p3[s[0], s[1]],
                3: lambda s: 1.0,
            }[len(string)](string)
            got[tuple(string)] += weight * chance * rest
    assert float(got.sum()) == pytest.approx(1, abs=1e-5)
    return float((got - target).abs().sum() / 2)
