"""What a GPU must show at load before rounds are captured on it, and what becomes of a race where
it does not.
"""

from dataclasses import replace

import pytest
import torch
from device_rounds import device_engine, written
from tiny_models import make_tiny_target

from specdemo.bench.made_up_gpu import pretended_gpu
from specdemo.engine import load, race
from specdemo.engine.cost import CostModel, Measured
from specdemo.engine.graphs.attention import DoubleAttention
from specdemo.engine.graphs.capture import run_eagerly
from specdemo.engine.graphs.checks import CONTEXTS, attention_gap, unequal_rows
from specdemo.engine.graphs.load import Chosen, choose_attention, graphs_of, make_rounds, prepare
from specdemo.engine.target import Target
from specdemo.request import Request, Sampling

pytestmark = pytest.mark.usefixtures("one_thread")
GROUP = 2


@pytest.fixture(scope="module")
def target():
    return Target(make_tiny_target())


class Off(DoubleAttention):
    """Attention with a fault: ``change(out, rows)``."""

    def __init__(self, change):
        super().__init__(GROUP)
        self.change = change

    def of(self, rows, capacity):
        right = super().of(rows, capacity)
        return lambda q, k, v: self.change(right(q, k, v), rows)


def by_slot(out, rows):
    """A little of each row's slot."""
    w = len(rows.index)
    return (out.unflatten(2, (-1, w)) * (1 + rows.index[:, None] * 2.0**-12)).flatten(2, 3)


def test_rows_must_not_feel_their_place(target):
    right = graphs_of(target, DoubleAttention(GROUP), run_eagerly, 16)
    wrong = graphs_of(target, Off(by_slot), run_eagerly, 16)
    for context in CONTEXTS:
        assert unequal_rows(right, context) == 0 and unequal_rows(wrong, context) == 5
    rounds, why = prepare(target, run_eagerly, Chosen(Off(by_slot), ""), repeats=1)
    assert rounds is None and "20 rows of 16" in why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_must_compute_attention(dtype):
    target = Target(make_tiny_target().to(dtype))
    assert attention_gap(DoubleAttention(GROUP), target) <= (1 if dtype == torch.bfloat16 else 1e-3)
    for change in (lambda out, _: out * 1.05, lambda out, _: out.roll(1, -1)):
        assert attention_gap(Off(change), target) > 5
    with pytest.raises(ArithmeticError):
        attention_gap(Off(by_slot), Target(make_tiny_target()))


def test_the_wider_pass_is_taken_where_it_costs_as_much(target, monkeypatch):
    for wide, expected in ((1.05, 16 * 4), (1.2, 16), (0.9, 64)):
        costs = {1: 0.7, 16: 1.0, 64: wide}
        monkeypatch.setattr(
            "specdemo.engine.graphs.load.round_ms", lambda g, *_, costs=costs: costs[g.state.width]
        )
        rounds, why = prepare(target, run_eagerly, Chosen(DoubleAttention(GROUP), "x"), 1)
        assert (rounds.width, rounds.costs.widths, why) == (expected, [expected], "")
        assert rounds.costs.ms == costs and rounds.costs.one_row_ms == 0.7 and rounds.remark == "x"


def test_an_engine_on_a_gpu_has_rounds_and_races_on_them(monkeypatch):
    plain = written(replace(device_engine(), rounds=None))
    monkeypatch.setattr(load, "equal_widths", lambda _: [16])
    found = Measured({1: CostModel({16: 1.0}, 1.0, [16])}, True)
    monkeypatch.setattr(load, "calibrate", lambda *_: found)
    with pretended_gpu():
        loaded = device_engine(device="cuda").loaded
        loaded.quantized = None
        engine = load.make_engine(loaded)
        assert engine.rounds is not None and engine.why_no_rounds == ""
        assert engine.rounds.attention.name == "float64" and "Triton" in engine.rounds.remark
        assert written(engine) == written(engine, "block") == plain
    assert make_rounds(Target(make_tiny_target())) == (None, "")


def test_what_cannot_be_captured_is_said_and_raced_all_the_same(monkeypatch):
    def wait(out, rows):
        return out + (rows.length.item() >= 0) * 0

    name = "specdemo.engine.graphs.load.choose_attention"
    with pretended_gpu():
        engine = device_engine(device="cuda")
        monkeypatch.setattr(name, lambda _: Chosen(Off(wait), ""))
        rounds, why = make_rounds(engine.target)
        assert rounds is None and "capturing" in why
        engine = replace(engine, rounds=rounds, why_no_rounds=why)
        start, *_, done = race(engine, Request("t1 t2", "block", max_new_tokens=8))
        assert start.target_pass == "eager" and start.why_host == why
        assert done.result["identical"]


def test_a_kernel_that_does_not_run_is_replaced(monkeypatch, target):
    for error in (ImportError("no"), RuntimeError("PTX")):

        def fails(*_, error=error):
            raise error

        monkeypatch.setattr("specdemo.engine.graphs.load.attention_gap", fails)
        chosen = choose_attention(target)
        assert chosen.attention.name == "float64" and chosen.why.startswith("Triton")


def test_filters_that_cannot_be_captured_are_left_to_the_host(monkeypatch):
    def waits(scores, numbers):
        return scores * float(numbers.top_k > 0)

    monkeypatch.setattr("specdemo.engine.graphs.choose._filtered", waits)
    with pretended_gpu():
        engine = device_engine(device="cuda")
        rounds, why = make_rounds(engine.target)
        assert rounds is not None and not why and not rounds.filters
        engine = replace(engine, rounds=rounds)
        for sampling, kind in ((Sampling(0.8, top_k=5), "eager"), (Sampling(0.8), "graph")):
            start, *_, done = race(
                engine, Request("t1 t2", "lookup", sampling=sampling, max_new_tokens=8)
            )
            assert start.target_pass == kind and done.result["identical"]
            assert ("Top-k" in start.why_host) == (kind == "eager")
