"""Drafters that do not belong to the target are refused before anything runs."""

import json

import pytest
import torch
from tiny_models import make_tiny_drafter, make_tiny_target, make_tiny_tokenizer

from specdemo.errors import UserError
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import read_drafter
from specdemo.models.pairs import Pair
from specdemo.models.validate import check_mask_id, check_tokenizers

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


def pair_of(folder):
    return Pair("tiny", "Tiny", "none", "tiny", ({"path": str(folder)},))


@pytest.mark.parametrize("vocab", [120, 136])
def test_padded_vocabularies_are_accepted(tiny_loaded, tiny_target, tmp_path, vocab):
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
        ("x", "valid integer"),
        (5, "real token 't5'"),
        (126, "real token '<end>'"),
    ],
)
def test_a_mask_that_cannot_be_one_is_refused(tiny_loaded, tiny_target, tmp_path, mask, sentence):
    place = saved(tiny_target, tmp_path)
    rewrite(place, mask_token_id=mask)
    with pytest.raises(UserError, match=sentence):
        read_drafter(place, tiny_loaded)


def test_an_unused_row_is_a_fine_mask():
    check_mask_id(125, 128, make_tiny_tokenizer(100), (), "it")


def test_tokenizers_that_differ_are_refused(tiny_loaded, tiny_target, tmp_path):
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
        ({"target_layer_ids": [-2, 1]}, "different numbers from 0 to 1, or -1"),
        ({"target_layer_ids": [1, 1]}, "different numbers from 0 to 1"),
        ({"target_layer_ids": []}, "different numbers from 0 to 1"),
        ({"num_target_layers": 36}, "made for a target of 36 layers and this one has 2"),
        ({"hidden_size": 32}, "hidden size 32 and the target 64"),
        ({"block_size": 1}, "block size 1"),
        (
            {
                "num_hidden_layers": 3,
                "layer_types": ["full_attention"] * 3,
                "causal": [False] * 3,
            },
            "lacks weights",
        ),
        (
            {"num_hidden_layers": 1, "layer_types": ["full_attention"], "causal": [False]},
            "has unknown weights",
        ),
        ({"num_hidden_layers": 3}, "does not describe a drafter"),
        ({"intermediate_size": 96}, "where its config.json asks for"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rope type 'dynamic'",
        ),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    tiny_loaded, tiny_target, tmp_path, changes, sentence
):
    place = saved(tiny_target, tmp_path)
    rewrite(place, **changes)
    with pytest.raises(UserError, match=sentence) as caught:
        read_drafter(place, tiny_loaded)
    assert "\n" not in str(caught.value)


def test_tapping_the_final_layer_gives_a_warning(tmp_path):
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
        ({"sample_from_anchor": True}, "has “sample_from_anchor”: True in its config.json"),
        ({"dflash_config": {"causal": True}}, "has “dflash_config”: "),
        ({"attention_bias": True}, "has “attention_bias”: True"),
        ({"anything": 1}, "has “anything”: 1 in its config.json, which SpecDemo does not compute"),
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "sliding layers and sliding_window None",
        ),
        ({"hidden_size": None}, "“hidden_size” is missing"),
        ({"num_target_layers": None}, "“num_target_layers” is missing"),
    ],
)
def test_facts_that_are_missing_or_that_nobody_computes_are_refused(
    tiny_loaded, tiny_target, tmp_path, changes, sentence
):
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
