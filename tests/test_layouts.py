"""Published block drafters: each layout loads, computes what the published code computes, and
drafts for a race whose text is the target's own.
"""

import dataclasses

import pytest
import torch
from published import (
    END,
    FAMILIES,
    MASK_ID,
    H,
    Plain,
    deepspec,
    dflash,
    dspark,
    random_weights,
    speculators,
    write,
)
from tiny import PROMPT, engine_for
from tiny import write as write_text
from tiny_models import features_of, make_tiny_target, make_tiny_tokenizer

from specdemo.drafters import METHODS
from specdemo.drafters.parts.base import Context
from specdemo.drafters.parts.block_context import BlockContext
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.drafters import read_drafter
from specdemo.models.load import Loaded
from specdemo.models.pairs import Pair
from specdemo.training.initialize import init_drafter

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 5, 33, 79, 50, 28, 84, 19]
METHODS_RACED = ("block", "tree", "best", "d2sd", "specdiff", "specdiff2", "diffuspec", "ar-draft")


@pytest.fixture(scope="module")
def target():
    return make_tiny_target(layers=4)


@pytest.fixture
def loaded(target):
    pair = Pair("tiny", "Tiny", "none", "tiny", ({"path": "nowhere"},))
    device = torch.device("cpu")
    return Loaded(pair, target, make_tiny_tokenizer(), (END,), torch.float32, device)


def both(loaded, folder, config, seed=0):
    """The product's network, and the plain computation."""
    weights = random_weights(config, seed)
    net = read_drafter(write(folder, config, weights), loaded)
    target = loaded.model
    plain = Plain(config, weights, target.get_input_embeddings().weight,
                  target.get_output_embeddings().weight)  # fmt: skip
    return net, plain


def in_context(net, features):
    context = BlockContext(net)
    context.start(64)
    for start, stop in ((0, 4), (4, 5), (5, len(features))):
        context.extend(features[start:stop], start)
    return context


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_drafts_are_those_of_the_published_code(loaded, tmp_path, name):
    config = FAMILIES[name]
    net, plain = both(loaded, tmp_path / "d", config)
    features, _ = features_of(loaded.model, net.layer_ids, TEXT)
    for at in (9, 16):  # inside a window of 5 and far behind it, and behind the original length
        context = in_context(net, features[:at])
        for count in (2, net.most_masks):
            ids = [TEXT[at]] + [-1] * count
            hidden = context.hidden([ids], at)[0, 1:]
            want_hidden, want = plain.predict(features[:at], TEXT[at], count)
            torch.testing.assert_close(hidden, want_hidden, rtol=1e-4, atol=1e-4)
            got = net.logits(hidden)
            known = plain.ids[: got.shape[-1]] != MASK_ID
            assert not got[:, ~known].isfinite().any()
            torch.testing.assert_close(got[:, known], want[:, known], rtol=1e-4, atol=1e-4)
            table = context.to_table(hidden, True, {0: TEXT[at]})
            draft, confidence = plain.draft(features[:at], TEXT[at], count)
            assert [row[0][0] for row in table.chain()] == draft
            assert table.confidence == pytest.approx(confidence, abs=1e-4)


@pytest.mark.parametrize("name", ["jetspec", "dflash2", "dflash two-way sliding", "dspark"])
def test_a_batch_of_blocks_equals_each_alone(loaded, tmp_path, name):
    net, _ = both(loaded, tmp_path / "d", FAMILIES[name])
    features, _ = features_of(loaded.model, net.layer_ids, TEXT)
    context = in_context(net, features[:12])
    blocks = [[TEXT[12], -1, -1, -1], [TEXT[12], 7, -1, -1], [TEXT[12], 7, 9, -1]]
    together = context.hidden(blocks, 12)
    for rows, block in zip(together, blocks, strict=True):
        torch.testing.assert_close(rows, context.hidden([block], 12)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["jetspec", "dflash2", "dflash sliding", "speculators dflash2"])
def test_transformers_contract_computes_the_same(loaded, tmp_path, name):
    net, plain = both(loaded, tmp_path / "d", FAMILIES[name])
    features, _ = features_of(loaded.model, net.layer_ids, TEXT)
    rows = net.embed(torch.tensor([[TEXT[12], *[MASK_ID] * 7]]))
    with torch.no_grad():
        out = net(noise_embeds=rows, context_hidden_states=features[None, :12]).last_hidden_state
    want, _ = plain.predict(features[:12], TEXT[12], 7)
    torch.testing.assert_close(out[0, 1:], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS_RACED)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_method_writes_the_targets_own_text(loaded, tmp_path, name, method):
    folder = write(tmp_path / "d", FAMILIES[name], random_weights(FAMILIES[name]))
    loaded.pair = dataclasses.replace(loaded.pair, drafters={"block": str(folder)})
    engine = engine_for(Target(loaded.model))
    engine.loaded = loaded
    drafter = METHODS[method].build(loaded, METHODS[method].parse_params({}))
    plain, fast = (write_text(engine, d, max_new=12) for d in (None, drafter))
    assert fast.ids == plain.ids and fast.ids[: len(PROMPT)] == PROMPT


def test_a_draft_ends_before_a_token_of_little_confidence(loaded, tmp_path):
    net, plain = both(loaded, tmp_path / "d", dspark())
    loaded.pair = dataclasses.replace(loaded.pair, drafters={"block": str(tmp_path / "d")})
    features, _ = features_of(loaded.model, net.layer_ids, TEXT)
    draft, confidence = plain.draft(features[:12], TEXT[12], 7)
    least = sorted(confidence)[4]
    kept = next(i for i, sure in enumerate(confidence) if sure < least - 1e-3)
    for limit, count in ((0.0, 7), (least - 1e-3, kept)):
        drafter = METHODS["block"].build(
            loaded, METHODS["block"].parse_params({"confidence": limit})
        )
        drafter.start(TEXT[:12], 64)
        context = Context(TEXT[:13], lambda: (features[:12], 0), budget=31)
        assert drafter.propose(context).tokens == draft[:count]


def test_a_published_kind_is_not_trained(loaded, tmp_path):
    for config, plain in (
        (dflash(), True),
        (dspark(), False),
        (dflash({"causal_head": True}), False),
    ):
        folder = write(tmp_path / str(plain), config, random_weights(config))
        if plain:
            init_drafter(loaded.model, "block", str(folder), 0, 0, None)
            continue
        with pytest.raises(UserError, match="not trained"):
            init_drafter(loaded.model, "block", str(folder), 0, 0, None)


def test_copies_of_the_targets_embedding_and_head_are_not_kept(loaded, tmp_path):
    weights = random_weights(deepspec())
    own = read_drafter(write(tmp_path / "own", deepspec(), weights), loaded)
    weights["embed_tokens.weight"] = loaded.model.get_input_embeddings().weight
    weights["lm_head.weight"] = loaded.model.get_output_embeddings().weight
    net = read_drafter(write(tmp_path / "copy", deepspec(), weights), loaded)
    assert own.config.own_embedding and own.config.own_head
    assert not net.config.own_embedding and not hasattr(net, "lm_head")


def test_z_labs_rule_for_taps_that_are_left_out(tmp_path):
    config = dflash(num_target_layers=36)
    del config["dflash_config"]["target_layer_ids"]
    assert read_drafter(write(tmp_path / "d", config, random_weights(config))).layer_ids == (1, 33)


# -- what is refused -------------------------------------------------------------------------------

REFUSED = [
    (dflash({"projector_type": "domino"}), "projector_type"),
    (dflash(is_neox_style=False), "is_neox_style"),
    (dflash({"use_swa": True, "swa_window_size": 5}), "use_swa"),
    (dflash({"shift_label": True}), "shift_label"),
    (dflash({"target_hidden_size": 32}), "target_hidden_size"),
    (dflash(quantization_config={"bits": 8}), "quantization_config"),
    (dflash({"block_size": 16}), "“block_size” twice"),
    (dflash({"causal_head": True}, layer_types=["sliding_attention"] * 2), "layer_types"),
    (dflash(layer_types=["chunked_attention"] * 2), "layer_types"),
    (dflash(hidden_act="gelu"), "hidden_act"),
    (dflash(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}), "rope_parameters"),
    (dflash(rope_parameters={"rope_theta": 1e4, "curl": 3}), "rope has “curl”: 3"),
    (dflash(rope_parameters={"rope_theta": 1e4, "rope_type": ["x"]}), "rope type ..x"),
    (dflash(rope_scaling={"rope_type": "dynamic", "factor": 2.0}), "rope type 'dynamic'"),
    (dflash({"conv_kernel_size": 2}), "conv_kernel_size"),
    (dflash(some_new_key=0.5), "“some_new_key”: 0.5"),
    (dspark(markov_head_type="rnn"), "markov_head_type"),
    (deepspec(architectures=["Gemma4DSparkModel"]), "architectures"),
    (deepspec(some_new_key=1), "some_new_key"),
    (speculators("eagle3"), "speculators_model_type"),
    (speculators(inner={"model_type": "gemma4"}), "model_type"),
    (speculators(inner={"some_new_key": 1}), "some_new_key"),
    (speculators(target_hidden_size=32), "target_hidden_size"),
    ({"architectures": ["OrthrusLM"], "model_type": "orthrus"}, "Orthrus, which reads the keys"),
    ({"architectures": ["OrthrusLM"], "model_type": "qwen3"}, "Orthrus, which reads the keys"),
    ({"architectures": ["TiDARForCausalLM"], "model_type": "tidar"}, "TiDAR, one model that"),
    ({"architectures": ["SDLMQwen2ForCausalLM"], "block_size": 4}, "SDLM, whose text is causal"),
    ({"architectures": ["CoDALanguageModel"], "model_type": "CoDA"}, "CoDA, which builds a causal"),
    ({"architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe"}, "LLaDA with experts"),
    ({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}, "EAGLE, which drafts"),
    ({"architectures": ["BertModel"], "model_type": "bert"}, "no block drafter .*BertModel"),
]


@pytest.mark.parametrize(("config", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_computed_is_refused_by_name(loaded, tmp_path, config, sentence):
    folder = write(tmp_path / "d", config, random_weights(dflash()))
    with pytest.raises(UserError, match=sentence) as caught:
        read_drafter(folder, loaded)
    assert "\n" not in str(caught.value)


MISSING = [
    (dflash(), ("hidden_size", "num_hidden_layers", "head_dim", "vocab_size", "rope_theta")),
    (dflash(), ("block_size", "rms_norm_eps", "intermediate_size", "num_key_value_heads")),
    (deepspec(), ("block_size", "mask_token_id", "target_layer_ids", "markov_rank")),
    (speculators(), ("block_size", "aux_hidden_state_layer_ids", "draft_vocab_size")),
]


@pytest.mark.parametrize(
    ("config", "key"), [(config, key) for config, keys in MISSING for key in keys]
)
def test_a_missing_key_is_missing(loaded, tmp_path, config, key):
    config = {k: v for k, v in config.items() if k != key}
    with pytest.raises(UserError, match=f"“{key}” is missing"):
        read_drafter(write(tmp_path / "d", config, random_weights(dflash())), loaded)


def test_weights_that_a_layout_does_not_have_are_refused(loaded, tmp_path):
    weights = random_weights(dflash()) | {"prefix_gru.weight": torch.ones(2, H)}
    with pytest.raises(UserError, match="unknown weights .*prefix_gru.*does not compute"):
        read_drafter(write(tmp_path / "d", dflash(), weights), loaded)


def test_tables_of_a_reduced_vocabulary_that_disagree_are_refused(loaded, tmp_path):
    config = speculators(draft_vocab_size=50)
    weights = random_weights(config)
    weights["t2d"] = ~weights["t2d"]
    with pytest.raises(UserError, match="d2t and t2d"):
        read_drafter(write(tmp_path / "d", config, weights), loaded)
