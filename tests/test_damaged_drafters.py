"""Folders of drafters that are damaged, foreign or hostile: each is read, or refused in one
sentence, and none takes memory for what its config claims.
"""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_models_drafter_files import saved

from specdemo.errors import UserError
from specdemo.models.drafters import read_drafter
from specdemo.models.fetch import _missing_shards
from specdemo.training.data import read_corpus

ODD = [None, -1, 0, 1.5, 1e30, float("nan"), "x", True, [], [[]], {}, 10**6, 10**30]
# a vocabulary may be padded
DEFAULTS = [("head_dim", 0), ("markov_rank", 0), ("vocab_size", 1_000_000)]
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SIZES += ("num_key_value_heads", "head_dim", "vocab_size", "block_size", "markov_rank")


@pytest.fixture(scope="module")
def folder(tiny_target, tmp_path_factory):
    return saved(tiny_target, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def damaged(folder, tmp_path):
    """A copy that a test may damage."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def refused(place, loaded):
    with pytest.raises(UserError) as error:
        read_drafter(place, loaded)
    said = str(error.value)
    assert "\n" not in said and len(said) < 400 and said.endswith("."), said
    return said


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_no_value_of_a_config_ends_in_a_traceback(tiny_loaded, damaged, step):
    """Every key with every (fourth) odd value: read, where it changes nothing, or one sentence."""
    file = damaged / "config.json"
    good = json.loads(file.read_text())
    for number, key in enumerate(good):
        for value in ODD[number % step :: step]:
            file.write_text(json.dumps(good | {key: value}))
            try:
                read_drafter(damaged, tiny_loaded)
            except UserError as error:
                assert "\n" not in str(error) and len(str(error)) < 400, (key, value)
                continue
            assert key not in SIZES or value is None or (key, value) in DEFAULTS, (key, value)


@pytest.mark.parametrize("text", ["", "null", "[]", "5", "{", "\ufeff{}", "[" * 100_000, "\x00"])
def test_a_config_that_is_none_is_refused(tiny_loaded, damaged, text):
    (damaged / "config.json").write_text(text)
    assert "is not JSON of a drafter" in refused(damaged, tiny_loaded)


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"weight_map": 5}', '{"weight_map": {"a": 5}}', "[" * 100_000],
)
def test_an_index_that_is_none_is_refused(tiny_loaded, damaged, text):
    index = damaged / "model.safetensors.index.json"
    index.write_text(text)
    assert "is damaged" in refused(damaged, tiny_loaded)
    assert _missing_shards(damaged)  # from the hub, it is fetched again
    index.write_text('{"weight_map": {"a": "../../../etc/passwd"}}')
    assert "lacks passwd" in refused(damaged, tiny_loaded)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w.__setitem__("fc.weight", w["fc.weight"].float()), "as float32"),
        (
            lambda w: w.__setitem__("norm.weight", w["norm.weight"].to(torch.float8_e4m3fn)),
            "float8",
        ),
        (lambda w: w.__setitem__("norm.weight", w["norm.weight"].to(torch.complex64)), "complex64"),
        (lambda w: w.__setitem__("norm.weight", w["norm.weight"].long()), "whole numbers"),
        (lambda w: w.__setitem__("norm.weight", w["norm.weight"][:0].clone()), "of shape [0]"),
        (lambda w: w.__setitem__("norm.weight", w["norm.weight"] * float("nan")), "not finite"),
        (
            lambda w: w.__setitem__("fc.weight_scale", w["fc.weight_scale"][:-1].clone()),
            "do not fit its rows",
        ),
        (
            lambda w: w.__setitem__("fc.weight_scale", w["fc.weight_scale"].flatten()),
            "do not fit its rows",
        ),
        (lambda w: w.__setitem__("fc.weight", w["fc.weight"].t().contiguous()), "do not fit"),
        (lambda w: w.__setitem__("extra.weight", torch.zeros(2)), "unknown weights"),
        (lambda w: w.pop("norm.weight"), "lacks weights"),
    ],
)
def test_weights_of_another_kind_or_shape_are_refused(tiny_loaded, damaged, change, sentence):
    file = damaged / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file)
    assert sentence in refused(damaged, tiny_loaded)


@pytest.mark.parametrize("about", ["[]", "[1]", "5", '{"row": []}', '{"row": "x"}', "[" * 100_000])
def test_a_corpus_whose_description_is_none_is_refused(tmp_path, about):
    (tmp_path / "corpus.json").write_text(about)
    (tmp_path / "assistant_mask-0.bits.zlib").write_bytes(b"x")
    with pytest.raises(UserError, match="damaged or incomplete"):
        read_corpus(tmp_path)
