"""SpecDiff, SpecDiff-2 and DiffuSpec on scripted networks: worked examples, exact q, and searches
against brute force.
"""

import itertools
import math

import pytest
import torch
from scripted_net import FakeNet, V, chained, context, logs, make, noisy, peaked, same_row

from specdemo.drafters import METHODS
from specdemo.drafters.diffuspec import LengthController, lattice_of, prune, search
from specdemo.drafters.parts.ngram import NgramModel
from specdemo.errors import UserError

pytestmark = pytest.mark.usefixtures("one_thread")


# -- specdiff --------------------------------------------------------------------------------------


def test_specdiff_reveals_left_to_right(monkeypatch):
    net = FakeNet(chained)
    draft = make(
        monkeypatch, "specdiff", {"gamma": 4, "steps": 4, "reveal": "left-to-right"}, mdlm=net
    ).propose(context([1, 2, 3, 1], (0, 3), record=True))
    assert draft.tokens == [2, 3, 4, 5] and [p[0] for p in net.passes] == [
        [[1, -1, -1, -1, -1]],
        [[1, 2, -1, -1, -1]],
        [[1, 2, 3, -1, -1]],
        [[1, 2, 3, 4, -1]],
    ]
    assert [f.masked for f in draft.frames] == [[k > s for k in range(4)] for s in range(4)]
    assert (
        draft.frames[0].ids == [2, 6, 6, 6]
        and draft.frames[3].ids == [2, 3, 4, 5]
        and draft.frames[3].conf == pytest.approx([0.9] * 4)
    )


def test_specdiff_fills_the_most_confident_masks_first_and_divides_them_evenly(monkeypatch):
    def script(block, at):
        return logs(
            peaked(0),
            peaked(1, 0.5),
            peaked(2, 0.9),
            peaked(3, 0.6),
            peaked(4, 0.8),
            peaked(5, 0.7),
        )[: len(block)]

    net = FakeNet(script)
    draft = make(monkeypatch, "specdiff", {"gamma": 5, "steps": 3}, mdlm=net).propose(
        context([1, 2, 3, 0], (0, 3), record=True)
    )
    assert [p[0][0] for p in net.passes] == [
        [0, -1, -1, -1, -1, -1],
        [0, -1, 2, -1, 4, -1],
        [0, -1, 2, 3, 4, 5],
    ]
    assert draft.tokens == [1, 2, 3, 4, 5] and draft.probs == pytest.approx(
        [0.5, 0.9, 0.6, 0.8, 0.7]
    )
    assert draft.frames[1].masked == [True, False, False, False, False]


@pytest.mark.parametrize(
    "params", [{"steps": 1}, {"steps": 2}, {"steps": 2, "reveal": "left-to-right", "q": "reveal"}]
)
def test_specdiff_hands_over_the_q_it_sampled_from(monkeypatch, params):
    net = FakeNet(chained)
    drafter = make(monkeypatch, "specdiff", {"gamma": 2, **params}, mdlm=net)
    counts, rows = {}, {}
    generator = torch.Generator().manual_seed(0)
    for turn in range(400):
        draft = drafter.propose(
            context(
                [1, 2, 3, 1],
                (0, 3) if not turn else (3, 0),
                rule="ratio",
                temperature=0.8,
                generator=generator,
            )
        )
        assert draft.q.shape == (2, V) and draft.q.sum(1).tolist() == pytest.approx([1, 1])
        counts[draft.tokens[0]] = counts.get(draft.tokens[0], 0) + 1
        rows[draft.tokens[0]] = draft.q
    first = torch.tensor(logs(peaked(2, 0.9))).div(0.8).softmax(-1)[0]
    assert abs(counts[2] / 400 - first[2].item()) < 0.06
    if params["steps"] == 1 or params.get("q") == "reveal":
        assert draft.q[0].tolist() == pytest.approx(first.tolist(), abs=1e-6)
    else:  # a token filled before the last step: one-hot
        assert rows[2][0].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    if params["steps"] == 2:
        assert rows[2][1].tolist() == pytest.approx(
            torch.tensor(logs(peaked(3, 0.9))).div(0.8).softmax(-1)[0].tolist(), abs=1e-6
        )
    greedy = drafter.propose(context([1, 2, 3, 1], (3, 0), rule="ratio", temperature=0.0))
    assert (
        greedy.q.max(1).values.tolist() == [1, 1] and greedy.q.argmax(1).tolist() == greedy.tokens
    )


def test_specdiff_refuses_the_q_that_is_not_exact():
    method = METHODS["specdiff"]
    assert "most confident masks" in method.refuse("ratio", method.parse_params({"q": "reveal"}))
    for fine in (
        {"q": "reveal", "steps": 1},
        {"q": "reveal", "reveal": "left-to-right"},
        {"steps": 3},
    ):
        assert method.refuse("ratio", method.parse_params(fine)) is None
    with pytest.raises(UserError, match=r"^steps \(9\) must not be above gamma \(8\)"):
        method.parse_params({"steps": 9, "gamma": 8})


def test_specdiff_warms_up_one_token_at_a_time(monkeypatch):
    net = FakeNet(chained)
    drafter = make(monkeypatch, "specdiff", {"gamma": 4, "steps": 1, "warmup": 2}, mdlm=net)
    assert (
        drafter.propose(context([1, 2, 3, 1], (0, 3), prompt_length=3)).tokens == [2, 3, 4, 5]
        and len(net.passes) == 4
    )
    late = drafter.propose(context([1, 2, 3, 1, 2], (3, 1), prompt_length=3))
    assert late.tokens == [3, 6, 6, 6] and len(net.passes) == 5 and net.passes[-1][2] == 4


# -- specdiff2 -------------------------------------------------------------------------------------


def test_specdiff2_merges_its_draws_and_says_who_went_where(monkeypatch):
    rows = [[0, 0.6, 0.4, 0, 0, 0, 0, 0], [0, 0, 0, 0.5, 0.3, 0.2, 0, 0]]
    drafter = make(
        monkeypatch,
        "specdiff2",
        {"gamma": 2, "drafts": 6, "temperature": 1.0},
        streak=FakeNet(same_row(*rows)),
    )
    draft = drafter.propose(
        context([1, 2, 3, 0], (0, 3), rule="point-mass", generator=torch.Generator().manual_seed(4))
    )
    assert len(draft.draws) == 6 and draft.draws[0] == [0, 1] and draft.tokens[:2] == [1, 3]
    for one, nodes in zip(draft.notes["drafts"], draft.draws, strict=True):
        assert one["nodes"] == nodes and one["ids"] == [draft.tokens[n] for n in nodes]
        q = [dict(enumerate(row))[t] for row, t in zip(rows, one["ids"], strict=True)]
        assert one["drafter_score"] == pytest.approx(q[0] + q[0] * q[1])
        assert [draft.parent[n] for n in nodes] == [-1, *nodes[:-1]]
    assert len(set(zip(draft.parent, draft.tokens, strict=True))) == len(draft.tokens)
    small = drafter.propose(
        context([1, 2, 3, 0], budget=1, generator=torch.Generator().manual_seed(4))
    )
    assert small.tokens == [1] and all(nodes in ([0], []) for nodes in small.draws)


def test_specdiff2_samples_its_marginals(monkeypatch):
    rows = [[0, 0.6, 0.3, 0.1, 0, 0, 0, 0]]
    drafter = make(
        monkeypatch,
        "specdiff2",
        {"gamma": 1, "drafts": 32, "temperature": 2.0, "argmax": False},
        streak=FakeNet(same_row(*rows)),
    )
    generator, seen = torch.Generator().manual_seed(0), []
    for turn in range(40):
        draft = drafter.propose(
            context([1, 2, 3, 0], (0, 3) if not turn else (3, 0), generator=generator)
        )
        seen += [one["ids"][0] for one in draft.notes["drafts"]]
    expected = [p**0.5 for p in rows[0]]
    for token in range(V):
        assert seen.count(token) / len(seen) == pytest.approx(
            expected[token] / sum(expected), abs=0.04
        )


def test_streak_identity_for_one_draft():
    """Reference 2.4: with K = 1 the mean over drafts of Σ Π p is the mean accepted length of the
    point-mass rule, by brute force.
    """
    rng = torch.Generator().manual_seed(2)
    q = torch.rand(2, 3, generator=rng).softmax(-1)
    p1, p2 = torch.rand(3, generator=rng).softmax(-1), torch.rand(3, 3, generator=rng).softmax(-1)
    score = coins = 0.0
    for x, y in itertools.product(range(3), repeat=2):
        weight = (q[0, x] * q[1, y]).item()
        a, b = p1[x].item(), p2[x, y].item()
        score += weight * (a + a * b)
        coins += weight * (0 * (1 - a) + 1 * a * (1 - b) + 2 * a * b)
    assert score == pytest.approx(coins)


# -- diffuspec -------------------------------------------------------------------------------------


def test_pruning_keeps_the_smallest_top_m_with_enough_mass():
    row = [(5, 0.5), (3, 0.3), (2, 0.15), (1, 0.05)]
    assert (
        prune(row, 0.5) == row[:1]
        and prune(row, 0.51) == row[:2]
        and prune(row, 0.8) == row[:2]
        and prune(row, 0.81) == row[:3]
    )
    assert prune(row, 1.0) == row and prune(row, 0.9, most=2) == row[:2]
    lattice = lattice_of([row, [(7, 0.6), (1, 0.4)], row], 0.8, eos_ids=(7,))
    assert lattice == [row[:2], [(7, 0.6), (1, 0.4)]]  # nothing after a natural end


def test_path_search_agrees_with_all_paths():
    model = NgramModel(3, V)
    history = [1, 2, 3, 1, 2, 4, 1, 2]
    model.extend_to(history)
    lattice = [[(3, 0.5), (4, 0.45), (5, 0.05)], [(1, 0.6), (2, 0.4)], [(2, 0.5), (6, 0.5)]]
    scores = {}
    for path in itertools.product(*lattice):
        text, total = list(history), 0.0
        for token, p in path:
            total += 0.3 * math.log(p) + 0.7 * math.log(model.prob(text[-2:], token))
            text.append(token)
        scores[tuple(t for t, _ in path)] = total / 3
    best = sorted(scores, key=lambda ids: -scores[ids])
    found = search(lattice, model, history, beam=12, mix=0.3)
    assert [path.ids for path in found] == best
    assert [path.score for path in found] == pytest.approx([scores[ids] for ids in best])
    assert search(lattice, model, history, beam=3, mix=1.0)[0].ids in ((3, 1, 2), (3, 1, 6))
    assert search(lattice, model, history, beam=1, mix=0.0)[0].ids[0] in (3, 4)


def test_path_search_ends_at_the_end_token_without_favouring_it():
    model = NgramModel(3, V)
    lattice = [[(1, 0.9), (7, 0.1)], [(2, 0.9), (1, 0.1)]]
    paths = search(lattice, model, [0], beam=4, mix=1.0, eos_ids=(7,))
    assert paths[0].ids == (1, 2) and paths[0].score == pytest.approx(math.log(0.9))
    assert [p.ids for p in paths if p.ended] == [(7,)]


def test_length_controller_as_printed_and_corrected():
    printed = LengthController(20, 30, 10, 0.5, "paper")
    assert printed.k == 30
    assert printed.update(30, 6) == 20 and (printed.gen, printed.acc) == (15, 3)  # reference E.2 f
    for _ in range(10):
        # and there it stays although the drafter never asked for less
        assert printed.update(20, 8) == 20
    fair = LengthController(20, 30, 10, 0.5, "corrected")
    assert fair.update(30, 6) == 30 and (fair.gen, fair.acc) == (30, 6)
    assert fair.update(12, 6) == 20 and fair.gen == pytest.approx((0.25 * 30 + 0.5 * 12) / 0.75)
    assert fair.update(20, 20) == 20 and fair.gen == pytest.approx(
        (0.125 * 30 + 0.25 * 12 + 0.5 * 20) / 0.875
    )
    whole = LengthController(5, 15, 5, 1.0)
    assert whole.update(8, 3) == 8 and whole.update(8, 8) == 13
    assert LengthController(5, 15, 5, 0.5, "fixed").update(3, 1) == 15


def test_the_length_that_follows_what_is_accepted_does_move():
    """Without an end of text the drafted length is k, so both forms of the paper stand still."""

    def lengths(kind, accepted):
        control = LengthController(3, 30, 2, 0.5, kind)
        return [control.update(control.k, min(n, control.k)) for n in accepted]

    few_then_many = [1] * 6 + [28] * 8
    ours = lengths("accepted", few_then_many)
    assert ours[:6] == [3] * 6 and ours[-1] > 7 and ours == sorted(ours)
    assert set(lengths("corrected", few_then_many)) == {30}
    assert set(lengths("paper", few_then_many)) == {15}


def test_diffuspec_prefers_neighbours_that_fit(monkeypatch):
    rows = [
        [0, 0.05, 0, 0.5, 0.45, 0, 0, 0],
        [0, 0, 0.45, 0, 0, 0.55, 0, 0],
        [0, 0, 0, 0, 0, 0, 0.1, 0.9],
    ]
    net = FakeNet(same_row(*rows))
    drafter = make(monkeypatch, "diffuspec", {"k_max": 7, "k_min": 3, "mix": 0.3}, block=net)
    net.script = lambda block, at: logs(peaked(0), *rows, *[peaked(1)] * 4)[: len(block)]
    text = [4, 2, 6, 4, 2, 6, 1]
    draft = drafter.propose(context(text, (0, 6), record=True))
    # 4 2 occurs in the text, 3 5 does not
    assert len(net.passes[0][0][0]) == 8 and draft.tokens[:2] == [4, 2]
    assert (
        draft.notes["path"] == 0
        and draft.notes["length"]["k"] == 7
        and len(draft.notes["lattice"]) == 3
    )
    assert draft.notes["paths"][0]["ids"] == draft.tokens
    from specdemo.drafters.parts.base import Verdict

    drafter.observe(Verdict([0, 1], 5))
    # two tokens before its end, both right: longer again
    assert (drafter.control.gen, drafter.control.acc, drafter.control.k) == (2, 2, 7)


def test_ratio_on_a_searched_path_is_biased_and_therefore_refused():
    """A path that was picked, judged with a left-to-right q as if it had been sampled: the first
    token's distribution is not the target's.
    """
    p, q = [0.5, 0.3, 0.2], [0.4, 0.35, 0.25]
    accept = min(1.0, p[0] / q[0])  # the search always proposes token 0
    rest = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    expected = [
        accept + (1 - accept) * rest[0] / sum(rest),
        *((1 - accept) * r / sum(rest) for r in rest[1:]),
    ]
    assert 0.5 * sum(abs(a - b) for a, b in zip(expected, p, strict=True)) > 0.4
    assert "instead of sampled" in METHODS["diffuspec"].refuse(
        "ratio", METHODS["diffuspec"].parse_params({})
    )


def test_specdiff_of_an_mdlm_fills_each_mask_with_its_posterior_probability(monkeypatch):
    """(t − s) / t of a step from t = 1 to s = 1/3 is two thirds, of the next one half."""
    torch.manual_seed(0)
    net = FakeNet(noisy)
    net.config.random_order = True
    drafter = make(monkeypatch, "specdiff", {"gamma": 6, "steps": 3}, mdlm=net)
    assert drafter.params.reveal == "random"
    generator, left = torch.Generator().manual_seed(3), []
    for turn in range(400):
        draft = drafter.propose(
            context([1, 2, turn % 7], (0, 2 if not turn else 0), record=True, generator=generator)
        )
        assert all(t >= 0 for t in draft.tokens)
        masks = [sum(f.masked) for f in draft.frames] + [0] * (3 - len(draft.frames))
        left.append(masks)
        assert masks[2] == 0
    first, second = (sum(row[k] for row in left) / 400 for k in (0, 1))
    assert first == pytest.approx(4, abs=0.25) and second == pytest.approx(2, abs=0.25)
    # a step that fills nothing needs no pass: the next one would say the same
    asked = [tuple(p[0][0]) for p in net.passes]
    assert all(a != b for a, b in itertools.pairwise(asked))
    patterns = {tuple(p[0][0][i] == -1 for i in range(1, 7)) for p in net.passes}
    assert len(patterns) > 40  # any masks, not the surest ones


def test_specdiff_finishes_a_block_before_it_begins_the_next(monkeypatch):
    def script(block, at):  # the surest mask is the last one
        return logs(peaked(0), *(peaked(k, 0.3 + 0.1 * k) for k in range(1, 7)))[: len(block)]

    net = FakeNet(script)
    net.config.block = 4
    drafter = make(monkeypatch, "specdiff", {"gamma": 6, "steps": 3}, mdlm=net)
    # masks at positions 6 to 11: blocks end behind 7 and 11
    drafter.propose(context([1, 2, 3, 4, 5, 6], (0, 5)))
    hidden = [[i for i in range(1, 7) if p[0][0][i] == -1] for p in net.passes]
    assert hidden == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6], [3, 4]]
