"""Compiled layers compute what the eager ones do, up to rounding, and a row's bits depend on what
it sees and on nothing else.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from tiny import VOCAB
from tiny_models import make_tiny_drafter, make_tiny_target
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from specdemo.engine import attention
from specdemo.engine.target import Target
from specdemo.models import compiled, jobs
from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig
from specdemo.models.block_drafter import MASK, BlockDrafter

pytestmark = pytest.mark.usefixtures("one_thread")

# everything near, a row on each side of the first cut, everything far, cuts that differ
LENGTHS = (1, 40, 1019, 1040, 1052)
WIDTHS = (1, 2, 8, 16, 32)
# of the difference from eager layers, in standard deviations
GAP = {torch.float32: 1e-4, torch.bfloat16: 0.15}
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
TINY = dict(
    vocab_size=VOCAB,
    hidden_size=72,  # no multiple of a vector
    intermediate_size=100,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=2048,
)


def llama():
    return make_tiny_target(layers=3, max_position_embeddings=2048)


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


FAMILIES = pytest.mark.parametrize("make", [llama, qwen2, qwen3])


def compiled_target(make, dtype) -> Target:
    target = Target(make().to(dtype))
    assert target.pass_kind == "compiled"
    return target


def eager(target: Target) -> Target:
    """The same target, its layers one after the other."""
    other = object.__new__(Target)
    other.__dict__ = target.__dict__ | {"_compiled": None}
    assert other.pass_kind == "eager"
    return other


def gap(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours.float() - theirs.float()).abs().max() / theirs.float().std()).item()


def tree_of(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(-1, i) if i else -1 for i in range(n)]


@DTYPES
@FAMILIES
def test_a_pass_is_the_eager_one_up_to_rounding(make, dtype):
    """Chains and trees of every width, near only, mixed and far contexts, taps in any order, and
    the keys and values that are stored.
    """
    target = compiled_target(make, dtype)
    rng = random.Random(1)
    with torch.inference_mode():
        for length in LENGTHS:
            ids = [rng.randrange(VOCAB) for _ in range(length)]
            for width in WIDTHS:
                n = width - 1
                tokens = [rng.randrange(VOCAB) for _ in range(n)]
                found = []
                for one in (target, eager(target)):
                    cache = one.new_cache(length + width)
                    one.prefill(cache, ids)
                    logits, taps = one.verify(
                        cache, 5, tokens, tree_of(random.Random(length), n), width, (2, 0)
                    )
                    rows = slice(length, length + width)
                    stored = (cache.keys[:, :, rows].clone(), cache.values[:, :, rows].clone())
                    found.append((logits, taps, *stored))
                for i, (a, b) in enumerate(zip(*found, strict=True)):
                    assert a.dtype == b.dtype and gap(a, b) < GAP[dtype], (length, width, i)


@DTYPES
@FAMILIES
def test_a_rows_bits_depend_on_what_it_sees_alone(make, dtype, monkeypatch):
    """The rows of a tree have the bits of the chains it consists of, beside other rows, at other
    slots, near and far. The products must not be what differs, so each row has one of its own.
    """
    target = compiled_target(make, dtype)
    monkeypatch.setattr(
        compiled.CompiledLayers,
        "product",
        lambda self, x, by: torch.cat([by(row[None].repeat(2, 1))[:1] for row in x]),
    )
    rng = random.Random(2)
    with torch.inference_mode():
        for length in LENGTHS:
            ids = [rng.randrange(VOCAB) for _ in range(length)]
            n = 15
            tokens, parent = [rng.randrange(VOCAB) for _ in range(n)], tree_of(rng, n)
            cache = target.new_cache(length + 32)
            target.prefill(cache, ids)
            _, whole = target.verify(cache, 5, tokens, parent, 32, (2,))
            for node in (0, n // 2, n - 1):
                path = [node]
                while parent[path[0]] >= 0:
                    path.insert(0, parent[path[0]])
                chain = [tokens[i] for i in path]
                _, alone = target.verify(
                    cache, 5, chain, list(range(-1, len(path) - 1)), len(path) + 1, (2,)
                )
                assert torch.equal(alone, whole[[0, *(i + 1 for i in path)]]), (length, node)


@DTYPES
def test_numbers_that_are_none_are_not_hidden(dtype):
    """A weight that is no number gives logits that are none, which the engine refuses."""
    model = llama()
    target = compiled_target(lambda: model, dtype)
    target.layers[1].attention_norm[3] = float("nan")
    cache = target.new_cache(16)
    assert target.verify(cache, 4, [5], [-1], 2)[0].isnan().any()


@DTYPES
def test_large_values_neither_overflow_nor_part_from_the_eager_ones(dtype):
    """Scores of hundreds, gates beyond e^88 and rows that see one slot."""
    model = llama()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= 60
            layer.mlp.gate_proj.weight *= 400
    target = compiled_target(lambda: model, dtype)
    found = []
    for one in (target, eager(target)):
        cache = one.new_cache(64)
        if one is target:
            first = one.verify(cache, 3, [], [], 1, (0,))[1]
            assert first.isfinite().all()
        one.prefill(cache, list(range(20)))
        found.append(one.verify(cache, 4, [5, 6], [-1, -1], 4, (0,))[1])
    assert found[0].isfinite().all() and gap(*found) < 4 * GAP[dtype]


def test_cascade_attention_and_prompts_do_not_meet_it():
    target = compiled_target(llama, torch.float32)
    cache = target.new_cache(64)
    assert torch.equal(
        target.prefill(cache, [1, 2, 3])[0],
        eager(target).prefill(target.new_cache(64), [1, 2, 3])[0],
    )
    shown = target.verify(cache, 4, [5, 6], [-1, -1], 4, attention="cascade")[0]
    plain = eager(target).verify(cache, 4, [5, 6], [-1, -1], 4, attention="cascade")[0]
    assert torch.equal(shown, plain) and not shown.requires_grad


@pytest.mark.parametrize("why", ["no Numba", "no fma", "other numbers", "it fails"])
def test_without_it_the_layers_run_eagerly(why, monkeypatch):
    if why == "no Numba":
        monkeypatch.setitem(sys.modules, "specdemo.models.kernels", None)
        monkeypatch.delattr("specdemo.models.kernels", raising=False)
    elif why == "no fma":
        monkeypatch.setattr("specdemo.models.kernels.has_fma", lambda: False)
    else:

        def wrong(self, x, *rest):
            if why == "it fails":
                raise RuntimeError("no")
            return torch.ones_like(x), torch.ones_like(x)

        monkeypatch.setattr(compiled.CompiledLayers, "__call__", wrong)
    target = Target(llama())
    assert target.pass_kind == "eager"
    assert target.verify(target.new_cache(8), 3, [], [], 1)[0].isfinite().all()


def test_far_reads_begin_where_they_say():
    seen = torch.ones(1, 1, dtype=torch.bool)
    short = attention.COMPILED_SHORT

    def reads(position: int, step: int = 0):
        return attention.compiled_reads(
            seen, position, 4096, 3, torch.bfloat16, torch.tensor([position]), step
        )

    assert reads(short - 1).far_end == 0 and reads(short - 1).first == 0
    behind = reads(short)
    assert behind.far_end == behind.first == short - attention.NEAR
    # in chunks, which never hold a slot that a draft may lie in
    assert reads(short - 1, 256).chunks is None
    for position, chunks in ((short, 3), (short + 31, 3), (short + 32, 4), (short + 287, 4)):
        found = reads(position, 256)
        assert found.chunks.tolist() == [chunks] and found.first == 256 * chunks
        assert not found.far_end and found.tail == position


def test_rows_of_one_pass_take_different_chunks():
    seen, length = torch.ones(3, 3, dtype=torch.bool).tril_(), attention.COMPILED_SHORT + 30
    positions = torch.arange(length, length + 3)
    found = attention.compiled_reads(seen, length, 4096, 1, torch.bfloat16, positions, 256)
    assert found.chunks.tolist() == [3, 3, 4] and found.first == found.tail == 768
    shown = (found.hidden == 0)[:, :3]  # of the slots from 768 on
    assert shown[:256].all(0).tolist() == [True, True, False]
    assert shown[256:].sum(0).tolist() == [31, 32, 33]


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


@DTYPES
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("layout", ["own", "shared"])  # without and with norms of q and k
def test_a_block_drafters_pass_is_the_eager_one(layout, window, dtype):
    target = make_tiny_target().to(dtype)
    net = make_tiny_drafter(target, layout, context_window=window)
    assert net.compiled is not None
    ours, net.compiled = block_states(net), None
    for a, b in zip(ours, block_states(net), strict=True):
        assert gap(a, b) < GAP[dtype] if a.numel() else a.shape == b.shape


@pytest.mark.parametrize("window", [None, 6])
def test_an_autoregressive_drafters_pass_is_the_eager_one(window):
    target = make_tiny_target()
    shape = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=VOCAB)
    shape |= dict(num_attention_heads=4, num_key_value_heads=2, context_window=window)
    torch.manual_seed(0)
    net = ArDrafter(ArDrafterConfig(**shape)).eval()
    net.bind(target.get_input_embeddings().weight, target.get_output_embeddings().weight)

    def logits() -> torch.Tensor:
        cache, ids = net.new_cache(32), torch.arange(3, 20)
        return torch.cat([net.step(ids[:9], 0, cache), net.step(ids[9:10], 9, cache)])

    assert net.compiled is not None
    ours, net.compiled = logits(), None
    assert gap(ours, logits()) < GAP[torch.float32]


@pytest.fixture
def interrupts():
    """Ctrl-C as a terminal's program has it; what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("where", ["layers", "blocks"])
@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_while_code_is_compiled_is_delivered_when_it_is(where, monkeypatch, capfd):
    done = []

    def compiling(*_):
        signal.raise_signal(signal.SIGINT)
        done.append(where)

    if where == "layers":
        monkeypatch.setattr(compiled, "_agrees", compiling)
    else:
        whole_pass = SimpleNamespace(run_pass=SimpleNamespace(compile=compiling))
        monkeypatch.setitem(sys.modules, "specdemo.models.whole_pass", whole_pass)
    with pytest.raises(KeyboardInterrupt):
        Target(llama()) if where == "layers" else jobs.prepare.__wrapped__(torch.float32, True)
    assert done == [where]
    assert "Ctrl-C again ends at once" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_ends_the_process_at_once():
    program = (
        "import signal; from specdemo.interrupts import interrupt_after\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with interrupt_after():\n"
        "    signal.raise_signal(signal.SIGINT); signal.raise_signal(signal.SIGINT); print('on')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
