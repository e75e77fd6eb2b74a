"""The papers' blocks and losses against brute force, and their presets from command line to
card.
"""

import json

import numpy as np
import pytest
import torch
from tiny_training import parsed, periodic_corpus, trainer_for

from specdemo.errors import UserError
from specdemo.models.drafters import read_drafter
from specdemo.training import checkpoint, corpus, objectives
from specdemo.training.data import write_shard
from specdemo.training.options import add_arguments, check_ranges, resumed_settings, settings_of
from specdemo.training.overlap import Overlap, expected_acceptance
from specdemo.training.recipes import PRESETS, check_corpus
from specdemo.training.train import train_main

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_bounds_masks_weigh_every_slot_by_one_on_average_and_nothing_is_cut():
    generator = torch.Generator().manual_seed(0)
    draws = [objectives.nelbo_masks(500, 6, generator) for _ in range(200)]
    masked, weight = (torch.stack(x).flatten(0, 1) for x in zip(*draws, strict=True))
    assert not masked[:, 0].any() and ((weight > 0) == masked).all()
    assert weight[:, 1:].mean(0).tolist() == pytest.approx([1.0] * 5, abs=0.06)
    assert weight.max() > 8 and not masked.any(1).all()
    # evenly spread: of 500 blocks' t, about 50 lie in each tenth of (0, 1]
    first = draws[0][1]
    t = (1 / first.max(1).values[first.any(1)]).sort().values
    assert ((t > 0.5) & (t <= 0.6)).sum().item() == pytest.approx(50, abs=3)


def test_per_block_mean_is_equation_seven_of_d2sd():
    torch.manual_seed(0)
    score = torch.randn(7, requires_grad=True)
    weight, block = torch.rand(7), torch.tensor([0, 0, 0, 2, 2, 3, 3])
    weight[5:] = 0  # nothing of block 3 counts, block 1 has no row
    loss = objectives.per_block_ce(score, weight, block, 5)
    own = [-(weight[b] * score[b]).sum() / weight[b].sum() for b in (slice(0, 3), slice(3, 5))]
    expected = sum(own) / 2
    assert loss.item() == pytest.approx(expected.item())
    for one, two in zip(
        torch.autograd.grad(loss, score), torch.autograd.grad(expected, score), strict=True
    ):
        torch.testing.assert_close(one, two)
    assert loss.item() != pytest.approx(objectives.weighted_ce(score, weight).item())


def test_the_bound_of_a_step_is_the_mean_over_its_tokens(tiny_target, tmp_path):
    more = {"loss": "nelbo", "shares": (0.0, 0.0, 1.0)}
    trainer = trainer_for(tiny_target, tmp_path, "mdlm", **more)
    step = trainer.step_loss
    shares = []
    for number in range(300):
        batch = step.draw_blocks(number)
        tokens = (batch.labels[..., 1:] >= 0).sum()
        shares.append(float(batch.weight[..., 1:].sum() / tokens))
        if number == 0:  # a score of −1 everywhere is a bound of the mean weight
            keep = (batch.weight[..., 1:] > 0).nonzero(as_tuple=True)
            weight = batch.weight[..., 1:][keep]
            loss = step._reduce(-torch.ones_like(weight), weight, keep, batch)
            assert loss.item() == pytest.approx(shares[0], rel=1e-5)
    assert np.mean(shares) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("shares", "holds"),
    [
        ((1.0, 0.0, 0.0), lambda masked: masked[..., 1:].all()),
        (
            (0.0, 1.0, 0.0),
            lambda masked: (
                (masked[..., 1:].int().diff(dim=-1) >= 0).all() and not masked[..., 1].all()
            ),
        ),
        ((0.0, 0.0, 1.0), lambda masked: (masked[..., 1:].int().diff(dim=-1) < 0).any()),
    ],
)
def test_shares_decide_which_blocks_are_drawn(tiny_target, tmp_path, shares, holds):
    trainer = trainer_for(tiny_target, tmp_path, "vp", shares=shares)
    assert holds(trainer.step_loss.draw_blocks(1).masked)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("vp", {"loss": "per-block", "shares": (0.0, 1.0, 0.0), "streak_from": 1.0}),
        ("mdlm", {"loss": "nelbo", "shares": (0.0, 0.0, 1.0)}),
        ("streak", {"exact_from": 0.0, "lr": 1e-2}),
    ],
)
def test_every_papers_loss_is_learned(tiny_target, tmp_path, kind, more):
    trainer = trainer_for(tiny_target, tmp_path, kind, steps=60, **more)
    trainer.run(log_every=10, show=False)
    losses = [p["loss"] for p in trainer.curve]
    assert min(losses[-2:]) < losses[0] - (0.02 if kind == "streak" else 0.3)


def test_expected_acceptance_is_the_shared_probability_of_both():
    torch.manual_seed(0)
    head, hidden, states = torch.randn(9, 4), torch.randn(3, 4), torch.randn(3, 4)
    ids = torch.tensor([1, 2, 5, 8])
    p, q = (states @ head.T).softmax(-1), (hidden @ head[ids].T).softmax(-1)
    brute = [sum(p[r, v] * q[r, i] for i, v in enumerate(ids)) for r in range(3)]
    torch.testing.assert_close(expected_acceptance(hidden, states, head, ids), torch.stack(brute))
    same = expected_acceptance(states, states, head, None)
    torch.testing.assert_close(same, (p**2).sum(-1))


def test_overlap_counts_slots_up_to_the_answers_end():
    torch.manual_seed(0)
    head, last = torch.randn(9, 4), torch.randn(10, 4)
    answer = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0, 1, 1]).bool()
    anchors, hidden = torch.tensor([2, 4, 8, 10]), torch.randn(4, 4, 4)
    overlap = Overlap(3)
    overlap.add(hidden, last, anchors, answer, head, None)
    # blocks reach 3, 1 and 1 tokens of their own answers; the last one is padding
    assert overlap.count.tolist() == [3, 1, 1]
    lone = expected_acceptance(hidden[:1, 3], last[4:5], head, None)
    assert overlap.means()[2] == pytest.approx(lone.item(), abs=1e-4)
    assert Overlap(2).means() == [None, None]


@pytest.fixture
def text(target_folder, tmp_path, monkeypatch):
    """A corpus folder written at temperature 1."""
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    rows = periodic_corpus(20)
    (tmp_path / "corpus").mkdir()
    write_shard(tmp_path / "corpus", "", rows.tokens, rows.answer)
    about = {"row": 48, "temperatures": [1.0]}
    (tmp_path / "corpus" / "corpus.json").write_text(json.dumps(about))
    return tmp_path / "corpus"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_trains_from_the_command_line_to_its_card(text, tmp_path, capsys, preset):
    options = PRESETS[preset].options
    words = (
        f"--corpus {text} --out {tmp_path / 'run'} --preset {preset} --steps 4 --batch 2 --anchors"
        " 3 --layers 1 --block-size 6 --draft-vocab 0 --keep-every 2 --quiet"
    ).split()
    assert train_main(parsed(add_arguments, *words)) == 0
    assert PRESETS[preset].beyond in capsys.readouterr().out
    stored = checkpoint.read(tmp_path / "run")[0]["settings"]
    for name in set(options) & set(stored) - {"anchors", "batch"}:
        assert stored[name] == options[name], name
    assert stored["anchors"] == 3 and stored["mix"] == 0.0  # what was given counts more
    card = (tmp_path / "run" / "drafter" / "README.md").read_text()
    streak = options["streak_from"] == 0
    said = "streak from 0 %" if streak else f"loss {options.get('loss', 'weighted')}"
    assert said in card and "α̃_j" in card and ("streak" in card.split("γ_d")[0][-200:]) is streak
    steps = sorted(folder.name for folder in (tmp_path / "run" / "steps").iterdir())
    assert steps == ["0000002", "0000004"]
    one, two = (read_drafter(tmp_path / "run" / "steps" / name) for name in steps)
    assert not torch.equal(one.layers[0].mlp.up_proj.weight, two.layers[0].mlp.up_proj.weight)


def test_a_preset_is_refused_where_it_does_not_fit(tmp_path):
    with pytest.raises(UserError, match="trains a drafter of kind vp, not block"):
        check_ranges(parsed(add_arguments, "--preset", "d2sd", "--kind", "block"))
    with pytest.raises(UserError, match="corpus --temperatures 1"):
        check_corpus("specdiff2", {"temperatures": [0.0, 1.0]})
    with pytest.raises(UserError, match="corpus --temperatures 1"):
        check_corpus("specdiff2", {})
    check_corpus("d2sd", {})
    check_corpus(None, {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--shares 0.5 0.2 0.2", "sum is 1"),
        ("--shares 2 -1 0", "from 0 to 1"),
        ("--shares nan 1 0", "from 0 to 1"),
        ("--kind streak --loss per-block", "leave it out"),
        ("--kind mdlm --loss nelbo", "--shares 0 0 1"),
        ("--preset mdlm --inverse-t", "already"),
        ("--beta 1.5", "--beta must be"),
        ("--gamma-d -1", "--gamma-d must be"),
        ("--exact-from 2", "--exact-from must be"),
        ("--keep-every -1", "--keep-every must be"),
        ("--average 1", "--average must be"),
        ("--reuse -1", "--reuse must be"),
        ("--decay-from nan", "--decay-from must be"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, said):
    with pytest.raises(UserError, match=said):
        settings_of(parsed(add_arguments, *words.split()), on_gpu=False)


def test_a_resumed_run_keeps_its_recipe(tiny_target, tmp_path):
    first = settings_of(parsed(add_arguments, "--preset", "d2sd", "--steps", 9), on_gpu=False)
    assert (first.kind, first.loss, first.shares, first.gamma_d, first.mix) == (
        "vp", "per-block", (0.0, 1.0, 0.0), 7.0, 0.0,
    )  # fmt: skip
    state = {
        "settings": json.loads(json.dumps(vars(first))),
        "config": {"num_hidden_layers": 4, "block_size": 16},
    }
    for words in (("--preset", "d2sd"), ()):
        args = parsed(add_arguments, *words, "--resume", tmp_path, "--steps", 20)
        check_ranges(args)
        assert resumed_settings(args, state).loss == "per-block"
    args = parsed(add_arguments, "--beta", 0.5, "--resume", tmp_path)
    with pytest.raises(UserError, match="--beta 0.9, which"):
        resumed_settings(args, state)


def test_a_corpus_keeps_its_temperatures(tmp_path):
    wanted = {"target": "Tiny", "row": 8, "seed": 0, "batch": 2, "temperatures": [1.0]}
    file = tmp_path / "corpus.json"
    assert corpus._read_about(file, wanted)["temperatures"] == [1.0]
    file.write_text(json.dumps({"row": 8, "seed": 0, "batch": 2}))  # of an earlier version
    with pytest.raises(UserError, match="temperatures"):
        corpus._read_about(file, wanted)
    usual = {**wanted, "temperatures": list(corpus.TEMPERATURES)}
    assert corpus._read_about(file, usual)["written"] == 0
    args = parsed(corpus.add_arguments, "--out", tmp_path / "c", "--temperatures", 9)
    with pytest.raises(UserError, match="--temperatures must be"):
        corpus.corpus_main(args)
