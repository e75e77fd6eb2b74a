"""Products with weights in blocks: the numbers of a 4-bit file come back, rows have the same bits
in any company, and a target with weights of 4 bits is checked against the same weights in fp32.
"""

from __future__ import annotations

import threading

import pytest
import torch
from tiny_models import make_tiny_target

from specdemo.engine.check_target import check_against
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models import blocks
from specdemo.models.blocks import GROUP, multiply, pack, to_numbers, usable
from specdemo.models.load import load_target, round_weights
from specdemo.models.pairs import get_pair
from specdemo.models.team import Team

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = pytest.mark.parametrize("bits", [4, 8, 16])
# weights of 32-bit rows are machine code of their own, which takes a quarter of a minute to compile
ROWS = [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.slow)]


def weight_of(bits: int, out: int = 208, size: int = 96) -> torch.Tensor:
    """float32, as ``bits`` can say it."""
    torch.manual_seed(bits)
    weight = torch.randn(out, size)
    return weight.bfloat16().float() if bits == 16 else to_numbers(weight, bits).weights()


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_of_a_file_come_back_from_weights_that_were_expanded_to_bf16(bits):
    torch.manual_seed(0)
    least, most = (0, 15) if bits == 4 else (-127, 127)
    q = torch.randint(least, most + 1, (40, 4, GROUP))
    q[..., 0], q[..., 1] = least, most  # a file's blocks use their whole range
    scale = torch.rand(40, 4, 1).half().float() * 0.01 + 1e-3
    minimum = -7.5 * scale if bits == 4 else torch.zeros_like(scale)
    exact = (q * scale + minimum).flatten(-2)
    found = to_numbers(exact.bfloat16(), bits)
    off = (found.numbers.long() - q.flatten(-2)).abs()
    # bfloat16 has eight bits itself: a number in a hundred lies between two
    assert off.max() <= (bits == 8) and (off > 0).float().mean() < 0.02
    # nearer to the file than what it was expanded to
    assert (found.weights() - exact).norm() < 0.8 * (exact.bfloat16().float() - exact).norm()


def test_a_group_of_equal_weights_is_kept():
    weight = torch.zeros(16, 64)
    weight[:, GROUP:] = 0.25
    assert torch.equal(to_numbers(weight, 4).weights(), weight)
    assert torch.equal(to_numbers(torch.zeros(16, 32), 8).weights(), torch.zeros(16, 32))


@KINDS
@pytest.mark.parametrize("dtype", ROWS)
def test_a_product_is_that_of_its_weights_and_a_row_the_same_in_any_company(bits, dtype):
    weight = weight_of(bits)
    if not usable(weight, dtype, bits):
        pytest.skip("these products do not run on this processor")
    by, x = pack(weight, bits), torch.randn(33, weight.shape[1]).to(dtype)
    got, want = multiply(x, by), x.double() @ weight.double().T
    most = 1e-5 if dtype == torch.float32 else 2e-2
    assert got.dtype == dtype and (got - want).abs().max() < most * want.std()
    for rows in (1, 2, 3, 4, 8, 12, 16, 24, 32):
        assert torch.equal(multiply(x[-rows:].contiguous(), by), got[-rows:]), rows
    assert multiply(x[:0], by).shape == (0, len(weight))


@KINDS
def test_threads_change_no_bit(bits, monkeypatch):
    monkeypatch.setattr(blocks, "ALONE", 0)
    weight = weight_of(bits, 1024, 64)
    if not usable(weight, torch.bfloat16, bits):
        pytest.skip("these products do not run on this processor")
    by, x = pack(weight, bits), torch.randn(16, 64).bfloat16()
    alone = multiply(x, by)
    torch.set_num_threads(3)
    for _ in range(20):
        assert torch.equal(multiply(x, by), alone)


def test_nobody_waits_for_a_helper_and_each_is_called():
    team, calls = Team(), []
    done = [threading.Event() for _ in range(2)]

    def work(thread: int) -> None:
        calls.append(thread)
        if thread:
            done[thread - 1].set()

    team.share(work, 3)
    assert 0 in calls and all(event.wait(30) for event in done)
    assert sorted(calls) == [0, 1, 2]
    threads = list(team._threads)
    team.dismiss()
    assert len(threads) == 2 and not any(thread.is_alive() for thread in threads)


# -- a target with weights of 4 bits ---------------------------------------------------------------


def four_bit_model() -> torch.nn.Module:
    model = make_tiny_target(layers=2, max_position_embeddings=2048).bfloat16()
    round_weights(model)
    return model


def test_a_four_bit_target_agrees_with_its_weights_in_fp32_and_widths_have_equal_bits():
    model = four_bit_model()
    target = Target(model, four_bits=True)
    assert target.pass_kind == "compiled" and target.dtype_name == "int4"
    assert check_against(target, model) < 0.3
    rows = []
    with torch.inference_mode():
        for width in (1, 2, 4, 16, 64):
            cache = target.new_cache(128)
            target.prefill(cache, [3, 4, 5, 6])
            rows.append(target.verify(cache, 7, [8][: width - 1], [-1][: width - 1], width)[0][0])
    assert all(torch.equal(row, rows[0]) for row in rows)


def test_a_four_bit_layer_that_is_off_is_refused_by_its_number():
    model = four_bit_model()
    target = Target(model, four_bits=True)
    down = model.model.layers[1].mlp.down_proj.weight.detach()
    target.layers[1].down = type(target.layers[1].down)(down * 1.2, bits=4)
    with pytest.raises(UserError, match="its layer 2 with weights of 4 bits"):
        check_against(target, model)


def test_where_four_bits_cannot_run_a_sentence_says_so(monkeypatch):
    monkeypatch.setattr(blocks, "usable", lambda *_: False)
    with pytest.raises(UserError, match="choose dtype bf16"):
        Target(make_tiny_target(), four_bits=True)


def test_round_weights_changes_nothing_the_second_time():
    model = four_bit_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    round_weights(model)
    for name, p in model.named_parameters():
        assert (p - before[name]).abs().max() <= 2**-7 * before[name].abs().max(), name


@pytest.mark.real
def test_the_embedded_file_has_these_numbers():
    """Weights of the pair hardly move: they were expanded from 4 bits, the head from 8."""
    found = load_target(get_pair("smollm2-135m"), "int4")
    expanded = load_target(get_pair("smollm2-135m"), "bf16")
    assert found.quantized == "int4"
    theirs = dict(expanded.model.named_parameters())
    for name, p in found.model.named_parameters():
        assert (p - theirs[name]).abs().max() < 0.06 * theirs[name].float().std(), name
