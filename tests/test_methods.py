"""Diffusion methods on scripted networks: worked examples of the papers, exact trees, and nothing
changed by recording.
"""

import itertools
from types import SimpleNamespace

import pytest
import torch
from scripted_net import FakeNet, V, chained, context, depths, logs, make, noisy, peaked, same_row

from specdemo.drafters import METHODS, best, tree
from specdemo.errors import UserError
from specdemo.models.decoder import KVCache

pytestmark = pytest.mark.usefixtures("one_thread")


# -- d2sd ------------------------------------------------------------------------------------------

CONF = [0.95, 0.84, 0.62, 0.70, 0.42]


def test_d2sd_branches_where_the_papers_example_says(monkeypatch):
    first = FakeNet(same_row(*[peaked(k + 1, c) for k, c in enumerate(CONF)]))
    second = FakeNet(
        lambda block, at: logs(
            *[peaked((sum(b for b in block if b > 0) + k) % V, 0.8) for k in range(len(block))]
        )
    )
    second.weights = "variable prefix"
    drafter = make(monkeypatch, "d2sd", {"gamma": 5, "branches": 4}, block=first, vp=second)
    draft = drafter.propose(context([1, 2, 3, 0], (0, 3), record=True))
    assert draft.notes["boundaries"] == pytest.approx([0.050, 0.152, 0.303, 0.148, 0.201], abs=5e-4)
    assert draft.notes["branches"] == [2, 4, 1, 3]
    ((blocks, position, seen),) = second.passes  # one batched pass, context handed to both networks
    assert blocks == [
        [0, 1, 2, -1, -1, -1],
        [0, 1, 2, 3, 4, -1],
        [0, 1, -1, -1, -1, -1],
        [0, 1, 2, 3, -1, -1],
    ] and (position, seen) == (3, 3)
    # block 1 2 3 4 5; after 2: slots 3.. of prefix sum 3 -> 6 7 0; after 4: sum 10 -> 15%8=7; after
    # 1: sum 1 -> 3 4 5 6; after 3: sum 6 -> 2 3
    assert draft.tokens == [1, 2, 3, 4, 5, 6, 7, 0, 7, 3, 4, 5, 6, 2, 3]
    assert draft.parent == [-1, 0, 1, 2, 3, 1, 5, 6, 3, 0, 9, 10, 11, 2, 13]
    assert draft.origin == ["block"] * 5 + ["branch"] * 10
    assert [f.label for f in draft.frames] == [
        "block",
        "branch after 2",
        "branch after 4",
        "branch after 1",
        "branch after 3",
    ]
    assert "variable prefix" in drafter.weights
    cut = drafter.propose(context([1, 2, 3, 0], budget=7))
    assert (
        cut.tokens == draft.tokens[:7]
        and cut.parent == draft.parent[:7]
        and cut.frames == []
        and cut.notes == {}
    )


def test_d2sd_merges_a_branch_that_repeats_the_block(monkeypatch):
    net = FakeNet(same_row(peaked(1), peaked(2, 0.5), peaked(3)))
    drafter = make(monkeypatch, "d2sd", {"gamma": 3, "branches": 2, "ban": False}, block=net)
    draft = drafter.propose(context([1, 2, 3, 0], (0, 3)))
    # the same network for both passes, its context read once
    assert draft.tokens == [1, 2, 3] and len(net.passes) == 2
    assert "both passes" in drafter.weights


@pytest.mark.parametrize("vocab_ids", [None, [2, 3, 4, 5, 6, 7, 0, 1]])
def test_one_network_for_both_passes_of_d2sd_drafts_what_the_first_did_not(monkeypatch, vocab_ids):
    """No branch at the anchor, where it would see the first pass's input, and none with the doubted
    token.
    """
    row = [0, 0.4, 0.3, 0.2, 0.1, 0, 0, 0]
    net = FakeNet(same_row(row, row, row), vocab_ids=vocab_ids)
    drafter = make(monkeypatch, "d2sd", {"gamma": 3, "branches": 3}, block=net)
    draft = drafter.propose(context([1, 2, 3, 0], (0, 3), record=True))
    assert sorted(draft.notes["branches"]) == [1, 2]
    best, next_best = (1, 2) if vocab_ids is None else (3, 4)
    assert draft.tokens[:3] == [best] * 3
    below = {parent: [] for parent in draft.parent}
    for token, parent in zip(draft.tokens, draft.parent, strict=True):
        below[parent].append(token)
    assert below[-1] == [best] and sorted(below[0]) == sorted([best, next_best])
    assert sorted(below[1]) == sorted([best, next_best])


# -- tree ------------------------------------------------------------------------------------------


def test_tree_takes_the_likeliest_paths_and_as_many_as_pay(monkeypatch):
    rows = [
        [0, 0.6, 0.31, 0.09, 0, 0, 0, 0],
        [0, 0, 0, 0, 0.5, 0.4, 0.1, 0],
        [0.1, 0, 0, 0, 0, 0, 0, 0.9],
    ]
    drafter = make(monkeypatch, "tree", {"gamma": 3, "budget": 5}, block=FakeNet(same_row(*rows)))
    draft = drafter.propose(context([1, 2, 3, 0], (0, 3), record=True))
    assert draft.tokens == [1, 2, 4, 7, 5] and draft.parent == [-1, -1, 0, 2, 0]
    assert draft.probs == pytest.approx([0.6, 0.31, 0.5, 0.9, 0.4]) and draft.notes[
        "expected"
    ] == pytest.approx(1 + 0.6 + 0.31 + 0.3 + 0.27 + 0.24)
    free = make(monkeypatch, "tree", {"gamma": 3}, block=FakeNet(same_row(*rows)))
    assert (
        len(
            free.propose(
                context([1, 2, 3, 0], (0, 3), pass_ms=lambda n: 20.0 if n <= 4 else 2000.0)
            ).tokens
        )
        == 3
    )
    assert (
        len(free.propose(context([1, 2, 3, 0], pass_ms=lambda n: 20.0)).tokens) == 3 + 3 * 3 + 9 * 2
    )
    assert free.propose(context([1, 2, 3, 0], pass_ms=lambda n: 1e6 * n)).tokens == []


# -- ar-draft --------------------------------------------------------------------------------------


class FakeSerial:
    """An autoregressive network: after t comes t + 1 with probability 0.9."""

    layer_ids, weights, vocab_ids = (), "serial", None
    config = SimpleNamespace(context_window=None)

    def __init__(self):
        self.fed = []

    def new_cache(self, capacity):
        return KVCache(1, 1, capacity, 1, torch.float32, torch.device("cpu"))

    def step(self, ids, position, cache, last_only=False):
        assert position == cache.length
        self.fed.append((ids.tolist(), position))
        cache.length += len(ids)
        rows = torch.tensor(logs(*[peaked((t + 1) % V) for t in ids.tolist()]))
        return rows[-1:] if last_only else rows


def test_serial_drafter_reads_each_token_once_and_rolls_back(monkeypatch):
    net = FakeSerial()
    drafter = make(monkeypatch, "ar-draft", {"gamma": 3}, ar=net)
    draft = drafter.propose(context([1, 2, 3, 4], record=True))
    assert (
        draft.tokens == [5, 6, 7]
        and draft.probs == pytest.approx([0.9] * 3)
        and net.fed == [([1, 2, 3, 4], 0), ([5], 4), ([6], 5)]
    )
    assert [len(f.ids) for f in draft.frames] == [1, 2, 3]
    net.fed.clear()
    assert drafter.propose(context([1, 2, 3, 4, 5, 0], budget=2)).tokens == [1, 2]
    # the drafted 5 is read again as a committed token, behind the four known ones
    assert net.fed == [([5, 0], 4), ([1], 6)]
    q = drafter.propose(
        context(
            [1, 2, 3, 4, 5, 0],
            rule="ratio",
            temperature=1.0,
            generator=torch.Generator().manual_seed(1),
        )
    )
    assert q.q.shape == (3, V) and q.q[0].tolist() == pytest.approx(peaked(1), abs=1e-6)
    assert q.q[1].tolist() == pytest.approx(peaked((q.tokens[0] + 1) % V), abs=1e-6)


def test_serial_drafter_without_weights_of_its_own_runs_the_block_network(monkeypatch):
    net = FakeNet(chained)
    drafter = make(monkeypatch, "ar-draft", {"gamma": 3}, block=net)
    assert drafter.propose(context([1, 2, 3, 1], (0, 3))).tokens == [2, 3, 4]
    assert [p[0][0] for p in net.passes] == [[1, -1, -1, -1], [1, 2, -1, -1], [1, 2, 3, -1]]
    assert "one token at a time" in drafter.weights


# -- all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(METHODS))
def test_looking_changes_nothing_and_every_draft_is_a_tree(monkeypatch, name):
    runs, turns = [], itertools.count()
    for module in (best, tree):  # both weigh their own milliseconds: let each pass take one
        monkeypatch.setattr(
            module, "time", SimpleNamespace(perf_counter=lambda: 0.001 * next(turns))
        )
    for record in (False, True):
        drafter = make(monkeypatch, name, {}, block=FakeNet(noisy, block_size=16))
        ids, known, generator, tokens = [1, 2, 3, 4], 0, torch.Generator().manual_seed(5), []
        for turn in range(12):
            fresh = (known, len(ids) - 1 - known)
            taken = []
            c = context(
                ids,
                fresh,
                record=record,
                budget=(31, 31, 5, 1)[turn % 4],
                generator=generator,
                pass_ms=lambda n: 20.0,
                prompt_length=3,
            )
            take = c.take_features
            c.take_features = lambda take=take, taken=taken: (taken.append(1), take())[1]
            draft = drafter.propose(c)
            known = len(ids) - 1 if taken else known
            assert len(draft.tokens) <= c.budget and all(
                -1 <= p < i for i, p in enumerate(draft.parent)
            )
            assert len(set(zip(draft.parent, draft.tokens, strict=True))) == len(draft.tokens)
            assert len(draft.tokens) == len(draft.parent) == len(draft.probs) == len(draft.origin)
            if not record:
                assert draft.frames == []
            tokens.append((draft.tokens, draft.parent))
            from specdemo.drafters.parts.base import Verdict

            path = [0] if turn % 3 and draft.tokens and draft.parent[0] == -1 else []
            drafter.observe(Verdict(path, turn % V, 0.002, 0.02))
            ids = ids + [draft.tokens[i] for i in path] + [turn % V]
        runs.append(tokens)
    assert runs[0] == runs[1]


HOSTILE = [
    ("specdiff", {"steps": 0}),
    ("specdiff", {"steps": 10**6}),
    ("specdiff", {"reveal": "sideways"}),
    ("specdiff", {"gamma": 3, "steps": 5}),
    ("specdiff2", {"drafts": 10**6}),
    ("specdiff2", {"temperature": 0}),
    ("specdiff2", {"temperature": float("nan")}),
    ("specdiff2", {"argmax": "maybe"}),
    ("diffuspec", {"k_min": 9, "k_max": 5}),
    ("diffuspec", {"paths": 4, "beam": 2}),
    ("diffuspec", {"tau": 0}),
    ("diffuspec", {"mix": float("inf")}),
    ("d2sd", {"branches": 9, "gamma": 7}),
    ("d2sd", {"branches": -1}),
    ("tree", {"budget": 10**6}),
    ("tree", {"gamma": 0}),
    ("ar-draft", {"gamma": 1e9}),
]


@pytest.mark.parametrize(("name", "params"), HOSTILE)
def test_hostile_parameters_get_one_sentence(name, params):
    with pytest.raises(UserError) as refusal:
        METHODS[name].parse_params(params)
    said = str(refusal.value)
    assert said.endswith(".") and len(said) < 200 and any(key in said for key in params)


@pytest.mark.parametrize(
    "name", ["block", "tree", "specdiff", "specdiff2", "diffuspec", "d2sd", "ar-draft"]
)
def test_blocks_longer_than_the_network_are_refused(monkeypatch, name):
    field = "k_max" if name == "diffuspec" else "gamma"
    with pytest.raises(
        UserError, match=f"{field} = 9 is more than this drafter's block of 7 masks"
    ):
        make(monkeypatch, name, {field: 9}, block=FakeNet(noisy, block_size=8))


@pytest.mark.parametrize(
    "name", ["block", "tree", "best", "specdiff", "specdiff2", "diffuspec", "d2sd", "ar-draft"]
)
def test_the_usual_length_follows_a_shorter_block(monkeypatch, name):
    """Who trains a block of 4 races it without naming a length; what was used stands in the
    parameters.
    """
    field = "k_max" if name == "diffuspec" else "gamma"
    drafter = make(
        monkeypatch, name, {}, block=FakeNet(noisy, block_size=4), vp=FakeNet(noisy, block_size=3)
    )
    most = 2 if name == "d2sd" else 3  # both networks of D²SD fill the block
    assert getattr(drafter.params, field) == most
    if name == "diffuspec":
        assert drafter.params.k_min == most
    draft = drafter.propose(context([1, 2, 3, 0], (0, 3), record=True))
    assert draft.tokens and max(depths(draft)) <= most
