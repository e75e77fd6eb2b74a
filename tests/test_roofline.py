"""What a pass reads and computes, and what the machine is measured to do."""

import pytest
import torch
from tiny import tiny_engine
from tiny_models import make_tiny_target

from specdemo.engine import race
from specdemo.engine.roofline import Speeds, machine_speeds, roofline
from specdemo.engine.target import Target
from specdemo.request import Request
from specdemo.ui.backend import Backend

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_pass_reads_every_weight_once_and_each_row_computes_with_all():
    """Counted in the library's own model: matrices and head, not the embedding's table."""
    model = make_tiny_target(vocab=128, layers=3)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    if model.lm_head.weight is model.model.embed_tokens.weight:
        matrices.append(model.lm_head.weight)
    count = sum(p.numel() for p in matrices)
    target, context = Target(model), 40
    found = roofline(target, Speeds(2e9, 3e12), context)
    c = model.config
    kept = (
        2 * c.num_hidden_layers * c.num_key_value_heads * (c.hidden_size // c.num_attention_heads)
    )
    attended = 4 * c.num_hidden_layers * c.hidden_size * context  # two products with every slot
    assert found == {
        "pass_bytes": 4 * (count + kept * context),
        "row_flops": 2 * count + attended,
        "bytes_per_second": 2e9,
        "flops_per_second": 3e12,
    }


def test_what_is_not_known_is_not_said():
    target = Target(make_tiny_target())
    assert roofline(target, None, 9) is None
    assert machine_speeds(torch.device("meta"), torch.float32) is None
    assert roofline(object(), Speeds(1.0, 1.0), 9) is None  # passes of the library's own model


def test_machines_are_measured():
    found = machine_speeds(torch.device("cpu"), torch.float32)
    assert 1e8 < found.bytes_per_second < 1e13 and 1e8 < found.flops_per_second < 1e15


def test_a_race_says_it_and_measuring_again_waits_for_its_end():
    engine = tiny_engine()
    engine.speeds = Speeds(2e9, 3e12)
    start = next(race(engine, Request("x", "ar", max_new_tokens=4)))
    assert start.roofline["bytes_per_second"] == 2e9
    with engine.lock:
        assert not engine.measure_again() and engine.speeds == Speeds(2e9, 3e12)
        assert "race is going on" in Backend().measure_again(engine)
    assert engine.measure_again() and engine.speeds != Speeds(2e9, 3e12)
    said = Backend().measure_again(engine)
    assert said.startswith("Measured again: one row ") and "16 rows" in said
