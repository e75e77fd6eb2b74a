"""Targets whose layers are on several devices, or offloaded: what a CPU alone can have of it is
weights that wait on disk and are brought by accelerate's hooks for every pass.
"""

from __future__ import annotations

import pytest
import torch
from test_general import PROMPT, brief, config_of, generated, loaded_of, race_result  # noqa: F401
from tiny_families import tiny_family
from tiny_models import make_tiny_target
from transformers import AutoModelForCausalLM

from specdemo.engine import load
from specdemo.errors import UserError
from specdemo.models.load import load_target
from specdemo.models.own_pair import chosen_pair
from specdemo.models.spread import refuse_offloaded_ends, where

pytestmark = pytest.mark.usefixtures("one_thread")


def spread(model, folder, waits):
    """The same model, its parts named in ``waits`` on disk."""
    model.save_pretrained(folder)
    body, layers = ("transformer", "h") if hasattr(model, "transformer") else ("model", "layers")
    parts = [n for n, _ in getattr(model, body).named_children() if n != layers]
    parts += [f"{layers}.{i}" for i in range(len(getattr(getattr(model, body), layers)))]
    names = [f"{body}.{part}" for part in parts] + ["lm_head"]
    placed = {name: "disk" if name in waits else "cpu" for name in names}
    return AutoModelForCausalLM.from_pretrained(
        folder, device_map=placed, offload_folder=folder / "offload", dtype=torch.float32
    ).eval()


@pytest.mark.parametrize(
    ("kind", "layer"), [("llama", "model.layers.1"), ("gpt2", "transformer.h.0"),
                        ("mixtral", "model.layers.0")],
)  # fmt: skip
def test_offloaded_layers_write_the_models_own_text(kind, layer, tmp_path):
    whole = tiny_family(config_of(kind))
    model = spread(whole, tmp_path, {layer})
    assert any(p.device.type == "meta" for p in model.parameters())
    engine = load.make_engine(loaded_of(model), profiles=tmp_path / "profiles")
    assert engine.step == "general" and "1 on disk" in engine.why_general
    assert not (tmp_path / "profiles").exists(), "what is where is another each time"
    # not "best", which drafts by the clock
    result = race_result(engine, method="lookup", check="exact")
    assert result["identical"] and result["spec"]["accepted_per_round"] > 0.5
    assert result["output_ids"] == generated(whole, engine.encode(PROMPT))


def test_taps_of_an_offloaded_layer_are_its_outputs(tmp_path):
    from specdemo.engine.general.target import GeneralTarget

    whole = make_tiny_target()
    target = GeneralTarget(spread(whole, tmp_path, {"model.layers.0"}))
    target.use_row_products()
    ids = [5, 9, 77, 3]
    with torch.no_grad():
        _, features = target.prefill(target.new_cache(32), ids, (0, 1))
        states = whole(torch.tensor([ids]), output_hidden_states=True).hidden_states
    assert torch.allclose(features[:, :64], states[1][0], atol=1e-5)


def test_an_offloaded_head_is_refused(tmp_path):
    model = spread(make_tiny_target(), tmp_path, {"lm_head"})
    with pytest.raises(UserError, match="embedding or the head .* offloaded"):
        refuse_offloaded_ends(model)


def test_where_things_are_in_words():
    model = make_tiny_target()
    assert where(model) == ""
    model.hf_device_map = {"": "cpu"}  # one device, as bitsandbytes is loaded
    assert where(model) == ""
    model.hf_device_map = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1}
    assert where(model) == "its parts are spread (2 on cuda:0, 1 on cuda:1)"


def test_auto_on_one_device_is_that_device(target_folder, monkeypatch):
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    pair = chosen_pair("smollm2-135m", str(target_folder), None)
    loaded = load_target(pair, "fp32", "auto")
    assert loaded.device.type == "cpu" and where(loaded.model) == ""
    assert load.make_engine(loaded).step == "fast"
    for device in ("cuda:0,cuda:1", "cuda:0,cpu"):
        with pytest.raises(UserError, match="named “auto”"):
            load_target(pair, "fp32", device)
