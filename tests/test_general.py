"""Targets of other families run through transformers' own model, and write what it writes."""

from __future__ import annotations

import functools

import pytest
import torch
from tiny_families import tiny_config, tiny_family
from tiny_models import make_tiny_tokenizer

from specdemo.drafters import METHODS
from specdemo.engine import load
from specdemo.engine.general.target import GeneralTarget
from specdemo.engine.race import race
from specdemo.engine.step import why_not_fast
from specdemo.errors import UserError
from specdemo.models.load import Loaded
from specdemo.models.pairs import Pair
from specdemo.request import Request

PROMPT = " ".join(f"t{i}" for i in [5, 9, 77, 3, 5, 9, 77, 3, 5, 9, 77] * 3)
TOKENS = 32
PAIR = Pair(id="tiny", title="Tiny", license="none", size="tiny", target=({"path": "nowhere"},))
# model type -> what is not as in tests/tiny_families.py
IMPORTANT = {
    "gpt2": {},
    "gpt_neox": {},
    "gemma2": {},
    "gemma3_text": {},
    "phi": {},
    "olmo2": {},
    "smollm3": {},
    "granite": {},
    "mistral": {},
    "mixtral": {},
    "ministral3": {},
    "llama": {"hidden_act": "gelu"},
}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr(load, "calibrate", functools.partial(load.calibrate, seconds=0.0))


def loaded_of(model, dtype=torch.float32):
    return Loaded(PAIR, model, make_tiny_tokenizer(), (), dtype, torch.device("cpu"))


def config_of(kind, **more):
    from transformers import CONFIG_MAPPING

    return tiny_config(CONFIG_MAPPING[kind], **more)


def generated(model, ids):
    """The model's own greedy text."""
    given = torch.tensor([ids])
    with torch.no_grad():
        out = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return out[0][len(ids) :].tolist()


def race_result(engine, **more):
    request = Request(PROMPT, max_new_tokens=TOKENS, **{"method": "lookup", **more})
    start, *_, done = race(engine, request)
    assert (start.target_step, start.why_general) == (engine.step, engine.why_general)
    return done.result


@pytest.mark.parametrize("kind", IMPORTANT)
def test_the_text_is_the_models_own(kind):
    model = tiny_family(config_of(kind, **IMPORTANT[kind]))
    loaded = loaded_of(model)
    engine = load.make_engine(loaded)
    assert engine.step == "general" and engine.why_general
    result = race_result(engine, check="exact")
    assert result["identical"] and result["spec"]["accepted_per_round"] > 0.5
    assert result["output_ids"] == generated(model, engine.encode(PROMPT))


def test_best_runs_on_copies_alone_where_a_pair_has_no_drafter():
    model = tiny_family(config_of("gpt2"))
    engine = load.make_engine(loaded_of(model))
    assert METHODS["best"].refuse_pair(PAIR) is None
    result = race_result(engine, method="best", check="exact")
    # it drafts by the clock, so how often is not said
    assert result["identical"] and result["spec"]["accepted_per_round"] > 0
    assert result["output_ids"] == generated(model, engine.encode(PROMPT))
    with pytest.raises(UserError, match="copies = 0 leaves nothing to draft from"):
        race_result(engine, method="best", params={"copies": 0})


@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "mixtral", "smollm3"])
def test_trees_are_bitwise_chains_in_bf16(kind):
    model = tiny_family(config_of(kind)).bfloat16()
    engine = load.make_engine(loaded_of(model, torch.bfloat16))
    assert engine.step == "general" and len(engine.costs.widths) > 1
    assert race_result(engine)["identical"]
    target = engine.target
    ids = engine.encode(PROMPT)
    tokens, parent = [5, 9, 77, 3, 11, 5], [-1, -1, 0, 2, 1, 3]
    with torch.inference_mode():
        cache = target.new_cache(128)
        target.prefill(cache, ids)
        tree = target.verify(cache, 9, tokens, parent, 16)[0]
        path = [0, 2, 3, 5]
        chain = target.verify(cache, 9, [tokens[i] for i in path], [-1, 0, 1, 2], 16)[0]
        assert torch.equal(tree[[0, *(i + 1 for i in path)]], chain)
        cache.rollback(cache.length)
        target.verify(cache, 9, tokens, parent, 16)
        cache.commit(path)  # the rows of the path are moved together
        after = target.verify(cache, 44, [], [], 16)[0]
        other = target.new_cache(128)
        target.prefill(other, ids)
        for token in (9, 5, 77, 3, 5):
            target.verify(other, token, [], [], 16)
            other.commit([])
        assert torch.equal(after, target.verify(other, 44, [], [], 16)[0])


def test_taps_are_the_layers_outputs():
    model = tiny_family(config_of("gpt2"))
    ids = [5, 9, 77, 3, 11]
    with torch.no_grad():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        target = GeneralTarget(model)
        _, features = target.prefill(target.new_cache(32), ids, (0,))
    assert torch.allclose(features, states[1][0], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("llama", {}, ""),
        ("qwen3", {"layer_types": ["full_attention"] * 2, "sliding_window": None}, ""),
        ("mistral", {"sliding_window": None}, ""),
        ("mistral", {"sliding_window": 24}, "sliding_window 24"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act gelu"),
        ("llama", {"mlp_bias": True}, "mlp_bias True"),
        ("llama", {"attention_bias": True}, "attention_bias True"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types "),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
         "rope_parameters dynamic"),
        ("smollm3", {}, "model type smollm3"),
    ],
)  # fmt: skip
def test_what_the_fast_step_does_not_compute_is_told_by_the_config(kind, more, why):
    found = why_not_fast(config_of(kind, **more))
    assert found == why if not why.endswith(" ") else found.startswith(why)


def test_a_field_that_nobody_knows_is_not_ignored():
    from transformers import LlamaConfig

    class Newer(LlamaConfig):
        logits_scaling: float = 1.0

    assert why_not_fast(Newer(logits_scaling=2.0)) == "logits_scaling 2.0"


@pytest.mark.parametrize("kind", ["bloom", "bert", "bart"])
def test_what_cannot_verify_is_refused_in_one_sentence(kind):
    with pytest.raises(UserError) as refused:
        load.make_engine(loaded_of(tiny_family(config_of(kind))))
    message = str(refused.value)
    assert message.count(". ") == 0 and message.endswith("choose another target.")


def test_an_argument_that_we_do_not_know_is_refused(monkeypatch):
    from transformers.models.gpt2 import modeling_gpt2 as gpt2

    real = gpt2.GPT2Attention.forward

    def forward(self, *args, **kwargs):
        return real(self, *args, **kwargs, bend=0.3)

    model = tiny_family(config_of("gpt2"))
    monkeypatch.setattr(gpt2.GPT2Attention, "forward", forward)
    with pytest.raises(UserError, match="“bend”"):
        load.make_engine(loaded_of(model))


def test_attention_that_means_something_else_is_refused(monkeypatch):
    """The model's own attention is scaled otherwise than what it tells ours."""
    from transformers.models.gpt2 import modeling_gpt2 as gpt2

    real = gpt2.eager_attention_forward

    def eager(module, q, k, v, mask, scaling=None, **more):
        return real(module, q, k, v, mask, scaling=scaling * 1.1, **more)

    model = tiny_family(config_of("gpt2"))
    monkeypatch.setattr(gpt2, "eager_attention_forward", eager)
    with pytest.raises(UserError, match="one of its attentions is off"):
        load.make_engine(loaded_of(model))


def test_a_row_that_feels_its_place_is_refused(monkeypatch):
    model = tiny_family(config_of("gpt2"))
    monkeypatch.setattr(GeneralTarget, "use_row_products", uneven)
    with pytest.raises(UserError, match="a row's bits depend on its place"):
        load.make_engine(loaded_of(model))


def uneven(target):
    def hook(module, args, output):
        return output + 1e-6 * torch.arange(output.shape[1])[None, :, None]

    target.model.transformer.h[0].register_forward_hook(hook)


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_weights_that_bitsandbytes_stores(bits, kind, tmp_path):
    """Both lanes multiply by the stored weights, expanded; the text is that of such a model."""
    functional = pytest.importorskip("bitsandbytes.functional")
    from specdemo.models.load import load_target

    folder = tmp_path / "target"
    whole = tiny_family(config_of(kind))
    whole.save_pretrained(folder)
    make_tiny_tokenizer().save_pretrained(folder)
    pair = Pair("tiny", "Tiny", "none", "tiny", ({"path": str(folder)},))
    loaded = load_target(pair, bits, "cpu")
    engine = load.make_engine(loaded)
    assert engine.why_general == f"weights in {bits[0]} bits" and engine.dtype.endswith(" bits")
    assert race_result(engine, check="exact")["identical"]
    layer = loaded.model.model.layers[0].mlp.down_proj
    assert layer.weight.dtype in (torch.int8, torch.uint8)  # nothing was expanded for good
    weight = whole.model.layers[0].mlp.down_proj.weight.to(loaded.dtype)
    if bits == "4bit":
        packed = functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
        rounded = functional.dequantize_4bit(*packed)
    else:
        scale = weight.float().abs().amax(1, keepdim=True) / 127
        rounded = (weight.float() / scale).round() * scale
    rows = torch.randn(3, weight.shape[1], dtype=loaded.dtype)
    wanted = rows.float() @ rounded.float().T
    assert (layer(rows).float() - wanted).abs().max() < 0.03 * wanted.abs().max()
