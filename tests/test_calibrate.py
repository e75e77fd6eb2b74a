"""What passes cost: measured on a machine that may be busy, and which widths may be used."""

from __future__ import annotations

import random

import pytest
import torch
from tiny_models import make_tiny_target

from specdemo.engine.calibrate import calibrate, equal_widths
from specdemo.engine.cost import WIDTHS, CostModel
from specdemo.engine.target import Target
from specdemo.errors import UserError

torch.set_num_threads(1)


def test_equal_widths_hold_the_verify_width_and_are_measured():
    widths = equal_widths(Target(make_tiny_target()))
    assert 16 in widths and widths == sorted(widths)


def test_a_pass_never_costs_more_than_a_wider_one():
    costs = CostModel({1: 10.0, 2: 14.0, 4: 12.0, 8: 1.0, 16: 20.0}, 9.0, [1, 2, 4, 16])
    assert [costs.pass_ms(n) for n in (1, 2, 3, 5, 16)] == [10.0, 12.0, 12.0, 20.0, 20.0]
    assert costs.baseline_ms == 9.0 and costs.predicted_ms(3, 2.5) == 14.5
    with pytest.raises(UserError, match="lower γ"):
        costs.pass_ms(17)


class Noisy:
    """A tiny target whose passes take a scripted time on a scripted clock: ``width + 20`` ms, the
    exact one-row pass 22, plus what ``noise(call)`` adds.
    """

    def __init__(self, monkeypatch, noise):
        self.target, self.clock, self.calls = Target(make_tiny_target()), 0.0, 0
        real = self.target.verify

        def verify(*words, **more):
            width = words[4]
            self.clock += (20 if more.get("attention") == "masked" else width + 21) / 1e3 + noise(
                self.calls
            )
            self.calls += 1
            return real(*words, **more)

        monkeypatch.setattr(self.target, "verify", verify)
        monkeypatch.setattr("specdemo.engine.calibrate.clock_now", lambda _: self.clock)

    def calibrated(self):
        return calibrate(self.target)


def test_costs_are_the_quiet_passes(monkeypatch):
    costs = Noisy(monkeypatch, lambda call: 0.0).calibrated()
    assert costs.ms == pytest.approx({w: w + 21 for w in WIDTHS})
    assert costs.one_row_ms == pytest.approx(20)


@pytest.mark.parametrize("kind", ["busy for a while", "now and then"])
def test_costs_outlast_a_busy_moment_at_load(monkeypatch, kind):
    """The fault: a browser started while the model loaded, each width had one slow turn, and a race
    was said to run at 0.04 times plain decoding.
    """
    rng = random.Random(0)
    noise = {
        "busy for a while": lambda call: 0.9 * (0.5 + rng.random()) if call < 18 else 0.0,
        "now and then": lambda call: 0.5 if rng.random() < 0.5 else 0.0,
    }[kind]
    costs = Noisy(monkeypatch, noise).calibrated()
    assert costs.ms == pytest.approx({w: w + 21 for w in WIDTHS})
    assert costs.one_row_ms == pytest.approx(20)


def test_costs_of_a_machine_that_is_never_quiet_stay_in_order(monkeypatch):
    rng = random.Random(1)
    noisy = Noisy(monkeypatch, lambda call: rng.random() * 2)
    costs = noisy.calibrated()
    assert noisy.clock < 150, (
        "it gives up in the end (the widths are compared on the same clock afterwards)"
    )
    by_width = [costs.pass_ms(w) for w in costs.widths]
    assert by_width == sorted(by_width)
