"""Drafter folders: written, read back, and refused where they are damaged; which weights a kind
runs on.
"""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import features_of, make_tiny_drafter, make_tiny_target

from specdemo.errors import UserError
from specdemo.models.drafter_files import read_weights, save_drafter, to_int8
from specdemo.models.drafters import load_drafter, read_drafter
from specdemo.models.validate import finite

pytestmark = pytest.mark.usefixtures("one_thread")


TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def saved(tiny_target, folder, layout="own", **more):
    return save_drafter(
        make_tiny_drafter(tiny_target, layout, bound=False, **more), folder / "drafter", "# a card"
    )


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
    assert mdlm.borrowed and not block.borrowed
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


@pytest.mark.parametrize("draft_vocab", [None, [3, 70, 127, 90, 101]])
def test_ids_behind_the_tokenizers_end_are_never_drafted(
    tiny_loaded, tiny_target, tmp_path, draft_vocab
):
    """Targets pad their head beyond their tokenizer: such rows are banned like the mask."""
    import dataclasses

    from tiny_models import make_tiny_tokenizer

    loaded = dataclasses.replace(
        tiny_loaded, tokenizer=make_tiny_tokenizer(100), eos_ids=(98,), networks={}
    )
    vocab = None if draft_vocab is None else torch.tensor(draft_vocab)
    net = make_tiny_drafter(tiny_target, bound=False, markov_rank=4, mask_token_id=110)
    again = read_drafter(save_drafter(net, tmp_path / "d", "#", draft_vocab=vocab), loaded)
    ids = torch.arange(again.logits(torch.zeros(1, 64)).shape[-1])
    ids = ids if again.vocab_ids is None else again.vocab_ids
    assert ids.tolist() == (list(range(100)) if vocab is None else [3, 70, 90])
    assert len(again.markov_tables.before) == len(ids)


def test_a_drafter_is_loaded_with_its_target_once_and_a_broken_one_by_its_race(
    tiny_loaded, tiny_target, tmp_path, monkeypatch
):
    import dataclasses

    from specdemo.drafters.parts.block_context import load_network
    from specdemo.engine import load

    calls = []
    monkeypatch.setattr(load, "use_huge_pages", lambda: calls.append(set(tiny_loaded.networks)))
    monkeypatch.setattr(
        "specdemo.drafters.parts.block_context.use_huge_pages", lambda: calls.append("late")
    )
    monkeypatch.setattr(load, "equal_widths", lambda target: [16])
    folder = saved(tiny_target, tmp_path)
    tiny_loaded.pair = dataclasses.replace(
        tiny_loaded.pair, drafters={"block": str(folder), "mdlm": str(tmp_path / "not there")}
    )
    load.make_engine(tiny_loaded, drafters=("block", "mdlm", "ar"))
    assert calls == [{"block"}], "both moved to huge pages at once"
    assert load_network(tiny_loaded, "block") is tiny_loaded.networks["block"]
    assert calls == [{"block"}]
    (folder / "config.json").write_text("{}")
    tiny_loaded.networks.clear()
    load.make_engine(tiny_loaded, drafters=("block",))
    with pytest.raises(UserError):
        load_network(tiny_loaded, "block")
