"""Odd numbers in training commands: one sentence before anything loads, and a loss that is no
number stops the run without touching the last good checkpoint.
"""

import json
import math

import pytest
import torch
from tiny_training import parsed, trainer_for

from specdemo.__main__ import main
from specdemo.errors import UserError
from specdemo.training import checkpoint, corpus, train
from specdemo.training.options import add_arguments, check_ranges


@pytest.fixture
def nothing_loads(monkeypatch):
    for module in (corpus, train):
        monkeypatch.setattr(module, "load_target", lambda *a, **k: pytest.fail("it was loaded"))


@pytest.mark.parametrize(
    "words",
    [
        "--steps -1",
        "--steps 99999999999",
        "--seed -1",
        "--seed 2147483648",
        "--lr -1",
        "--lr nan",
        "--lr inf",
        "--lr 2",
        "--block-size 257",
        "--block-size 1",
        "--draft-vocab -5",
        "--minutes nan",
        "--minutes inf",
        "--minutes -1",
        "--minutes 0",
        "--save-minutes nan",
        "--eval-minutes nan",
        "--eval-minutes -1",
        "--streak-from nan",
        "--streak-from 1.5",
        "--layers -1",
        "--rank -1",
        "--rank 9999",
        "--anchors 0",
        "--lengths 1",
        "--kind ar --lengths 4",
    ],
)
def test_train_refuses_it_before_anything_loads(nothing_loads, tmp_path, capsys, words):
    out = tmp_path / "out"
    assert main(["train", "--corpus", str(tmp_path), "--out", str(out), *words.split()]) == 1
    said = capsys.readouterr().err
    assert words.split()[-2] in said and said.count("\n") == 1 and not out.exists()


@pytest.mark.parametrize(
    "words", ["--seed -1", "--seed 99999999999999999999", "--unique nan", "--unique 2"]
)
def test_corpus_refuses_it_before_anything_loads(nothing_loads, tmp_path, capsys, words):
    assert main(["corpus", "--out", str(tmp_path / "c"), *words.split()]) == 1
    said = capsys.readouterr().err
    assert words.split()[0] in said and said.count("\n") == 1 and not (tmp_path / "c").exists()


@pytest.mark.parametrize("device", ["meta", "nowhere", "cuda:99"])
def test_a_device_without_values_is_refused(target_folder, tmp_path, capsys, monkeypatch, device):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    assert main(["corpus", "--out", str(tmp_path / "c"), "--device", device]) == 1
    assert f"The device “{device}” is not available here" in capsys.readouterr().err


def test_every_default_is_within_its_limits():
    check_ranges(parsed(add_arguments))


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    tiny_target, tmp_path, monkeypatch, one_thread, broken
):
    trainer_for(tiny_target, tmp_path, steps=3).run(show=False)
    good = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    trainer = trainer_for(tiny_target, tmp_path, steps=200, save_minutes=0.0)
    trainer.resume(tmp_path)
    step = trainer._train_step

    def breaks():
        step()
        if broken == "weight":
            with torch.no_grad():
                next(trainer.net.parameters()).view(-1)[0] = math.nan
        else:
            trainer.pending[-1] = (torch.tensor(math.inf), trainer.pending[-1][1])

    monkeypatch.setattr(trainer, "_train_step", breaks)
    with pytest.raises(UserError, match="lower --lr .*checkpoint is kept"):
        trainer.run(show=False)
    assert trainer.step < 30
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == good
    assert checkpoint.read(tmp_path)[0]["step"] == 3


def test_a_run_that_ends_in_no_number_writes_nothing(tiny_target, tmp_path, one_thread):
    trainer = trainer_for(tiny_target, tmp_path, steps=4, lr=1e30)
    with pytest.raises(UserError, match="no longer a finite number") as said:
        trainer.run(show=False)
    assert "kept" not in str(said.value) and not list(tmp_path.iterdir())


def test_the_curve_is_json_where_no_first_token_was_asked(tiny_target, tmp_path, one_thread):
    trainer = trainer_for(tiny_target, tmp_path)
    trainer.pending = [(torch.tensor(1.0), torch.tensor(math.nan))]
    trainer._log(lambda done, note: None, train_work())
    json.dumps(trainer.curve, allow_nan=False)


def train_work():
    from specdemo.training.trainer import Work

    return Work(0, 0.0, 0, 0.0)
