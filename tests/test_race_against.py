"""A race between two methods: plain decoding runs beside them, and both are compared with it."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from test_cli import RESULT
from tiny import engine_for
from tiny_models import make_tiny_drafter, make_tiny_target

from specdemo.engine import race
from specdemo.engine.calibrate import equal_widths
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.events import ArToken, Denoise, Done, DraftMade, Prefill, Start, Verify
from specdemo.request import Request, Sampling
from specdemo.terminal import Printer, verdict
from specdemo.traces import dump_trace, find_inconsistency, parse_trace

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def engine():
    model = make_tiny_target()
    net = make_tiny_drafter(model, block_size=16)
    target = Target(model)
    with torch.inference_mode():
        engine = engine_for(target, widths=equal_widths(target))
    pair = SimpleNamespace(id="tiny", drafters={"block": "tiny"}, thinking=None, ngram=None)
    engine.loaded = SimpleNamespace(
        **vars(engine.loaded) | {"model": model, "networks": {"block": net}, "pair": pair}
    )
    return engine


def run(engine, method="tree", against="block", **more):
    request = Request("abcabcabc", method, max_new_tokens=24, against=against, **more)
    return list(race(engine, request))


def test_drafters_that_read_different_layers_get_a_prompt_each(engine):
    loaded, model = engine.loaded, engine.loaded.model
    few = make_tiny_drafter(model, block_size=16, target_layer_ids=[0], seed=5)
    roles = {"block": "tiny", "streak": "tiny"}
    pair = SimpleNamespace(id="tiny", drafters=roles, thinking=None, ngram=None)
    networks = loaded.networks | {"streak": few}
    two = replace(engine, loaded=SimpleNamespace(**vars(loaded) | {"pair": pair}))
    two.loaded.networks = networks
    events = run(two, "specdiff2", "block", check="exact")
    alone = list(race(two, Request("abcabcabc", "block", max_new_tokens=24)))
    result = events[-1].result
    assert result["exact"]["identical"] and result["against"]["exact"]["identical"]
    kept = [e.kept for e in events if isinstance(e, Verify) and e.lane == "against"]
    assert kept == [e.kept for e in alone if isinstance(e, Verify)], "drafted from its own layers"


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, seed=3)])
@pytest.mark.parametrize(
    ("method", "against"), [("tree", "block"), ("block", "lookup"), ("lookup", "d2sd")]
)
def test_both_methods_write_the_plain_text(engine, method, against, sampling):
    events = run(engine, method, against, sampling=sampling, check="exact")
    result = events[-1].result
    left = result["against"]
    assert result["identical"] and left["identical"]
    assert result["exact"]["identical"] and left["exact"]["identical"]
    assert result["exact"]["positions"] == left["exact"]["positions"] == 24
    assert left["method"] == against and result["method"] == method
    assert events[-1].against_text == events[-1].spec_text == events[-1].ar_text


def test_each_lane_tells_its_own_rounds_and_the_ratios_are_of_the_same_race(engine):
    events = run(engine, params={"budget": 7}, against_params={"gamma": 3})
    start, done = events[0], events[-1]
    assert isinstance(start, Start) and isinstance(done, Done)
    assert start.against["method"] == "block" and start.against["params"]["gamma"] == 3
    result, left = done.result, done.result["against"]
    rounds = {
        lane: [e for e in events if isinstance(e, Verify) and e.lane == lane]
        for lane in ("against", None)
    }
    for lane, totals in (("against", left["spec"]), (None, result["spec"])):
        assert [e.round for e in rounds[lane]] == list(range(totals["rounds"]))
        assert totals["seconds"] == rounds[lane][-1].clock
        drafts = [e for e in events if isinstance(e, DraftMade) and e.lane == lane]
        assert len(drafts) == totals["rounds"]
    assert all(len(e.tokens) <= 3 for e in events if isinstance(e, DraftMade) and e.lane)
    assert any(isinstance(e, Denoise) and e.lane == "against" for e in events)
    assert [e.lane for e in events if isinstance(e, Prefill)] == ["ar", "against", "spec"]
    assert sum(isinstance(e, ArToken) for e in events) == 23
    assert left["ratio"] == pytest.approx(result["speedup"] / left["speedup"])


def test_the_trace_is_read_again_and_a_round_of_the_wrong_lane_is_noticed(engine):
    events = parse_trace(dump_trace(run(engine)))
    assert find_inconsistency(events) is None
    rounds = [e for e in events if isinstance(e, Verify) and e.lane == "against"]
    rounds[1].lane = None
    assert find_inconsistency(events) in (
        "round out of order",
        "verify does not match its draft",
        "clock runs backwards",
    )


def test_the_terminal_shows_the_right_lane_and_says_what_the_left_one_did(engine):
    events = run(engine)
    out = io.StringIO()
    printer = Printer(Console(file=out, width=10_000))
    for event in events:
        printer.show(event)
    assert out.getvalue() == events[-1].spec_text
    result = events[-1].result
    result["against"] |= {"ratio": 1.25, "speedup": 1.6, "predicted_speedup": 1.5}
    words = " ".join(verdict(result))
    assert "tree runs at 1.25 times the speed of block." in words
    assert "block itself runs at 1.60 times the speed of plain decoding" in words
    assert "block wrote the tokens of plain decoding too." in words


def test_plain_decoding_is_the_left_lane_unless_another_is_named(engine):
    events = run(engine, against="ar")
    assert "against" not in events[0].to_dict() and "against" not in events[-1].result
    assert all("lane" not in e.to_dict() for e in events if isinstance(e, (Verify, DraftMade)))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"against": "nothing"}, "There is no method “nothing”"),
        ({"against": "block", "against_params": {"gamma": 0}}, "gamma must be"),
        ({"against_params": {"gamma": 3}}, "The left lane decodes plainly"),
        ({"against": "block", "lanes": "spec"}, "needs all lanes"),
        (
            {"method": "specdiff", "rule": "ratio", "against": "block"},
            "The left lane: .*cannot use the rule “ratio”",
        ),
    ],
)
def test_what_the_left_lane_cannot_do_is_refused(asked, words):
    with pytest.raises(UserError, match=words):
        Request("x", **({"method": "tree"} | asked))


def test_a_request_with_a_left_lane_crosses_to_another_process():
    request = Request("x", "tree", against="block", against_params={"gamma": 3})
    assert Request.from_dict(request.to_dict()) == request
    assert request.left.method == "block" and request.left.params.gamma == 3


@pytest.mark.parametrize("theirs", [5, 7])
def test_two_lanes_of_one_method_are_told_apart_and_the_left_one_may_be_unreliable(theirs):
    left = {"method": "tree", "ratio": 0.9, "speedup": 1.28, "predicted_speedup": 0.88}
    left |= {"spec": {"rounds": 9}, "identical": True}
    start = Start(method="tree", params={"gamma": 7})
    start.against = {"method": "tree", "params": {"gamma": theirs}, "weights": ""}
    said = verdict(
        RESULT | {"against": left},
        start,
    )
    ours, other = ("tree, once more", "tree")
    if theirs != 7:
        ours, other = "tree (gamma=7)", "tree (gamma=5)"
    assert f"{ours} runs at 0.90 times the speed of {other}." in said
    assert any("the two are 1.5 times apart" in line for line in said)
    assert any("measure of noise" in line for line in said) == (theirs == 7)
