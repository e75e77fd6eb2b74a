"""A target that computes anything else than our passes do is refused in every dtype, however little
of it is different.
"""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_models import make_tiny_target

from specdemo.engine import check_target
from specdemo.engine.check_target import MAX_GAP_HALF, MAX_GAP_PART, check_against
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.linear import Linear

LAYER = 2  # of three
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])


def gelu(model):
    model.model.layers[LAYER].mlp.act_fn = torch.nn.GELU(approximate="tanh")


def attention_scale(model):
    model.model.layers[LAYER].self_attn.scaling *= 1.1


def without_rotation(model):
    def straight(_, args, kwargs):
        cos, sin = kwargs["position_embeddings"]
        return args, kwargs | {"position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))}

    model.model.layers[LAYER].self_attn.register_forward_pre_hook(straight, with_kwargs=True)


def far_rotation(model):
    """Positions behind 400 are read at half their distance; none of the first tokens notices."""
    inner = model.model.rotary_emb.forward

    def forward(x, position_ids):
        return inner(x, torch.where(position_ids < 400, position_ids, position_ids / 2))

    model.model.rotary_emb.forward = forward


def logits(model):
    kind = type(model)

    class Scaled(kind):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits * 1.05
            return out

    model.__class__ = Scaled


def embeddings(model):
    model.model.embed_tokens.register_forward_hook(lambda module, args, out: out * 1.05)


CHANGES = {
    gelu: "its layer 3",
    attention_scale: "its layer 3",
    without_rotation: "its layer 3",
    far_rotation: "its layer 1",
    logits: "its head",
    embeddings: "its embedding",
}


def make(dtype):
    return make_tiny_target(layers=3).to(dtype)


@DTYPES
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_small_difference_in_one_part_is_refused_by_name(change, dtype):
    model = make(dtype)
    target = Target(model)
    check_against(target, model)
    change(model)
    with pytest.raises(UserError) as refused:
        check_against(target, model)
    message = str(refused.value)
    assert message.startswith("This target (llama) does not compute what a Llama-type model does")
    assert f"({CHANGES[change]} is off by " in message and message.endswith("another target.")
    assert message.count(". ") == 0, "one sentence"


@DTYPES
def test_weights_that_are_not_the_models_are_refused(dtype):
    """What is checked part by part are the model's weights; what races use is checked as a whole,
    as a prompt and in a verify pass.
    """
    model = make(dtype)
    target = Target(model)
    down = model.model.layers[LAYER].mlp.down_proj.weight
    target.layers[LAYER].down = Linear(down.flip(0))
    with pytest.raises(UserError, match="the whole is off by"):
        check_against(target, model)


def test_a_verify_pass_of_its_own_arithmetic_is_refused(monkeypatch):
    model = make(torch.float32)
    target = Target(model)
    real = target.verify

    def verify(*args, **more):
        found, features = real(*args, **more)
        return found * 1.2, features

    monkeypatch.setattr(target, "verify", verify)
    with pytest.raises(UserError, match="the whole is off by"):
        check_against(target, model)


def test_the_model_is_left_as_it_was():
    model = make(torch.bfloat16)
    before = copy.deepcopy(model.state_dict())
    check_against(Target(model), model)
    assert all(not layer._forward_pre_hooks for layer in model.model.layers)
    assert all(not layer._forward_hooks for layer in model.model.layers)
    assert len(model.model.layers) == 3
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.bfloat16 and torch.equal(weight, before[name])


def test_rounding_of_huge_values_is_no_difference():
    """As in a row of SmolLM2-135M: one value of 25,000 whose last bit is more than a thousandth of
    what the layer adds to the others.
    """
    model = make(torch.float32)
    target = Target(model)
    theirs, rows = torch.randn(1, 64), torch.full((1, 64), 25000.0)
    ours = theirs + torch.finfo(torch.float32).eps * 16384
    with pytest.raises(UserError):
        check_target._accept(target, "x", theirs, ours, MAX_GAP_PART)
    rounding = check_target.ROUNDING * rows
    assert check_target._accept(target, "x", theirs, ours, MAX_GAP_PART, rounding) == 0


def test_the_embedded_target_passes_with_room(loaded_bf16, monkeypatch):
    gaps, accept = {}, check_target._accept

    def noted(target, part, *values):
        gaps[part] = accept(target, part, *values)
        return gaps[part]

    monkeypatch.setattr(check_target, "_accept", noted)
    check_against(Target(loaded_bf16.model), loaded_bf16.model)
    whole = gaps.pop("the whole")
    assert len(gaps) == 32 and max(gaps.values()) < 0.1 * MAX_GAP_PART
    assert whole < 0.6 * MAX_GAP_HALF


@pytest.mark.parametrize("change", [gelu, attention_scale, without_rotation, logits])
def test_the_embedded_target_with_one_part_changed_does_not(loaded_bf16, change):
    target, changed = Target(loaded_bf16.model), copy.deepcopy(loaded_bf16.model)
    change(changed)
    with pytest.raises(UserError, match=f"{CHANGES[change]} is off by"):
        check_against(target, changed)
