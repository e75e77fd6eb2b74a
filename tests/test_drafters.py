"""The parts every method is made of: n-grams, tries, best-first trees, block contexts; and the two
simplest methods. Exact values by hand.
"""

import itertools
import math
import random
import subprocess
import sys

import pytest
import torch
from scripted_net import FakeNet, context, depths, loaded, logs

from specdemo.drafters import METHODS
from specdemo.drafters.parts import block_context, proposal
from specdemo.drafters.parts.candidates import CandidateTable
from specdemo.drafters.parts.ngram import NgramModel, SuffixIndex
from specdemo.drafters.parts.trees import (
    Trie,
    best_first,
    boundary_scores,
    branch_depths,
    expected_streak,
    nodes_that_pay,
)
from specdemo.errors import UserError
from specdemo.models.pairs import Pair

pytestmark = pytest.mark.usefixtures("one_thread")


# -- n-grams ---------------------------------------------------------------------------------------


def test_the_longest_and_most_recent_match_is_continued():
    index = SuffixIndex(1, 3)
    index.extend([1, 2, 3, 9, 2, 3, 8, 1, 2, 3])
    assert index.continuation(4) == ([9, 2, 3, 8], 3)  # "1 2 3" once, before the more recent "2 3"
    index.extend([5, 2, 3])
    # "5 2 3" is new, "2 3" most recently went on with 5
    assert index.continuation(3) == ([5, 2, 3], 2)
    index.extend([77])
    assert index.continuation(3) == ([], 0)


def test_a_loop_is_continued_as_a_loop():
    index = SuffixIndex(2, 4)
    index.extend([4, 1, 2, 3, 1, 2, 3, 1, 2])
    assert index.continuation(7) == ([3, 1, 2, 3, 1, 2, 3], 4)


def test_suffix_index_agrees_with_a_search_by_hand():
    rng = random.Random(0)
    ids = [rng.randrange(4) for _ in range(120)]
    index = SuffixIndex(2, 5)
    for i in range(len(ids)):
        index.extend_to(ids[: i + 1])
        text, want = ids[: i + 1], ([], 0)
        for n in range(5, 1, -1):
            ends = [j for j in range(n, i + 1) if text[j - n : j] == text[len(text) - n :]]
            if len(text) >= n and ends:
                j = ends[-1]
                want = ([text[j + k % (len(text) - j)] for k in range(6)], n)
                break
        assert index.continuation(6) == want
    assert index.ids == ids


def test_ngram_model_agrees_with_brute_force_counts():
    rng, vocab = random.Random(1), 5
    ids = [rng.randrange(vocab) for _ in range(60)]
    model = NgramModel(3, vocab)
    model.extend_to(ids[:7])
    model.extend_to(ids)

    def brute(history, token):
        p = 1 / vocab
        for n in range(3):
            h = history[len(history) - n :]
            after = [ids[i + n] for i in range(len(ids) - n) if ids[i : i + n] == h]
            if len(h) < n or not after:
                break
            p = (after.count(token) + len(set(after)) * p) / (len(after) + len(set(after)))
        return p

    for history in itertools.product(range(vocab), repeat=2):
        got = [model.prob(list(history), v) for v in range(vocab)]
        assert got == pytest.approx([brute(list(history), v) for v in range(vocab)], abs=1e-12)
        assert sum(got) == pytest.approx(1)


def test_ngram_model_by_hand():
    model = NgramModel(2, 10)
    model.extend_to([1, 2, 1, 3])
    # empty history: 4 tokens, 3 kinds -> p(2) = (1 + 3/10) / 7; after 1: [2, 3] -> (1 + 2 p) / 4
    assert model.prob([], 2) == pytest.approx(1.3 / 7)
    assert model.prob([9, 1], 2) == pytest.approx((1 + 2 * 1.3 / 7) / 4)
    # nothing ever followed 3: the shorter history decides
    assert model.prob([3], 2) == pytest.approx(1.3 / 7)


# -- trees -----------------------------------------------------------------------------------------


def test_drafts_merge_into_a_trie_without_duplicates():
    trie = Trie(limit=6)
    assert trie.add([5, 6, 7], [0.9, 0.8, 0.7], "a") == [0, 1, 2]
    assert trie.add([5, 6, 8], [0.1, 0.1, 0.1], "b") == [0, 1, 3]
    assert trie.add([4], origin="c") == [4]
    assert trie.add([5, 9, 9], origin="d") == [0, 5]  # full: the last token is left out
    draft = trie.draft()
    assert draft.tokens == [5, 6, 7, 8, 4, 9] and draft.parent == [-1, 0, 1, 1, -1, 0]
    assert draft.origin == ["a", "a", "a", "b", "c", "d"] and draft.probs == [
        0.9,
        0.8,
        0.7,
        0.1,
        None,
        None,
    ]
    assert depths(draft) == [1, 2, 3, 3, 1, 2]


def test_best_first_tree_by_hand():
    table = [[(10, 0.6), (11, 0.3)], [(20, 0.5), (21, 0.4)], [(30, 0.9)]]
    # paths: 10 .6 | 10-20 .3 and 11 .3 | 10-20-30 .27 | 10-21 .24 | 10-21-30 .216 | 11-20 .15 |
    # 11-20-30 .135 | 11-21 .12 | 11-21-30 .108
    nodes = best_first(*CandidateTable(table).choices(), 5)
    assert [(n.parent, n.token) for n in nodes] == [(-1, 10), (-1, 11), (0, 20), (2, 30), (0, 21)]
    assert [n.path_prob for n in nodes] == pytest.approx([0.6, 0.3, 0.3, 0.27, 0.24])
    assert [n.prob for n in nodes] == [0.6, 0.3, 0.5, 0.9, 0.4]
    assert len(best_first(*CandidateTable(table).choices(), 99)) == 2 + 4 + 4
    assert [n.token for n in best_first(*CandidateTable(table).choices(), 99, floor=0.2)] == [
        10,
        11,
        20,
        30,
        21,
        30,
    ]
    assert (
        best_first(*CandidateTable([]).choices(), 5) == []
        and best_first(*CandidateTable(table).choices(), 0) == []
    )


def test_best_first_follows_choices_that_depend_on_the_path():
    # after token 5 the second depth is known to be 7, after anything else it is open
    choices = {
        "start": [(5, 0.5, "after 5", "a"), (6, 0.4, "open", "b")],
        "after 5": [(7, 1.0, None, "c")],
        "open": [(8, 0.6, None, "d"), (9, 0.4, None, "d")],
    }
    nodes = best_first(choices.__getitem__, "start", 4)
    assert [(n.parent, n.token, n.tag) for n in nodes] == [
        (-1, 5, "a"),
        (0, 7, "c"),
        (-1, 6, "b"),
        (2, 8, "d"),
    ]


def test_where_a_tree_branches_along_its_first_path():
    assert (
        branch_depths([-1, 0, 1, 0, -1, 3, 2]) == [0, 1]
        and branch_depths([-1, 0, 1, 2, 2]) == [3]
        and branch_depths([]) == []
        and branch_depths([-1, 0]) == []
    )


def test_best_first_is_the_best_tree_of_every_size():
    rng = random.Random(3)
    table = [
        sorted(((10 * d + k, rng.random() / 3) for k in range(3)), key=lambda c: -c[1])
        for d in range(3)
    ]
    weights = []
    for depth in range(1, 4):
        for ranks in itertools.product(range(3), repeat=depth):
            weights.append(math.prod(table[d][r][1] for d, r in enumerate(ranks)))
    weights.sort(reverse=True)
    nodes = best_first(*CandidateTable(table).choices(), len(weights))
    assert [n.path_prob for n in nodes] == pytest.approx(weights)
    assert all(n.parent < i for i, n in enumerate(nodes))


def test_node_count_follows_the_cost_curve():
    weights = [0.8, 0.6, 0.3, 0.2, 0.05]
    assert nodes_that_pay(weights, lambda rows: 10.0, 1.0)[0] == 5  # rows are free: take all
    # rows cost all: no draft pays
    assert nodes_that_pay(weights, lambda rows: 10.0 * rows, 0.0)[0] == 0
    n, rate = nodes_that_pay(weights, lambda rows: 10.0 if rows <= 4 else 20.0, 2.0)
    assert n == 3 and rate == pytest.approx(2.7 / 12)
    # a step that pays only further on: sizes past the first non-improvement are looked at too
    assert (
        nodes_that_pay([0.5, 0.1, 0.9, 0.9], lambda rows: {1: 10, 2: 14, 3: 15}.get(rows, 16), 0.0)[
            0
        ]
        == 4
    )


def test_boundary_scores_of_the_papers_example():
    r = boundary_scores([0.95, 0.84, 0.62, 0.70, 0.42])
    assert r == pytest.approx([0.050, 0.152, 0.303, 0.148, 0.201], abs=5e-4)
    order = sorted(range(5), key=lambda i: -r[i])
    assert order == [2, 4, 1, 3, 0] and sorted(order[:4]) == [1, 2, 3, 4]


def test_expected_streak_is_the_mean_accepted_length():
    """One draft drawn from the drafter, checked by a target p that ignores the past: Σ_x
    q(x)·E[accepted] by brute force.
    """
    p, probs = [0.2, 0.5, 0.3], [0.5, 0.3, 0.5]
    assert expected_streak(probs) == pytest.approx(0.5 + 0.15 + 0.075)
    total = 0.0
    for accepted in itertools.product((True, False), repeat=3):  # every outcome of three coins
        weight = math.prod(pr if a else 1 - pr for pr, a in zip(probs, accepted, strict=True))
        total += weight * next((i for i, a in enumerate(accepted) if not a), 3)
    assert expected_streak(probs) == pytest.approx(total)
    assert expected_streak([]) == 0 and sum(p) == 1


# -- sessions, lookup, block -----------------------------------------------------------------------


def test_importing_the_methods_loads_no_torch():
    code = (
        "import sys, specdemo.drafters as d; assert d.METHODS and 'torch' not in sys.modules and"
        " 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_map_the_reduced_vocabulary_and_never_show_the_mask():
    net = FakeNet(
        lambda block, at: logs(*[[0.12, 0.5, 0.3, 0.08]] * len(block)),
        vocab_ids=[3, 5, 0, 6],
        mask_id=5,
    )
    one = block_context.BlockContext(net)
    one.start(16)
    rows = one.top_candidates(one.logits(one.hidden([[1, block_context.MASK]], 0)), k=3)
    assert [[t for t, _ in row] for row in rows] == [[0, 3, 6]] * 2  # column 1 is the mask's
    assert [p for _, p in rows[0]] == pytest.approx([0.6, 0.24, 0.16])
    full = proposal.widen(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), net.vocab_ids, 8)
    assert full.tolist()[0] == pytest.approx([0.3, 0, 0, 0.1, 0, 0.2, 0.4, 0])


def test_block_drafts_the_best_guess_at_every_mask(monkeypatch):
    def script(block, at):
        return logs(
            *[
                [0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2],
                [0, 0.7, 0.3, 0, 0, 0, 0, 0],
                [0, 0, 0.4, 0.6, 0, 0, 0, 0],
                [0.9, 0.1, 0, 0, 0, 0, 0, 0],
            ][: len(block)]
        )

    net = FakeNet(script)
    drafter = METHODS["block"].build(
        loaded(monkeypatch, block=net), METHODS["block"].parse_params({"gamma": 3})
    )
    assert drafter.layer_ids == (1, 3) and drafter.weights == "scripted"
    drafter.start([5, 6, 7], 32)
    draft = drafter.propose(context([5, 6, 7, 2], (0, 3)))
    assert (
        draft.tokens == [1, 3, 0]
        and draft.parent == [-1, 0, 1]
        and draft.probs == pytest.approx([0.7, 0.6, 0.9])
        and draft.frames == []
    )
    assert net.passes == [([[2, -1, -1, -1]], 3, 3)]
    seen = drafter.propose(context([5, 6, 7, 2, 1, 4], (3, 2), budget=2, record=True))
    assert seen.tokens == [1, 3] and net.passes[-1] == ([[4, -1, -1, -1]], 5, 5)
    assert (
        seen.frames[0].ids == [1, 3]
        and seen.frames[0].masked == [False, False]
        and seen.frames[0].conf == pytest.approx([0.7, 0.6])
    )
    assert seen.frames[0].top[1] == [(3, pytest.approx(0.6)), (2, pytest.approx(0.4))]
    with pytest.raises(UserError, match="block of 7 masks"):
        METHODS["block"].build(
            loaded(monkeypatch, block=net), METHODS["block"].parse_params({"gamma": 8})
        )


def test_lookup_and_plain():
    drafter = METHODS["lookup"].build(loaded(), METHODS["lookup"].parse_params({"gamma": 4}))
    drafter.start([1, 2, 3, 4], 64)
    assert drafter.propose(context([1, 2, 3, 4, 1, 2])).tokens == [3, 4, 1, 2]
    assert drafter.propose(context([1, 2, 3, 4, 1, 2, 3], budget=2)).tokens == [4, 1]
    draft = drafter.propose(context([1, 2, 3, 4, 1, 2, 3, 9], record=True))
    assert draft.tokens == [] and "nowhere" in draft.notes["why"]
    plain = METHODS["ar"].build(loaded(), METHODS["ar"].parse_params({}))
    plain.start([1], 8)
    assert plain.propose(context([1, 2])).tokens == []


def test_rules_that_lose_are_refused_in_one_sentence():
    for name, method in METHODS.items():
        params = method.parse_params({})
        assert method.refuse(method.rules[0], params) is None
        for rule in {"match", "ratio", "point-mass"} - set(method.rules):
            said = method.refuse(rule, params)
            assert (
                method.title in said
                and rule in said
                and said.endswith(".")
                and said.count(". ") == 0
            ), (name, said)


@pytest.mark.parametrize("bad", [0, -1, 10**6, float("nan"), float("inf"), 2.5, "seven", None])
def test_hostile_gamma_is_refused_in_one_sentence(bad):
    for method in METHODS.values():
        if "gamma" in method.params.model_fields:
            with pytest.raises(UserError, match=r"^gamma must be .*\.$"):
                method.parse_params({"gamma": bad})


def test_unknown_and_crossed_parameters_are_refused():
    with pytest.raises(UserError, match="no parameter “beta”"):
        METHODS["block"].parse_params({"beta": 1})
    with pytest.raises(UserError, match="shortest"):
        METHODS["lookup"].parse_params({"shortest": 5, "longest": 3})


def test_a_missing_drafter_is_said_before_anything_is_fetched(tmp_path):
    """By kind: what a method can run on, and whether its folder is there."""

    def why(method, **more):
        pair = Pair("big", "Big", "none", "8 B", ({"hub": "a/b"},), **more)
        return METHODS[method].refuse_pair(pair)

    (tmp_path / "config.json").write_text("{}")
    here, gone = str(tmp_path), str(tmp_path / "gone")
    for method, known in METHODS.items():
        without = why(method)
        assert (without is None) == (method in ("ar", "lookup", "best"))
        assert without is None or ("has no" in without and "train --pair big" in without)
        assert why(method, drafters={"block": here}) is None
        assert why(method, drafters={"block": "hub:a/b"}) is None
        assert (why(method, drafters={"ar": here}) is None) == (
            method in ("ar", "lookup", "best", "ar-draft")
        )
        assert (why(method, drafters={"block": gone}) is None) == (not known.kinds)
    assert "no config.json" in why("best", drafters={"block": gone})
    assert "needs foreign code" in why("block", blocked="it needs foreign code")
    assert why("specdiff2", drafters={"streak": here}) is None
    assert "or ar-draft" in why("block", drafters={"ar": here})
