"""What passes cost: measured in little time on a machine that may be busy, and interpolated."""

from __future__ import annotations

import random

import pytest
import torch
from tiny_models import make_tiny_target

from specdemo.engine.calibrate import FAR, calibrate, equal_widths, interpolated
from specdemo.engine.cost import CONTEXT, WIDTHS, CostModel
from specdemo.engine.target import Target
from specdemo.errors import UserError

torch.set_num_threads(1)


def test_equal_widths_hold_the_verify_width_and_are_measured():
    widths = equal_widths(Target(make_tiny_target()))
    assert 16 in widths and widths == sorted(widths)


@pytest.mark.parametrize("behind, trusted", [(150, False), (1000, False), (1100, True)])
def test_a_width_whose_bits_differ_behind_a_long_context_is_not_trusted(
    monkeypatch, behind, trusted
):
    target = Target(make_tiny_target(max_position_embeddings=2048))
    real = target.verify

    def verify(cache, *words, **more):
        logits, features = real(cache, *words, **more)
        return logits + (words[3] == 8 and cache.length > behind) * 1e-3, features

    assert 8 in equal_widths(target)
    monkeypatch.setattr(target, "verify", verify)
    widths = equal_widths(target)
    assert (8 in widths) == trusted and {4, 12, 16} <= set(widths)


def test_a_pass_never_costs_more_than_a_wider_one():
    costs = CostModel({1: 10.0, 2: 14.0, 4: 12.0, 8: 1.0, 16: 20.0}, 9.0, [1, 2, 4, 16])
    assert [costs.pass_ms(n) for n in (1, 2, 3, 5, 16)] == [10.0, 12.0, 12.0, 20.0, 20.0]
    assert costs.baseline_ms == 9.0 and costs.predicted_ms(3, 2.5) == 14.5
    with pytest.raises(UserError, match="lower γ"):
        costs.pass_ms(17)


def test_costs_grow_with_the_context():
    costs = CostModel({1: 10.0, 16: 20.0}, 9.0, [1, 16], {1: 0.01, 16: 0.03}, 0.02)
    assert costs.at(CONTEXT + 1000).ms == {1: 20.0, 16: 50.0}
    assert costs.at(CONTEXT + 1000).baseline_ms == 20.0  # here the lane, above the one-row kernel
    assert costs.at(3) == costs.at(CONTEXT) and costs.at(3).ms == costs.ms


def test_what_is_not_measured_lies_between_and_never_falls():
    points = {1: 20.0, 8: 30.0, 16: 26.0, 32: 42.0}
    found = interpolated(points, WIDTHS)
    assert found[1] == 20.0 and found[8] == found[16] == 26.0, "8 could be padded to 16"
    assert found[24] == 34.0 and found[64] == 74.0
    assert list(found.values()) == sorted(found.values())
    assert interpolated({16: 5.0}, (1, 16, 32)) == {1: 5.0, 16: 5.0, 32: 5.0}
    assert interpolated({8: 5.0, 16: 6.0}, (1, 8)) == {1: 5.0, 8: 5.0}


class Noisy:
    """A tiny target whose passes take a scripted time on a scripted clock: at the short context
    ``width + 21`` ms, the one-row kernel 20, both 10 more at the long one; 1.5 times that on one
    thread; and what ``noise(call, threads)`` adds, in seconds.
    """

    def __init__(self, monkeypatch, noise=lambda call, threads: 0.0, scale=1.0):
        self.scale = scale
        self.target, self.clock, self.calls, self.threads = Target(make_tiny_target()), 0.0, 0, 2
        real = self.target.verify

        def verify(cache, *words, **more):
            ms = 20 if more.get("attention") == "masked" else words[3] + 21
            ms += 10 * (cache.length > CONTEXT)
            self.clock += ms * (1.5 if self.threads == 1 else 1) / 1e3 * self.scale
            self.clock += noise(self.calls, self.threads)
            self.calls += 1
            return real(cache, *words, **more)

        monkeypatch.setattr(self.target, "verify", verify)
        monkeypatch.setattr("specdemo.engine.calibrate.clock_now", lambda _: self.clock)
        monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(self, "threads", count))
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.threads)

    def calibrated(self, **more):
        return calibrate(self.target, WIDTHS, [2, 1], **more)


def test_costs_are_the_quiet_passes_of_each_number_of_threads(monkeypatch):
    noisy = Noisy(monkeypatch)
    curves, sure = noisy.calibrated(seconds=3)
    assert list(curves) == [2, 1] and noisy.threads == 2 and sure
    # one compiled row is what the lane runs: no other kernel is measured beside it
    one_row = 22 if noisy.target.pass_kind == "compiled" else 20
    for threads, factor in ((2, 1), (1, 1.5)):
        costs = curves[threads]
        assert costs.ms == pytest.approx({w: (w + 21) * factor for w in WIDTHS})
        assert costs.one_row_ms == pytest.approx(one_row * factor)
        far = costs.at(CONTEXT + 1000)
        more = 10 * factor * 1000 / (min(FAR, noisy.target.max_positions - WIDTHS[-1]) - CONTEXT)
        assert far.ms[16] == pytest.approx(37 * factor + more)
        assert far.one_row_ms == pytest.approx(one_row * factor + more)


def test_measuring_ends_in_time_and_outlasts_a_busy_moment(monkeypatch):
    """The fault: a browser started while the model loaded, each width had one slow turn, and a race
    was said to run at 0.04 times plain decoding.
    """
    noisy = Noisy(monkeypatch, lambda call, threads: 0.02 if call < 20 else 0.0, scale=0.4)
    curves, _ = noisy.calibrated()
    assert noisy.clock < 1.5 + 0.15
    assert curves[2].ms == pytest.approx({w: 0.4 * (w + 21) for w in WIDTHS})
    by_width = [curves[1].pass_ms(w) for w in WIDTHS]
    assert by_width == sorted(by_width)


def test_what_only_one_turn_says_is_not_sure(monkeypatch):
    rng = random.Random(0)
    noisy = Noisy(monkeypatch, lambda call, threads: rng.random() / 10, scale=0.4)
    assert not noisy.calibrated().sure
    assert not Noisy(monkeypatch).calibrated(seconds=0.0).sure


def test_cores_that_are_busy_are_known_by_the_fewer_threads(monkeypatch):
    """Two threads beside a busy process: 25 times as long, which is no cost of theirs."""
    noisy = Noisy(monkeypatch, lambda call, threads: 0.9 if threads == 2 else 0.0)
    curves, sure = noisy.calibrated()
    assert noisy.clock < 1.5 + 2 * 0.95 and not sure
    assert curves[2].ms == curves[1].ms == pytest.approx({w: (w + 21) * 1.5 for w in WIDTHS})
    assert curves[2].one_row_ms == curves[1].one_row_ms


def test_threads_that_change_a_bit_are_not_used(monkeypatch):
    noisy = Noisy(monkeypatch)
    verify = noisy.target.verify

    def other_bits(*words, **more):
        logits, taps = verify(*words, **more)
        return logits * (1.0 if noisy.threads == 2 else 1.0 + 1e-6), taps

    monkeypatch.setattr(noisy.target, "verify", other_bits)
    assert list(noisy.calibrated().curves) == [2]


def test_passes_have_the_same_bits_with_any_number_of_threads():
    """So threads may change in the middle of a race."""
    target = Target(make_tiny_target())
    ids = [(7 * i + 3) % 120 for i in range(300)]

    def bits(threads):
        torch.set_num_threads(threads)
        cache = target.new_cache(400)
        out = [target.prefill(cache, ids)[0]]
        out += [target.verify(cache, 5, [6, 7], [-1, -1], w)[0] for w in (4, 16, 32)]
        return [*out, cache.keys[:, :, :300], cache.values[:, :, :300]]

    try:
        with torch.inference_mode():
            one, two, three = bits(1), bits(2), bits(3)
    finally:
        torch.set_num_threads(1)
    assert all(
        torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(one, two, three, strict=True)
    )
