"""What selection by the target, recursive rejection and a walk through the trie keep of the same K
drafts: expectations in closed form, against the acceptance code, and as a table of docs/methods.md
(``PYTHONPATH=. python tests/test_selection_law.py`` prints it).
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from exact_distributions import Tree, World, distance, drafts, marginals, merge, outcomes, text
from scripted_net import FakeNet, context, make, same_row

from specdemo.engine.accept import accept

pytestmark = pytest.mark.slow

V, DEPTH, PAIRS = 5, 3, 12
DRAFTS, TEMPERATURES, ANSWERS = (1, 2, 4, 8), (0.5, 1.0, 1.5), (0.0, 0.5, 1.0)
P = dict[tuple[int, ...], np.ndarray]  # prefix -> the target's distribution behind it


def trie_walk(p: P, q: list[np.ndarray], count: int) -> float:
    """*match* (and *point-mass* over a whole trie): every path of the trie that the target takes
    counts. A path is there unless all drafts miss it.
    """
    total = 0.0
    for depth in range(1, len(q) + 1):
        for path in itertools.product(range(len(q[0])), repeat=depth):
            reach = math.prod(p[path[:d]][path[d]] for d in range(depth))
            total += reach * (1 - (1 - math.prod(q[d][path[d]] for d in range(depth))) ** count)
    return total


def selection(p: P, q: list[np.ndarray], count: int) -> float:
    """Eq. 7, then *point-mass* along that draft: the largest streak of ``count`` drafts."""
    streaks = []
    for path in itertools.product(range(len(q[0])), repeat=len(q)):
        along = [p[path[:d]][path[d]] for d in range(len(q))]
        chance = math.prod(q[d][path[d]] for d in range(len(q)))
        streaks.append((float(sum(np.cumprod(along))), chance))
    total = below = 0.0
    for streak, chance in sorted(streaks):
        total += streak * ((below + chance) ** count - below**count)
        below += chance
    return total


def recursive(p: P, q: list[np.ndarray], count: int) -> float:
    """*ratio*: each draft that agrees with the path so far may place the next token."""

    @cache
    def value(prefix: tuple[int, ...], agreeing: int) -> float:
        if len(prefix) == len(q):
            return 0.0
        here, rest = q[len(prefix)], p[prefix]
        total, left, missed = 0.0, 1.0, []
        for turn in range(agreeing):
            kept = np.minimum(here, rest)
            for token in range(len(here)):
                if kept[token] <= 0:
                    continue
                # how many others hold this token: those refused before, and those not tried yet
                others = [*(m[token] for m in missed), *[here[token]] * (agreeing - turn - 1)]
                more = sum(
                    chance * value((*prefix, token), 1 + n)
                    for n, chance in enumerate(_counts(others))
                )
                total += left * float(kept[token]) * (1 + more)
            left *= 1 - float(kept.sum())
            if left < 1e-12:
                break
            missed.append((here - kept) / (1 - kept.sum()))
            rest = np.maximum(rest - here, 0)
            rest = rest / rest.sum()
        return total

    return value((), count)


def _counts(chances: list[float]) -> np.ndarray:
    """The law of how many of these independent events happen."""
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    return law


WAYS = {"walk": trie_walk, "recursion": recursive, "selection": selection}


def _pair(seed: int, answers: float, temperature: float) -> tuple[P, list[np.ndarray]]:
    """A random target at that temperature (0: greedy), and a drafter that knows 0.6 of its
    marginals, at its own.
    """
    rng = np.random.default_rng(seed)
    raw: P = {}
    for depth in range(DEPTH):
        for prefix in itertools.product(range(V), repeat=depth):
            raw[prefix] = _softmax(2 * rng.normal(size=V))
    q, reach = [], {(): 1.0}
    for _ in range(DEPTH):
        own = sum(chance * raw[prefix] for prefix, chance in reach.items())
        q.append(_sharpened(0.6 * own + 0.4 * _softmax(2 * rng.normal(size=V)), temperature))
        reach = {
            (*prefix, x): chance * raw[prefix][x]
            for prefix, chance in reach.items()
            for x in range(V)
        }
    return {prefix: _sharpened(law, answers) for prefix, law in raw.items()}, q


def _softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max())
    return x / x.sum()


def _sharpened(law: np.ndarray, temperature: float) -> np.ndarray:
    if not temperature:
        return np.eye(len(law))[law.argmax()]
    return _softmax(np.log(law) / temperature)


def table() -> str:
    """Accepted drafts a round, the mean of ``PAIRS`` pairs."""
    lines = [
        "| answers at | drafts at | rule | " + " | ".join(f"K = {k}" for k in DRAFTS) + " |",
        "|---|---|---|" + "---|" * len(DRAFTS),
    ]
    names = {
        "walk": "walk through the trie (*match*)",
        "recursion": "recursive rejection (*ratio*)",
        "selection": "selection, eq. 7 (*point-mass*)",
    }
    for answers, temperature in itertools.product(ANSWERS, TEMPERATURES):
        pairs = [_pair(seed, answers, temperature) for seed in range(PAIRS)]
        for way, name in names.items():
            means = [sum(WAYS[way](*pair, k) for pair in pairs) / PAIRS for k in DRAFTS]
            cells = " | ".join(f"{mean:.2f}" for mean in means)
            lines.append(f"| {answers:g} | {temperature:g} | {name} | {cells} |")
    return "\n".join(lines)


@pytest.mark.parametrize("k", [1, 2])
def test_the_expectations_are_those_of_the_acceptance_code(monkeypatch, k):
    """The same K drafts, every draw of the code's own walked with its probability."""
    world = World(3, seed=4)
    p = {
        prefix: world(list(prefix)).double().numpy()
        for depth in range(2)
        for prefix in itertools.product(range(3), repeat=depth)
    }
    q = [m.double().numpy() for m in world.m]
    for way, rule, with_draws in (
        ("walk", "point-mass", False),
        ("selection", "point-mass", True),
        ("recursion", "ratio", True),
    ):
        mean = 0.0
        for weight, draft in drafts(world, marginals, k):
            if not with_draws:
                draft.draws = None
            mean += weight * sum(
                chance * (len(kept) - 1)
                for chance, kept in outcomes(world, draft, rule, monkeypatch)
            )
        assert WAYS[way](p, q, k) == pytest.approx(mean, abs=1e-5), way


def test_selection_never_keeps_more_than_the_walk():
    for seed, answers in itertools.product(range(4), (0.0, 0.7, 1.0)):
        p, q = _pair(seed, answers, 1.0)
        for k in (1, 2, 8):
            walk, chosen = trie_walk(p, q, k), selection(p, q, k)
            assert chosen <= walk + 1e-9
            if k == 1 or not answers:
                assert chosen == pytest.approx(walk)


def argmax_first(world: World, k: int):
    """The argmax at every position, which nothing samples, then ``k`` sampled drafts."""
    best = tuple(int(m.argmax()) for m in world.m)
    certain = [world.delta(token) for token in best]
    for group in itertools.product(marginals(world), repeat=k):
        weight = math.prod(one[0] for one in group)
        strings, qs = [best, *(s for _, s, _ in group)], [certain, *(q for _, _, q in group)]
        yield weight, merge(strings, qs)


@pytest.mark.parametrize("k", [1, 2])
def test_recursion_behind_the_argmax_keeps_the_targets_distribution(monkeypatch, k):
    world = World(3, seed=11)
    assert distance(world, argmax_first(world, k), "ratio", monkeypatch) < 1e-6


@pytest.mark.parametrize("argmax", [True, False])
@pytest.mark.parametrize("cut", [31, 3])
def test_specdiff2_under_ratio_draws_from_the_target(monkeypatch, argmax, cut):
    """χ² of the first two tokens, of real drafts and the real acceptance, the trie cut or not."""
    world = World(8, seed=2)
    q = [m.tolist() for m in world.m]
    params = {"gamma": 2, "drafts": 3, "temperature": 1.5, "argmax": argmax}
    drafter = make(monkeypatch, "specdiff2", params, streak=FakeNet(same_row(*q)))
    generator, accept_rng = (torch.Generator().manual_seed(seed) for seed in (5, 6))
    counts, own = torch.zeros(8, 8), torch.Generator().manual_seed(7)
    turns = 4000
    for turn in range(turns):
        round_ = context(
            [1, 2, 3, 0], (0, 0 if turn else 3), cut, rule="ratio", generator=generator
        )
        draft = drafter.propose(round_)
        kept = accept(draft, Tree(world, draft), "ratio", accept_rng)
        tokens = text(draft, kept)
        if len(tokens) < 2:  # the target goes on by itself
            tokens.append(int(torch.multinomial(world(tokens), 1, generator=own)))
        counts[tokens[0], tokens[1]] += 1
    expected = turns * (world.p[0][:, None] * world.p[1])
    rare = expected < 5
    observed = torch.cat((counts[~rare], counts[rare].sum()[None]))
    wanted = torch.cat((expected[~rare], expected[rare].sum()[None]))
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    degrees = len(wanted) - 1
    # Wilson and Hilferty: this root is normal; 4 standard deviations
    spread = (2 / (9 * degrees)) ** 0.5
    assert ((statistic / degrees) ** (1 / 3) - (1 - spread**2)) / spread < 4


def test_the_documentation_shows_the_table():
    shown = (Path(__file__).parents[1] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert table() in shown


if __name__ == "__main__":
    print(table())
