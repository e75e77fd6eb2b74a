"""A drafter trained with ``--shape dflash`` is one that DFlash's other readers load."""

import json

import pytest
import torch
from published import MASK_ID, Plain, dflash, random_weights, write
from safetensors.torch import load_file
from tiny_models import features_of, make_tiny_target
from tiny_training import parsed, periodic_corpus

from specdemo.errors import UserError
from specdemo.models.dflash_layout import has_dflash_form
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import read_drafter
from specdemo.training.data import write_shard
from specdemo.training.initialize import norms_of
from specdemo.training.new_drafter import new_drafter
from specdemo.training.options import add_arguments
from specdemo.training.train import train_main

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = "--layers 2 --block-size 8 --batch 4 --anchors 6 --lr 3e-3 --eval-rows 2 --quiet".split()


@pytest.fixture
def corpus(tmp_path):
    text = periodic_corpus()
    (tmp_path / "corpus").mkdir()
    write_shard(tmp_path / "corpus", "", text.tokens, text.answer)
    (tmp_path / "corpus" / "corpus.json").write_text(json.dumps({"row": text.tokens.shape[1]}))
    return tmp_path / "corpus"


@pytest.fixture
def trained(target_folder, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))

    def train(out, *more):
        words = ("--corpus", corpus, "--out", tmp_path / out, *SMALL, *more)
        assert train_main(parsed(add_arguments, *words)) == 0
        return tmp_path / out / "drafter"

    return train


def test_it_learns_and_is_written_as_published(trained, tiny_target):
    folder = trained(
        "run", "--shape", "dflash", "--steps", 100, "--streak-from", 1, "--start", "random"
    )
    facts = json.loads((folder / "training.json").read_text())["facts"]
    assert next(iter(facts["scores"].values()))["all"]["tokens_per_round"] > 4
    config = json.loads((folder / "config.json").read_text())
    known = {*dflash(), "use_sliding_window", "max_window_layers", "attention_dropout"}
    known.add("tie_word_embeddings")
    assert config["architectures"] == ["DFlashDraftModel"] and config.keys() <= known
    assert config.keys() >= dflash().keys() - {"auto_map"}
    weights = load_file(folder / "model.safetensors")
    published = random_weights(dflash())
    assert weights.keys() == published.keys()
    assert {t.dtype for t in weights.values()} == {torch.bfloat16}

    # what it computes, by the published code
    net = read_drafter(folder).float()
    embedding, head = tiny_target.get_input_embeddings().weight, tiny_target.lm_head.weight
    net.bind(embedding, head)
    plain = Plain(config, {n: t.float() for n, t in weights.items()}, embedding, head)
    text = periodic_corpus(1).tokens[0].tolist()
    features, _ = features_of(tiny_target, net.layer_ids, text)
    cache = net.new_cache(64)
    net.extend(cache, features[:20], 0)
    mask = net.config.mask_token_id
    got = net.hidden(torch.tensor([[text[20], *[-1] * 7]]), 20, cache)[0]
    want = plain.hidden(features[:20], torch.tensor([text[20], *[mask] * 7]))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_transformers_own_generator_drafts_with_it(trained, tiny_target):
    net = read_drafter(trained("run", "--shape", "dflash", "--steps", 4)).float()
    ids = torch.tensor([periodic_corpus(1).tokens[0, :12].tolist()])
    plain = tiny_target.generate(ids, max_new_tokens=20, do_sample=False)
    assisted = tiny_target.generate(
        ids, max_new_tokens=20, do_sample=False, assistant_model=net, speculation_type="dflash"
    )
    assert assisted.tolist() == plain.tolist()


def test_it_keeps_its_shape_when_it_is_trained_on(trained, tmp_path):
    folder = trained("run", "--shape", "dflash", "--steps", 2)
    again = trained("run", "--resume", tmp_path / "run", "--shape", "dflash", "--steps", 3)
    assert again == folder
    with pytest.raises(UserError, match="has --shape dflash, which a resumed run keeps"):
        trained("run", "--resume", tmp_path / "run", "--shape", "own", "--steps", 4)
    streak = trained("streak", "--kind", "streak", "--start", folder, "--steps", 2)
    assert "dflash_config" in json.loads((streak / "config.json").read_text())
    with pytest.raises(UserError, match="has the shape dflash, which it keeps"):
        trained("own", "--start", folder, "--shape", "own", "--steps", 2)
    own = trained("own", "--steps", 2)
    assert not has_dflash_form(read_drafter(own).config)
    with pytest.raises(UserError, match="has the shape own, which it keeps"):
        trained("other", "--start", own, "--shape", "dflash", "--steps", 2)


@pytest.mark.parametrize("more", [("--draft-vocab", 64), ("--kind", "ar"), ("--kind", "markov")])
def test_what_the_layout_cannot_say_is_refused_before_training(trained, more, tmp_path):
    with pytest.raises(UserError, match=f"no a {more[0]}|no {' '.join(map(str, more))}") as error:
        trained("run", "--shape", "dflash", "--steps", 2, *more)
    assert ("DSpark's head, which engines load" in str(error.value)) == ("markov" in more)
    assert not (tmp_path / "run").exists()


def test_a_reduced_vocabulary_or_a_window_keeps_our_own_layout(tiny_loaded, tmp_path):
    config = dflash()
    net = read_drafter(write(tmp_path / "d", config, random_weights(config)))
    plain = save_drafter(net, tmp_path / "plain", "#")
    assert read_drafter(plain).config.to_dict() == net.config.to_dict()
    assert "dflash_config" in (plain / "config.json").read_text()
    net.draft_vocab = torch.arange(5)
    reduced = save_drafter(net, tmp_path / "reduced", "#")
    net.draft_vocab, net.config.context_window = None, 12
    window = save_drafter(net, tmp_path / "window", "#")
    for folder in (reduced, window):
        assert "dflash_config" not in (folder / "config.json").read_text()
    assert read_drafter(reduced).draft_vocab.tolist() == list(range(5))
    assert read_drafter(window).config.context_window == 12
    assert net.config.mask_token_id == MASK_ID


def test_norms_begin_at_the_sizes_of_the_targets_queries_and_keys():
    target = make_tiny_target()
    net = new_drafter(target, "block", 1, 8, None, 0, mask_id=1, shape="dflash")
    source, layer = target.model.layers[0], net.layers[0]
    x = torch.randn(4000, 64)
    for name, norm in norms_of(source, layer).items():
        projection = getattr(source.self_attn, name.split(".")[1].replace("norm", "proj"))
        rows = projection(x * source.input_layernorm.weight).unflatten(-1, (-1, norm.numel()))
        torch.testing.assert_close(norm, rows.pow(2).mean((0, 1)).sqrt(), rtol=0.1, atol=0)
