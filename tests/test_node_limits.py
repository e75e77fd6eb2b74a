"""Settings of the papers up to what network and engine allow: whose limit is named, wide passes,
trees that are cut and say so.
"""

from __future__ import annotations

import pytest
import torch
from tiny import PROMPT, Proposes, tiny_engine
from tiny_models import make_tiny_drafter, make_tiny_target

from specdemo.drafters import METHODS
from specdemo.drafters.parts.base import Draft
from specdemo.drafters.parts.params import DEEPEST, MOST_NODES
from specdemo.drafters.parts.trees import Trie
from specdemo.engine import race
from specdemo.engine.attention import NEAR
from specdemo.engine.calibrate import equal_wider_widths
from specdemo.engine.cost import WIDER, WIDTHS, CostModel
from specdemo.engine.lane import Lane
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.events import DraftMade, Verify
from specdemo.request import Request, Sampling

pytestmark = pytest.mark.usefixtures("one_thread")

PAPERS = {  # settings of the papers, beyond what fits in a block of 16 slots or a pass of 64 rows
    "specdiff": {"gamma": 20, "steps": 6},
    "specdiff2": {"gamma": 32, "drafts": 8, "temperature": 1.5},
    "diffuspec": {"k_max": 30, "k_min": 20, "delta": 10},
    "d2sd": {"gamma": 16, "branches": 4},
    "tree": {"gamma": 16, "budget": 256},
    "ar-draft": {"gamma": 20},
    "block": {"gamma": 31},
    "best": {"gamma": 31, "adaptive": False},
    "lookup": {"gamma": 32},
}


def paper_engine(block_size=33, **changes):
    """A tiny target with a tiny drafter of that many slots."""
    engine = tiny_engine(max_position_embeddings=1024, **changes)
    engine.loaded.model = make_tiny_target(max_position_embeddings=1024, **changes)
    net = make_tiny_drafter(engine.loaded.model, block_size=block_size)
    engine.loaded.networks = {"block": net}
    engine.loaded.pair.drafters = {"block": "tiny"}
    return engine


@pytest.fixture(scope="module")
def engine():
    torch.set_num_threads(1)
    return paper_engine()


def test_limits_are_those_of_the_engine():
    assert DEEPEST == NEAR and MOST_NODES == WIDER[-1] - 1
    assert min(WIDER) > max(WIDTHS) and list(WIDER) == sorted(WIDER)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("method", PAPERS)
def test_every_method_is_exact_at_its_papers_settings(engine, method, temperature):
    request = Request(
        "abcabcabcab", method, PAPERS[method], Sampling(temperature, seed=5), max_new_tokens=40
    )
    start, *events = race(engine, request)
    drafts = [e for e in events if isinstance(e, DraftMade) and e.tokens]
    assert drafts and events[-1].result["identical"] is True
    assert start.params["gamma" if method != "diffuspec" else "k_max"] > 15
    if method in ("specdiff2", "tree"):
        assert start.most_nodes == 271
        assert max(len(e.tokens) for e in drafts) > 63
        assert max(e.rows for e in events if isinstance(e, Verify)) > 64
    assert all("left_out" not in e.notes for e in drafts)
    assert events[-1].result["spec"]["cut_rounds"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_wider_unless_it_is_asked_for(method):
    engine = paper_engine()
    widths = list(engine.costs.widths)
    start = next(race(engine, Request("abc", method)))
    assert engine.costs.widths == widths and start.most_nodes == 63
    engine.widen(MOST_NODES)
    assert engine.costs.widths == widths + list(WIDER)
    start = next(race(engine, Request("abc", method)))
    assert start.most_nodes == 63


def test_a_wide_pass_with_other_bits_is_not_trusted(monkeypatch):
    target = Target(make_tiny_target(max_position_embeddings=512))
    assert equal_wider_widths(target) == list(WIDER)
    assert equal_wider_widths(Target(make_tiny_target(max_position_embeddings=320))) == [96, 128]
    real = target.verify
    monkeypatch.setattr(
        target,
        "verify",
        lambda *a, **k: (real(*a, **k)[0] + (a[4] == 128) * 1e-3, None),
    )
    assert equal_wider_widths(target) == [96, 192, 272]


def test_a_race_has_as_many_rows_as_its_drafts_need():
    costs = CostModel({}, 1.0, [1, 2, 16, 64, 96, 192])
    assert [costs.rows_for(n) for n in (0, 7, 63, 64, 95, 96, 192, 900)] == [
        *(64, 64, 64, 96, 96, 192, 192, 192)
    ]
    assert CostModel({}, 1.0, [16]).rows_for(100) == 16


@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        ("block", {"gamma": 20}, "gamma = 20 is more than this drafter's block of 15 masks"),
        ("diffuspec", {"k_max": 30}, "k_max = 30 is more than this drafter's block of 15 masks"),
        ("tree", {"budget": 200}, "budget = 200 is more than the 63 drafted tokens that one pass"),
        ("lookup", {"gamma": 33}, "32 is the deepest draft whose rows are exact"),
        ("tree", {"budget": 300}, "271 is the widest pass that is tried, less the anchor"),
    ],
)
def test_a_refusal_says_whose_limit_it_is(monkeypatch, method, params, said):
    engine = paper_engine(block_size=16)
    monkeypatch.setattr("specdemo.engine.engine.equal_wider_widths", lambda target: [])
    with pytest.raises(UserError) as error:
        list(race(engine, Request("abc", method, params)))
    assert said in str(error.value) and str(error.value).count(".") == 1


def test_a_trie_that_is_cut_says_so(monkeypatch):
    """In the round, in the totals and in one sentence; the text is the same."""
    engine = paper_engine()
    monkeypatch.setattr("specdemo.engine.engine.equal_wider_widths", lambda target: [])
    request = Request(
        "abcabc",
        "specdiff2",
        {"gamma": 20, "drafts": 8, "temperature": 4.0},
        max_new_tokens=24,
    )
    start, *events = race(engine, request)
    rounds = [e for e in events if isinstance(e, DraftMade)]
    cut = [e for e in rounds if "left_out" in e.notes]
    assert start.most_nodes == 63 and cut and all(len(e.tokens) == 63 for e in cut)
    assert all(e.notes["left_out"] > 0 for e in cut)
    result = events[-1].result
    assert result["spec"]["cut_rounds"] == len(cut) and result["identical"]
    assert (
        f"In {len(cut)} of {len(rounds)} rounds the tree was cut to the 63 nodes"
        in (result["note"])
    )


def test_what_a_trie_leaves_out_is_counted_once():
    trie = Trie(3)
    assert trie.add([1, 2]) == [0, 1] and trie.add([1, 3, 4, 5]) == [0, 2]
    assert trie.add([1, 3, 4, 6]) == [0, 2] and trie.add([7]) == []
    assert trie.draft().left_out == 4  # 1 3 4, 1 3 4 5, 1 3 4 6, 7


def test_a_tree_that_would_be_larger_says_so():
    """As many nodes as pay, where a pass of any width costs the same."""
    engine = paper_engine()
    engine.costs = CostModel(dict.fromkeys(WIDTHS, 1.0), 1.0, [1, 2, 4, 8, 16])
    result = list(race(engine, Request("abc", "tree", max_new_tokens=12)))[-1].result
    assert result["spec"]["cut_rounds"] > 0
    assert "cut to the 15 nodes that one pass verifies here" in result["note"]
    assert "passes of 1, 2, 4, 8 and 16 rows" in result["note"]


def test_a_draft_without_what_was_left_out_is_written_all_the_same():
    engine = tiny_engine()
    lane = Lane(
        engine,
        Request("x", "ar"),
        PROMPT,
        6,
        Proposes(lambda ids: Draft([1], [-1], [None], origin=["x"], left_out=3)),
    )
    lane.prefill()
    lane.advance()
    assert lane.cut_rounds == 1
