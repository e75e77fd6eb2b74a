"""What makes training faster changes nothing in what is learned: kept readings, compiled passes,
the moving average, the schedule.
"""

import sys

import numpy as np
import pytest
import torch
from tiny_training import parsed, periodic_corpus, trainer_for
from torch._dynamo.exc import TorchDynamoException

from specdemo.training import checkpoint, compiling, options
from specdemo.training.data import Batches
from specdemo.training.kept import KeptReadings
from specdemo.training.options import add_arguments, settings_of
from specdemo.training.packed import HiddenStateTaps
from specdemo.training.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


def test_rows_that_are_reused_come_in_groups_and_none_is_missed():
    one, two = (Batches(10, 2, 7, reuse=3, group=4) for _ in range(2))
    order = np.concatenate([one.rows_at(i) for i in range(30)])
    assert (two.rows_at(17) == order[34:36]).all()
    epoch = order[:30]
    assert sorted(epoch) == sorted(list(range(10)) * 3)
    for group, at in ((epoch[:12], 4), (epoch[12:24], 4), (epoch[24:], 2)):
        uses = group.reshape(3, at)
        assert len(set(uses[0])) == at and all(set(use) == set(uses[0]) for use in uses)
    assert any((order[at : at + 4] != order[at + 4 : at + 8]).any() for at in (0, 4))
    assert (order[30:] != epoch).any()


def test_kept_readings_are_the_readings_and_hold_no_more_than_asked(tiny_target):
    taps, asked = HiddenStateTaps(tiny_target, (0, 1)), []

    def read(ids):
        asked.append(len(ids))
        return taps.forward(ids)

    corpus = torch.from_numpy(periodic_corpus(8).tokens.astype("int64"))
    kept = KeptReadings(read, rows=3)
    for rows in ([0, 1], [1, 2], [0, 2], [3, 4], [0, 1]):
        ids = corpus[rows]
        for ours, fresh in zip(kept.of(rows, ids), taps.forward(ids), strict=True):
            torch.testing.assert_close(ours, fresh)
        assert len(kept.kept) <= 3
    assert asked == [2, 1, 2, 2]
    assert KeptReadings(taps.forward, rows=3, last=False).of([0], corpus[:1])[1].numel() == 0


@pytest.mark.parametrize("kind", ["block", "streak", "markov", "ar"])
def test_kept_readings_change_nothing_in_what_is_learned(tiny_target, tmp_path, kind):
    from specdemo.training.markov import with_head

    weights = []
    for keep in (0.0, 1.0):
        trainer = trainer_for(tiny_target, tmp_path / str(keep), kind, steps=6, mix=0.5, keep=keep)
        if kind == "markov":
            trainer.net = with_head(trainer.net, 4)
        read, readings = [], trainer.step_loss.readings
        real = readings.read
        readings.read = lambda ids, real=real, read=read: (read.append(len(ids)), real(ids))[1]
        # two rows, so that each is met again
        trainer.step_loss.batches = Batches(2, 4, 0)
        trainer.run(show=False)
        weights.append([p.detach().clone() for p in trainer.net.parameters()])
        assert sum(read) == (2 if keep else 12)
    for one, two in zip(*weights, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_the_memory_asked_for_decides_how_many_rows_are_kept(tiny_target, tmp_path):
    row = 48 * 2 * 4 * tiny_target.config.hidden_size  # one tap and the last state, float32
    trainer = trainer_for(tiny_target, tmp_path, mix=0.5, reuse=2, keep=5.5 * row / 1e9)
    taps = len(trainer.net.layer_ids)
    rows = int(5.5 * 2 / (taps + 1))
    assert trainer.step_loss.readings.rows == rows == trainer.step_loss.batches.group
    assert trainer.step_loss.kept_bytes == rows * row * (taps + 1) // 2
    everything = trainer_for(tiny_target, tmp_path, mix=0.5, reuse=2, keep=1.0).step_loss
    assert everything.kept_bytes == 64 * row * (taps + 1) // 2  # no more than there is


def test_the_average_lags_behind_the_weights_and_is_what_is_evaluated(tiny_target, tmp_path):
    trainer = trainer_for(tiny_target, tmp_path, steps=12, average=0.9)
    name, weight = next((n, p) for n, p in trainer.net.named_parameters() if p.requires_grad)
    expected, seen = weight.detach().clone(), []
    for step in range(1, 13):
        trainer._train_step()
        expected.lerp_(weight.detach(), 1 - min(0.9, (1 + step) / (10 + step)))
    torch.testing.assert_close(trainer.average.values[name], expected)
    now = weight.detach().clone()
    trainer.evaluate = lambda: (seen.append(weight.detach().clone()), {})[1]
    trainer._evaluate()
    assert torch.equal(seen[0], trainer.average.values[name]) and torch.equal(weight, now)
    trainer.save()
    again = trainer_for(tiny_target, tmp_path, steps=12, average=0.9)
    again.resume(tmp_path)
    assert torch.equal(again.average.values[name], trainer.average.values[name])
    plain = trainer_for(tiny_target, tmp_path / "plain", steps=2)
    plain.run(show=False)
    assert not any(key.startswith("average") for key in checkpoint.read(plain.out)[1])
    later = trainer_for(tiny_target, tmp_path / "plain", steps=2, average=0.9)
    later.resume(plain.out)  # a run from before there was one
    assert torch.equal(later.average.values[name], dict(later.net.named_parameters())[name])


def test_the_learning_rate_stays_up_to_where_it_falls(tiny_target, tmp_path):
    trainer = trainer_for(tiny_target, tmp_path, steps=100, lr=1.0, decay_from=0.5)
    rates = []
    for trainer.step in (2, 4, 30, 50, 75, 100):
        rates.append(trainer.learning_rate())
    assert rates == pytest.approx([0.5, 1.0, 1.0, 1.0, 0.51, 0.02])
    trainer.settings.steps = 100_000  # its share would be 4,000 steps
    for trainer.step, rate in ((0, 0.025), (250, 0.5), (500, 1.0), (75_000, 0.51)):
        assert trainer.learning_rate() == pytest.approx(rate, rel=0.01)


@pytest.mark.skipif(not compiling.has_compiler(), reason="needs a C++ compiler")
@pytest.mark.slow
def test_a_compiled_pass_has_the_same_loss_and_gradients(tiny_target, tmp_path):
    gradients = []
    for compile in (False, True):
        trainer = trainer_for(tiny_target, tmp_path / str(compile), mix=0.5, compile=compile)
        result = trainer.step_loss(3, 0.1)
        result.loss.backward()
        gradients.append([p.grad for p in trainer.net.parameters() if p.grad is not None])
        gradients[-1].append(result.loss.detach())
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_where_compiling_fails_training_goes_on_without(monkeypatch, capsys):
    def fails(function, dynamic):
        def call(*args):
            raise TorchDynamoException("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", fails)
    call = compiling.compiled(lambda x: x + 1)
    assert [call(1), call(2)] == [2, 3]
    assert capsys.readouterr().err.count("no compiler here") == 1


@pytest.mark.parametrize(
    ("words", "found", "expected"),
    [
        (("--minutes", 3), True, False),
        (("--minutes", 5), True, True),
        (("--minutes", 5), False, False),
        (("--steps", 20), True, False),
        (("--steps", 500), True, True),
        (("--minutes", 60, "--no-compile"), True, False),
        (("--minutes", 1, "--compile"), False, True),
    ],
)
def test_long_runs_are_compiled_where_a_compiler_is_found(monkeypatch, words, found, expected):
    monkeypatch.setattr(compiling, "has_compiler", lambda: found)
    assert settings_of(parsed(add_arguments, *words), on_gpu=False).compile is expected


def test_a_run_of_an_earlier_version_goes_on_without_what_it_had_not():
    old = Settings.from_checkpoint({"kind": "block", "lr": 1e-4})
    assert (old.reuse, old.keep, old.average, old.decay_from) == (1, 0.0, 0.0, 0.0)
    assert options.KEPT and {"average", "reuse", "keep"} <= set(options.KEPT)


def test_progress_in_a_file_is_a_line_a_minute(capsys, monkeypatch):
    from specdemo.training import progress

    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with progress.progress_bar("train", 1.0) as update:
        for clock[0], done in ((100.0, 0.1), (130.0, 0.2), (161.0, 0.3)):
            update(done, f"[{done}]")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "10.0 %, [0.1]" in lines[0] and "30.0 %, [0.3]" in lines[1]
