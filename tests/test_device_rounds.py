"""Rounds on the device: the text of the lane whose host decides, one wait, and operators that do
not depend on what happens.
"""

import random
from dataclasses import replace

import pytest
import torch
from device_rounds import SAMPLED, Tape, device_engine, finish, lane_of, written
from tiny import PROMPT, Proposes, oracle

from specdemo.drafters import METHODS
from specdemo.drafters.parts.base import Draft
from specdemo.engine.graphs.lane import DeviceLane
from specdemo.engine.graphs.state import packed_draft
from specdemo.engine.lane import Lane
from specdemo.request import Request, Sampling

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.fixture(scope="module")
def engine():
    return device_engine()


@pytest.fixture(scope="module")
def host(engine):
    """The same pair on lanes whose host decides."""
    return replace(engine, rounds=None)


def random_tree(rng, truth, most):
    """A tree that holds the truth up to some depth among wrong branches."""
    tokens, parent, used, last, depth = [], [], set(), -1, 0
    while len(tokens) < most:
        right = depth < len(truth) and rng.random() < 0.6
        on = last if right else rng.randint(-1, len(tokens) - 1)
        token = truth[depth] if right else rng.randint(0, 127)
        if (on, token) in used or len(tokens) > 90:
            continue
        used.add((on, token))
        tokens.append(token)
        parent.append(on)
        if right:
            last, depth = len(tokens) - 1, depth + 1
    return Draft(tokens, parent, [None] * len(tokens), origin=["x"] * len(tokens))


# -- the same text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_every_method_writes_what_the_hosts_lane_writes(engine, host, method, sampling):
    plain = written(host, sampling=sampling)
    assert len(set(plain)) > 5 and type(lane_of(engine, "ar")) is DeviceLane
    assert written(engine, sampling=sampling) == plain
    assert written(engine, method, sampling=sampling) == plain
    assert written(engine, method, sampling=sampling, record=False) == plain


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(repetition_penalty=1.3),
        Sampling(temperature=0.9, seed=2**31 - 1),
        Sampling(temperature=1.3, top_k=5),
        Sampling(temperature=1.3, top_p=0.7),
        Sampling(temperature=1.3, min_p=0.2, seed=5),
        Sampling(temperature=0.7, top_k=40, top_p=0.8, min_p=0.05, repetition_penalty=0.8, seed=9),
    ],
    ids=["greedy", "penalty", "noise", "top_k", "top_p", "min_p", "all"],
)
def test_trees_of_all_shapes_write_the_plain_text(engine, host, sampling):
    """Also behind contexts that cross the cuts of the host's attention; sampling is worked out as
    the host does.
    """
    rng = random.Random(1)
    for size in (9, 180, 250):
        prompt = [rng.randint(0, 127) for _ in range(size)]
        plain = written(host, sampling=sampling, prompt=prompt)
        make = oracle(plain, size, 20)
        drafter = Proposes(lambda ids, make=make: random_tree(rng, make(ids), rng.randint(0, 15)))
        lane = lane_of(engine, "block", sampling=sampling, prompt=prompt, drafter=drafter)
        assert finish(lane) == plain == written(engine, sampling=sampling, prompt=prompt)
        assert lane.rounds < 35 and lane.cache.length == int(lane.graphs.state.length)


def test_events_are_those_of_the_hosts_lane(engine, host):
    """Gaps, probabilities and statuses of a round, to the precision of float32."""
    plain = written(host)
    for sampling in (Sampling(), SAMPLED):
        plain = written(host, sampling=sampling)
        found = []
        for one in (engine, host):
            rng = random.Random(4)
            make = oracle(plain, len(PROMPT), 6)
            drafter = Proposes(lambda ids, make=make, rng=rng: random_tree(rng, make(ids), 9))
            lane = lane_of(one, "block", sampling=sampling, drafter=drafter)
            events = []
            while not lane.finish:
                events += lane.advance()
            found.append((events, lane.gaps))
        (ours, our_gaps), (theirs, their_gaps) = found
        assert our_gaps == pytest.approx(their_gaps, rel=1e-3, abs=1e-4) and len(ours) > 4
        for a, b in zip(ours, theirs, strict=True):
            a, b = a.to_dict(), b.to_dict()
            for name in ("status", "picks", "tokens", "cut"):
                assert a.get(name) == b.get(name)
            # the host also records the target's likeliest tokens
            assert a.get("vocab", {}).items() <= b.get("vocab", {}).items()
            if a["kind"] == "verify":
                for x, y in zip(a["p"], b["p"], strict=True):
                    assert x == y or x == pytest.approx(y, rel=1e-3, abs=1e-6)
                for x, y in zip(a["kept"], b["kept"], strict=True):
                    assert x.pop("logprob") == pytest.approx(y.pop("logprob"), rel=1e-3, abs=1e-5)
                    assert x.pop("p") == pytest.approx(y.pop("p"), rel=1e-3, abs=1e-6)
                    assert x == y


def test_rules_that_draw_on_the_host_keep_the_hosts_lane(engine):
    for more, word in (
        ({"method": "specdiff", "rule": "ratio", "sampling": Sampling(0.8)}, "ratio"),
        ({"method": "specdiff2", "rule": "point-mass", "sampling": Sampling(0.8)}, "point-mass"),
        ({"method": "d2sd", "params": {"verify": "cascade"}}, "Cascade"),
    ):
        request = Request("x", **more)
        assert word in engine.rounds.refuses(request)
        assert type(lane_of(engine, **more)) is Lane
    assert not engine.rounds.refuses(Request("x", "specdiff", rule="ratio"))  # greedy


def test_logits_that_are_no_numbers_are_one_sentence():
    engine = device_engine(net=False)
    lane = lane_of(engine)
    engine.target.final_norm.fill_(float("nan"))
    with pytest.raises(Exception, match="not numbers"):
        lane.advance()


def test_drafts_that_do_not_fit_are_refused():
    for tokens, parent, width in (([1, 2], [-1, 0], 2), ([1] * 40, list(range(-1, 39)), 64)):
        with pytest.raises(ValueError):
            packed_draft(tokens, parent, width)
    assert packed_draft([7, 8], [-1, 0], 4) == [
        [3, 0, -1, -1, -1],
        [7, 0, 1, -1, -1],
        [8, 0, 1, 2, -1],
        [0, 0, 3, -1, -1],
    ]


# -- what a graph needs ----------------------------------------------------------------------------

DRAFTS = [
    ([], []),
    ([5, 6, 7, 8], [-1, 0, -1, 2]),
    (list(range(15)), list(range(-1, 14))),
    ([3], [-1]),
]


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", ["ar", "block", "best"])
def test_the_operators_of_a_round_are_always_the_same(engine, method, sampling):
    """Operators, shapes, strides, dtypes and numbers over unlike rounds."""
    lane = lane_of(engine, method, sampling=sampling)
    lane.advance()
    graphs, tapes = lane.graphs, []
    for tokens, parent in DRAFTS:
        graphs.state.upload(tokens, parent)
        with torch.inference_mode(), Tape() as tape:
            lane.verify()
            for step in (graphs.extend, graphs.fill):
                if step is not None:
                    step()
        tapes.append(tape.calls)
    assert len(tapes[0]) > 100
    for tape in tapes[1:]:
        assert tape == tapes[0]


def test_buffers_stay_where_they_are_from_race_to_race(engine):
    def places(lane):
        state, draft = lane.graphs.state, lane.graphs.draft
        tensors = [x for x in vars(state).values() if isinstance(x, torch.Tensor)]
        tensors += [state.cache.keys, state.cache.values, draft.keys, draft.values, draft.cos]
        return [x.data_ptr() for x in tensors]

    lane = lane_of(engine, "tree")
    before = places(lane)
    finish(lane)
    other = lane_of(engine, "tree", prompt=[9] * 300, sampling=Sampling(seed=4))
    finish(other)
    assert other.graphs is lane.graphs and places(other) == before
    assert lane_of(engine, "tree", prompt=[9] * 480).graphs is not lane.graphs  # more slots


def drafts_of(lane, before_each=lambda lane: None):
    """Tokens and parents of every round's draft."""
    found = []
    while not lane.finish:
        before_each(lane)
        found += [(e.tokens, e.parent) for e in lane.advance() if e.kind == "draft"]
    return found


def garbage(lane):
    """Large numbers wherever nothing is committed."""
    state, draft = lane.graphs.state, lane.graphs.draft
    rng = torch.Generator().manual_seed(len(lane.ids))
    stored = [state.cache.keys, state.cache.values]
    if draft is not None:
        stored += [draft.keys, draft.values]
    for one in stored:
        behind = one[:, :, lane.cache.length :]
        behind.copy_(torch.randn(behind.shape, generator=rng) * 1e4)


@pytest.mark.parametrize("method", ["block", "tree"])
def test_the_drafters_pass_drafts_what_it_drafts_on_the_host(engine, host, method):
    params = {"budget": 9} if method == "tree" else {}
    device = drafts_of(lane_of(engine, method, params=params))
    assert device == drafts_of(lane_of(host, method, params=params))
    assert device == drafts_of(lane_of(engine, method, params=params), garbage)
    assert sum(bool(tokens) for tokens, _ in device) > 30


def test_a_drafter_with_a_window_reads_the_window():
    engine = device_engine()
    engine.loaded.networks["block"].config.context_window = 24
    prompt = [(7 * i + 3) % 128 for i in range(60)]
    device = drafts_of(lane_of(engine, "block", prompt=prompt))
    assert device == drafts_of(lane_of(replace(engine, rounds=None), "block", prompt=prompt))
    engine.loaded.networks["block"].config.context_window = None
    assert device != drafts_of(lane_of(engine, "block", prompt=prompt))


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_what_lies_behind_the_committed_context_changes_nothing(engine, sampling):
    plain, rng = written(engine, sampling=sampling), random.Random(2)
    make = oracle(plain, len(PROMPT), 6)
    drafter = Proposes(lambda ids: random_tree(rng, make(ids), 9))
    lane = lane_of(engine, "block", sampling=sampling, drafter=drafter)
    drafts_of(lane, garbage)
    assert lane.output == plain and lane.accepted > 10


def test_the_order_of_rows_changes_no_bit(engine):
    """The same tree with its nodes in other rows: every node has the very same logits, and the same
    path is kept.
    """
    rng = random.Random(7)
    truth = written(engine)
    for _ in range(6):
        tree = random_tree(rng, truth[1:], 15)
        order = list(range(15))
        rng.shuffle(order)
        order.sort(key=lambda node: len(_path(tree.parent, node)))  # parents first
        place = {node: at for at, node in enumerate(order)} | {-1: -1}
        tokens = [tree.tokens[node] for node in order]
        parent = [place[tree.parent[node]] for node in order]
        found = []
        for one in ((tree.tokens, tree.parent), (tokens, parent)):
            lane = lane_of(engine)
            lane.graphs.state.upload(*one)
            with torch.inference_mode():
                lane.verify()
            state = lane.graphs.state
            state.download()
            found.append((state.logits.clone(), state.cache.keys.clone(), state.outcome()))
        (a, keys, first), (b, other_keys, second) = found
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1:], b[1:][[place[node] for node in range(15)]])
        assert first.tokens == second.tokens and first.accepted
        end = len(PROMPT) + first.accepted + 1
        assert torch.equal(keys[:, :, :end], other_keys[:, :, :end])


def _path(parent, node):
    return [] if node < 0 else [*_path(parent, parent[node]), node]
