"""Every method in the engine: a tiny random target with a tiny random network writes its own plain
text, and *ratio* keeps its distribution.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from scripted_net import FakeNet, context, loaded
from tiny import engine_for
from tiny_models import make_tiny_drafter, make_tiny_target

from specdemo.drafters import METHODS
from specdemo.drafters.parts import proposal
from specdemo.drafters.parts.trees import expected_streak
from specdemo.engine import accept as acceptance
from specdemo.engine.lane import Lane
from specdemo.engine.target import Target
from specdemo.request import Request, Sampling

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPT = [3, 14, 15, 92, 65, 3, 14, 15]


@pytest.fixture(scope="module")
def engine():
    model = make_tiny_target()
    net = make_tiny_drafter(model, block_size=16)
    engine = engine_for(Target(model))
    engine.loaded = SimpleNamespace(
        **vars(engine.loaded) | {"model": model, "networks": {"block": net}}
    )
    engine.loaded.pair = SimpleNamespace(
        id="tiny", drafters={"block": "tiny"}, thinking=None, ngram=None
    )
    return engine


def write(engine, method, sampling, record=False, rule="match", new=20):
    params = METHODS[method].parse_params({})
    drafter = None if method == "plain" else METHODS[method].build(engine.loaded, params)
    lane = Lane(
        engine,
        Request("x", method, params, sampling=sampling, record=record, rule=rule),
        PROMPT,
        new,
        drafter,
    )
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            lane.advance()
    return lane.output


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=3)],
    ids=["greedy", "sampled"],
)
def test_every_method_writes_the_plain_text(engine, method, sampling):
    plain = write(engine, "ar", sampling)
    assert write(engine, method, sampling) == plain
    assert write(engine, method, sampling, record=True) == plain
    assert len(set(plain)) > 5  # a text that means something


def test_d2sd_verifies_by_cascade_too(engine):
    """Chosen by name, it reaches the engine's pass and writes the same text (fp32, where no
    near-tie moves).
    """
    params = METHODS["d2sd"].parse_params({"verify": "cascade"})
    lane, kinds = (
        Lane(
            engine,
            Request("x", "d2sd", params),
            PROMPT,
            20,
            METHODS["d2sd"].build(engine.loaded, params),
        ),
        [],
    )
    real = engine.target.verify
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.target, "verify", lambda *a, **k: kinds.append(a[-1]) or real(*a, **k))
        lane.prefill()
        while not lane.finish:
            lane.advance()
    assert set(kinds[:-1]) == {"cascade"} and lane.output == write(engine, "ar", Sampling())


@pytest.mark.parametrize(
    ("method", "rule"), [(m, r) for m in METHODS for r in METHODS[m].rules if r != "match"]
)
def test_the_other_rules_write_the_plain_text_when_greedy(engine, method, rule):
    assert write(engine, method, Sampling(), rule=rule) == write(engine, "ar", Sampling())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_walk_through_the_trie_shows_what_selection_would_choose(engine, temperature):
    """The draft accepted furthest, and the target's own scores, under match too."""
    params = METHODS["specdiff2"].parse_params({"drafts": 6, "temperature": 2.0})
    sampling = Sampling(temperature=temperature, seed=4)
    request = Request("x", "specdiff2", params, sampling=sampling, record=True)
    lane = Lane(engine, request, PROMPT, 24, METHODS["specdiff2"].build(engine.loaded, params))
    seen = 0
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            *_, made, verdict = lane.advance()
            if not made.tokens:
                continue
            drafts, status = made.notes["drafts"], verdict.status
            counts = [
                next(
                    (i for i, n in enumerate(one["nodes"]) if status[n] != "accepted"), len(status)
                )
                for one in drafts
            ]
            scores = [one["target_score"] for one in drafts]
            if "dropped" not in status:
                assert counts[made.notes["chosen"]] == max(counts)
            assert scores[made.notes["selection"]] == max(scores)
            if not temperature:
                assert scores == counts or "dropped" in status
            for one, score in zip(drafts, scores, strict=True):
                p = [verdict.p[node] for node in one["nodes"]]
                known = p[: p.index(None)] if None in p else p
                if temperature:
                    assert score >= expected_streak(known) - 1e-5
            seen += 1
    assert seen > 3


def test_self_selection_shows_the_targets_own_scores(engine):
    """Under point-mass every draft carries the streak the target's probabilities promise, and the
    one with the highest is the chosen one.
    """
    params = METHODS["specdiff2"].parse_params({"drafts": 6})
    request = Request(
        "x",
        "specdiff2",
        params,
        sampling=Sampling(temperature=1.0, seed=4),
        record=True,
        rule="point-mass",
    )
    lane, seen = (
        Lane(engine, request, PROMPT, 24, METHODS["specdiff2"].build(engine.loaded, params)),
        0,
    )
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            *_, made, verdict = lane.advance()
            for one in made.notes.get("drafts", ()):
                p = [verdict.p[node] for node in one["nodes"]]
                # the event tells p only along the path that was walked
                known = p[: p.index(None)] if None in p else p
                low, rest = expected_streak(known), math.prod(known) * (len(p) - len(known))
                assert low - 1e-5 <= one["target_score"] <= low + rest + 1e-5
                assert one["drafter_score"] > 0
                seen += 1
            if seen:
                scores = (
                    [one["target_score"] for one in made.notes["drafts"]] if made.tokens else [0]
                )
                assert scores[made.notes.get("chosen", 0)] == max(scores)
    assert seen >= 6


# -- the distribution under ratio, exactly: every draw of the drafter and of the acceptance is
# walked

V = 3
# p(next | last)
TARGET = torch.rand(V, V, generator=torch.Generator().manual_seed(1)).mul(3).softmax(-1).double()


class Branches:
    """Takes the place of all randomness and walks every branch with its probability."""

    def __init__(self):
        self.prefix = []

    def start(self):
        self.at, self.weight, self.sizes = 0, 1.0, []

    def take(self, chances):
        if self.at == len(self.prefix):
            self.prefix.append(0)
        branch = self.prefix[self.at]
        self.at += 1
        self.sizes.append(len(chances))
        self.weight *= chances[branch]
        return branch

    def next(self):
        while self.prefix and self.prefix[-1] + 1 == self.sizes[len(self.prefix) - 1]:
            self.prefix.pop()
        if self.prefix:
            self.prefix[-1] += 1
        return bool(self.prefix)

    def bernoulli(self, chance):
        chance = min(max(chance, 0.0), 1.0)
        return self.take([chance, 1 - chance]) == 0

    def categorical(self, p):
        return self.take((p / p.sum()).tolist())

    def pick(self, logits, context=None):
        return torch.tensor(
            [self.categorical(row) for row in logits.reshape(-1, V).double().softmax(-1)]
        ).view(logits.shape[:-1])


def distance(monkeypatch, method, params, script):
    """Total variation between the target's distribution of the first two tokens and that of one
    round (a missing second one drawn from the target).
    """
    stand_in = loaded(monkeypatch, block=FakeNet(script))
    stand_in.model.config.vocab_size = V
    drafter, branches, got = (
        METHODS[method].build(stand_in, METHODS[method].parse_params(params)),
        Branches(),
        torch.zeros(V, V).double(),
    )
    monkeypatch.setattr(proposal, "choose_columns", branches.pick)
    monkeypatch.setattr(acceptance, "AcceptanceRng", lambda *_: branches)
    while True:
        branches.start()
        drafter.start([0], 8)
        draft = drafter.propose(context([1, 2], (0, 1), rule="ratio", temperature=1.0))
        rows = SimpleNamespace(
            probs=lambda row, draft=draft: TARGET[2 if row == 0 else draft.tokens[row - 1]].float()
        )
        kept = acceptance.accept(draft, rows, "ratio")
        text = [draft.tokens[i] for i in kept.path] + [kept.token]
        if len(text) == 1:
            got[text[0]] += branches.weight * TARGET[text[0]]
        else:
            got[text[0], text[1]] += branches.weight
        if not branches.next():
            break
    assert float(got.sum()) == pytest.approx(1)
    return float((got - TARGET[2][:, None] * TARGET).abs().sum() / 2)


def steps(block, at):
    """Two masks that know each other once one is filled; the second is the surer one, so by
    confidence it is filled first.
    """
    a, b = block[1], block[2]
    first = [0.5, 1.0, 0.0] if b < 0 else [2.5 * ((k + b) % 3 == 0) for k in range(V)]
    second = [0.0, 2.0, 1.0] if a < 0 else [2.5 * ((k + a) % 3 == 1) for k in range(V)]
    return [[0.0] * V, first, second]


RIGHT = [
    {"steps": 1},
    {"steps": 2},
    {"steps": 2, "reveal": "left-to-right"},
    {"steps": 2, "reveal": "left-to-right", "q": "reveal"},
]


@pytest.mark.parametrize("params", RIGHT)
def test_specdiff_keeps_the_distribution(monkeypatch, params):
    assert distance(monkeypatch, "specdiff", {"gamma": 2, **params}, steps) < 1e-6


def test_the_refused_q_breaks_the_distribution(monkeypatch):
    """Filling the surer second mask first and calling its first distribution q: what refuse()
    refuses, and why.
    """
    assert METHODS["specdiff"].refuse("ratio", METHODS["specdiff"].parse_params({"q": "reveal"}))
    assert distance(monkeypatch, "specdiff", {"gamma": 2, "steps": 2, "q": "reveal"}, steps) > 0.01


def test_serial_drafts_keep_the_distribution(monkeypatch):
    assert distance(monkeypatch, "ar-draft", {"gamma": 2}, steps) < 1e-6
