"""The engine on a tiny random Llama: trees, caches, sampling and the race, against plain decoding
and brute force.
"""

from __future__ import annotations

import random

import pytest
import torch
from tiny import PROMPT, VOCAB, Proposes, oracle, tiny_engine, write
from tiny_models import make_tiny_target
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specdemo.drafters.parts.base import Draft
from specdemo.engine.check_target import check_against
from specdemo.engine.target import Target, bucket
from specdemo.errors import UserError
from specdemo.request import Sampling

torch.set_num_threads(1)


def noisy_tree(truth, rng):
    """The truth's next tokens as one branch among random others, nodes in random order of depth."""

    def make(ids):
        right = truth[len(ids) - len(PROMPT) :][:5]
        draft = Draft()
        spots = [-1]
        for depth, token in enumerate(right):
            wrong = (token + 1 + rng.randrange(VOCAB - 2)) % VOCAB
            for candidate in [wrong, token] if rng.random() < 0.5 else [token, wrong]:
                if candidate == token and rng.random() < 0.2:
                    continue
                draft.tokens.append(candidate)
                draft.parent.append(spots[-1])
            own = [
                i
                for i, (t, p) in enumerate(zip(draft.tokens, draft.parent, strict=True))
                if t == token and p == spots[-1]
            ]
            if not own or depth == len(right) - 1:
                break
            spots.append(own[0])
        n = len(draft.tokens)
        draft.probs, draft.origin = [None] * n, ["x"] * n
        return draft

    return make


@pytest.mark.parametrize(
    "model",
    [
        make_tiny_target(),
        Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
            )
        ),
        Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=32,
            )
        ),
        MistralForCausalLM(
            MistralConfig(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                sliding_window=None,
            )
        ),
    ],
    ids=lambda m: m.config.model_type,
)
def test_step_equals_the_library(model):
    """Prefill and single steps give Hugging Face's own logits, for every family that is
    supported.
    """
    for module in model.modules():  # biases and head norms must matter
        if isinstance(module, torch.nn.Linear) and module.bias is not None:
            torch.nn.init.normal_(module.bias)
    model.eval()
    target = Target(model)
    assert check_against(target, model) < 1e-4
    ids = [5, 9, 77, 3, 3, 101, 64]
    with torch.no_grad():
        whole = model(input_ids=torch.tensor([ids])).logits[0]
        cache = target.new_cache(32)
        logits, _ = target.prefill(cache, ids[:3])
        rows = [logits[0]]
        for token in ids[3:]:
            rows.append(target.verify(cache, token, [], [], 4)[0][0])
            cache.commit([])
    assert torch.allclose(torch.stack(rows), whole[2:], atol=1e-4)


def test_a_model_of_another_family_is_refused_in_words():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=1, n_head=2))
    with pytest.raises(UserError, match="“gpt2” are not supported yet.*choose a Llama"):
        Target(model)


def test_tree_rows_equal_their_own_paths():
    """Every node's logits are those of reading its path alone: ancestors only, positions by depth,
    padding unseen.
    """
    target = Target(make_tiny_target())
    parent = [-1, -1, 0, 0, 1, 2, 5, 4]
    tokens = [7, 8, 9, 10, 11, 12, 13, 14]
    with torch.inference_mode():
        cache = target.new_cache(64)
        target.prefill(cache, PROMPT)
        logits, _ = target.verify(cache, 33, tokens, parent, 16)
        for node in range(-1, len(tokens)):
            path, above = [], node
            while above >= 0:
                path.insert(0, tokens[above])
                above = parent[above]
            alone = target.new_cache(64)
            expected, _ = target.prefill(alone, [*PROMPT, 33, *path])
            assert torch.allclose(logits[node + 1], expected[0], atol=1e-4)


@pytest.mark.parametrize("fallback", [False, True])
def test_cascade_attention_equals_plain_attention(fallback, monkeypatch):
    """D²SD's merge by log-sum-exp, by the library's kernel and by our own arithmetic, on a tree,
    also with nothing committed before it.
    """
    if fallback:
        monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    target = Target(make_tiny_target())
    parent, tokens = [-1, -1, 0, 0, 1, 2, 5, 4], [7, 8, 9, 10, 11, 12, 13, 14]
    with torch.inference_mode():
        for prompt in ([], PROMPT):
            cache = target.new_cache(64)
            if prompt:
                target.prefill(cache, prompt)
            plain = target.verify(cache, 33, tokens, parent, 16)[0]
            assert torch.allclose(
                target.verify(cache, 33, tokens, parent, 16, attention="cascade")[0],
                plain,
                atol=1e-4,
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_tree_rows_have_the_very_bits_of_their_paths(dtype):
    """On both sides of a cut: a node's logits equal, bit for bit, those of reading its path as a
    chain, wherever its ancestors lie.
    """
    target = Target(make_tiny_target(max_position_embeddings=1024).to(dtype))
    rng = random.Random(2)
    for length in (5, 31, 66, 186, 190, 192, 200, 222, 600):
        prompt = [rng.randrange(VOCAB) for _ in range(length)]
        parent = [-1] + [rng.randrange(-1, i) for i in range(1, 14)]
        tokens = [rng.randrange(VOCAB) for _ in parent]
        with torch.inference_mode():
            cache = target.new_cache(700)
            target.prefill(cache, prompt)
            tree = target.verify(cache, 33, tokens, parent, 16)[0]
            for node in range(len(tokens)):
                path, above = [], node
                while above >= 0:
                    path.insert(0, tokens[above])
                    above = parent[above]
                chain = target.verify(cache, 33, path, list(range(-1, len(path) - 1)), 16)[0]
                assert torch.equal(tree[node + 1], chain[-1]), (length, node)


def test_commit_moves_the_accepted_path_together():
    """After keeping a scattered path the cache continues as if it had been read in order."""
    target = Target(make_tiny_target())
    with torch.inference_mode():
        cache = target.new_cache(64)
        target.prefill(cache, PROMPT)
        target.verify(cache, 33, [7, 8, 9, 10, 11, 12], [-1, -1, 1, 1, 3, 4], 8)
        cache.commit([1, 3, 4])
        assert cache.length == len(PROMPT) + 4
        after, _ = target.verify(cache, 50, [], [], 2)
        alone = target.new_cache(64)
        expected, _ = target.prefill(alone, [*PROMPT, 33, 8, 10, 11, 50])
    assert torch.allclose(after[0], expected[0], atol=1e-4)
    cache.rollback(3)
    assert cache.length == 3
    with pytest.raises(ValueError):
        cache.rollback(4)  # only backwards


def test_a_draft_deeper_than_the_exact_part_is_no_pass():
    target = Target(make_tiny_target())
    with torch.inference_mode():
        cache = target.new_cache(128)
        target.prefill(cache, PROMPT)
        with pytest.raises(ValueError, match="depth 33"):
            target.verify(cache, 33, [7] * 33, list(range(-1, 32)), 48)
        target.verify(cache, 33, [7] * 32, list(range(-1, 31)), 48)


def test_bucket():
    assert [bucket(n) for n in (1, 256, 257, 1025)] == [256, 256, 512, 2048]
    with pytest.raises(UserError, match="cache slots"):
        bucket(10**6)


def test_speculative_text_is_the_plain_text():
    """Chains and trees, right, wrong and random, greedy."""
    engine = tiny_engine()
    truth = write(engine).output
    rng = random.Random(0)

    def mixed(ids):
        return [t if rng.random() < 0.7 else rng.randrange(VOCAB) for t in oracle(truth, 5)(ids)]

    for make in (
        oracle(truth, 5),
        lambda ids: [(t + 1) % VOCAB for t in oracle(truth, 5)(ids)],
        mixed,
        noisy_tree(truth, rng),
    ):
        assert write(engine, Proposes(make)).output == truth


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(t, k, p, m, r, 0)
        for t, k, p, m, r in [
            (0.3, 0, 1, 0, 1),
            (1, 0, 0.9, 0, 1),
            (1.5, 20, 1, 0.02, 1),
            (0.8, 0, 1, 0, 1.3),
            (0, 0, 1, 0, 1.2),
        ]
    ],
)
def test_sampled_text_is_the_plain_text(sampling):
    """At any temperature and with every filter, whatever was drafted and however wide the pass."""
    engine, rng = tiny_engine(), random.Random(3)
    for seed in range(4):
        sampling = Sampling(**(sampling.to_dict() | {"seed": seed}))
        truth = write(engine, sampling=sampling, max_new=24).output
        for make in (oracle(truth, 5), noisy_tree(truth, rng), lambda ids: [0] * 7):
            assert write(engine, Proposes(make), sampling=sampling, max_new=24).output == truth
