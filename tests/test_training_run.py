"""Whole runs on a tiny target: a drafter learns, the computed race equals a real one, a killed run
goes on, and the path from nothing to a drafter folder.
"""

import argparse
import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import features_of, make_tiny_target

from specdemo.engine import race
from specdemo.engine.load import make_engine
from specdemo.errors import UserError
from specdemo.models.load import load_target
from specdemo.models.pairs import get_pair
from specdemo.request import Request
from specdemo.training import checkpoint
from specdemo.training.batch_generate import ANSWER, Chat, Writer
from specdemo.training.corpus import add_arguments as corpus_arguments
from specdemo.training.corpus import corpus_main
from specdemo.training.data import Corpus, draft_vocabulary, read_corpus, write_shard
from specdemo.training.eval_text import group_by_length
from specdemo.training.evaluate import Evaluator, Passages, Rounds, add_rounds
from specdemo.training.initialize import (
    choose_mask_token,
    copy_target_layers,
    init_drafter,
    new_drafter,
    spread,
)
from specdemo.training.options import add_arguments, settings_of
from specdemo.training.settings import Settings
from specdemo.training.train import train_main
from specdemo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")
# text a small drafter learns in seconds: a fixed word order with a random offset a row
PERIOD = [7, 21, 3, 90, 44, 15, 61, 33]


def periodic_corpus(rows=64, length=48, seed=0):
    rng = np.random.default_rng(seed)
    tokens = np.stack(
        [np.resize(np.roll(PERIOD, int(rng.integers(8))), length) for _ in range(rows)]
    ).astype(np.uint16)
    tokens[:, 0] = rng.integers(100, 120, rows)
    answer = np.zeros(tokens.shape, dtype=bool)
    answer[:, 4:] = True
    return Corpus(tokens, answer, {})


def trainer_for(target, out, kind="block", steps=60, **more):
    net = new_drafter(target, kind, layers=1, block_size=6, draft_vocab=None, seed=3)
    return Trainer(
        target,
        net,
        periodic_corpus(),
        Settings(
            **{
                "kind": kind,
                "steps": steps,
                "batch": 4,
                "anchors": 6,
                "lr": 3e-3,
                "save_minutes": 9,
                "eval_minutes": 9,
                **more,
            }
        ),
        out,
    )


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


def test_starting_from_the_targets_layers_makes_a_shallower_target():
    target = make_tiny_target(layers=3)
    assert spread(4, 0, 29) == [0, 10, 19, 29] and spread(1, 0, 5) == [0]
    net = new_drafter(target, "ar", 3, 6, None, 0)
    assert copy_target_layers(net, target) == [0, 1, 2]
    ids = torch.arange(5, 25)[None]
    states = net(torch.nn.functional.embedding(ids, target.model.embed_tokens.weight))
    torch.testing.assert_close(states, target.model(ids).last_hidden_state, rtol=1e-3, atol=1e-3)


class Words:
    """As much of a tokenizer as choosing a mask looks at."""

    def __init__(self, words, special, pad=None, unk=None, bos=None):
        self.words, self.all_special_ids, self.added_tokens_decoder = words, special, {}
        self.pad_token_id, self.unk_token_id, self.bos_token_id = pad, unk, bos

    def get_vocab(self):
        return {f"w{i}": i for i in range(self.words)}


@pytest.mark.parametrize(
    "tokenizer, unwritten, expected",
    [
        (Words(20, [0, 1, 2, 16, 17]), {16, 17}, 17),  # the last special token
        (Words(20, [0, 1, 2, 16, 17]), {15, 16}, 16),  # of those never written; 15 is a word
        # a row beside the tokenizer's words, sooner than padding
        (Words(20, [0, 1, 2], pad=0, unk=1), {0, 1, *range(20, 24)}, 23),
        (Words(24, [0, 1, 2], pad=0, unk=1), {0, 1}, 0),  # padding, sooner than an unknown word
        (Words(24, [0, 1, 2], bos=1), {1, 2}, 1),  # 2 ends answers
        (Words(24, [0, 1, 2]), set(), 0),  # written least
    ],
)
def test_the_mask_is_a_token_the_target_never_writes(tokenizer, unwritten, expected):
    assert (
        choose_mask_token(
            tokenizer, 24, (2,), np.array([0 if i in unwritten else 5 + i for i in range(22)])
        )
        == expected
    )


def test_a_target_without_a_spare_token_is_refused():
    with pytest.raises(UserError, match="no special token to spare"):
        choose_mask_token(Words(24, [2]), 24, (2,), np.zeros(24))


def test_the_mask_is_never_drafted():
    corpus = periodic_corpus(8)
    most = int(np.bincount(corpus.tokens[corpus.answer]).argmax())
    assert most in draft_vocabulary(corpus, 4) and most not in draft_vocabulary(
        corpus, 4, without=most
    )
    assert (
        len(draft_vocabulary(corpus, 10**6, without=most)) == int(corpus.tokens.max())
        and len(draft_vocabulary(corpus, 5, without=10**6)) == 5
    )


def test_qwen_type_targets_give_a_drafter_with_query_and_key_norms(tmp_path):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    target = (
        Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=128,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=32,
                max_position_embeddings=256,
            )
        )
        .eval()
        .requires_grad_(False)
    )
    net, _ = init_drafter(target, "block", "target-layers", 2, 6, torch.arange(0, 128, 2))
    assert net.config.qk_norm and net.config.head_dim == 32
    trainer = Trainer(
        target,
        net,
        periodic_corpus(),
        Settings(steps=4, batch=2, anchors=3),
        tmp_path,
        torch.arange(0, 128, 2),
    )
    trainer.run(log_every=2, show=False)
    assert np.isfinite([p["loss"] for p in trainer.curve]).all()


# -- the target as a writer ------------------------------------------------------------------------


def test_the_writer_is_greedy_decoding_with_given_tokens(tiny_target):
    forced = torch.full((2, 24), -1)
    forced[0, :5], forced[1, :9] = (
        torch.tensor([3, 1, 4, 1, 5]),
        torch.tensor([2, 7, 1, 8, 2, 8, 1, 8, 2]),
    )
    chat = Chat([], [-2], [-2], (127,))
    tokens, answer = Writer(tiny_target, 2, 24).write(
        forced,
        torch.zeros(2),
        torch.Generator().manual_seed(0),
        chat,
        torch.full((2,), ANSWER),
        turns=False,
    )
    for row, given in ((0, 5), (1, 9)):
        text = forced[row, :given].tolist()
        while len(text) < 24 and text[-1] != 127:
            text.append(int(tiny_target(torch.tensor([text])).logits[0, -1].argmax()))
        assert tokens[row, : len(text)].tolist() == text and answer[
            row
        ].nonzero().flatten().tolist() == list(range(given, len(text)))


def test_turns_follow_each_other_with_the_templates_own_tokens(tiny_target):
    """User and answer end with token 9; [9, 50, 51] hands over to the assistant, [9, 60] to the
    user.
    """
    chat = Chat([40], [9, 50, 51], [9, 60], (9,))
    forced = torch.full((8, 64), -1)
    forced[:, 0] = 40
    forced[:, 5], forced[:, 20] = 9, 9  # not free: a given 9 must not end a turn
    spoken = torch.full((8,), ANSWER)
    writer = Writer(tiny_target, 8, 64)
    biased = writer._step
    writer.step = lambda ids, at: (
        biased(ids, at)
        + torch.nn.functional.one_hot(torch.tensor(9), 128) * 12.0 * (int(at) % 11 == 10)
    )
    tokens, answer = writer.write(
        forced, torch.ones(8), torch.Generator().manual_seed(0), chat, spoken
    )
    turned = 0
    for row, mask in zip(tokens.tolist(), answer.tolist(), strict=True):
        for i in range(1, 60):
            if mask[i] and row[i] == 9:
                assert row[i + 1] == 60 or forced[0, i + 1] >= 0
                assert not mask[i + 1]
                turned += 1
    assert turned > 3


# -- the whole path --------------------------------------------------------------------------------


def parsed(add, *words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args([str(w) for w in words])


def assert_it_races(drafter, kind):
    """The path ends in a race: models.yaml names the folder, the drafter passes every check of a
    stranger's, and the text is the plain lane's.
    """
    engine = make_engine(
        load_target(replace(get_pair("smollm2-135m"), drafters={kind: str(drafter)}), "fp32")
    )
    for method in ("block", "tree", "specdiff") if kind == "block" else ("ar-draft",):
        done = list(race(engine, Request("w10 w20", method, max_new_tokens=12)))[-1]
        assert done.result["identical"] and done.result["spec"]["rounds"] > 0


def test_from_nothing_to_a_drafter_folder(target_folder, tmp_path, monkeypatch, capsys):
    from specdemo.models.drafters import read_drafter

    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"turns": [f"w{10 + i} w{20 + i}"], "category": "ab"[i % 2]}) + "\n"
            for i in range(4)
        )
    )
    corpus = tmp_path / "corpus"
    common = (
        "--out",
        corpus,
        "--length",
        96,
        "--batch",
        16,
        "--prompts",
        prompts,
        "--unique",
        0.05,
    )
    assert corpus_main(parsed(corpus_arguments, *common, "--rows", 16)) == 0
    first = read_corpus(corpus).tokens.copy()
    # goes on where it stopped
    assert corpus_main(parsed(corpus_arguments, *common, "--rows", 48)) == 0
    written = read_corpus(corpus)
    assert (
        len(written) > len(first) > 0
        and (written.tokens[: len(first)] == first).all()
        and written.answer.any(1).all()
    )
    with pytest.raises(UserError, match="other settings"):
        corpus_main(parsed(corpus_arguments, *common, "--rows", 64, "--seed", 1))

    out = tmp_path / "run"
    options = (
        "--corpus",
        corpus,
        "--out",
        out,
        "--steps",
        6,
        "--batch",
        2,
        "--anchors",
        4,
        "--layers",
        1,
        "--block-size",
        6,
        "--draft-vocab",
        64,
        "--prompts",
        prompts,
        "--quiet",
    )
    assert train_main(parsed(add_arguments, "--kind", "vp", *options)) == 0
    assert "TFLOP a step" in capsys.readouterr().out
    net = read_drafter(out / "drafter")
    assert net.block_size == 6 and len(net.draft_vocab) == 64 and net.config.num_hidden_layers == 1
    assert_it_races(out / "drafter", "block")
    card = (out / "drafter" / "README.md").read_text()
    assert (
        "6 steps of 2 rows" in card
        and "| a |" in card
        and "sampled text" in card
        and (out / "drafter" / "curve.svg").exists()
    )

    assert (
        train_main(
            parsed(
                add_arguments,
                "--kind",
                "vp",
                *options[:4],
                "--resume",
                out,
                "--steps",
                9,
                "--prompts",
                prompts,
                "--quiet",
            )
        )
        == 0
    )
    assert json.loads((out / "drafter" / "training.json").read_text())["facts"]["steps"] == 9
    more = (
        "--corpus",
        corpus,
        "--out",
        tmp_path / "streak",
        "--start",
        out / "drafter",
        "--steps",
        2,
        "--quiet",
    )
    assert train_main(parsed(add_arguments, "--kind", "streak", *more)) == 0
    assert (
        read_drafter(tmp_path / "streak" / "drafter").draft_vocab.tolist()
        == net.draft_vocab.tolist()
    )
    with pytest.raises(UserError, match="choose another --kind"):
        train_main(
            parsed(add_arguments, "--kind", "ar", *more[:2], *more[4:], "--out", tmp_path / "other")
        )
    assert (
        train_main(
            parsed(
                add_arguments,
                "--kind",
                "ar",
                *options[:2],
                "--out",
                tmp_path / "ar",
                "--steps",
                2,
                "--layers",
                1,
                "--quiet",
            )
        )
        == 0
    )
    assert_it_races(tmp_path / "ar" / "drafter", "ar")


def test_what_a_person_can_get_wrong_is_refused_in_a_sentence(tmp_path, target_folder, monkeypatch):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    foreign = np.full((4, 16), 500, dtype=np.uint16)
    (tmp_path / "c").mkdir()
    write_shard(tmp_path / "c", "", foreign, foreign > 0)
    (tmp_path / "c" / "corpus.json").write_text('{"row": 16}')
    with pytest.raises(UserError, match="another target"):
        train_main(parsed(add_arguments, "--corpus", tmp_path / "c"))
    with pytest.raises(UserError, match="needs text"):
        train_main(parsed(add_arguments))
    with pytest.raises(UserError, match="no corpus"):
        train_main(parsed(add_arguments, "--corpus", tmp_path))
    for wrong, said in (
        (("--lengths", 1), "at least 2"),
        (("--kind", "ar", "--lengths", 5), "leave --lengths out"),
        (("--streak-from", 1.5), "share of the budget"),
        (("--minutes", 0), "above 0"),
        *(
            ((option, -1), "at least 1")
            for option in ("--layers", "--batch", "--anchors", "--eval-rows")
        ),
    ):
        with pytest.raises(UserError, match=said):
            settings_of(parsed(add_arguments, *wrong), on_gpu=False)


def test_a_bundle_trains_every_kind_elsewhere(target_folder, tmp_path, monkeypatch, capsys):
    from specdemo.training import bundle

    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    corpus = periodic_corpus(40)
    (tmp_path / "corpus").mkdir()
    write_shard(tmp_path / "corpus", "", corpus.tokens, corpus.answer)
    (tmp_path / "corpus" / "corpus.json").write_text('{"row": 48}')
    assert (
        bundle.main(
            [
                "pack",
                "--corpus",
                str(tmp_path / "corpus"),
                "--out",
                str(tmp_path / "b"),
                "--rows",
                "20",
            ]
        )
        == 0
    )
    assert len(read_corpus(tmp_path / "b" / "corpus")) == 20
    words = [
        "train",
        "--bundle",
        str(tmp_path / "b"),
        "--out",
        str(tmp_path / "o"),
        "--steps",
        "2",
        "--batch",
        "2",
        "--anchors",
        "3",
        "--layers",
        "1",
        "--block-size",
        "6",
        "--draft-vocab",
        "0",
        "--quiet",
    ]
    assert bundle.main([*words, "--kinds", "block", "streak"]) == 0
    facts = json.loads((tmp_path / "o" / "streak" / "drafter" / "training.json").read_text())[
        "facts"
    ]
    assert facts["start"] == "the drafter in drafter" and not (tmp_path / "o" / "ar").exists()
    monkeypatch.setattr(
        bundle, "train_main", lambda args: pytest.fail("a finished kind was trained again")
    )
    assert bundle.main([*words, "--kinds", "block"]) == 0
    monkeypatch.setattr(bundle, "LIMIT", 100)
    assert (
        bundle.main(["pack", "--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "c")])
        == 2
        and "--rows" in capsys.readouterr().err
    )


def test_prompts_written_together_are_of_like_length():
    groups = group_by_length([10, 300, 12, 40, 310, 11, 500], most=3, spread=48)
    assert groups == [[0, 5, 2], [3], [1, 4], [6]]
