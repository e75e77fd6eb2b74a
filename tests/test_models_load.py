"""Targets and drafters that cannot work are refused before anything runs (cases C33, C34, C41 to
C46 of the field's bug reports).
"""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import features_of, make_tiny_drafter, make_tiny_target, make_tiny_tokenizer

from specdemo.errors import UserError
from specdemo.models.drafter_files import read_weights, save_drafter, to_int8
from specdemo.models.drafters import load_drafter, read_drafter
from specdemo.models.load import default_dtype, find_eos_ids, load_target
from specdemo.models.pairs import Pair
from specdemo.models.validate import check_mask_id, check_target, check_tokenizers, finite

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def saved(tiny_target, folder, layout="own", **more):
    return save_drafter(
        make_tiny_drafter(tiny_target, layout, bound=False, **more), folder / "drafter", "# a card"
    )


def rewrite(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(config))


# -- targets ---------------------------------------------------------------------------------------


def small(name, **more):
    import transformers

    return getattr(transformers, name)(
        **{
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (("MistralConfig", {"sliding_window": 16}), "sliding window of 16 tokens"),
        (
            (
                "Qwen2Config",
                {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0},
            ),
            "sliding window",
        ),
        (("Gemma3TextConfig", {"sliding_window": 16}), "sliding window of 16 tokens"),
        (
            ("Qwen3NextConfig", {"layer_types": ["linear_attention", "full_attention"]}),
            "recurrent state",
        ),
        (("MambaConfig", {}), "recurrent state"),
        (("T5GemmaConfig", {}), "encoder-decoder"),
    ],
)
def test_targets_that_cannot_forget(config, sentence):
    name, more = config
    import transformers

    made = transformers.T5GemmaConfig() if name == "T5GemmaConfig" else small(name, **more)
    with pytest.raises(UserError, match=sentence) as caught:
        check_target(made, "This model")
    assert "choose a" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("LlamaConfig", {}),
        ("MistralConfig", {"sliding_window": None}),
        ("Qwen2Config", {"use_sliding_window": False, "sliding_window": 16}),
        ("Qwen3Config", {}),
    ],
)
def test_targets_with_full_attention(name, more):
    check_target(small(name, **more), "This model")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny target on disk, named by a pair as a local folder."""
    make_tiny_target().save_pretrained(tmp_path / "target")
    make_tiny_tokenizer().save_pretrained(tmp_path / "target")
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    return tmp_path / "target"


def pair_of(folder):
    return Pair("tiny", "Tiny", "none", "tiny", ({"path": str(folder)},))


def test_loads_a_local_folder(folder, tiny_target):
    loaded = load_target(pair_of(folder), dtype="fp32", device="cpu")
    assert not loaded.model.training and not any(p.requires_grad for p in loaded.model.parameters())
    # the token after an answer in the chat template
    assert loaded.eos_ids == (126,) and loaded.dtype == torch.float32
    assert torch.equal(
        features_of(loaded.model, (0, 1), TEXT)[1], features_of(tiny_target, (0, 1), TEXT)[1]
    )
    assert (
        load_target(pair_of(folder), dtype=torch.bfloat16, device="cpu").model.dtype
        == torch.bfloat16
    )


def test_eos_is_every_id_that_ends_a_text(tiny_target):
    import copy

    model, tokenizer = copy.copy(tiny_target), make_tiny_tokenizer()
    model.generation_config = copy.deepcopy(model.generation_config)
    model.generation_config.eos_token_id = [5, 9]
    tokenizer.eos_token = "t7"
    assert find_eos_ids(model, tokenizer) == (5, 9, 7, 126)
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert find_eos_ids(model, tokenizer) == (5, 9, 7)


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.write_bytes(f.read_bytes()[:-200]),
        lambda f: f.write_bytes(f.read_bytes()[:20]),
        lambda f: f.write_bytes(b""),
        lambda f: f.unlink(),
        lambda f: save_file(
            {k: v for k, v in load_file(f).items() if "layers.1.mlp.up" not in k},
            f,
            {"format": "pt"},
        ),
        lambda f: save_file(
            {k: v * float("nan") if "layers.1.mlp.up" in k else v for k, v in load_file(f).items()},
            f,
            {"format": "pt"},
        ),
    ],
)
def test_damaged_target(folder, damage):
    damage(folder / "model.safetensors")
    with pytest.raises(UserError, match="damaged or incomplete|cannot be read") as caught:
        load_target(pair_of(folder), dtype="fp32", device="cpu")
    assert "delete that folder" in str(caught.value) and "\n" not in str(caught.value)


def test_remote_code_is_never_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    rewrite(
        folder,
        model_type="never_heard_of",
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    )
    with pytest.raises(UserError, match="cannot be read"):
        load_target(pair_of(folder), device="cpu")


def test_dtypes_and_devices(folder):
    with pytest.raises(UserError, match="no dtype “int3”"):
        load_target(pair_of(folder), dtype="int3")
    with pytest.raises(UserError, match="not available here"):
        load_target(pair_of(folder), device="nowhere")
    with pytest.raises(UserError, match="bitsandbytes|for GPUs"):
        load_target(pair_of(folder), dtype="4bit", device="cpu")


def test_bf16_only_where_the_cpu_has_it(monkeypatch):
    for native, want in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(
            torch.cpu, "_is_avx512_bf16_supported", lambda native=native: native, raising=False
        )
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
        assert default_dtype("cpu") == want


# -- drafter folders -------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["own", "shared"])
@pytest.mark.parametrize("int8", [True, False])
def test_saving_and_reading_back(tiny_loaded, tiny_target, tmp_path, layout, int8):
    net = make_tiny_drafter(tiny_target, layout)
    place = save_drafter(
        net, tmp_path / "d", "# A card", draft_vocab=torch.arange(3, 99), int8=int8
    )
    again = read_drafter(place, tiny_loaded)
    assert (place / "README.md").read_text() == "# A card\n" and again.vocab_ids.tolist() == list(
        range(3, 99)
    )
    for name, tensor in net.state_dict().items():
        step = (
            tensor.abs().amax(-1, keepdim=True) / 127
            if int8 and tensor.dim() == 2
            else tensor.abs() / 128
        )
        assert ((again.state_dict()[name] - tensor).abs() <= 0.5 * step + 1e-6).all(), name
    # over itself, keeping its vocabulary
    assert save_drafter(again, place, "# Again", int8=int8) == place
    assert read_drafter(place, tiny_loaded).vocab_ids.tolist() == list(range(3, 99))


def test_int8_picks_what_full_precision_picks(tiny_loaded, tiny_target, tmp_path):
    net = make_tiny_drafter(tiny_target, block_size=16)
    low = read_drafter(save_drafter(net, tmp_path / "d", "#"), tiny_loaded)
    features, _ = features_of(tiny_target, net.layer_ids, list(range(3, 67)))
    same = []
    for anchor in range(4, 64, 5):
        ids = torch.full((1, 16), -1)
        ids[0, 0] = 3 + anchor
        picks = []
        for drafter in (net, low):
            cache = drafter.new_cache(80)
            drafter.extend(cache, features[:anchor], 0)
            picks.append(drafter.logits(drafter.hidden(ids, anchor, cache)).argmax(-1))
        same.append((picks[0] == picks[1]).float().mean())
    assert torch.stack(same).mean() > 0.9


def test_shards_stay_below_ten_megabytes(tmp_path, monkeypatch):
    net = make_tiny_drafter(make_tiny_target(vocab=256, hidden=256), bound=False, head_dim=64)
    monkeypatch.setattr("specdemo.models.drafter_files.SHARD_BYTES", 300_000)
    folder = save_drafter(net, tmp_path / "d", "#")
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 1 and all(f.stat().st_size < 320_000 for f in files)
    assert read_weights(folder).keys() == net.state_dict().keys()
    files[0].unlink()
    with pytest.raises(UserError, match=f"lacks {files[0].name}"):
        read_weights(folder)


def test_int8_rows():
    weight = torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]])
    values, scale = to_int8(weight)
    assert values.tolist() == [[64, -127, 32], [0, 0, 0]] and abs(scale[0].item() - 2 / 127) < 1e-9


def test_z_labs_layout_with_prefix_and_nested_settings(tiny_loaded, tiny_target, tmp_path):
    net = make_tiny_drafter(tiny_target, "shared")
    place = tmp_path / "zlab"
    place.mkdir()
    save_file(
        {f"model.{k}": v.bfloat16() for k, v in net.state_dict().items()},
        place / "model.safetensors",
    )
    c = net.config
    (place / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["DFlashDraftModel"],
                "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
                "model_type": "qwen3",
                "dtype": "bfloat16",
                "block_size": 8,
                "dflash_config": {"mask_token_id": 127, "target_layer_ids": [0, 1]},
                "num_target_layers": 2,
                "num_hidden_layers": 2,
                "layer_types": ["full_attention"] * 2,
                "hidden_size": 64,
                "intermediate_size": c.intermediate_size,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "rms_norm_eps": c.rms_norm_eps,
                "rope_theta": 10000.0,
                "rope_scaling": None,
                "max_position_embeddings": 512,
                "vocab_size": 128,
                "attention_bias": False,
                "sliding_window": None,
                "hidden_act": "silu",
            }
        )
    )
    again = read_drafter(place, tiny_loaded)
    assert (
        again.config.qk_norm
        and again.config.context_projection == "shared"
        and again.mask_embedding is None
        and again.block_size == 8
    )
    features, _ = features_of(tiny_target, again.layer_ids, TEXT)
    ids = torch.tensor([[TEXT[6]] + [-1] * 7])
    outs = []
    for drafter in (net, again):
        cache = drafter.new_cache(16)
        drafter.extend(cache, features[:6], 0)
        outs.append(drafter.hidden(ids, 6, cache))
    assert torch.nn.functional.cosine_similarity(*outs, dim=-1).min() > 0.999


# -- C41 to C46 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [120, 136])
def test_c41_padded_vocabularies_are_accepted(tiny_loaded, tiny_target, tmp_path, vocab):
    place = saved(tiny_target, tmp_path)
    rewrite(place, vocab_size=vocab)
    net = read_drafter(place, tiny_loaded)
    assert net.logits(torch.randn(2, 64)).shape == (2, min(vocab, 128))


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (-1, "no row"),
        (128, "no row"),
        (None, "no row"),
        ("x", "no row"),
        (5, "real token 't5'"),
        (126, "real token '<end>'"),
    ],
)
def test_c42_mask_id(tiny_loaded, tiny_target, tmp_path, mask, sentence):
    place = saved(tiny_target, tmp_path)
    rewrite(place, mask_token_id=mask)
    with pytest.raises(UserError, match=sentence):
        read_drafter(place, tiny_loaded)


def test_c42_an_unused_row_is_a_fine_mask():
    check_mask_id(125, 128, make_tiny_tokenizer(100), (), "it")


def test_c44_tokenizers_that_differ(tiny_loaded, tiny_target, tmp_path):
    check_tokenizers(make_tiny_tokenizer(128), make_tiny_tokenizer(128), "it")
    place = saved(tiny_target, tmp_path)
    make_tiny_tokenizer(128).save_pretrained(place)
    read_drafter(place, tiny_loaded)
    make_tiny_tokenizer(100, special=("<end>", "t126x", "<mask>")).save_pretrained(place)
    with pytest.raises(UserError, match="id 97 is 't97' here and '<end>' there"):
        read_drafter(place, tiny_loaded)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target_layer_ids": [0]}, "fuses 128 features, but 1 target layers of 64 give 64"),
        ({"target_layer_ids": [0, 2]}, "different numbers from 0 to 1"),
        ({"target_layer_ids": [-1, 1]}, "different numbers from 0 to 1"),
        ({"target_layer_ids": [1, 1]}, "different numbers from 0 to 1"),
        ({"target_layer_ids": []}, "different numbers from 0 to 1"),
        ({"num_target_layers": 36}, "made for a target of 36 layers and this one has 2"),
        ({"hidden_size": 32}, "hidden size 32 and the target 64"),
        ({"block_size": 1}, "block size 1"),
        ({"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}, "lacks weights"),
        ({"num_hidden_layers": 1, "layer_types": ["full_attention"]}, "has unknown weights"),
        ({"intermediate_size": 96}, "where its config.json asks for"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rope type 'dynamic'",
        ),
    ],
)
def test_c45_a_config_that_does_not_fit(tiny_loaded, tiny_target, tmp_path, changes, sentence):
    place = saved(tiny_target, tmp_path)
    rewrite(place, **changes)
    with pytest.raises(UserError, match=sentence) as caught:
        read_drafter(place, tiny_loaded)
    assert "\n" not in str(caught.value)


def test_c45_the_final_layer_is_warned_of(tmp_path):
    import dataclasses

    from specdemo.models.load import Loaded

    target = make_tiny_target(layers=3)
    loaded = Loaded(
        pair_of(tmp_path), target, make_tiny_tokenizer(), (126,), torch.float32, torch.device("cpu")
    )
    with pytest.warns(UserWarning, match="after the final norm"):
        read_drafter(saved(target, tmp_path), dataclasses.replace(loaded))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sample_from_anchor": True}, "predicts from its anchor"),
        ({"dflash_config": {"sample_from_anchor": True}}, "predicts from its anchor"),
        ({"dflash_config": {"causal": True}}, "looks only one way"),
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "looks only one way or through a sliding window",
        ),
        ({"attention_bias": True}, "biases"),
    ],
)
def test_c46_other_block_layouts(tiny_loaded, tiny_target, tmp_path, changes, sentence):
    place = saved(tiny_target, tmp_path)
    rewrite(place, **changes)
    with pytest.raises(UserError, match=sentence):
        read_drafter(place, tiny_loaded)


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([1, 2, 128], "outside the target's 128"),
        ([-1, 2], "outside"),
        ([4, 4], "twice"),
        ([4, 127], "contains the mask id 127"),
        ([], "outside"),
    ],
)
def test_draft_vocabularies(tiny_loaded, tiny_target, tmp_path, ids, sentence):
    place = save_drafter(
        make_tiny_drafter(tiny_target, bound=False),
        tmp_path / "d",
        "#",
        draft_vocab=torch.tensor(ids, dtype=torch.int32),
    )
    with pytest.raises(UserError, match=sentence):
        read_drafter(place, tiny_loaded)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-100]), "damaged or cut short"),
        (lambda f: f.write_bytes(b"{}"), "damaged or cut short"),
        (lambda f: f.rename(f.with_name("pytorch_model.bin")), "only pickled weights"),
        (lambda f: f.unlink(), "has no model"),
        (
            lambda f: save_file(
                {k: v for k, v in load_file(f).items() if not k.endswith("fc.weight_scale")}, f
            ),
            "without its row scales",
        ),
        (
            lambda f: save_file(
                {k: v * float("inf") if k == "norm.weight" else v for k, v in load_file(f).items()},
                f,
            ),
            "norm.weight that are not finite",
        ),
    ],
)
def test_damaged_drafter(tiny_loaded, tiny_target, tmp_path, damage, sentence):
    place = saved(tiny_target, tmp_path)
    damage(place / "model.safetensors")
    with pytest.raises(UserError, match=sentence):
        read_drafter(place, tiny_loaded)


def test_no_config_or_not_json(tiny_loaded, tiny_target, tmp_path):
    place = saved(tiny_target, tmp_path)
    (place / "config.json").write_text("[1]")
    with pytest.raises(UserError, match="not JSON of a drafter"):
        read_drafter(place, tiny_loaded)
    (place / "config.json").unlink()
    with pytest.raises(UserError, match="has no config.json"):
        read_drafter(place, tiny_loaded)


def test_finite_sees_what_it_should():
    assert finite(torch.ones(3)) and finite(torch.arange(3)) and finite(torch.empty(0))
    assert not any(
        finite(torch.tensor([1.0, bad])) for bad in (float("nan"), float("inf"), -float("inf"))
    )


# -- which weights a kind runs on ------------------------------------------------------------------


def test_kinds_without_weights_of_their_own(tiny_loaded, tiny_target, tmp_path):
    import dataclasses

    pair = dataclasses.replace(
        tiny_loaded.pair, drafters={"block": str(saved(tiny_target, tmp_path))}
    )
    block, mdlm = load_drafter(pair, "block", tiny_loaded), load_drafter(pair, "mdlm", tiny_loaded)
    assert (
        block.weights == "block weights (drafter)"
        and mdlm.weights == "block weights (drafter), as there are none trained for mdlm yet"
    )
    assert load_drafter(pair, "block", tiny_loaded) is block and mdlm.fc.weight is block.fc.weight
    with pytest.raises(UserError, match="no autoregressive drafter; train one"):
        load_drafter(pair, "ar", tiny_loaded)
    with pytest.raises(UserError, match="no drafter kind “blok”"):
        load_drafter(pair, "blok", tiny_loaded)


def test_a_pair_without_drafters(tiny_loaded):
    import dataclasses

    with pytest.raises(UserError, match="no diffusion drafter; it needs foreign code"):
        load_drafter(
            dataclasses.replace(tiny_loaded.pair, blocked="it needs foreign code"),
            "block",
            tiny_loaded,
        )


def test_an_autoregressive_drafter_from_a_folder(tiny_loaded, tmp_path):
    import dataclasses

    from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig

    net = ArDrafter(
        ArDrafterConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=128,
        )
    )
    place = save_drafter(net, tmp_path / "ar", "#", draft_vocab=torch.arange(100))
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"ar": str(place)})
    ar = load_drafter(pair, "ar", tiny_loaded)
    assert (
        ar.step(torch.tensor([3, 4]), 0, ar.new_cache(8)).shape == (2, 100)
        and ar.weights == "ar weights (ar)"
    )
    with pytest.raises(UserError, match="not of the kind “block”"):
        load_drafter(
            dataclasses.replace(pair, drafters={"block": str(place)}), "block", tiny_loaded
        )
