"""Training stand-alone diffusion language models: what their passes compute, adapters, the folder
that is written, and a run from the command line to a race.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusion_lms import config_of, make_weights, plain_logits, save_diffusion_lm
from tiny import engine_for, write
from tiny_training import parsed, periodic_corpus

from specdemo.drafters import METHODS
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.diffusion_lm_files import read_diffusion_lm
from specdemo.models.drafters import load_drafter
from specdemo.models.load import load_target
from specdemo.models.pairs import get_pair
from specdemo.training import checkpoint, diffusion_net, diffusion_start, objectives
from specdemo.training.data import write_shard
from specdemo.training.diffusion_net import merged_tensors
from specdemo.training.diffusion_start import (
    initial_diffusion,
    published_config,
    read_trainable,
    save_diffusion,
)
from specdemo.training.diffusion_texts import draw_texts
from specdemo.training.initialize import resumed_network
from specdemo.training.options import add_arguments, check_ranges, settings_of
from specdemo.training.score import main as score_main
from specdemo.training.train import train_main
from specdemo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")
MASK = 127  # <mask> of the tiny tokenizer


def options(*words):
    return parsed(add_arguments, "--kind", "diffusion-lm", "--block-size", 6, *words)


def network(loaded, *words):
    net, _ = initial_diffusion(loaded, periodic_corpus(4), options(*words), MASK)
    net.tokenizer = loaded.tokenizer
    return net


def trainer_for(loaded, out, *words, steps=60):
    args = options("--steps", steps, "--batch", 8, "--lr", 3e-3, *words)
    settings = replace(settings_of(args, False), save_minutes=9, eval_minutes=9)
    net = network(loaded, *words)
    return Trainer(loaded.model, net, periodic_corpus(), settings, out)


def read(folder, loaded):
    raw = json.loads((folder / "config.json").read_text())
    return read_diffusion_lm(folder, raw, loaded)


def needs_peft():
    pytest.importorskip("peft")


# -- what a pass computes --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["a2d", "dream"])
def test_a_training_pass_is_what_the_loaded_folder_computes_at_a_draft(
    tiny_loaded, tmp_path, shape
):
    net = network(tiny_loaded, "--shape", shape, "--layers", 1)
    folder = save_diffusion(net, tmp_path / "d", "# A drafter", torch.float32)
    found = read(folder, tiny_loaded)
    text = periodic_corpus(1, seed=4).tokens[0].astype(np.int64)
    anchors, shown = [9, 30], 1
    truth = torch.tensor([[text[a + k] for k in range(6)] for a in anchors])[None]
    masked = (torch.arange(6) > shown).expand(1, 2, 6)
    tokens = torch.from_numpy(text)[None]
    with torch.no_grad():
        states = net.fill(tokens, truth, masked, torch.tensor([anchors]))
        logits = (states @ net.head.T)[0]
    for a, made, ids, hidden in zip(anchors, logits, truth[0], masked[0], strict=True):
        cache = found.new_cache(64)
        found.read(cache, text[:a].tolist())
        drafted = found.logits(found.hidden(torch.where(hidden, -1, ids)[None], a, cache))[0]
        assert drafted[:, MASK].isneginf().all()
        torch.testing.assert_close(made[1:, :MASK], drafted[1:, :MASK], rtol=1e-4, atol=1e-4)


def test_a_text_of_its_own_computes_as_the_plain_second_implementation(tiny_loaded):
    net = network(tiny_loaded)
    config = published_config(net)
    ids = torch.randint(0, 100, (9,), generator=torch.Generator().manual_seed(1))
    ids[4:6] = MASK
    padded = torch.nn.functional.pad(ids, (0, 3), value=55)[None]  # what pads is never seen
    with torch.no_grad():
        found = net.states(padded, torch.tensor([9]))[0, :9] @ net.head.T
        expected = plain_logits(config, merged_tensors(net), ids.tolist())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_targets_of_other_types_become_their_own_published_form(tiny_loaded, tmp_path, kind):
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = tiny_loaded.model.config.to_dict()
    shape = {n: fields[n] for n in fields if n.startswith(("num_", "hidden_", "inter", "vocab"))}
    config = AutoConfig.for_model(kind, **shape, head_dim=16, max_position_embeddings=256)
    target = AutoModelForCausalLM.from_config(config)
    loaded = replace(tiny_loaded, model=target)
    net = network(loaded)
    folder = save_diffusion(net, tmp_path / "d", "# A drafter")
    assert json.loads((folder / "config.json").read_text())["model_type"] == f"a2d-{kind}"
    assert read(folder, loaded).config.num_hidden_layers == 2
    if kind == "qwen3":
        with pytest.raises(UserError, match="another form"):
            network(loaded, "--shape", "dream")
    mistral = SimpleNamespace(get_text_config=lambda: SimpleNamespace(model_type="mistral"))
    with pytest.raises(UserError, match="type mistral has no published form"):
        network(replace(loaded, model=SimpleNamespace(config=mistral)))


# -- what a step draws -----------------------------------------------------------------------------


def test_texts_end_with_their_block_or_are_whole_rows(tiny_loaded, tmp_path):
    more = ("--shares", 0.4, 0.3, 0.3, "--anchors", 3)
    loss = trainer_for(tiny_loaded, tmp_path, *more).step_loss
    seen = set()
    for step in range(20):
        texts = draw_texts(loss, step)
        for i, (masked, end) in enumerate(zip(texts.masked, texts.end.tolist(), strict=True)):
            where = masked.nonzero().flatten().tolist()
            if not where:  # t was small
                assert end == 48 and not texts.weight[i].any()
                continue
            assert max(where) < end and (texts.weight[i] > 0).sum() <= len(where)
            anchor = int(texts.slots[i, 0]) - 1
            if (
                end == anchor + 6 and min(where) > anchor
            ):  # a block: masks from somewhere behind the anchor to its end
                assert where == list(range(where[0], end)) and where[0] > anchor
                seen.add("anchor" if where[0] == anchor + 1 else "prefix")
            else:
                assert end == 48 and min(where) >= 4  # prompts are never masked
                seen.add("random")
            labels = texts.labels[i]
            assert (labels[labels >= 0] == texts.ids[i][labels >= 0]).all()
    assert seen == {"anchor", "prefix", "random"}


def test_the_bound_weighs_every_answer_token_by_one_on_average(tiny_loaded, tmp_path):
    loss = trainer_for(tiny_loaded, tmp_path, "--loss", "nelbo", "--shares", 0, 0, 1).step_loss
    shares = []
    for step in range(200):
        texts = draw_texts(loss, step)
        shares.append(float(texts.weight.sum() / (texts.labels >= 0).sum()))
    assert np.mean(shares) == pytest.approx(1.0, abs=0.1)
    assert (texts.labels >= 0).sum(1).tolist() == [44] * 8


def test_the_gradient_of_a_trained_head_is_autograds():
    torch.manual_seed(0)
    hidden = torch.randn(70, 8, requires_grad=True)
    head = torch.randn(20, 8, requires_grad=True)
    labels, weight = torch.randint(-1, 20, (70,)), torch.rand(70)
    score, _, _ = objectives.row_scores(hidden, head, labels, chunk=16)
    found = torch.autograd.grad((weight * score).sum(), (hidden, head))
    plain = (hidden @ head.T).log_softmax(-1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    expected = torch.autograd.grad((weight * plain * (labels >= 0)).sum(), (hidden, head))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_the_streak_is_equation_six_along_the_blocks(tiny_loaded, tmp_path):
    more = ("--shares", 1, 0, 0, "--streak-from", 0, "--exact-from", 0)
    trainer = trainer_for(tiny_loaded, tmp_path, *more)
    loss, texts = trainer.step_loss, draw_texts(trainer.step_loss, 0)
    found = loss(0, 0.0).loss
    ids = torch.where(texts.masked, MASK, texts.ids)
    with torch.no_grad():
        q = (trainer.net.states(ids, texts.end) @ trainer.net.head.T).softmax(-1)
    total, blocks = 0.0, 0
    for row, slots, labels in zip(q, texts.slots.tolist(), texts.labels, strict=True):
        product, terms = 1.0, 0
        for at in slots:
            if labels[at] < 0:
                break
            product *= float(row[at, labels[at]])
            total, terms = total + product, terms + 1
        blocks += terms > 0
    assert found.item() == pytest.approx(-total / blocks, rel=1e-4)


# -- adapters --------------------------------------------------------------------------------------


def test_adapters_begin_at_the_start_change_alone_and_are_merged_exactly(tiny_loaded, tmp_path):
    needs_peft()
    plain, net = network(tiny_loaded), network(tiny_loaded, "--lora-rank", 4)
    ids, end = torch.randint(0, 100, (2, 20)), torch.tensor([20, 13])
    with torch.no_grad():
        assert torch.equal(plain.states(ids, end), net.states(ids, end))
    trainer = trainer_for(tiny_loaded, tmp_path, "--lora-rank", 4, "--average", 0.9, steps=24)
    before = {name: p.clone() for name, p in trainer.net.named_parameters()}
    assert trainer.run(log_every=5, show=False)["steps"] == 24
    changed = {n for n, p in trainer.net.named_parameters() if not torch.equal(p, before[n])}
    adapters = {n for n in before if ".lora_" in n}
    assert changed == adapters and len(adapters) == 2 * 2 * 7
    assert trainer.curve[-1]["loss"] < trainer.curve[0]["loss"] - 0.3
    with trainer.finished_weights(), torch.no_grad():
        folder = save_diffusion(trainer.net, tmp_path / "d", "# A drafter", torch.float32)
        merged = diffusion_net.DiffusionNet(with_shape(read_trainable(folder, tiny_loaded)))
        found, expected = (n.states(ids, end) @ n.head.T for n in (merged, trainer.net))
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[0], (plain.states(ids, end) @ plain.head.T)[0], atol=1e-2)


def with_shape(lm):
    lm.config.block_size, lm.config.lora_rank = 6, 0
    return lm


def test_without_peft_a_sentence_says_what_to_install(tiny_loaded, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(diffusion_net, "import_module", missing)
    with pytest.raises(UserError, match="pip install peft"):
        network(tiny_loaded, "--lora-rank", 4)


@pytest.mark.parametrize("words", [(), ("--lora-rank", 4), ("--shape", "dream")])
def test_a_stopped_run_goes_on_exactly(tiny_loaded, tmp_path, words):
    if "--lora-rank" in words:
        needs_peft()
    whole = trainer_for(tiny_loaded, tmp_path / "whole", *words, steps=6)
    whole.run(log_every=4, show=False)
    half = trainer_for(tiny_loaded, tmp_path / "half", *words, steps=6)
    half.extra = {"config": half.net.config.to_dict()}
    for _ in range(3):
        half._train_step()
    half.save()
    state, _ = checkpoint.read(tmp_path / "half")
    again = trainer_for(tiny_loaded, tmp_path / "half", *words, steps=6)
    net = resumed_network(state, tmp_path / "half")
    again = Trainer(tiny_loaded.model, net, periodic_corpus(), again.settings, tmp_path / "half")
    again.resume(tmp_path / "half")
    again.run(log_every=4, show=False)
    assert again.step == 6
    for (name, one), two in zip(whole.net.named_parameters(), net.parameters(), strict=True):
        assert torch.equal(one, two), name


# -- where it starts -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["a2d-llama", "a2d-qwen2", "a2d-qwen3", "Dream"])
def test_a_published_model_is_started_from_as_it_is(tiny_loaded, tmp_path, family):
    folder = save_diffusion_lm(tmp_path / family, family, tiny_loaded.tokenizer)
    net = network(tiny_loaded, "--start", folder)
    again = read(save_diffusion(net, tmp_path / "again", "#", torch.float32), tiny_loaded)
    first = read(folder, tiny_loaded)
    ids, text = torch.tensor([[5, -1, -1, 9, -1]]), list(range(20, 40))
    made = []
    for found in (first, again):
        cache = found.new_cache(64)
        found.read(cache, text)
        made.append(found.logits(found.hidden(ids, len(text), cache)))
    assert torch.equal(*made)
    assert again.config == first.config


def test_sizes_that_the_weights_do_not_have_are_refused_before_a_network_is_made(
    tiny_loaded, tmp_path, monkeypatch
):
    monkeypatch.setattr(diffusion_start, "causal_model", lambda *_: pytest.fail("made"))
    size, weights = {"intermediate_size": 10**9}, make_weights(config_of("a2d-llama"))
    folder = save_diffusion_lm(tmp_path / "d", "a2d-llama", tiny_loaded.tokenizer, weights, **size)
    with pytest.raises(UserError, match="where its config.json asks for"):
        network(tiny_loaded, "--start", folder)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("llada", "raced here but not trained"),
        ("sdar", "blocks of 4 positions"),
        ("mdlm", "MDLM drafter"),
    ],
)
def test_a_family_that_is_raced_but_not_trained_is_named(tiny_loaded, tmp_path, family, says):
    folder = save_diffusion_lm(tmp_path / family, family, tiny_loaded.tokenizer)
    with pytest.raises(UserError, match=says):
        network(tiny_loaded, "--start", folder)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--kind block --lora-rank 4", "--lora-rank is for --kind diffusion-lm"),
        ("--kind diffusion-lm --draft-vocab 100", "no --draft-vocab"),
        ("--kind diffusion-lm --rank 4", "no --rank"),
        ("--kind diffusion-lm --labels mix", "no --labels mix"),
        ("--kind diffusion-lm --compile", "no --compile"),
        ("--kind diffusion-lm --shape dflash", "choose a2d or dream"),
        ("--kind block --shape dream", "choose own or dflash or text"),
        ("--kind diffusion-lm --start random --lora-rank 2", "adapts weights"),
        ("--kind diffusion-lm --streak-from 0.5", "--shares 1 0 0"),
        ("--kind diffusion-lm --preset dflash", "trains a drafter of kind block"),
        ("--kind diffusion-lm --lora-rank 2000", "from 0 to 1,024"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(words, says):
    with pytest.raises(UserError, match=says):
        check_ranges(parsed(add_arguments, *words.split()))


def test_the_papers_settings_are_those_of_a_model_that_stands_alone():
    mdlm = parsed(add_arguments, "--preset", "mdlm", "--kind", "diffusion-lm")
    settings = settings_of(mdlm, False)
    assert (settings.loss, settings.shares, settings.mix) == ("nelbo", (0.0, 0.0, 1.0), 0.0)
    assert (settings.anchors, settings.compile) == (1, False)
    streak = parsed(add_arguments, "--preset", "specdiff2", "--kind", "diffusion-lm")
    settings = settings_of(streak, False)
    assert (settings.streak_from, settings.exact_from, settings.kind) == (0, 0, "diffusion-lm")


# -- from the command line to a race ---------------------------------------------------------------


def test_a_run_ends_in_a_folder_that_races(target_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    text = periodic_corpus(160)
    text.tokens[:, 1:4] = np.random.default_rng(1).integers(6, 90, (160, 3))
    (corpus := tmp_path / "corpus").mkdir()
    write_shard(corpus, "", text.tokens, text.answer)
    (corpus / "corpus.json").write_text(json.dumps({"row": 48}))
    common = ("--kind", "diffusion-lm", "--corpus", corpus, "--out", tmp_path / "run", "--quiet")
    common += ("--layers", 1, "--eval-rows", 2, "--block-size", 6, "--keep-every", 20)
    args = parsed(add_arguments, *common, "--steps", 20, "--batch", 8, "--lr", 3e-3)
    assert train_main(args) == 0
    out = capsys.readouterr().out
    assert "drafters: diffusion" in out and "tokens per round" in out
    folder = tmp_path / "run" / "drafter"
    card = (folder / "README.md").read_text()
    assert "embedding and head among them" in card and "α̃_j" in card
    config = json.loads((tmp_path / "run" / "steps" / "0000020" / "config.json").read_text())
    assert config["model_type"] == "a2d-llama" and config["num_hidden_layers"] == 1
    # it goes on where it was, and is scored beside its own folder
    more = parsed(add_arguments, *common, "--resume", tmp_path / "run", "--steps", 24)
    assert train_main(more) == 0 and "24 steps" in capsys.readouterr().out
    scored = [str(folder), str(tmp_path / "run"), "--corpus", str(corpus), "--rows", "2"]
    assert score_main([*scored, "--chain", "5"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| /")]
    assert len(table) == 2
    pair = replace(get_pair("smollm2-135m"), drafters={"diffusion": str(folder)})
    assert (
        load_drafter(pair, "diffusion", load_target(pair, "fp32")).config.family == "A2D of Llama"
    )


def test_it_learns_and_what_is_written_races(tiny_loaded, tiny_target, tmp_path):
    trainer = trainer_for(tiny_loaded, tmp_path, "--shares", 1, 0, 0, steps=40)
    trainer.run(log_every=5, show=False)
    losses = [p["loss"] for p in trainer.curve]
    assert losses[-1] < 0.6 * losses[0]
    folder = save_diffusion(trainer.net, tmp_path / "d", "# A drafter")
    pair = replace(tiny_loaded.pair, drafters={"diffusion": str(folder)})
    loaded = replace(tiny_loaded, pair=pair, networks={})
    engine = engine_for(Target(tiny_target))
    plain = write(engine, max_new=16).output
    for name in ("specdiff", "specdiff2", "diffuspec"):
        drafter = METHODS[name].build(loaded, METHODS[name].parse_params({}))
        assert "diffusion weights (d), a stand-alone" in drafter.weights
        lane = write(engine, drafter, max_new=16)
        assert lane.output == plain and lane.drafting_rounds > 3
