"""Drafters as other engines load them: DFlash's published folder, and llama.cpp's GGUF."""

import json

import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize
from published import MASK_ID, V, dflash, dspark, random_weights, write
from safetensors.torch import load_file
from tiny_models import make_tiny_drafter, make_tiny_target

from specdemo.__main__ import main
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import read_drafter
from specdemo.training.new_drafter import new_drafter

WORDS = [f"t{i}" for i in range(V)]


def target_gguf(path, width=64, layers=4, words=WORDS):
    """As much of a target's file as the export reads."""
    writer = GGUFWriter(path, "llama")
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_eos_token_id(5)
    writer.add_tensor("output_norm.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "drafter", dflash(), random_weights(dflash()))


def export(folder, kind, out, *more):
    return main(["export-drafter", str(folder), "--to", kind, "--out", str(out), *map(str, more)])


def facts(path):
    reader = GGUFReader(path)
    known = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {t.name: torch.from_numpy(dequantize(t.data, t.tensor_type)) for t in reader.tensors}
    return known, tensors


def test_a_gguf_says_what_the_folder_says(folder, tmp_path, capsys):
    target, out = target_gguf(tmp_path / "target.gguf"), tmp_path / "d.gguf"
    assert export(folder, "gguf", out, "--target-gguf", target) == 0
    assert f"-md {out} --spec-type draft-dflash --spec-draft-n-max 7" in capsys.readouterr().out
    known, tensors = facts(out)
    assert {key: known[key] for key in known if key.startswith("dflash.")} == {
        "dflash.block_count": 2,
        "dflash.context_length": 512,
        "dflash.embedding_length": 64,
        "dflash.feed_forward_length": 96,
        "dflash.attention.head_count": 4,
        "dflash.attention.head_count_kv": 2,
        "dflash.attention.key_length": 16,
        "dflash.attention.value_length": 16,
        "dflash.attention.layer_norm_rms_epsilon": pytest.approx(1e-6),
        "dflash.rope.dimension_count": 16,
        "dflash.rope.freq_base": 10000.0,
        "dflash.vocab_size": V,
        "dflash.block_size": 8,
        "dflash.target_layers": [1, 3],
    }
    assert known["general.architecture"] == "dflash"
    assert known["tokenizer.ggml.tokens"] == WORDS and known["tokenizer.ggml.eos_token_id"] == 5
    assert known["tokenizer.ggml.mask_token_id"] == MASK_ID
    weights = random_weights(dflash())
    assert len(tensors) == len(weights)
    for theirs, ours in (
        ("fc.weight", "fc.weight"),
        ("enc.output_norm.weight", "hidden_norm.weight"),
        ("output_norm.weight", "norm.weight"),
        ("blk.1.attn_output.weight", "layers.1.self_attn.o_proj.weight"),
        ("blk.0.attn_k_norm.weight", "layers.0.self_attn.k_norm.weight"),
        ("blk.1.ffn_norm.weight", "layers.1.post_attention_layernorm.weight"),
        ("blk.0.ffn_down.weight", "layers.0.mlp.down_proj.weight"),
    ):
        torch.testing.assert_close(tensors[theirs], weights[ours].bfloat16().float())
    types = {t.name: t.tensor_type.name for t in GGUFReader(out).tensors}
    assert {types[name] for name in types if "norm" in name} == {"F32"}
    assert {types[name] for name in types if "norm" not in name} == {"BF16"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.gguf", "drafter", "target.gguf"]


def test_a_scaled_rope_is_said(tmp_path):
    config = dflash(rope_scaling={"rope_type": "linear", "factor": 4.0})
    folder = write(tmp_path / "d", config, random_weights(config))
    target = target_gguf(tmp_path / "target.gguf")
    assert export(folder, "gguf", tmp_path / "d.gguf", "--target-gguf", target) == 0
    known, _ = facts(tmp_path / "d.gguf")
    assert known["dflash.rope.scaling.type"] == "linear"
    assert known["dflash.rope.scaling.factor"] == 4
    assert export(folder, "hf", tmp_path / "again") == 0
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert again["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert again["rope_theta"] == 10000.0


def test_a_folder_is_written_as_published(folder, tmp_path):
    assert export(folder, "hf", tmp_path / "out") == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    for key, value in dflash().items():
        assert key == "auto_map" or config[key] == value, key
    ours, theirs = (load_file(tmp_path / n / "model.safetensors") for n in ("drafter", "out"))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert tensor.equal(ours[name].bfloat16())
    assert read_drafter(tmp_path / "out").config.to_dict() == read_drafter(folder).config.to_dict()


def own(tmp_path, **more):
    """A drafter of our own shape, or of DFlash's with something more."""
    target = make_tiny_target(layers=4)
    layout = more.pop("layout", "shared")
    return save_drafter(make_tiny_drafter(target, layout, **more), tmp_path / "own", "#")


REFUSED = {
    "own": ("projections of its own for the context", {"layout": "own"}),
    "markov": ("a Markov head of SpecDemo's own kind", {"markov_rank": 4}),
    "window": ("a window of 12 tokens on its context", {"context_window": 12}),
    "mask": ("a learned vector for the mask", {"mask_embedding": "learned"}),
    "norm": ("no norm of queries and keys", {"qk_norm": False}),
    "vocabulary": ("a draft vocabulary of its own", {"draft_vocab": torch.arange(9)}),
}


@pytest.mark.parametrize("kind", ["hf", "gguf"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_the_layout_cannot_say_is_refused_by_name(tmp_path, capsys, what, kind):
    words, more = REFUSED[what]
    assert export(own(tmp_path, **more), kind, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert words in said and "train --shape dflash" in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_other_drafters_are_refused_by_name(tmp_path, capsys, kind):
    published = write(tmp_path / "dspark", dspark(), random_weights(dspark()))
    ar = save_drafter(new_drafter(make_tiny_target(), "ar", 1, 8, None, 0), tmp_path / "ar", "#")
    for folder, words in ((published, "another published layout"), (ar, "it is autoregressive")):
        assert export(folder, kind, tmp_path / "out") == 1
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "config, words",
    [
        (dflash(attention_bias=True), "biases"),
        (dflash({"target_layer_ids": [-1, 1]}), "features of the target's embeddings"),
        (
            dflash(
                rope_scaling={
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                }
            ),
            "rope type yarn",
        ),
    ],
)
def test_what_llama_cpp_would_not_hear_is_refused(tmp_path, capsys, config, words):
    folder = write(tmp_path / "d", config, random_weights(config))
    target = target_gguf(tmp_path / "target.gguf")
    assert export(folder, "gguf", tmp_path / "out", "--target-gguf", target) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert export(folder, "hf", tmp_path / "out") == 0


def test_another_target_is_refused(folder, tmp_path, capsys):
    target, out = tmp_path / "target.gguf", tmp_path / "out"
    for more, words in (
        ({"width": 32}, "a target with hidden size 64, and target.gguf has 32"),
        ({"layers": 3}, "a target with layers 4, and target.gguf has 3"),
        ({"words": WORDS[:-1]}, f"a target with tokens {V}, and target.gguf has {V - 1}"),
    ):
        target_gguf(target, **more)
        assert export(folder, "gguf", out, "--target-gguf", target) == 1
        assert words in capsys.readouterr().err
    target.write_bytes(b"GGUF")
    assert export(folder, "gguf", out, "--target-gguf", target) == 1
    assert "cannot be read (it is not a whole GGUF)" in capsys.readouterr().err
    assert export(folder, "gguf", out, "--target-gguf", tmp_path / "none") == 1
    assert "cannot be read (No such file" in capsys.readouterr().err and not out.exists()


def test_nothing_is_written_over(folder, tmp_path, capsys):
    target = target_gguf(tmp_path / "target.gguf")
    before = target.read_bytes()
    assert export(folder, "gguf", target, "--target-gguf", target) == 1
    assert "is the target itself" in capsys.readouterr().err and target.read_bytes() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    for out in (folder, tmp_path / "full", target):
        assert export(folder, "hf", out) == 1
    assert (tmp_path / "full" / "thesis.txt").exists()
    assert export(folder, "gguf", tmp_path / "no" / "d.gguf", "--target-gguf", target) == 1
    said = capsys.readouterr().err.splitlines()
    assert "is the drafter itself" in said[0] and "exists already" in said[1]
    assert "cannot be written" in said[3] and len(said) == 4
    assert GGUFReader(target).fields["tokenizer.ggml.tokens"].types[0] == GGUFValueType.ARRAY
