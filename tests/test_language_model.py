"""A language model of its own as autoregressive drafter: its logits are transformers', its race is
lossless, and what it cannot do is refused.
"""

import dataclasses
import json

import pytest
import torch
from tiny import engine_for
from tiny import write as write_text
from tiny_models import make_tiny_tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from specdemo.drafters import METHODS
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.drafters import read_drafter

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
MODELS = {
    "qwen3": Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SHAPE),
    "llama": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
}


@pytest.fixture(params=MODELS)
def small(request, tmp_path):
    """A small model, and its folder."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(MODELS[request.param]).eval()
    for p in model.parameters():
        p.requires_grad_(False).add_(torch.randn_like(p) * 0.2)
    model.save_pretrained(tmp_path / "small")
    make_tiny_tokenizer().save_pretrained(tmp_path / "small")
    return model, tmp_path / "small"


def test_its_logits_are_those_of_transformers(tiny_loaded, small):
    model, folder = small
    net, ids = read_drafter(folder, tiny_loaded), torch.arange(5, 45)
    cache = net.new_cache(64)
    got = torch.cat([net.step(part, int(part[0]) - 5, cache) for part in ids.split((7, 1, 32))])
    want = model(ids[None]).logits[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_its_race_is_the_targets_own_text(tiny_loaded, tiny_target, small):
    tiny_loaded.pair = dataclasses.replace(tiny_loaded.pair, drafters={"ar": str(small[1])})
    engine = engine_for(Target(tiny_target))
    engine.loaded = tiny_loaded
    method = METHODS["ar-draft"]
    drafter = method.build(tiny_loaded, method.parse_params({}))
    assert drafter.weights == "ar weights (small)" and drafter.layer_ids == ()
    plain, fast = (write_text(engine, d, max_new=16) for d in (None, drafter))
    assert fast.ids == plain.ids


def test_a_target_keeps_its_weights_once(tiny_target):
    """Fused weights are the model's own, seen whole."""
    target = Target(tiny_target)
    module = tiny_target.model.layers[0].self_attn
    pieces = [p.weight.untyped_storage().data_ptr() for p in (module.q_proj, module.v_proj)]
    assert pieces[0] == pieces[1] == target.layers[0].qkv.weight.untyped_storage().data_ptr()


def rewritten(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("key", ["hidden_act", "a_new_key", "partial_rotary_factor"])
def test_what_is_not_computed_is_refused(tiny_loaded, small, key):
    rewritten(small[1], **{key: 0.5})
    with pytest.raises(UserError, match=f"has “{key}”: 0.5"):
        read_drafter(small[1], tiny_loaded)


def test_tokenizers_are_compared(tiny_loaded, small):
    make_tiny_tokenizer(100).save_pretrained(small[1])
    with pytest.raises(UserError, match="differs from the target's"):
        read_drafter(small[1], tiny_loaded)
    (small[1] / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="no tokenizer.json to be compared"):
        read_drafter(small[1], tiny_loaded)
