"""The acceptance rules case by case: strict draws, empty residuals, NaN, the bonus row, refusals
(C12 to C19).
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from exact_distributions import Tree, World, distance, drafts, left_to_right, marginals, merge

from specdemo.drafters.parts.base import Draft
from specdemo.engine import accept as module
from specdemo.engine.accept import accept
from specdemo.errors import UserError


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Fixed:
    """Rows from a table."""

    def __init__(self, *rows: list[float]) -> None:
        self.rows, self.asked = torch.tensor(rows), []

    def probs(self, row: int) -> torch.Tensor:
        self.asked.append(row)
        return self.rows[row]

    def pick(self, row: int) -> int:
        self.asked.append(row)
        return int(self.rows[row].argmax())


class Coins:
    """Every uniform the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, generator, most):
        accept_rng = RNG(generator, 0)
        accept_rng._uniforms = itertools.repeat(self.value)
        return accept_rng


RNG = module.AcceptanceRng


def chain(tokens: list[int], *q: list[float]) -> Draft:
    return Draft.chain(tokens, q=torch.tensor(q))


def test_match_walks_the_tree_and_asks_only_what_it_needs():
    draft = Draft(
        tokens=[1, 2, 3, 1, 0], parent=[-1, -1, 1, 1, 3], probs=[None] * 5, origin=["x"] * 5
    )
    rows = Fixed([0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0])
    kept = accept(draft, rows)
    assert (kept.path, kept.token, kept.rows) == ([1, 3], 3, [0, 2, 4])
    assert rows.asked == kept.rows


def test_an_empty_draft_is_a_plain_round():
    for rule in module.RULES:
        kept = accept(Draft(), Fixed([0, 1, 0]), rule)
        assert (kept.path, kept.token, kept.rows) == ([], 1, [0])


def test_a_one_hot_target_makes_every_rule_match():
    generator = torch.Generator().manual_seed(0)
    for trial in range(150):
        world = World(3, seed=100 + trial)
        world.p = [torch.nn.functional.one_hot(p.argmax(-1), 3).float() for p in world.p]
        single = left_to_right(world)
        pair = [single[i] for i in torch.randint(len(single), (2,), generator=generator).tolist()]
        draft = merge([string for _, string, _ in pair], [q for _, _, q in pair])
        picked = accept(draft, Tree(world, draft))
        for rule in ("ratio", "point-mass"):
            kept = accept(draft, Tree(world, draft), rule, generator)
            assert (kept.path, kept.token) == (picked.path, picked.token)
        # the same tree from a drafter that says nothing more
        plain = Draft(draft.tokens, draft.parent)
        assert accept(plain, Tree(world, draft), "point-mass", generator).path == picked.path


def test_acceptance_is_strict(monkeypatch):
    """u = ratio rejects, u just below accepts; a ratio of zero is never met, even by u = 0."""
    rows = Fixed([0.25, 0.75], [1.0, 0.0])
    for u, path in ((0.5, []), (0.49999, [0])):
        monkeypatch.setattr(module, "AcceptanceRng", Coins(u))
        assert accept(chain([0], [0.5, 0.5]), rows, "ratio").path == path
    monkeypatch.setattr(module, "AcceptanceRng", Coins(0.0))
    kept = accept(chain([0], [1.0, 0.0]), Fixed([0.0, 1.0], [1.0, 0.0]), "ratio")
    assert (kept.path, kept.token) == ([], 1)


def test_p_equal_to_q_accepts_always(monkeypatch):
    monkeypatch.setattr(module, "AcceptanceRng", Coins(1 - 2**-53))
    assert accept(
        chain([1], [0.3, 0.3, 0.4]), Fixed([0.3, 0.3, 0.4], [0.0, 0.0, 1.0]), "ratio"
    ).path == [0]


def test_no_residual_mass_falls_back_to_p(monkeypatch):
    """A q that exceeds p everywhere leaves nothing: the token comes from p, not from an argmax over
    NaN.
    """
    monkeypatch.setattr(module, "AcceptanceRng", Coins(0.9))
    kept = accept(chain([0], [0.8, 0.8, 0.8]), Fixed([0.2, 0.2, 0.6], [1.0, 0.0, 0.0]), "ratio")
    assert (kept.path, kept.token) == ([], 2)


def test_nan_in_q_keeps_nothing_and_stays_exact(monkeypatch):
    assert (
        accept(
            chain([1, 1], [math.nan] * 2, [0.5, 0.5]), Fixed([0, 1.0], [0, 1.0], [0, 1.0]), "ratio"
        ).path
        == []
    )
    world = World(3)
    nan = torch.full((3,), math.nan)
    cases = [(weight, merge([string], [[q[0], nan]])) for weight, string, q in marginals(world)]
    assert distance(world, cases, "ratio", monkeypatch) < 2e-6
    cases = [(weight, merge([string], [[nan, q[1]]])) for weight, string, q in marginals(world)]
    assert distance(world, cases, "ratio", monkeypatch) < 2e-6


def test_a_token_its_own_q_calls_impossible_is_not_kept():
    assert accept(chain([1], [1.0, 0.0]), Fixed([0.0, 1.0], [1.0, 0.0]), "ratio").path == []


def test_the_bonus_comes_from_its_own_row():
    generator = torch.Generator().manual_seed(0)
    draft = chain([0, 1], [1.0, 0, 0, 0], [0, 1.0, 0, 0])
    rows = Fixed([1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0.25, 0.75])
    bonus = [accept(draft, rows, "ratio", generator).token for _ in range(4000)]
    assert set(bonus) == {2, 3}
    assert bonus.count(3) / len(bonus) == pytest.approx(0.75, abs=0.03)


def test_q_over_a_shorter_vocabulary_is_padded():
    kept = accept(chain([1], [0.0, 1.0]), Fixed([0.0, 1.0, 0.0], [0.0, 0.0, 1.0]), "ratio")
    assert (kept.path, kept.token) == ([0], 2)
    with pytest.raises(UserError, match="vocabulary"):
        accept(chain([1], [0.0, 1.0, 0.0]), Fixed([0.0, 1.0], [0.0, 1.0]), "ratio")


def test_self_selection_takes_the_longest_expected_streak():
    draft = Draft(tokens=[0, 1, 2, 1], parent=[-1, 0, -1, 2], draws=[[0, 1], [2, 3], [0, 1]])
    rows = Fixed([0.5, 0.1, 0.4], [0.8, 0.2, 0.0], [1, 0, 0], [0, 1.0, 0], [0, 0, 1.0])
    for seed in range(20):
        kept = accept(draft, rows, "point-mass", torch.Generator().manual_seed(seed))
        assert kept.chosen == 1
        assert kept.target_scores == pytest.approx([0.5 + 0.5 * 0.2, 0.4 + 0.4 * 1.0, 0.6])
        # stops at the first rejection; the second token is certain
        assert kept.path in ([], [2, 3])
        assert kept.token == 2 if kept.path else kept.token != 2
    assert set(rows.asked) >= {0, 1, 3}


def test_self_selection_on_drafts_of_different_length():
    draft = Draft(tokens=[1, 1, 0], parent=[-1, 0, -1], draws=[[2], [], [0, 1]])
    rows = Fixed([0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0])
    kept = accept(draft, rows, "point-mass")
    assert (kept.path, kept.token, kept.chosen, kept.target_scores) == (
        [0, 1],
        0,
        2,
        [0.0, 0.0, 2.0],
    )


def test_what_is_not_lossless_is_refused():
    rows = Fixed([0.5, 0.5], [0.5, 0.5], [0.5, 0.5])
    with pytest.raises(UserError, match="ratio rule needs the distribution"):
        accept(Draft.chain([0, 1]), rows, "ratio")
    siblings = Draft(tokens=[0, 1], parent=[-1, -1], q=torch.full((2, 2), 0.5))
    with pytest.raises(UserError, match="independent drafts"):
        accept(siblings, rows, "ratio")
    with pytest.raises(UserError, match="no acceptance rule"):
        accept(Draft(), rows, "always")
    with pytest.raises(UserError, match="not numbers"):
        accept(Draft(), Fixed([math.nan, math.nan]), "point-mass")


def test_the_same_seed_gives_the_same_verdict():
    world = World(3)
    cases = drafts(world, marginals, 2)[:40]
    runs = [
        [accept(d, Tree(world, d), "ratio", g) for _, d in cases]
        for g in (torch.Generator().manual_seed(5), torch.Generator().manual_seed(5))
    ]
    assert runs[0] == runs[1]


def test_a_draw_never_lands_on_probability_zero(monkeypatch):
    for u in (0.0, 0.5, 1 - 2**-53):
        accept_rng = Coins(u)(None, 0)
        assert accept_rng.categorical(torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0])) in (1, 3)
