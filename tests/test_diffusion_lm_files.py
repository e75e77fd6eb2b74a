"""Folders of diffusion language models: what is missing, contradicts itself, is not computed or is
not the target's is refused in one sentence that names it.
"""

import dataclasses
import json

import pytest
import torch
from diffusion_lms import CONFIGS, config_of, make_weights, save_diffusion_lm
from safetensors.torch import save_file
from tiny_models import make_tiny_tokenizer

from specdemo.errors import UserError
from specdemo.models.diffusion_configs import FAMILIES
from specdemo.models.drafters import load_drafter
from specdemo.models.kinds import DIFFUSION_LMS

pytestmark = pytest.mark.usefixtures("one_thread")


def load(tiny_loaded, folder):
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"diffusion": str(folder)})
    loaded = dataclasses.replace(tiny_loaded, pair=pair, networks={})
    return load_drafter(pair, "diffusion", loaded)


def refused(tiny_loaded, folder):
    """The sentence of a folder that is refused."""
    with pytest.raises(UserError) as caught:
        load(tiny_loaded, folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".") and ";" in sentence
    return sentence


def test_every_family_has_its_table_and_its_checkpoint():
    assert set(FAMILIES) == set(DIFFUSION_LMS) == {config_of(f)["model_type"] for f in CONFIGS}


NEEDED = {
    "Dream": ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    + ["num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size"]
    + ["max_position_embeddings"],
    "a2d-qwen3": ["head_dim", "rope_theta", "vocab_size"],
    "sdar": ["block_size", "head_dim", "rope_theta"],
    "Fast_dLLM_Qwen": ["bd_size", "rms_norm_eps"],
    "llada": ["d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size"]
    + ["embedding_size", "rope_theta", "rms_norm_eps", "max_sequence_length"],
    "mdlm": ["hidden_dim", "n_blocks", "n_heads", "vocab_size", "model_length"],
    "bd3lm": ["block_size", "hidden_dim"],
}


@pytest.mark.parametrize("family, key", [(f, key) for f, keys in NEEDED.items() for key in keys])
def test_a_missing_setting_is_missing_and_never_a_default(tiny_loaded, tmp_path, family, key):
    folder = save_diffusion_lm(tmp_path / "d", family, make_tiny_tokenizer(), **{key: "left out"})
    assert f"lacks “{key}”" in refused(tiny_loaded, folder)


OTHERWISE = [
    ("Dream", {"hidden_act": "gelu"}),
    ("Dream", {"use_sliding_window": True}),
    ("Dream", {"is_neox_style": False}),
    ("Dream", {"logit_scale": 0.5}),
    ("Dream", {"block_size": 8}),
    ("Dream", {"quantization_config": {"bits": 4}}),
    ("a2d-qwen3", {"attention_bias": True}),
    ("a2d-qwen3 in blocks", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("sdar", {"shift_label": True}),
    ("sdar", {"final_logit_softcapping": 30.0}),
    ("Fast_dLLM_Qwen", {"embedding_multiplier": 2.0}),
    ("llada", {"alibi": True}),
    ("llada", {"include_qkv_bias": True}),
    ("llada", {"layer_norm_type": "gemma_rms"}),
    ("llada", {"scale_logits": True}),
    ("llada", {"input_emb_norm": True}),
    ("llada", {"activation_type": "swiglu"}),
    ("llada", {"block_group_size": 2}),
    ("mdlm", {"time_conditioning": True}),
    ("mdlm", {"causal": True}),
    ("bd3lm", {"cross_attn": False}),
    ("bd3lm", {"adaln": False}),
]


@pytest.mark.parametrize("family, changes", OTHERWISE)
def test_a_setting_that_changes_the_computation_is_refused_by_name(
    tiny_loaded, tmp_path, family, changes
):
    folder = save_diffusion_lm(tmp_path / "d", family, make_tiny_tokenizer(), **changes)
    assert f"“{next(iter(changes))}”" in refused(tiny_loaded, folder)


@pytest.mark.parametrize(
    "family, changes, said",
    [
        ("Dream", {"mask_token_id": 127}, "mask_token_id 127 in config.json and 128 in its token"),
        ("Dream", {"num_hidden_layers": True}, "num_hidden_layers = True"),
        ("Dream", {"rms_norm_eps": "small"}, "rms_norm_eps = 'small'"),
        ("Dream", {"num_attention_heads": 5}, "do not divide"),
        ("Dream", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ("Dream", {"hidden_size": 64}, "of shape [136, 48]"),
        ("Dream", {"num_hidden_layers": 3}, "lacks the weights model.layers.2."),
        ("Dream", {"num_hidden_layers": 1}, "for instance model.layers.1."),
        ("sdar", {"max_position_embeddings": 16}, "too few"),
        ("mdlm", {"mask_token_id": 5}, "no tokenizer files"),
        ("mdlm", {"mask_token_id": 500}, "no row of its embedding"),
    ],
)
def test_what_does_not_fit_is_named(tiny_loaded, tmp_path, family, changes, said):
    folder = save_diffusion_lm(tmp_path / "d", family, make_tiny_tokenizer(), **changes)
    assert said in refused(tiny_loaded, folder)


def test_a_block_model_by_name_must_say_how_long_its_blocks_are(tiny_loaded, tmp_path):
    place = tmp_path / "models--hub--Qwen3-0.6B-diffusion-bd3lm-v0.1" / "snapshots" / "abc"
    folder = save_diffusion_lm(place, "a2d-qwen3", make_tiny_tokenizer())
    assert "has no “block_size”; add it" in refused(tiny_loaded, folder)
    folder = save_diffusion_lm(place, "a2d-qwen3", make_tiny_tokenizer(), block_size=8)
    assert load(tiny_loaded, folder).config.block == 8


@pytest.mark.parametrize("family", ["Dream", "llada", "sdar", "a2d-qwen2"])
def test_a_foreign_tokenizer_is_refused_with_the_tokens(tiny_loaded, tmp_path, family):
    other = make_tiny_tokenizer(special=("<end>", "<mask>"))
    ids = {f"t{i}": (i + 1) % 126 for i in range(126)} | {"<end>": 126, "<mask>": 127}
    other = with_words(other, ids)
    folder = save_diffusion_lm(tmp_path / "d", family, other)
    sentence = refused(tiny_loaded, folder)
    assert "has a tokenizer of its own (126 of its tokens differ" in sentence
    assert "id 0 is 't0' to the target and 't125' to the drafter" in sentence
    assert FAMILIES[family].name in sentence


def with_words(tokenizer, ids):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel(ids, unk_token="t0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    out = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="t0")
    special = [t for t in ids if t.startswith("<")]
    out.add_special_tokens({"additional_special_tokens": special})
    return out


def test_special_tokens_may_differ_and_are_never_drafted(tiny_loaded, tmp_path):
    ids = {f"t{i}": i for i in range(126)} | {"<end>": 126, "<begin>": 127}
    folder = save_diffusion_lm(tmp_path / "d", "Dream", with_words(None, ids))
    net = load(tiny_loaded, folder)
    assert net.banned.tolist() == [127]
    logits = net.logits(torch.randn(3, 48))
    assert logits[:, 127].isneginf().all() and logits[:, :127].isfinite().all()


def test_a_mask_among_the_targets_ids_is_never_drafted(tiny_loaded, tmp_path):
    """As NVIDIA's Efficient-DLM does, whose mask is a token of Qwen's."""
    folder = save_diffusion_lm(tmp_path / "d", "a2d-qwen3", make_tiny_tokenizer())
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["added_tokens"].pop()
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mask_token_id": 127}))
    assert load(tiny_loaded, folder).banned.tolist() == [127]
    (folder / "config.json").write_text(json.dumps(config | {"mask_token_id": 9}))
    assert "mask id 9, which is the real token 't9'" in refused(tiny_loaded, folder)
    (folder / "config.json").write_text(json.dumps(config))
    assert "lacks “mask_token_id”, and its tokenizer has no <|mask|>" in refused(
        tiny_loaded, folder
    )


def test_mdlm_belongs_to_a_tokenizer_of_one_token_less(tiny_loaded, tmp_path):
    config = config_of("mdlm", vocab_size=120)
    folder = save_diffusion_lm(
        tmp_path / "d", "mdlm", None, weights=make_weights(config), vocab_size=120
    )
    sentence = refused(tiny_loaded, folder)
    assert "no tokenizer files and 119 tokens and a mask" in sentence
    assert "this target has 128 tokens" in sentence and "GPT-2" in sentence


def test_a_folder_without_tokenizer_is_refused(tiny_loaded, tmp_path):
    folder = save_diffusion_lm(tmp_path / "d", "sdar", make_tiny_tokenizer())
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer.json and no vocab.json" in refused(tiny_loaded, folder)
    folder = save_diffusion_lm(tmp_path / "e", "sdar", make_tiny_tokenizer())
    (folder / "tokenizer.json").write_text("{")
    assert "is damaged" in refused(tiny_loaded, folder)


def test_damaged_weights_are_refused(tiny_loaded, tmp_path):
    weights = make_weights(config_of("Dream"))
    for change, said in (
        ({"model.norm.weight": torch.full((48,), float("nan"))}, "not finite"),
        ({"model.layers.0.self_attn.o_proj.bias": torch.zeros(48)}, "does not explain (1, for"),
        ({"model.norm.weight": torch.ones(47)}, "of shape [47]"),
        ({"model.layers.1.self_attn.q_proj.bias": None}, "lacks the weights"),
        ({"lm_head.weight": None}, "lacks the weights lm_head.weight"),
    ):
        changed = {k: v for k, v in (weights | change).items() if v is not None}
        folder = save_diffusion_lm(tmp_path / "d", "Dream", make_tiny_tokenizer(), weights=changed)
        assert said in refused(tiny_loaded, folder)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert "damaged or cut short" in refused(tiny_loaded, folder)
    file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "only pickled weights, which SpecDemo never opens" in refused(tiny_loaded, folder)


def test_shards_and_tied_heads_load(tiny_loaded, tmp_path):
    folder = save_diffusion_lm(tmp_path / "d", "a2d-qwen3", make_tiny_tokenizer())
    weights = make_weights(config_of("a2d-qwen3"))
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    net = load(tiny_loaded, folder)
    assert torch.equal(net.head.weight, weights["model.embed_tokens.weight"][:128])
    # where heads are tied a stored one is not used
    one = {**weights, "lm_head.weight": torch.randn(136, 48)}
    folder = save_diffusion_lm(tmp_path / "e", "a2d-qwen3", make_tiny_tokenizer(), weights=one)
    assert torch.equal(load(tiny_loaded, folder).head.weight, net.head.weight)


def test_a_drafter_folder_on_the_command_line_takes_the_diffusion_role(tiny_loaded, tmp_path):
    from specdemo.models.own_pair import with_drafter

    folder = save_diffusion_lm(tmp_path / "d", "Dream", make_tiny_tokenizer())
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"block": "a", "ar": "b"})
    assert with_drafter(pair, folder).drafters == {"ar": "b", "diffusion": str(folder)}


def test_which_drafter_a_kind_gets(tiny_loaded, tmp_path):
    folder = save_diffusion_lm(tmp_path / "d", "Dream", make_tiny_tokenizer())
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"diffusion": str(folder)})
    loaded = dataclasses.replace(tiny_loaded, pair=pair, networks={})
    for kind in ("block", "vp", "mdlm", "streak", "diffusion"):
        net = load_drafter(pair, kind, loaded)
        assert net.weights.startswith(
            "diffusion weights (d), a stand-alone diffusion language model (Dream): every pass"
            " reads the whole text again"
        )
        assert ("none trained for" in net.weights) == (kind in ("vp", "streak"))
    with pytest.raises(UserError, match="no autoregressive drafter"):
        load_drafter(pair, "ar", loaded)


def test_a_diffusion_drafter_of_any_kind_does_for_every_diffusion_method(tiny_loaded, tmp_path):
    from specdemo.drafters import METHODS

    folder = save_diffusion_lm(tmp_path / "d", "mdlm", None)
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"mdlm": str(folder)})
    for method in METHODS.values():
        assert method.refuse_pair(pair) is None
        assert method.role(pair) == ("mdlm" if method.kinds else None)
    both = dataclasses.replace(pair, drafters={"block": "a", "diffusion": "b"})
    taken = {name: method.role(both) for name, method in METHODS.items()}
    papers = ("specdiff", "specdiff2", "diffuspec")
    assert all(taken[name] == "diffusion" for name in papers)
    assert all(taken[name] == "block" for name in ("block", "tree", "best", "d2sd", "ar-draft"))
