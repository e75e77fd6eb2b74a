"""The acceptance rules against the target's law: exactly, by enumerating every coin, and by χ² with the real generator."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from specdemo.drafters.base import Draft
from specdemo.engine import accept as module
from specdemo.engine.accept import Accepted, accept
from specdemo.errors import Refusal


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _law(*shape: int, seed: int, sharp: float = 1.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * sharp).softmax(-1).float()


class World:
    """A target of three tokens over a small vocabulary, and what drafters of several kinds know."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.p = [_law(size, seed=seed), _law(size, size, seed=seed + 1), _law(size, size, size, seed=seed + 2)]
        self.m = [_law(size, seed=seed + 3), _law(size, seed=seed + 4)]  # marginals of one pass
        self.first, self.second = _law(size, seed=seed + 5), _law(size, size, seed=seed + 6)  # left to right: x1, then x2 given x1
        self.late, self.early = _law(size, seed=seed + 7), _law(size, size, seed=seed + 8)  # out of order: x2, then x1 given x2

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
    return [(float(w.first[x] * w.second[x, y]), (x, y), [w.first, w.second[x]]) for x, y in w.strings()]


def final_step(w: World):
    """x2 settles first; its q at the final step is a point mass, x1's is its row of that step."""
    return [(float(w.late[y] * w.early[y, x]), (x, y), [w.early[y], w.delta(y)]) for x, y in w.strings()]


def reveal_time(w: World):
    """The same drafts with each q read when the token was revealed: wrong, for x1 was drawn knowing x2."""
    return [(float(w.late[y] * w.early[y, x]), (x, y), [w.early[y], w.late]) for x, y in w.strings()]


def drafts(world: World, drafter, k: int) -> list[tuple[float, Draft]]:
    return [
        (math.prod(weight for weight, _, _ in group), merge([s for _, s, _ in group], [q for _, _, q in group]))
        for group in itertools.product(drafter(world), repeat=k)
    ]


def streak(world: World, string: tuple[int, ...]) -> float:
    return float(sum(math.prod(float(world(list(string[:j]))[string[j]]) for j in range(m)) for m in range(1, len(string) + 1)))


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
    """Takes the coins' place and walks every branch with its probability."""

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

    def coin(self, chance: float) -> bool:
        chance = min(chance, 1.0) if chance > 0 else 0.0
        return self._take([chance, 1 - chance]) == 0

    def draw(self, p: torch.Tensor) -> int:
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
    monkeypatch.setattr(module, "Dice", script.replay)
    out = []
    while True:
        kept = accept(draft, Tree(world, draft), rule)
        if script.weight > 0:
            out.append((script.weight, text(draft, kept)))
        if not script.advance():
            return out


def distance(world: World, cases, rule: str, monkeypatch) -> float:
    """Total variation between the target's law of three-token strings and that of one round, continued by the target."""
    p1, p2, p3 = (p.double() for p in world.p)
    target = p1[:, None, None] * p2[..., None] * p3
    got = torch.zeros_like(target)
    for weight, draft in cases:
        for chance, string in outcomes(world, draft, rule, monkeypatch):
            rest = {1: lambda s: p2[s[0]][:, None] * p3[s[0]], 2: lambda s: p3[s[0], s[1]], 3: lambda s: 1.0}[len(string)](string)
            got[tuple(string)] += weight * chance * rest
    assert float(got.sum()) == pytest.approx(1, abs=1e-5)
    return float((got - target).abs().sum() / 2)


RIGHT = {
    "ratio, one pass": ("ratio", lambda w: drafts(w, marginals, 1)),
    "ratio, left to right": ("ratio", lambda w: drafts(w, left_to_right, 1)),
    "ratio, several steps in any order with final-step q": ("ratio", lambda w: drafts(w, final_step, 1)),
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
    draft = Draft(tokens=[2, 0, 1, 0, 2], parent=[-1, -1, 0, 0, 1], probs=[None] * 5, origin=["x"] * 5)
    assert distance(world, [(1.0, draft)], rule, monkeypatch) < 2e-6


# -- χ² with the generator the engine uses -----------------------------------------------------------------------------------

def chi_square(world: World, cases, rule: str, samples: int, seed: int = 1) -> float:
    """p-value of the first two tokens of ``samples`` rounds against the target's law."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.tensor([weight for weight, _ in cases])
    rows = [Tree(world, draft) for _, draft in cases]
    coins = torch.Generator().manual_seed(seed + 1)
    texts = []
    for case in torch.multinomial(weights, samples, replacement=True, generator=generator).tolist():
        draft = cases[case][1]
        texts.append(text(draft, accept(draft, rows[case], rule, coins))[:2])
    first = torch.tensor([t[0] for t in texts])
    second = torch.multinomial(world.p[1][first], 1, generator=generator)[:, 0]  # where the round wrote one token only
    second = torch.tensor([t[1] if len(t) > 1 else s for t, s in zip(texts, second.tolist(), strict=True)])
    counts = torch.bincount(first * world.size + second, minlength=world.size**2).double()
    return p_value(counts, (world.p[0][:, None] * world.p[1]).flatten().double() * samples)


def p_value(counts: torch.Tensor, expected: torch.Tensor) -> float:
    rare = expected < 5  # pooled, so that the χ² law holds
    if rare.any():
        counts, expected = (torch.cat([x[~rare], x[rare].sum()[None]]) for x in (counts, expected))
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2, dtype=torch.float64), statistic / 2))


@pytest.fixture(scope="module")
def eight() -> World:
    return World(8, seed=40)


@pytest.mark.parametrize("name", ["ratio, tree of 2, one pass", "point-mass, best of 2"])  # a chain is the tree of one draft
def test_chi_square_by_sampling(name, eight):
    rule, make = RIGHT[name]
    assert chi_square(eight, make(eight), rule, 100_000) > 1e-3


@pytest.mark.parametrize("name", [*(n for n in RIGHT if "2" not in n), "ratio with q of the reveal, out of order", "ratio after selection"])
def test_chi_square_of_drawn_outcomes(name, eight, monkeypatch):
    """400,000 rounds: drafts drawn from the drafter's law, outcomes from the branch probabilities of ``accept`` itself."""
    rule, make = (RIGHT | WRONG)[name]
    cases = make(eight)
    if len(cases) > 64:  # a selected single draft: the same 64 strings, each with its share of the pairs
        shares: dict[tuple[int, ...], list] = {}
        for weight, draft in cases:
            shares.setdefault(tuple(draft.tokens), [0.0, draft])[0] += weight
        cases = [(weight, draft) for weight, draft in shares.values()]
    law = torch.zeros(8, 8, dtype=torch.float64)
    for weight, draft in cases:
        for chance, string in outcomes(eight, draft, rule, monkeypatch):
            if len(string) == 1:
                law[string[0]] += weight * chance * eight.p[1][string[0]]
            else:
                law[string[0], string[1]] += weight * chance
    samples, generator = 400_000, torch.Generator().manual_seed(3)
    counts = torch.bincount(torch.multinomial(law.flatten(), samples, replacement=True, generator=generator), minlength=64).double()
    p = p_value(counts, (eight.p[0][:, None] * eight.p[1]).flatten().double() * samples)
    assert p > 1e-3 if name in RIGHT else p < 1e-6


# -- single cases ------------------------------------------------------------------------------------------------------------

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
        dice = DICE(generator, 0)
        dice._uniforms = itertools.repeat(self.value)
        return dice


DICE = module.Dice


def chain(tokens: list[int], *q: list[float]) -> Draft:
    return Draft.chain(tokens, q=torch.tensor(q))


def test_match_walks_the_tree_and_asks_only_what_it_needs():
    draft = Draft(tokens=[1, 2, 3, 1, 0], parent=[-1, -1, 1, 1, 3], probs=[None] * 5, origin=["x"] * 5)
    rows = Fixed([0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0])
    kept = accept(draft, rows)
    assert (kept.path, kept.token, kept.asked) == ([1, 3], 3, [0, 2, 4])
    assert rows.asked == kept.asked


def test_an_empty_draft_is_a_plain_round():
    for rule in module.RULES:
        kept = accept(Draft(), Fixed([0, 1, 0]), rule)
        assert (kept.path, kept.token, kept.asked) == ([], 1, [0])


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
        plain = Draft(draft.tokens, draft.parent)  # the same tree from a drafter that says nothing more
        assert accept(plain, Tree(world, draft), "point-mass", generator).path == picked.path


def test_acceptance_is_strict(monkeypatch):
    """u = ratio rejects, u just below accepts; a ratio of zero is never met, even by u = 0."""
    rows = Fixed([0.25, 0.75], [1.0, 0.0])
    for u, path in ((0.5, []), (0.49999, [0])):
        monkeypatch.setattr(module, "Dice", Coins(u))
        assert accept(chain([0], [0.5, 0.5]), rows, "ratio").path == path
    monkeypatch.setattr(module, "Dice", Coins(0.0))
    kept = accept(chain([0], [1.0, 0.0]), Fixed([0.0, 1.0], [1.0, 0.0]), "ratio")
    assert (kept.path, kept.token) == ([], 1)


def test_p_equal_to_q_accepts_always(monkeypatch):
    monkeypatch.setattr(module, "Dice", Coins(1 - 2**-53))
    assert accept(chain([1], [0.3, 0.3, 0.4]), Fixed([0.3, 0.3, 0.4], [0.0, 0.0, 1.0]), "ratio").path == [0]


def test_no_residual_mass_falls_back_to_p(monkeypatch):
    """A q that exceeds p everywhere leaves nothing: the token comes from p, not from an argmax over NaN."""
    monkeypatch.setattr(module, "Dice", Coins(0.9))
    kept = accept(chain([0], [0.8, 0.8, 0.8]), Fixed([0.2, 0.2, 0.6], [1.0, 0.0, 0.0]), "ratio")
    assert (kept.path, kept.token) == ([], 2)


def test_nan_in_q_keeps_nothing_and_stays_exact(monkeypatch):
    assert accept(chain([1, 1], [math.nan] * 2, [0.5, 0.5]), Fixed([0, 1.0], [0, 1.0], [0, 1.0]), "ratio").path == []
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
    with pytest.raises(Refusal, match="vocabulary"):
        accept(chain([1], [0.0, 1.0, 0.0]), Fixed([0.0, 1.0], [0.0, 1.0]), "ratio")


def test_self_selection_takes_the_longest_expected_streak():
    draft = Draft(tokens=[0, 1, 2, 1], parent=[-1, 0, -1, 2], draws=[[0, 1], [2, 3], [0, 1]])
    rows = Fixed([0.5, 0.1, 0.4], [0.8, 0.2, 0.0], [1, 0, 0], [0, 1.0, 0], [0, 0, 1.0])
    for seed in range(20):
        kept = accept(draft, rows, "point-mass", torch.Generator().manual_seed(seed))
        assert kept.chosen == 1
        assert kept.streaks == pytest.approx([0.5 + 0.5 * 0.2, 0.4 + 0.4 * 1.0, 0.6])
        assert kept.path in ([], [2, 3])  # stops at the first rejection; the second token is certain
        assert kept.token == 2 if kept.path else kept.token != 2
    assert set(kept.asked) >= {0, 1, 3}


def test_self_selection_on_drafts_of_different_length():
    draft = Draft(tokens=[1, 1, 0], parent=[-1, 0, -1], draws=[[2], [], [0, 1]])
    rows = Fixed([0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0])
    kept = accept(draft, rows, "point-mass")
    assert (kept.path, kept.token, kept.chosen, kept.streaks) == ([0, 1], 0, 2, [0.0, 0.0, 2.0])


def test_what_is_not_lossless_is_refused():
    rows = Fixed([0.5, 0.5], [0.5, 0.5], [0.5, 0.5])
    with pytest.raises(Refusal, match="ratio rule needs the distribution"):
        accept(Draft.chain([0, 1]), rows, "ratio")
    siblings = Draft(tokens=[0, 1], parent=[-1, -1], q=torch.full((2, 2), 0.5))
    with pytest.raises(Refusal, match="independent drafts"):
        accept(siblings, rows, "ratio")
    with pytest.raises(Refusal, match="no acceptance rule"):
        accept(Draft(), rows, "always")
    with pytest.raises(Refusal, match="not numbers"):
        accept(Draft(), Fixed([math.nan, math.nan]), "point-mass")


def test_the_same_seed_gives_the_same_verdict():
    world = World(3)
    cases = drafts(world, marginals, 2)[:40]
    runs = [[accept(d, Tree(world, d), "ratio", g) for _, d in cases] for g in (torch.Generator().manual_seed(5), torch.Generator().manual_seed(5))]
    assert runs[0] == runs[1]


def test_a_draw_never_lands_on_probability_zero(monkeypatch):
    for u in (0.0, 0.5, 1 - 2**-53):
        dice = Coins(u)(None, 0)
        assert dice.draw(torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0])) in (1, 3)
