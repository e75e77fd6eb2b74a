"""The scripted pass has the very bits of the eager one: layers as one TorchScript call against the
same layers one after the other.
"""

from __future__ import annotations

import random

import pytest
import torch
from tiny import VOCAB
from tiny_models import make_tiny_drafter, make_tiny_target
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from specdemo.engine.cost import WIDTHS
from specdemo.engine.target import Target
from specdemo.models import scripted
from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig
from specdemo.models.block_drafter import MASK, BlockDrafter

pytestmark = pytest.mark.usefixtures("one_thread")

# nothing far yet, a row on each side of the first cut, everything far, cuts that differ
LENGTHS = (1, 40, 189, 200, 221, 600)
TINY = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
)


def llama():
    return make_tiny_target(layers=3, max_position_embeddings=1024)


def qwen2():
    """With biases of q, k and v."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**TINY)).eval()
    for layer in model.model.layers:
        for part in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
            torch.nn.init.normal_(part.bias)
    return model


def qwen3():
    """With norms of queries and keys, and heads wider than the rows."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(head_dim=32, **TINY)).eval()
    for layer in model.model.layers:
        for part in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            torch.nn.init.normal_(part.weight)
    return model


def eager(target: Target) -> Target:
    """The same target, its layers one after the other."""
    other = object.__new__(Target)
    other.__dict__ = target.__dict__ | {"_scripted": None}
    assert (target.pass_kind, other.pass_kind) == ("scripted", "eager")
    return other


def everything(target: Target, length: int, taps: tuple[int, ...], widths) -> list[torch.Tensor]:
    """All that passes give: prefill with taps, one row by the masked kernel, chains and trees of
    every width by both kernels, and what the cache holds after commits and a rollback.
    """
    rng, found = random.Random(length), []
    ids = [rng.randrange(target.vocab_size) for _ in range(length)]
    cache = target.new_cache(length + 3 * max(widths))

    def note(result):
        found.extend(x for x in result if x is not None)

    note(target.prefill(cache, ids, taps))
    for width in widths:
        n = min(width - 1, 30)
        tokens = [rng.randrange(target.vocab_size) for _ in range(n)]
        chain = list(range(-1, n - 1))
        tree = [rng.randrange(-1, i) if i else -1 for i in range(n)]
        for parent in (chain, tree):
            for kind in ("layout_invariant", "masked"):
                note(target.verify(cache, 5, tokens, parent, width, taps, kind))
        note(target.verify(cache, 5, tokens[: n // 2], tree[: n // 2], width, taps))
    note(target.verify(cache, 7, [1, 2, 3, 4], [-1, -1, 1, 2], 8, taps))
    cache.commit([1, 2])
    note(target.verify(cache, 9, [], [], 2))
    cache.rollback(length)
    note(target.verify(cache, 9, [3], [-1], 2))
    end = length + 2
    return [*found, cache.keys[:, :, :end].clone(), cache.values[:, :, :end].clone()]


def compare(target: Target, lengths, taps, widths) -> None:
    with torch.inference_mode():
        for length in lengths:
            ours = everything(target, length, taps, widths)
            theirs = everything(eager(target), length, taps, widths)
            assert len(ours) == len(theirs) > 4 * len(widths)
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                assert a.dtype == b.dtype and torch.equal(a, b), (length, i)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("make", [llama, qwen2, qwen3])
def test_every_pass_has_the_eager_bits(make, dtype):
    """Every width and kernel, near only, mixed and far contexts, taps in any order."""
    target = Target(make().to(dtype))
    compare(target, LENGTHS, (2, 0), WIDTHS)


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_the_real_target_has_the_eager_bits(dtype, request):
    target = request.getfixturevalue(f"engine_{dtype}").target
    compare(target, (189, 400), (27, 1, 14), (1, 8, 32))


def test_cascade_attention_and_gradients_do_not_meet_it():
    target = Target(llama())
    cache = target.new_cache(64)
    target.prefill(cache, [1, 2, 3])  # outside inference mode too
    shown = target.verify(cache, 4, [5, 6], [-1, -1], 4, attention="cascade")[0]
    plain = eager(target).verify(cache, 4, [5, 6], [-1, -1], 4, attention="cascade")[0]
    assert torch.equal(shown, plain) and not shown.requires_grad


def no_script(*_):
    raise RuntimeError("torch.jit.script is gone")


@pytest.mark.parametrize(
    "why", ["no jit.script", "jit switched off", "other bits", "an operator fails"]
)
def test_without_it_the_layers_run_eagerly(why, monkeypatch):
    """A torch without ``jit.script``, one with PYTORCH_JIT=0, and one that computes otherwise."""
    want = Target(llama())
    scripted._compiled.cache_clear()
    if why == "no jit.script":
        monkeypatch.setattr(torch.jit, "script", no_script)
    elif why == "jit switched off":
        monkeypatch.setattr(torch.jit, "script", lambda function: function)
    elif why == "an operator fails":
        monkeypatch.setattr(scripted.ScriptedLayers, "__call__", no_script)
    else:
        monkeypatch.setattr(
            scripted.ScriptedLayers, "__call__", lambda *_: (torch.ones(4, 64), None)
        )
    try:
        target = Target(llama())
        assert target.pass_kind == "eager"
    finally:
        scripted._compiled.cache_clear()
    monkeypatch.undo()
    a, b = want.new_cache(8), target.new_cache(8)
    assert torch.equal(want.prefill(a, [1, 2, 3])[0], target.prefill(b, [1, 2, 3])[0])


# -- drafters --------------------------------------------------------------------------------------


def block_states(net: BlockDrafter) -> list[torch.Tensor]:
    """One block and several at once behind four contexts, and behind a part of each."""
    torch.manual_seed(1)
    features = torch.randn(96, len(net.layer_ids) * net.config.hidden_size).to(net.embedding)
    found, cache = [], net.new_cache(100)
    for start, end in ((0, 0), (0, 3), (3, 90), (90, 96)):
        net.extend(cache, features[start:end], start)
        for blocks, width in ((1, 2), (1, 8), (4, 8)):
            ids = torch.full((blocks, width), MASK)
            ids[:, 0], ids[-1, 1] = 11, 12
            found.append(net.hidden(ids, end, cache))
            found.append(net.hidden(ids, end // 2, cache))
    return [*found, *(x[:, :, : cache.length].clone() for x in (cache.keys, cache.values))]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("layout", ["own", "shared"])  # without and with norms of q and k
def test_a_block_drafters_pass_has_the_eager_bits(layout, window, dtype):
    target = make_tiny_target().to(dtype)
    net = make_tiny_drafter(target, layout, context_window=window)
    ours, net.scripted = block_states(net), None
    for a, b in zip(ours, block_states(net), strict=True):
        assert torch.equal(a, b) and a.isfinite().all()


@pytest.mark.parametrize("window", [None, 6])
def test_an_autoregressive_drafters_pass_has_the_eager_bits(window):
    target = make_tiny_target().to(torch.bfloat16)
    shape = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=VOCAB)
    shape |= dict(num_attention_heads=4, num_key_value_heads=2, context_window=window)
    torch.manual_seed(0)
    net = ArDrafter(ArDrafterConfig(**shape)).eval()
    net.bind(target.get_input_embeddings().weight, target.get_output_embeddings().weight)

    def logits() -> torch.Tensor:
        cache, ids = net.new_cache(32), torch.arange(3, 20)
        return torch.cat([net.step(ids[:9], 0, cache), net.step(ids[9:10], 9, cache)])

    assert net.scripted is not None
    ours, net.scripted = logits(), None
    assert torch.equal(ours, logits())
