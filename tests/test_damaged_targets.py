"""Folders of targets that are damaged, as one's own may be: a sentence, never a traceback."""

import json
import os
import re
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_models_load import pair_of
from tiny_models import make_tiny_target
from transformers import Gemma3TextConfig, GPT2Config, GPT2LMHeadModel

from specdemo.engine.load import make_engine
from specdemo.engine.target import BUCKETS, Target
from specdemo.errors import UserError
from specdemo.models.load import load_target
from specdemo.models.shapes import cache_values_of, shape_of
from specdemo.training.initialize import check_form
from specdemo.training.new_drafter import shape_of as shape_of_drafter


@pytest.fixture
def damaged(target_folder, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(target_folder, tmp_path / "target")


def refused(folder):
    with pytest.raises(UserError) as error:
        load_target(pair_of(folder), "fp32", "cpu")
    said = str(error.value)
    assert "\n" not in said and len(said) < 500 and said.endswith("."), said


@pytest.mark.parametrize("text", ["", "null", "[]", "5", "{", "{}", "[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_that_is_no_json_of_its_kind(damaged, name, text):
    (damaged / name).write_text(text)
    refused(damaged)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "x"),
        ("hidden_size", -1),
        ("hidden_size", 63),
        ("num_hidden_layers", None),
        ("num_attention_heads", 0),
        ("num_key_value_heads", 3),
        ("intermediate_size", [64]),
        ("vocab_size", 1.5),
        ("rms_norm_eps", {}),
        ("rope_parameters", "x"),
        ("rope_parameters", {"rope_type": "spiral", "rope_theta": 1}),
        ("hidden_act", "nope"),
        ("model_type", 5),
        ("model_type", "nope"),
        ("eos_token_id", "x"),
        ("torch_dtype", "float7"),
    ],
)
def test_a_config_with_an_odd_value(damaged, key, value):
    """Refused in one sentence, or loaded where transformers does not read it."""
    file = damaged / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    try:
        loaded = load_target(pair_of(damaged), "fp32", "cpu")
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 500, error
    else:
        assert all(type(id) is int for id in loaded.eos_ids)


def refused_with(folder, **changes):
    """The sentence about the target in ``folder`` with another config."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError) as error:
        load_target(pair_of(folder), "fp32", "cpu")
    return str(error.value)


@pytest.mark.parametrize("positions", [0, -5, 1e12, "many"])
def test_positions_that_no_text_can_have(damaged, positions):
    said = refused_with(damaged, max_position_embeddings=positions)
    assert "max_position_embeddings" in said and said.endswith(".")


def test_positions_without_end_take_no_memory(damaged):
    file = damaged / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 10**12}))
    target = Target(load_target(pair_of(damaged), "fp32", "cpu").model)
    assert target.max_positions == len(target.cos) == BUCKETS[-1]


@pytest.mark.parametrize(
    ("key", "value"),
    [("residual_multiplier", 0.5), ("attn_logit_softcapping", 30.0), ("use_qk_norm", True)],
)
def test_what_a_config_says_and_its_model_type_does_not_compute(damaged, key, value):
    assert f"has {key} {value}, which models of type “llama” do not" in refused_with(
        damaged, **{key: value}
    )
    neutral = {"residual_multiplier": 1.0, "attn_logit_softcapping": None, "use_qk_norm": False}
    file = damaged / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: neutral[key]}))
    load_target(pair_of(damaged), "fp32", "cpu")


def test_weights_of_another_shape_are_named(damaged, capfd):
    said = refused_with(damaged, head_dim=32)
    assert re.search(r"proj.weight is \[\d+, 64\] where config.json asks for \[\d+, \d+\]", said), (
        said
    )
    assert not capfd.readouterr().err, "no table of the library beside the sentence"


def test_a_pipe_is_not_waited_for(damaged):
    (damaged / "model.safetensors").unlink()
    os.mkfifo(damaged / "model.safetensors")
    with pytest.raises(UserError, match="model.safetensors is no file"):
        load_target(pair_of(damaged), "fp32", "cpu")


def test_weights_of_another_kind_are_named(damaged):
    (damaged / "model.safetensors").rename(damaged / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no \*.safetensors, and pytorch_model.bin is of a kind"):
        load_target(pair_of(damaged), "fp32", "cpu")


def test_a_target_that_reads_too_little_to_be_checked(tiny_loaded):
    model = make_tiny_target(max_position_embeddings=64)
    with pytest.raises(UserError, match="reads at most 64 tokens"):
        make_engine(replace(tiny_loaded, model=model))


def test_no_drafter_is_trained_for_another_form():
    sizes = {"vocab_size": 40, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 9}
    config = GPT2Config(**sizes)
    assert cache_values_of(config.to_dict()) == 2 * 2 * 8
    with pytest.raises(UserError, match="type “gpt2” have no intermediate_size"):
        check_form(GPT2LMHeadModel(config))
    assert cache_values_of({}) == 0


def test_layers_that_rotate_differently_give_a_drafter_one_rotation():
    rotations = {"rope_type": "default", "rope_theta": 5.0}
    config = Gemma3TextConfig(
        rope_parameters={"full_attention": rotations, "sliding_attention": {}}
    )
    assert shape_of_drafter(config, 1)["rope_parameters"]["rope_theta"] == 5.0


def test_quantized_weights_are_called_that(damaged):
    said = refused_with(damaged, quantization_config={"quant_method": "gptq", "bits": 4})
    assert "are quantized (gptq)" in said and "damaged" not in said


def test_the_reason_is_in_the_sentence(damaged):
    """The library's first line is only its heading."""
    assert (
        "divisible" in (said := refused_with(damaged, num_attention_heads=3)) or "multiple" in said
    )
    (damaged / "tokenizer.json").unlink()
    (damaged / "tokenizer_config.json").unlink()
    assert "(there is no tokenizer.json)" in refused_with(damaged, num_attention_heads=4)


@pytest.mark.parametrize("name", ["self_attn.q_proj.bias", "self_attn.q_proj_diff.weight"])
def test_weights_that_the_model_does_not_have(damaged, name):
    """What was trained with them would write another text without; stored tables change nothing."""
    file = damaged / "model.safetensors"
    weights = load_file(file) | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    save_file(weights, file, metadata={"format": "pt"})
    load_target(pair_of(damaged), "fp32", "cpu")
    save_file(weights | {f"model.layers.0.{name}": torch.ones(64)}, file, {"format": "pt"})
    with pytest.raises(UserError, match=rf"\(1, for instance model.layers.0.{name}\)"):
        load_target(pair_of(damaged), "fp32", "cpu")


@pytest.mark.parametrize("text", ["[]", '{"text_config": 5}', '{"n_head": "x"}', "[" * 100_000])
def test_the_memory_of_a_damaged_folder_is_not_known(damaged, text):
    assert shape_of(damaged) is not None
    (damaged / "config.json").write_text(text)
    assert shape_of(damaged) is None


@pytest.mark.parametrize("header", ["[]", '{"a": 5}', '{"a": {}}', '{"a": {"shape": [[]]}}'])
def test_nor_that_of_damaged_weights(damaged, header):
    (file,) = damaged.glob("*.safetensors")
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    assert shape_of(damaged) is None
