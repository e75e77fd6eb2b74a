"""The block drafter: both ways in agree, the cache is right, and nothing at or after the anchor is
ever seen.
"""

import pytest
import torch
from tiny_models import features_of, make_tiny_drafter, make_tiny_target

from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig
from specdemo.models.block_drafter import MASK, BlockDrafterConfig

TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84, 19]
LAYOUTS = ["own", "shared"]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=LAYOUTS)
def net(request, tiny_target):
    return make_tiny_drafter(tiny_target, request.param)


def block(net, anchor, width=None, **filled):
    ids = torch.full((1, width or net.block_size), MASK)
    ids[0, 0] = anchor
    for slot, token in filled.items():
        ids[0, int(slot[1:])] = token
    return ids


def filled_cache(net, features, upto):
    cache = net.new_cache(64)
    net.extend(cache, features[:upto], 0)
    return cache


def contract(net, features, ids, position):
    """The same block through transformers' contract without a cache."""
    rows = torch.where((ids < 0)[..., None], net.mask_row, net.embedding[ids.clamp(min=0)])
    with torch.no_grad():
        return net(
            noise_embeds=rows,
            context_hidden_states=features[None, :position],
            position_ids=torch.arange(position + ids.shape[1])[None],
        ).last_hidden_state


@pytest.mark.parametrize("width", [1, 2, 8, 13])
def test_fast_path_equals_contract_forward(net, tiny_target, width):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    ids = block(net, TEXT[9], width)
    fast = net.hidden(ids, 9, filled_cache(net, features, 9))
    torch.testing.assert_close(fast, contract(net, features, ids, 9), rtol=1e-4, atol=1e-4)


def test_context_appended_in_pieces_equals_all_at_once(net, tiny_target):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    pieces = net.new_cache(4)  # too small on purpose: it has to grow and keep what it holds
    for start, stop in ((0, 5), (5, 6), (6, 6), (6, 13)):
        net.extend(pieces, features[start:stop], start)
        net.hidden(block(net, TEXT[stop]), stop, pieces)  # drafting in between must leave no trace
    whole = filled_cache(net, features, 13)
    assert pieces.length == whole.length == 13
    torch.testing.assert_close(pieces.keys[:, :, :13], whole.keys[:, :, :13], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        net.hidden(block(net, TEXT[13]), 13, pieces),
        net.hidden(block(net, TEXT[13]), 13, whole),
        rtol=1e-4,
        atol=1e-4,
    )


def test_setting_the_length_back_forgets(net, tiny_target):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    cache = filled_cache(net, features, 15)
    cache.rollback(7)
    assert torch.equal(
        net.hidden(block(net, TEXT[7]), 7, cache),
        net.hidden(block(net, TEXT[7]), 7, filled_cache(net, features, 7)),
    )
    with pytest.raises(ValueError, match="gap"):
        net.extend(cache, features[9:11], 9)


def test_never_sees_context_at_or_after_its_anchor(net, tiny_target):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    anchor = 8
    want = net.hidden(block(net, TEXT[anchor]), anchor, filled_cache(net, features, anchor))
    for known in (anchor + 1, 20):  # the cache knows the anchor's own feature, or the whole future
        cache = filled_cache(net, features, known)
        before = cache.keys.clone()
        torch.testing.assert_close(
            net.hidden(block(net, TEXT[anchor]), anchor, cache), want, rtol=1e-5, atol=1e-5
        )
        assert torch.equal(cache.keys[:, :, :known], before[:, :, :known])
    poisoned = features.clone()
    poisoned[anchor:] = float("nan")
    assert torch.isfinite(
        net.hidden(block(net, TEXT[anchor]), anchor, filled_cache(net, poisoned, 20))
    ).all()
    touched = features.clone()
    touched[anchor - 1] += 1.0  # while the last token before the anchor does matter
    assert (
        net.hidden(block(net, TEXT[anchor]), anchor, filled_cache(net, touched, anchor)) - want
    ).abs().max() > 1e-3


def test_block_sees_itself_in_both_directions_and_revealed_tokens_count(net, tiny_target):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    cache = filled_cache(net, features, 9)
    plain = net.hidden(block(net, TEXT[9]), 9, cache)
    partial = block(net, TEXT[9], s1=TEXT[10], s4=77)
    shown = net.hidden(partial, 9, cache)
    # slot 3 looks right to slot 4 and left to slot 1
    assert (shown[0, 3] - plain[0, 3]).abs().max() > 1e-4
    # the contract can only express a revealed slot where the mask is a token
    if net.mask_embedding is None:
        torch.testing.assert_close(shown, contract(net, features, partial, 9), rtol=1e-4, atol=1e-4)
    with torch.no_grad():  # no fused kernels, no cache: the definition
        rows = torch.where(
            (partial < 0)[..., None], net.mask_row, net.embedding[partial.clamp(min=0)]
        )
        import torch.nn.functional as F

        want = net.denoise(
            rows,
            net.context(features[None, :9]),
            torch.arange(9 + 8)[None],
            lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        )
    torch.testing.assert_close(shown, want, rtol=1e-4, atol=1e-4)


def test_a_batch_of_blocks_equals_each_alone(net, tiny_target):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    cache = filled_cache(net, features, 9)
    batch = torch.cat(
        [
            block(net, TEXT[9]),
            block(net, TEXT[9], s1=5),
            block(net, TEXT[9], s1=TEXT[10], s2=TEXT[11]),
        ]
    )
    together = net.hidden(batch, 9, cache)
    for i, ids in enumerate(batch):
        torch.testing.assert_close(
            together[i], net.hidden(ids[None], 9, cache)[0], rtol=1e-4, atol=1e-4
        )


def test_empty_context(net, tiny_target):
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    assert torch.isfinite(net.hidden(block(net, TEXT[0]), 0, net.new_cache(8))).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("length", [1, 7, 40])
def test_transformers_generates_the_same_text_with_it(layout, length):
    target = make_tiny_target(layers=3)
    net = make_tiny_drafter(target, layout)
    ids = torch.tensor([TEXT[:6]])
    plain = target.generate(ids, max_new_tokens=length, do_sample=False)
    assisted = target.generate(
        ids, max_new_tokens=length, do_sample=False, assistant_model=net, speculation_type="dflash"
    )
    assert assisted.tolist() == plain.tolist() and plain.shape[1] == 6 + length


def test_draft_vocabulary_is_a_subset_of_the_head(tiny_target):
    kept = torch.tensor([2, 7, 11, 90, 126], dtype=torch.int32)
    full, small = make_tiny_drafter(tiny_target), make_tiny_drafter(tiny_target, draft_vocab=kept)
    features, _ = features_of(tiny_target, full.layer_ids, TEXT)
    hidden = full.hidden(block(full, TEXT[9]), 9, filled_cache(full, features, 9))
    assert small.vocab_ids.tolist() == kept.tolist() and full.vocab_ids is None
    torch.testing.assert_close(small.logits(hidden), full.logits(hidden)[..., kept.long()])


def test_the_mask_is_never_proposed(tiny_target):
    net = make_tiny_drafter(tiny_target)
    assert (net.logits(torch.randn(3, 5, 64))[..., net.config.mask_token_id] == float("-inf")).all()


def test_bf16_agrees_with_fp32(tiny_target):
    import copy

    net = make_tiny_drafter(tiny_target)
    low = copy.deepcopy(net)
    low.bind(
        tiny_target.get_input_embeddings().weight.bfloat16(),
        tiny_target.get_output_embeddings().weight.bfloat16(),
    )
    features, _ = features_of(tiny_target, net.layer_ids, TEXT)
    a = net.hidden(block(net, TEXT[9]), 9, filled_cache(net, features, 9))
    b = low.hidden(block(net, TEXT[9]), 9, filled_cache(low, features, 9))
    assert (
        b.dtype == torch.bfloat16
        and torch.nn.functional.cosine_similarity(a, b.float(), dim=-1).min() > 0.99
    )


def test_config_survives_saving(tmp_path, tiny_target):
    net = make_tiny_drafter(tiny_target)
    net.config.save_pretrained(tmp_path)
    again = BlockDrafterConfig.from_pretrained(tmp_path)
    for name in (
        "target_layer_ids",
        "block_size",
        "mask_token_id",
        "context_projection",
        "mask_embedding",
        "qk_norm",
        "head_dim",
        "rope_parameters",
    ):
        assert getattr(again, name) == getattr(net.config, name), name


# -- the autoregressive drafter --------------------------------------------------------------------


@pytest.fixture(scope="module")
def ar(tiny_target):
    torch.manual_seed(2)
    net = ArDrafter(
        ArDrafterConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=128,
        )
    ).eval()
    net.requires_grad_(False)
    net.bind(tiny_target.get_input_embeddings().weight, tiny_target.get_output_embeddings().weight)
    return net


def test_ar_steps_equal_one_causal_pass(ar):
    with torch.no_grad():
        want = ar.logits(ar(ar.embedding[torch.tensor([TEXT])])[0])
    cache, got = ar.new_cache(8), []
    for start, stop in ((0, 6), (6, 7), (7, 8), (8, 20)):
        got.append(ar.step(torch.tensor(TEXT[start:stop]), start, cache))
    torch.testing.assert_close(torch.cat(got), want, rtol=1e-4, atol=1e-4)


def test_ar_rolls_back(ar):
    cache = ar.new_cache(32)
    ar.step(torch.tensor(TEXT[:10]), 0, cache)
    ar.step(torch.tensor([1, 2, 3]), 10, cache)
    cache.rollback(10)
    again = ar.step(torch.tensor(TEXT[10:12]), 10, cache)
    fresh = ar.new_cache(32)
    torch.testing.assert_close(
        again, ar.step(torch.tensor(TEXT[:12]), 0, fresh)[10:], rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="gap"):
        ar.step(torch.tensor([1]), 20, cache)
