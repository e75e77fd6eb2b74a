"""What a drafter may not do: stop a race by numbers that are none, or read beyond its window. A
target without numbers ends a race in one sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math

import pytest
import torch
from scripted_net import FakeNet, context, make
from tiny import PROMPT, Proposes, Script, engine_for, tiny_engine
from tiny_models import make_tiny_drafter, make_tiny_target

from specdemo.drafters import METHODS
from specdemo.drafters.parts import block_context
from specdemo.engine import race
from specdemo.engine.lane import Lane
from specdemo.errors import UserError
from specdemo.events import DraftMade, Event, Verify
from specdemo.request import Request, Sampling

torch.set_num_threads(1)

NEED = [name for name, method in METHODS.items() if method.kinds]
WAYS = [(name, rule) for name in NEED for rule in METHODS[name].rules]


def numbers(value):
    """Every float in an event."""
    if isinstance(value, float):
        yield value
    elif dataclasses.is_dataclass(value):
        yield from numbers(vars(value))
    elif isinstance(value, dict):
        yield from numbers(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from numbers(item)


def finite(events: list[Event]) -> bool:
    return all(math.isfinite(x) for event in events for x in numbers(event))


@functools.cache
def shared_engine():
    engine = tiny_engine()
    engine.loaded.model = make_tiny_target()
    engine.loaded.pair.drafters = {"block": "block"}
    return engine


def a_race(monkeypatch, method, rule, spoil, temperature=0.0, params=None):
    """A race of ``method`` on a tiny target with a drafter that ``spoil`` has changed."""
    engine = shared_engine()
    net = make_tiny_drafter(engine.loaded.model)
    spoil(net)
    monkeypatch.setattr(block_context, "load_network", lambda loaded, kind: net)
    request = Request(
        "abcabcabcabc",
        method,
        params or {},
        Sampling(temperature, seed=3),
        max_new_tokens=12,
        rule=rule,
    )
    events = list(race(engine, request))
    assert finite(events)
    json.dumps([e.to_dict() for e in events], allow_nan=False)
    return events


def head_of(value):
    """A drafter one of whose logits is always ``value``, or all of them."""

    def spoil(net):
        def logits(hidden, inner=net.logits):
            out = inner(hidden).clone()
            out[..., 5 if value > 0 or math.isnan(value) else slice(None)] = value
            return out

        net.logits = logits

    return spoil


def huge_weights(net):
    """One finite matrix of 3e38, as a damaged file may hold."""
    weight = torch.full_like(net.layers[0].mlp.up_proj.weight, 3e38)
    net.layers[0].mlp.up_proj.weight.copy_(weight)
    net.bind(net.embedding, net.head.weight)


SPOILT = {
    "nan": head_of(math.nan),
    "+inf": head_of(math.inf),
    "-inf": head_of(-math.inf),
    "3e38": huge_weights,
}


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("method, rule", WAYS)
def test_such_a_draft_is_empty_and_said_once(monkeypatch, method, rule, spoil):
    temperature = 0.0 if rule == "match" else 0.8
    params = {"copies": 0, "adaptive": False} if method == "best" else {}
    events = a_race(monkeypatch, method, rule, SPOILT[spoil], temperature, params)
    drafts = [e for e in events if isinstance(e, DraftMade)]
    assert drafts and not any(e.tokens for e in drafts)
    assert "not finite" in drafts[0].notes["why"]
    result = events[-1].result
    assert result["note"].count("not finite") == 1
    assert result["identical"] in (True, None)


def test_copies_go_on_without_the_drafter(monkeypatch):
    events = a_race(monkeypatch, "best", "match", SPOILT["nan"])
    assert "not finite" in events[-1].result["note"] and events[-1].result["identical"]


@pytest.mark.parametrize("method, rule", WAYS)
def test_finite_numbers_of_any_size_are_drafted(monkeypatch, method, rule):
    """Logits near the end of float32, divided by a temperature, overflow; so do powers of many
    equal probabilities.
    """

    def spoil(net):
        row = torch.linspace(-1, 1, 128) * 3e38
        net.logits = lambda hidden: row.repeat(*hidden.shape[:-1], 1)

    params = {"temperature": 0.1} if method == "specdiff2" else {}
    events = a_race(monkeypatch, method, rule, spoil, 0.1, params)
    assert events[-1].result["note"] is None
    if method != "best":
        assert any(e.tokens for e in events if isinstance(e, DraftMade))


@pytest.mark.parametrize("method, rule", WAYS)
def test_every_method_keeps_to_the_window_and_says_so_once(monkeypatch, method, rule):
    seen = []

    def spoil(net):
        net.config.context_window = 8

        def hidden(ids, position, cache, inner=net.hidden):
            first, last = cache.seen(position)
            seen.append(last - first)
            return inner(ids, position, cache)

        net.hidden = hidden

    params = {"copies": 0, "adaptive": False} if method == "best" else {}
    events = a_race(monkeypatch, method, rule, spoil, 0.8, params)
    assert set(seen) == {8} and any(e.tokens for e in events if isinstance(e, DraftMade))
    assert events[-1].result["note"].count("only the last 8 tokens") == 1


def test_flat_drafts_are_sampled_at_a_low_temperature(monkeypatch):
    net = FakeNet(lambda block, at: [[0.0] * 4096 for _ in block])
    drafter = make(monkeypatch, "specdiff2", {"temperature": 0.1, "drafts": 4}, block=net)
    assert drafter.propose(context([1, 2, 3, 4])).tokens


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("rule", ["match", "ratio", "point-mass"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_target_without_numbers_is_one_sentence(bad, rule, temperature):
    """At the prompt, and behind any token; with a filter, too."""
    for at in (len(PROMPT), len(PROMPT) + 3):

        def logits(prefix, at=at):
            row = torch.linspace(0, 1, 32)
            row[7] = bad if len(prefix) >= at else row[7]
            return row

        for filters in ({}, {"top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}):
            method = {"match": "lookup", "ratio": "specdiff", "point-mass": "specdiff2"}[rule]
            request = Request("x", method, {}, Sampling(temperature, **filters), rule=rule)
            lane = Lane(engine_for(Script(logits)), request, PROMPT, 8)
            with pytest.raises(UserError, match="not numbers"):
                lane.prefill()
                while not lane.finish:
                    lane.advance()


def test_rejected_rows_may_hold_anything():
    """What the target says behind a token that nobody wrote stops nothing."""

    def logits(prefix):
        row = torch.zeros(32)
        row[1] = 5.0
        return row if prefix[-1] != 9 else row * math.nan

    lane = Lane(
        engine_for(Script(logits)), Request("x", "ar"), PROMPT, 6, Proposes(lambda ids: [9, 9])
    )
    events = [lane.prefill()]
    while not lane.finish:
        events += lane.advance()
    assert lane.output == [1] * 6 and finite([e for e in events if isinstance(e, Verify)])


def test_a_token_of_vanishing_probability_has_a_finite_logarithm():
    """The penalty makes the target write what its own distribution gives e^-400."""

    def logits(prefix):
        row = torch.zeros(32)
        row[3], row[9] = 600.0, 200.0
        return row

    request = Request("x", "ar", sampling=Sampling(repetition_penalty=5.0))
    lane = Lane(engine_for(Script(logits)), request, PROMPT, 4, Proposes(lambda ids: [9]))
    events = [lane.prefill()]
    while not lane.finish:
        events += lane.advance()
    assert lane.output[0] == 9 and finite(events)
    assert events[0].logprob == -400
