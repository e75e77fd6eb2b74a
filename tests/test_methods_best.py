"""Our own method: what it learns in a run, the tree it makes of two sources, and when drafting is
paused and tried again.
"""

import random
from types import SimpleNamespace

import pytest
from scripted_net import FakeNet, context, loaded, logs

from specdemo.drafters import METHODS, best
from specdemo.drafters.best import COPY_PRIOR, RANK_DECAY, TreeExpander
from specdemo.drafters.parts.adaptive import EMA, Calibration, DraftingPolicy
from specdemo.drafters.parts.base import Verdict
from specdemo.drafters.parts.candidates import CandidateTable
from specdemo.drafters.parts.ngram import ContinuationIndex
from specdemo.drafters.parts.trees import best_first

pytestmark = pytest.mark.usefixtures("one_thread")
V = 8


def test_continuations_of_the_longest_known_suffix_last_seen_first():
    text = ContinuationIndex(longest=3, width=2)
    text.extend_to([1, 2, 3, 1, 2, 4])
    text.extend_to([1, 2, 3, 1, 2, 4, 1, 2, 5, 2])
    # 3 fell out: two are kept
    assert text.after((1, 2)) == ([5, 4], 2) and text.after((9, 2)) == ([5, 4], 1)
    assert (
        text.after((3, 1, 2)) == ([4], 3)
        and text.after((7, 3)) == ([1], 1)
        and text.after((7,)) == ((), 0)
    )
    assert text.after((5, 2)) == ([5, 4], 1)  # the end of the text has no continuation yet


def test_calibration_starts_with_the_stated_probability_and_learns_per_cell():
    known = Calibration(weight=4)
    p, cell = known.estimate("block", 1, 0.8)
    assert p == pytest.approx(0.8)
    for correct in (True, False, False, False):
        known.learn(cell, correct)
    assert known.estimate("block", 1, 0.8)[0] == pytest.approx((1 + 4 * 0.8) / 8)
    assert known.estimate("block", 1, 0.81)[0] == pytest.approx((1 + 4 * 0.81) / 8)  # same band
    for other in (("copy", 1, 0.8), ("block", 2, 0.8), ("block", 1, 0.5)):
        assert known.estimate(*other)[0] == other[2]
    known.learn(known.estimate("block", 3, 0.8)[1], False)
    assert (
        known.estimate("block", 4, 0.8)[0] == pytest.approx(3.2 / 5)
        and known.estimate("block", 5, 0.8)[0] == 0.8
    )


def test_calibration_finds_the_truth():
    rng, known = random.Random(0), Calibration()
    for _ in range(3000):
        known.learn(known.estimate("block", 1, 0.9)[1], rng.random() < 0.6)
    assert known.estimate("block", 1, 0.9)[0] == pytest.approx(0.6, abs=0.03)
    assert known.estimate("block", 1, 0.0)[0] == 0.0 and 0 < known.estimate("block", 1, 1.0)[0] <= 1


def test_a_copy_and_the_network_share_one_row():
    text = ContinuationIndex(len(COPY_PRIOR), 1)
    text.extend_to([5, 6, 2, 5, 6])  # after 5 6 came 2
    expander = TreeExpander(CandidateTable([[(1, 0.6), (2, 0.3)]]), text, Calibration())
    (first, p1, _, tag1), (second, p2, state, tag2) = expander.expand((0, (0, 2, 5, 6)))
    both = 1 - 0.7 * (1 - COPY_PRIOR[1])
    assert (first, second) == (2, 1) and p1 == pytest.approx(both) and tag1[:2] == ("both", 1)
    assert (
        p2 == pytest.approx(0.6 * (1 - both) / 0.7)
        and tag2[:2] == ("beside", 1)
        and state == (1, (2, 5, 6, 1))
    )
    alone = TreeExpander(CandidateTable([[(1, 0.6), (3, 0.3)]]), text, Calibration()).expand(
        (0, (0, 2, 5, 6))
    )
    assert [(t, pytest.approx(p)) for t, p, *_ in alone] == [
        (1, 0.6 * (1 - COPY_PRIOR[1])),
        (2, COPY_PRIOR[1]),
        (3, 0.3 * (1 - COPY_PRIOR[1])),
    ]
    assert (
        sum(p for _, p, *_ in alone) <= 1
        and TreeExpander(CandidateTable([]), None, Calibration()).expand((0, (5, 6))) == []
    )


def test_copies_grow_from_any_node_and_beyond_the_block():
    text = ContinuationIndex(len(COPY_PRIOR), 2)
    text.extend_to([4, 1, 2, 3, 4, 7, 9, 4])
    nodes = best_first(
        TreeExpander(CandidateTable([[(1, 0.9)]]), text, Calibration()).expand,
        (0, (7, 9, 4)),
        6,
        floor=0.01,
    )
    paths = {}
    for i, n in enumerate(nodes):
        paths[i] = (*paths.get(n.parent, ()), n.token)
    assert (1, 2, 3, 4) in paths.values() and (7, 9) in paths.values()
    assert nodes[0].tag.source == "both" and {n.tag.source for n in nodes[1:]} == {"copy"}
    second = next(n for n in nodes if n.parent == -1 and n.token == 1)
    assert second.prob > COPY_PRIOR[0] * RANK_DECAY


def run_policy(policy, tokens_of, rounds, cost=1.12):
    """Milliseconds and tokens of a run in which a plain round takes 1 ms and one with a draft pass
    ``cost``.
    """
    spent = written = used = 0
    for i in range(rounds):
        network = policy.should_draft(cost, 1.0)
        tokens, took = (tokens_of(i), cost) if network else (1, 1.0)
        policy.update(network, tokens, took, 1.0)
        spent, written, used = spent + took, written + tokens, used + network
    return spent, written, used


def test_a_drafter_that_never_pays_costs_less_than_two_percent():
    for rounds in (96, 1000, 20000):
        for cost in (1.05, 1.12, 1.5, 3.0):
            spent, written, used = run_policy(DraftingPolicy(), lambda i: 1, rounds, cost)
            assert spent / written < 1.02, (rounds, cost, used)


def test_a_drafter_that_pays_is_never_paused_and_one_that_starts_to_pay_is_found():
    _, _, used = run_policy(DraftingPolicy(), lambda i: 2, 300)
    assert used == 300
    rng = random.Random(1)
    policy = DraftingPolicy()
    run_policy(policy, lambda i: 1, 400)
    assert policy.expected < 1.12
    spent, written, used = run_policy(policy, lambda i: rng.choice((1, 2, 3, 4)), 400)
    assert used > 250 and written / spent > 1.6
    spent, written, _ = run_policy(policy, lambda i: 1, 400)
    assert spent / written < 1.02


def test_a_drafter_is_tried_once_where_wide_passes_are_dear():
    """At twice a plain round's cost the prior alone would never draft; one trial finds out, unless
    it would cost more than the answer can give back.
    """
    _, _, used = run_policy(DraftingPolicy(), lambda i: 5, 96, cost=2.2)
    assert used == 96
    spent, written, used = run_policy(DraftingPolicy(), lambda i: 1, 96, cost=2.2)
    assert used == 1 and spent / written < 1.02
    assert run_policy(DraftingPolicy(), lambda i: 9, 20, cost=4.0)[2] == 0


def test_what_drafting_has_gained_may_be_lost_in_trials():
    """A first draft that pays and three that do not are no reason to stop for the whole answer."""
    then = iter([6, 1, 1, 1, *[4] * 96])
    spent, written, used = run_policy(DraftingPolicy(), lambda i: next(then), 96, cost=2.2)
    assert used > 60 and spent / written < 0.7
    never = iter([6, 3, *[1] * 96])
    spent, written, used = run_policy(DraftingPolicy(), lambda i: next(never), 96, cost=2.2)
    assert used < 12 and spent / written < 1.05


def test_promises_count_as_far_as_they_are_kept():
    """Promises that are kept on average count although single rounds vary; a drafter that always
    promises two and writes one is paused.
    """
    honest, lucky = DraftingPolicy(), DraftingPolicy()
    for turn in range(40):
        honest.update(True, (1, 1, 5, 1)[turn % 4], 1.2, 1.0, promised=2.0)
        assert 1.15 < honest.expected < 2.4
    assert honest.expected == pytest.approx(2.0, abs=0.05)
    for _ in range(6):
        lucky.update(True, 1, 1.2, 1.0)  # no promise known: what was written counts
    assert lucky.expected == pytest.approx((1.5 * 3 + 6) / 9)
    policy, spent, used = DraftingPolicy(), 0.0, 0
    for _ in range(400):
        network = policy.should_draft(1.15, 1.0)
        spent, used = spent + (1.15 if network else 1.0), used + network
        policy.update(network, 1, 1.15 if network else 1.0, 1.0, promised=2.0 if network else None)
    assert used < 50 and spent / 400 < 1.02


def test_copies_that_pay_more_are_taken_without_a_draft_pass():
    policy = DraftingPolicy(prior=3.0)
    assert not policy.should_draft(draft_ms=1.2, plain_ms=1.0, copy_tokens=6.0, copy_ms=1.05)
    assert policy.skipped == 0  # this is no pause
    assert policy.should_draft(draft_ms=1.2, plain_ms=1.0, copy_tokens=1.5, copy_ms=1.05)


def test_a_slow_moment_does_not_throw_the_mean_off():
    mean = EMA(0.5)
    for x in (2.0, 2.0, 100.0):
        mean.add(x)
    assert mean.value == 5.0  # 2 + (8 - 2) / 2


# -- the drafter -----------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Milliseconds the drafter believes to have passed; each look at the clock adds ``step``."""
    state = SimpleNamespace(now=0.0, step=0.0)

    def tick():
        state.now += state.step / 1e3
        return state.now

    monkeypatch.setattr(best, "time", SimpleNamespace(perf_counter=tick))
    return state


def start(monkeypatch, net, params=None, prompt=(1, 2, 3)):
    drafter = METHODS["best"].build(
        loaded(monkeypatch, block=net), METHODS["best"].parse_params(params or {})
    )
    drafter.start(list(prompt), 256)
    return drafter


def wrong(block, at):
    """Confident of token 6 everywhere."""
    return logs(*[[0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.93, 0.01]] * len(block))


def test_drafting_is_paused_when_nothing_is_accepted_and_plain_rounds_go_on(monkeypatch, clock):
    net, clock.step = FakeNet(wrong, block_size=16), 3.0
    drafter = start(monkeypatch, net, {"copies": 0})
    ids, known, plain = [1, 2, 3, 4], 0, 0
    for turn in range(120):
        before = len(net.passes)
        draft = drafter.propose(
            context(
                ids,
                (known, len(ids) - 1 - known),
                record=True,
                pass_ms=lambda n: 20.0 if n <= 16 else 25.0,
                prompt_length=3,
            )
        )
        if len(net.passes) > before:
            known = len(ids) - 1
        else:
            plain += 1
            assert (
                draft.tokens == []
                and draft.frames == []
                and draft.notes["why"].startswith("drafting is paused")
            )
        drafter.observe(Verdict([], turn % 6, 0.003, 0.02))
        ids = [*ids, turn % 6]
    assert plain > 85 and 3 < len(net.passes) < 35
    # tried again later, the drafter has read everything that was committed in between
    assert net.passes[-1][2] == net.passes[-1][1]


def test_while_drafting_is_paused_copies_go_on(monkeypatch, clock):
    net, clock.step = FakeNet(wrong, block_size=16), 3.0
    drafter = start(monkeypatch, net, prompt=[1, 2, 3, 4, 5] * 4)
    ids, tokens, known = [1, 2, 3, 4, 5] * 4 + [1], 0, 0
    for _ in range(10):
        before = len(net.passes)
        draft = drafter.propose(
            context(
                ids,
                (known, len(ids) - 1 - known),
                record=True,
                pass_ms=lambda n: 20.0 if n <= 16 else 25.0,
                prompt_length=20,
            )
        )
        known = len(ids) - 1 if len(net.passes) > before else known
        path, at = [], -1
        while (
            child := next(
                (
                    i
                    for i, p in enumerate(draft.parent)
                    if p == at and draft.tokens[i] == ids[-1 - 4 + len(path) % 5]
                ),
                None,
            )
        ) is not None:
            path.append(child)
            at = child
        nxt = ids[-5 + len(path) % 5]
        drafter.observe(Verdict(path, nxt, 0.0, 0.02))
        ids = ids + [draft.tokens[i] for i in path] + [nxt]
        tokens += len(path) + 1
    assert tokens > 60 and len(net.passes) <= 2
    assert set(draft.origin) == {"copy"} and "n-gram copies cost nothing" in draft.notes["why"]


def test_without_adaptive_every_round_drafts(monkeypatch, clock):
    net = FakeNet(wrong, block_size=16)
    drafter = start(monkeypatch, net, {"adaptive": False, "copies": 0})
    for turn in range(30):
        drafter.propose(
            context([1, 2, 3, 4], (0, 3) if not turn else (3, 0), pass_ms=lambda n: 20.0)
        )
        drafter.observe(Verdict([], 0, 0.003, 0.02))
    assert len(net.passes) == 30


def test_a_round_the_engine_did_alone_teaches_nothing(monkeypatch, clock):
    drafter = start(monkeypatch, FakeNet(wrong, block_size=16))
    drafter.propose(context([1, 2, 3, 4], (0, 3), pass_ms=lambda n: 20.0))
    drafter.observe(Verdict([], 0, 0.003, 0.02))
    seen = dict(drafter.calibration._seen)
    drafter.observe(Verdict([], 0, 0.003, 0.02))
    assert drafter.calibration._seen == seen and drafter.rounds == 1
