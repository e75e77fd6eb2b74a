"""The training loop on a tiny target: a drafter learns, the computed race equals a real one, a
killed run goes on.
"""

import json
import os
import signal
from dataclasses import asdict

import numpy as np
import pytest
import torch
from tiny_models import features_of
from tiny_training import periodic_corpus, trainer_for

from specdemo.errors import UserError
from specdemo.training import checkpoint
from specdemo.training.evaluate import Evaluator, Passages, Rounds, add_rounds
from specdemo.training.new_drafter import new_drafter
from specdemo.training.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def learned(tiny_target, tmp_path_factory):
    trainer = trainer_for(tiny_target, tmp_path_factory.mktemp("learned"), steps=120)
    return trainer, trainer.run(show=False)


def test_a_drafter_learns_and_the_run_is_summed_up(learned):
    trainer, summary = learned
    losses = [p["loss"] for p in trainer.curve]
    assert (
        losses[-1] < 0.6 * losses[0]
        and summary["steps"] == 120
        and summary["anchors"] == 120 * 4 * 6
        and summary["anchors_per_second"] > 0
    )
    assert (trainer.out / "curve.svg").read_text().startswith("<svg") and json.loads(
        (trainer.out / "curve.json").read_text()
    ) == trainer.curve


@pytest.mark.parametrize("kind", ["vp", "mdlm", "streak", "ar"])
@pytest.mark.parametrize("mix", [0.0, 0.5])
def test_every_kind_learns(tiny_target, tmp_path, kind, mix):
    trainer = trainer_for(tiny_target, tmp_path, kind, steps=40, mix=mix)
    trainer.run(log_every=5, show=False)
    assert trainer.curve[-1]["loss"] < trainer.curve[0]["loss"] - 0.3


def race_by_hand(target, net, text, first):
    """A chain race walked round by round with the drafter's own cache: the accepted drafts of
    each.
    """
    net.bind(target.get_input_embeddings().weight, target.get_output_embeddings().weight)
    features, at, rounds = features_of(target, net.layer_ids, text)[0], first, []
    while at < len(text) - 1:
        cache = net.new_cache(128)
        net.extend(cache, features[:at], 0)
        ids = torch.full((1, net.block_size), -1)
        ids[0, 0] = text[at]
        draft = net.logits(net.hidden(ids, at, cache))[0, 1:].argmax(-1).tolist()
        kept = 0
        while (
            kept < len(draft) and at + kept + 1 < len(text) and draft[kept] == text[at + kept + 1]
        ):
            kept += 1
        rounds.append(kept)
        at += kept + 1
    return rounds


def test_the_computed_race_is_the_race(learned, tiny_target):
    net = learned[0].net
    evaluator = Evaluator(tiny_target, net, tiny_target.lm_head.weight, None, net.block_size - 1)
    corpus, lengths = periodic_corpus(6, seed=5), set()
    corpus.tokens[1, 20:24] = [9, 8, 9, 8]  # surprises, so that rounds are of all lengths
    corpus.tokens[2, ::7] = 50
    for row, answer in zip(corpus.tokens, corpus.answer, strict=True):
        computed = Rounds()
        tokens = torch.from_numpy(row.astype(np.int64))
        features = torch.cat([features_of(tiny_target, net.layer_ids, row.tolist())[0]])[None]
        run = np.zeros(len(row), dtype=np.int64)
        spots = torch.arange(4, len(row))
        run[4:] = evaluator.block_runs(tokens, spots, features).numpy()
        add_rounds(run, answer, computed)
        by_hand = race_by_hand(tiny_target, net, row.tolist(), 4)
        assert computed.accepted == by_hand and sum(computed.written) == len(row) - 5
        lengths |= set(by_hand)
    assert len(lengths) > 3
    scores = evaluator.evaluate(
        Passages(corpus.tokens, corpus.answer, list("aabbcc")), "block", revealed=(2,)
    )
    assert set(scores["by_category"]) == {"a", "b", "c"} and 0 <= scores["after_revealed"]["2"] <= 3
    assert scores["all"]["kept_at_least"] == sorted(scores["all"]["kept_at_least"], reverse=True)


def test_ar_runs_count_teacher_forced_choices(tiny_target):
    net = new_drafter(tiny_target, "ar", 1, 6, None, 0)
    evaluator = Evaluator(tiny_target, net, tiny_target.lm_head.weight, None, 5)
    tokens = torch.from_numpy(periodic_corpus(1).tokens[0].astype(np.int64))
    hidden = net(
        torch.nn.functional.embedding(tokens[None], tiny_target.model.embed_tokens.weight)
    )[0]
    right = ((hidden @ tiny_target.lm_head.weight.T).argmax(-1)[:-1] == tokens[1:]).tolist() + [
        False
    ] * 6
    expected = [next((k for k in range(5) if not right[i + k]), 5) for i in range(len(tokens))]
    assert evaluator.ar_runs(tokens).tolist() == expected


@pytest.mark.parametrize("kind", ["block", "vp", "streak"])
def test_blocks_of_several_lengths_are_practised(tiny_target, tmp_path, kind):
    trainer = trainer_for(tiny_target, tmp_path, kind, steps=40, mix=0.5, lengths=(3, 3, 5))
    drawn, real = [], trainer.step_loss.blocks
    trainer.step_loss.blocks = lambda net, embedding, features, ids, *rest: (
        drawn.append(ids.shape[-1]),
        real(net, embedding, features, ids, *rest),
    )[1]
    trainer.run(log_every=5, show=False)
    assert set(drawn) == {3, 5} and drawn.count(3) > drawn.count(5)
    assert (
        trainer.curve[-1]["loss"] < trainer.curve[0]["loss"] - 0.2 and trainer.net.block_size == 6
    )


@pytest.mark.parametrize("lengths", [(), (4, 6)])
def test_a_killed_run_continues_the_same_curve(tiny_target, tmp_path, lengths):
    whole = trainer_for(tiny_target, tmp_path / "whole", steps=30, mix=0.5, lengths=lengths)
    whole.run(log_every=4, show=False)
    killed = trainer_for(tiny_target, tmp_path / "killed", steps=30, mix=0.5, lengths=lengths)
    real, calls = killed.step_loss.block, []

    def dies(step, progress):
        calls.append(step)
        if step == 14:
            raise RuntimeError("killed")
        if step == 11:
            killed.save()  # the checkpoint a clock would have written
        return real(step, progress)

    killed.step_loss.block = dies
    with pytest.raises(RuntimeError, match="killed"):
        killed.run(log_every=4, show=False)
    again = trainer_for(tiny_target, tmp_path / "killed", steps=30, mix=0.5, lengths=lengths)
    again.resume(tmp_path / "killed")
    assert again.step == 11
    again.run(log_every=4, show=False)
    strip = (
        [{k: p[k] for k in ("step", "loss", "first")} for p in again.curve],
        [{k: p[k] for k in ("step", "loss", "first")} for p in whole.curve],
    )
    assert strip[0] == strip[1]
    for one, two in zip(again.net.parameters(), whole.net.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_polite_kill_finishes_the_step_and_saves(tiny_target, tmp_path):
    trainer = trainer_for(tiny_target, tmp_path, steps=1000)
    real = trainer.step_loss.block
    trainer.step_loss.block = lambda step, progress: (
        os.kill(os.getpid(), signal.SIGTERM) if step == 5 else None,
        real(step, progress),
    )[1]
    before = signal.getsignal(signal.SIGTERM)
    assert trainer.run(show=False)["stopped"] and checkpoint.read(tmp_path)[0]["step"] == 6
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_kill_does_not_wait_for_an_evaluation(tiny_target, tmp_path):
    trainer = trainer_for(tiny_target, tmp_path, steps=1000, eval_minutes=0)
    looks = []

    def endless():
        looks.append(trainer.step)
        if len(looks) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            # the signal's handler ends it before this line
            raise AssertionError("the evaluation went on")
        return {"tokens_per_round": 1.0}

    trainer.evaluate = endless
    assert (
        trainer.run(show=False)["stopped"]
        and looks == [1, 2, 3]
        and checkpoint.read(tmp_path)[0]["step"] == 3
    )
    assert sum("tokens_per_round" in p for p in trainer.curve) == 2 and not trainer.evaluating


def test_a_half_written_checkpoint_is_never_read(tiny_target, tmp_path):
    trainer = trainer_for(tiny_target, tmp_path, steps=2)
    trainer.run(show=False)
    before = (tmp_path / checkpoint.NAME).read_bytes()
    # killed while writing the next one
    (tmp_path / (checkpoint.NAME + ".part")).write_bytes(before[:1000])
    assert checkpoint.read(tmp_path)[0]["step"] == 2
    (tmp_path / checkpoint.NAME).write_bytes(before[: len(before) // 2])
    with pytest.raises(UserError, match="is damaged; begin another run with another --out"):
        checkpoint.read(tmp_path)
    with pytest.raises(UserError, match="no checkpoint in .*begin one without --resume"):
        checkpoint.read(tmp_path / "nowhere")
    with pytest.raises(UserError, match="of kind 'block'"):
        (
            trainer_for(tiny_target, tmp_path / "x", "vp").resume(trainer.out)
            if (tmp_path / checkpoint.NAME).write_bytes(before)
            else None
        )


def test_a_checkpoint_of_an_earlier_version_goes_on(tiny_target, tmp_path):
    """Settings once had fields that no command could set, and no lengths."""
    trainer = trainer_for(tiny_target, tmp_path, steps=2)
    trainer.run(show=False)
    stored = asdict(trainer.settings) | {"shares": None, "surrogate": True, "chunk": 0}
    del stored["lengths"]
    assert Settings.from_checkpoint(stored) == trainer.settings
    listed = asdict(trainer.settings) | {"lengths": [3, 5]}  # as JSON has it
    assert Settings.from_checkpoint(listed).lengths == (3, 5)
