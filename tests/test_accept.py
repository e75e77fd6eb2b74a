"""The acceptance rules against the target's distribution: exactly, by enumerating every random
draw, and by χ² with the real generator.
"""

from __future__ import annotations

import pytest
import torch
from exact_distributions import (
    Tree,
    World,
    distance,
    drafts,
    final_step,
    forgetful,
    left_to_right,
    marginals,
    outcomes,
    reveal_time,
    selected,
    text,
)

from specdemo.drafters.parts.base import Draft
from specdemo.engine.accept import accept


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


RIGHT = {
    "ratio, one pass": ("ratio", lambda w: drafts(w, marginals, 1)),
    "ratio, left to right": ("ratio", lambda w: drafts(w, left_to_right, 1)),
    "ratio, several steps in any order with final-step q": (
        "ratio",
        lambda w: drafts(w, final_step, 1),
    ),
    "ratio, tree of 2, one pass": ("ratio", lambda w: drafts(w, marginals, 2)),
    "ratio, tree of 2, left to right": ("ratio", lambda w: drafts(w, left_to_right, 2)),
    "ratio, tree of 2, final-step q": ("ratio", lambda w: drafts(w, final_step, 2)),
    "point-mass, one pass": ("point-mass", lambda w: drafts(w, marginals, 1)),
    "point-mass, several steps in any order": ("point-mass", lambda w: drafts(w, reveal_time, 1)),
    "point-mass, best of 2": ("point-mass", lambda w: drafts(w, marginals, 2)),
    "point-mass, best of 2, several steps": ("point-mass", lambda w: drafts(w, final_step, 2)),
}
WRONG = {
    "ratio with q of the reveal, out of order": ("ratio", lambda w: drafts(w, reveal_time, 1)),
    "ratio after selection": ("ratio", lambda w: selected(w, 2)),
    "ratio over a merged tree that forgot its repeats": ("ratio", lambda w: forgetful(w, 2)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_law_of_every_string_is_the_targets(name, monkeypatch):
    rule, make = RIGHT[name]
    world = World(3)
    assert distance(world, make(world), rule, monkeypatch) < 2e-6


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_q_shows_in_the_law(name, monkeypatch):
    rule, make = WRONG[name]
    world = World(3)
    assert distance(world, make(world), rule, monkeypatch) > 2e-3


def test_recursive_rejection_over_three_drafts_is_exact(monkeypatch):
    world = World(2, seed=20)
    for drafter in (marginals, left_to_right, final_step):
        assert distance(world, drafts(world, drafter, 3), "ratio", monkeypatch) < 2e-6


@pytest.mark.parametrize("rule", ["point-mass"])
def test_point_mass_over_any_tree_is_exact(rule, monkeypatch):
    world = World(3)
    draft = Draft(
        tokens=[2, 0, 1, 0, 2], parent=[-1, -1, 0, 0, 1], probs=[None] * 5, origin=["x"] * 5
    )
    assert distance(world, [(1.0, draft)], rule, monkeypatch) < 2e-6


# -- χ² with the generator the engine uses ---------------------------------------------------------


def chi_square(world: World, cases, rule: str, samples: int, seed: int = 1) -> float:
    """p-value of the first two tokens of ``samples`` rounds against the target's distribution."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.tensor([weight for weight, _ in cases])
    rows = [Tree(world, draft) for _, draft in cases]
    accept_rng = torch.Generator().manual_seed(seed + 1)
    texts = []
    for case in torch.multinomial(weights, samples, replacement=True, generator=generator).tolist():
        draft = cases[case][1]
        texts.append(text(draft, accept(draft, rows[case], rule, accept_rng))[:2])
    first = torch.tensor([t[0] for t in texts])
    # where the round wrote one token only
    second = torch.multinomial(world.p[1][first], 1, generator=generator)[:, 0]
    second = torch.tensor(
        [t[1] if len(t) > 1 else s for t, s in zip(texts, second.tolist(), strict=True)]
    )
    counts = torch.bincount(first * world.size + second, minlength=world.size**2).double()
    return p_value(counts, (world.p[0][:, None] * world.p[1]).flatten().double() * samples)


def p_value(counts: torch.Tensor, expected: torch.Tensor) -> float:
    rare = expected < 5  # pooled, so that the χ² distribution holds
    if rare.any():
        counts, expected = (torch.cat([x[~rare], x[rare].sum()[None]]) for x in (counts, expected))
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(
        torch.special.gammaincc(
            torch.tensor((len(counts) - 1) / 2, dtype=torch.float64), statistic / 2
        )
    )


@pytest.fixture(scope="module")
def eight() -> World:
    return World(8, seed=40)


# a chain is the tree of one draft
@pytest.mark.parametrize(
    "name",
    [
        "ratio, tree of 2, one pass",
        "point-mass, best of 2",
        "ratio with q of the reveal, out of order",
    ],
)
def test_chi_square_by_sampling(name, eight):
    """10,000 rounds with the engine's own generator. The enumeration above is the proof; this many
    show that the generator is used as enumerated, and find the wrong q at p < 1e-30.
    """
    rule, make = (RIGHT | WRONG)[name]
    p = chi_square(eight, make(eight), rule, 10_000)
    assert p > 1e-3 if name in RIGHT else p < 1e-30


@pytest.mark.parametrize(
    "name",
    [
        *(n for n in RIGHT if "2" not in n),
        "ratio with q of the reveal, out of order",
        "ratio after selection",
    ],
)
def test_chi_square_of_drawn_outcomes(name, eight, monkeypatch):
    """400,000 rounds: drafts drawn from the drafter's distribution, outcomes from the branch
    probabilities of ``accept`` itself.
    """
    rule, make = (RIGHT | WRONG)[name]
    cases = make(eight)
    # a selected single draft: the same 64 strings, each with its share of the pairs
    if len(cases) > 64:
        shares: dict[tuple[int, ...], list] = {}
        for weight, draft in cases:
            shares.setdefault(tuple(draft.tokens), [0.0, draft])[0] += weight
        cases = [(weight, draft) for weight, draft in shares.values()]
    distribution = torch.zeros(8, 8, dtype=torch.float64)
    for weight, draft in cases:
        for chance, string in outcomes(eight, draft, rule, monkeypatch):
            if len(string) == 1:
                distribution[string[0]] += weight * chance * eight.p[1][string[0]]
            else:
                distribution[string[0], string[1]] += weight * chance
    samples, generator = 400_000, torch.Generator().manual_seed(3)
    counts = torch.bincount(
        torch.multinomial(distribution.flatten(), samples, replacement=True, generator=generator),
        minlength=64,
    ).double()
    p = p_value(counts, (eight.p[0][:, None] * eight.p[1]).flatten().double() * samples)
    assert p > 1e-3 if name in RIGHT else p < 1e-6
