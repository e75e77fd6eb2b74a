"""Masks, weights and losses against brute force; the corpus on disk; the strict context mask."""

import itertools
import math

import numpy as np
import pytest
import torch
from tiny_models import features_of, make_tiny_drafter

from specdemo.errors import UserError
from specdemo.repetition import uniqueness
from specdemo.training import objectives
from specdemo.training.corpus import worth_keeping
from specdemo.training.data import (
    Batches,
    Corpus,
    blocks_of,
    choose_anchors,
    draft_vocabulary,
    read_corpus,
    split,
    write_shard,
)
from specdemo.training.packed import HiddenStateTaps, packed_attention, packed_blocks

pytestmark = pytest.mark.usefixtures("one_thread")


def logs(rows=5, words=7, seed=0):
    torch.manual_seed(seed)
    return torch.randn(rows, 6), torch.randn(words, 6)


def test_position_weights_follow_dflash_and_d2sd():
    w = objectives.prefix_weights(torch.tensor([0, 3]), 8, 4.0)
    assert w[0].tolist() == pytest.approx([0.0] + [math.exp(-(k - 1) / 4) for k in range(1, 8)])
    assert w[1].tolist() == pytest.approx(
        [0, 0, 0, 0] + [math.exp(-(k - 4) / 4) for k in range(4, 8)]
    )
    assert objectives.prefix_masks(torch.tensor([0, 3]), 8).tolist() == [
        [False] + [True] * 7,
        [False] * 4 + [True] * 4,
    ]


def test_visible_prefix_has_the_distribution_of_d2sd():
    drawn = objectives.visible_prefix(40_000, 5, 0.5, torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=5) / 40_000
    weights = torch.tensor([0.5**j for j in range(4)])
    assert share[4] == 0 and torch.allclose(share[:4], weights / weights.sum(), atol=0.01)


def test_random_masks_spare_the_anchor_and_never_miss_a_block():
    masked, t = objectives.random_masks(20_000, 6, torch.Generator().manual_seed(0))
    assert not masked[:, 0].any() and masked.any(1).all() and (t > 0).all() and (t <= 1).all()
    middle = (t > 0.45) & (t < 0.55)
    assert masked[middle, 1:].float().mean().item() == pytest.approx(0.5, abs=0.05)
    weights = objectives.mdlm_weights(masked, t, inverse_t=True)
    assert (
        torch.allclose(weights[masked], (1 / t[:, None]).clamp(max=8).expand_as(masked)[masked])
        and (weights[~masked] == 0).all()
    )


@pytest.mark.parametrize("mix", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_row_scores_equal_the_plain_formula_with_its_gradient(mix, chunk):
    hidden, head = logs()
    teacher, labels = torch.randn(5, 6), torch.tensor([3, 0, -1, 6, 2])
    weight = torch.tensor([1.0, 0.5, 2.0, 0.1, 3.0])
    ours = hidden.clone().requires_grad_()
    score, sure, hit = objectives.row_scores(ours, head, labels, teacher, mix, chunk)
    (score * weight).sum().backward()
    plain = hidden.clone().requires_grad_()
    logq = (plain @ head.T).log_softmax(-1)
    goal = (1 - mix) * torch.nn.functional.one_hot(labels.clamp(min=0), 7) + mix * (
        teacher @ head.T
    ).softmax(-1)
    expected = (goal * logq).sum(-1) * (labels >= 0)
    (expected * weight).sum().backward()
    torch.testing.assert_close(score, expected.detach())
    torch.testing.assert_close(ours.grad, plain.grad)
    torch.testing.assert_close(
        sure,
        torch.where(labels >= 0, logq.detach().gather(1, labels.clamp(min=0)[:, None])[:, 0], 0.0),
    )
    assert hit.tolist() == (logq.argmax(-1) == labels).tolist() and not sure.requires_grad


def test_streak_is_the_expected_accepted_length_for_one_draft():
    """The identity for K = 1: Σ_m Π q_j(x_j) averaged over x ~ P equals the mean run of accepted
    point-mass drafts x ~ q under P.
    """
    torch.manual_seed(0)
    # distributions by position: 3 positions, 4 tokens
    P, q = torch.randn(3, 4).softmax(-1), torch.randn(3, 4).softmax(-1)
    by_training, by_acceptance = 0.0, 0.0
    for x in itertools.product(range(4), repeat=3):
        px, qx = (torch.stack([probs[j, x[j]] for j in range(3)]) for probs in (P, q))
        loss = objectives.streak_loss(qx.log()[None], torch.ones(1, 3, dtype=torch.bool))
        by_training += px.prod() * -loss
        by_acceptance += qx.prod() * px.cumprod(0).sum()
    assert by_training.item() == pytest.approx(by_acceptance.item(), rel=1e-5)


def test_streak_stops_where_a_token_cannot_be_drafted():
    logq = torch.tensor([[0.5, 0.25, 0.8], [0.9, 0.1, 0.2]]).log()
    alive = torch.tensor([[True, False, True], [True, True, True]])
    expected = -((0.5) + (0.9 + 0.09 + 0.018)) / 2
    assert objectives.streak_loss(logq, alive).item() == pytest.approx(expected)


def test_visible_slots_are_right_for_free_and_have_no_term():
    logq = torch.tensor([[0.5, 0.25, 0.8], [0.9, 0.1, 0.2]]).log()
    scored = torch.tensor([[False, True, True], [False, False, False]])
    loss = objectives.streak_loss(logq, torch.tensor([[False, True, True], [True] * 3]), scored)
    assert loss.item() == pytest.approx(-(0.25 + 0.25 * 0.8))


def test_surrogate_weighs_each_log_by_the_detached_streak_before_it():
    q = torch.tensor([[0.5, 0.25, 0.8]]).requires_grad_()
    loss = objectives.streak_loss(q.log(), torch.ones(1, 3, dtype=torch.bool), surrogate=q.log())
    loss.backward()
    before = torch.tensor([[1.0, 0.5, 0.125]])
    assert loss.item() == pytest.approx(-(before * q.detach().log()).sum().item())
    torch.testing.assert_close(q.grad, -before / q.detach())


def test_soft_labels_enter_the_surrogate_but_not_its_weights():
    q, soft = (
        torch.tensor([[0.5, 0.25, 0.8], [0.9, 0.1, 0.2]]),
        torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]]).requires_grad_(),
    )
    alive = torch.tensor([[True, False, True], [True, True, True]])
    objectives.streak_loss(q.log(), alive, surrogate=soft).backward()
    torch.testing.assert_close(soft.grad, -torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.9, 0.09]]) / 2)


def test_corpus_survives_the_disk_and_damage_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    tokens, answer = rng.integers(0, 200, (6, 24)).astype(np.uint16), rng.random((6, 24)) < 0.5
    write_shard(tmp_path, "-0", tokens[:4], answer[:4])
    write_shard(tmp_path, "-1", tokens[4:], answer[4:])
    (tmp_path / "corpus.json").write_text('{"row": 24}')
    again = read_corpus(tmp_path)
    assert (again.tokens == tokens).all() and (again.answer == answer).all()
    (tmp_path / "tokens-1.u16.xz").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="damaged"):
        read_corpus(tmp_path)
    with pytest.raises(UserError, match="no corpus"):
        read_corpus(tmp_path / "nowhere")


def test_ids_beyond_sixteen_bits_survive(tmp_path):
    tokens = np.array([[1, 70_000, 150_000, 5]], dtype=np.uint32)
    write_shard(tmp_path, "", tokens, tokens > 1)
    (tmp_path / "corpus.json").write_text('{"row": 4}')
    assert read_corpus(tmp_path).tokens.tolist() == tokens.tolist()


def test_no_prompt_sits_on_both_sides_of_the_split():
    # four rows a prompt
    tokens = np.repeat(np.arange(50, dtype=np.uint16)[:, None], 10, 1).repeat(4, 0)
    answer = np.zeros(tokens.shape, dtype=bool)
    answer[:, 4:] = True
    tokens[:, 4:] = np.random.default_rng(0).integers(0, 9, (200, 6))
    training, held_out = split(Corpus(tokens, answer, {}), 0.3)
    assert len(training) + len(held_out) == 200 and 20 < len(held_out) < 100
    assert not set(training.tokens[:, 0]) & set(held_out.tokens[:, 0])


def test_batches_are_a_function_of_seed_and_step_and_epochs_miss_nothing():
    one, two = Batches(10, 4, 7), Batches(10, 4, 7)
    rows = [one.rows_at(i) for i in range(5)]
    assert (two.rows_at(3) == rows[3]).all() and (two.rows_at(0) == rows[0]).all()
    assert sorted(np.concatenate(rows)[:10]) == list(range(10)) == sorted(np.concatenate(rows)[10:])
    assert torch.equal(
        torch.rand(3, generator=one.generator(2)), torch.rand(3, generator=two.generator(2))
    )


def test_anchors_and_blocks_stay_inside_one_answer():
    answer = torch.tensor([[0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0]]).bool()
    tokens = torch.arange(12)[None]
    anchors, valid = choose_anchors(answer, 20, torch.Generator().manual_seed(0))
    assert set(anchors[valid].tolist()) == {2, 3, 7, 8, 9}
    truth, ours = blocks_of(tokens, answer, torch.tensor([[3, 9]]), 5)
    assert truth[0, 0].tolist() == [3, 4, 5, 6, 7] and ours[0, 0].tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert ours[0, 1].tolist() == [True, True, False, False, False]


def test_draft_vocabulary_keeps_what_is_used_and_what_must_stay():
    tokens = np.array([[5, 5, 5, 7, 7, 9, 1, 1]], dtype=np.uint16)
    vocab = draft_vocabulary(Corpus(tokens, tokens != 1, {}), 3, keep=(2,))
    assert vocab.tolist() == [2, 5, 7]


def test_rows_that_repeat_themselves_are_dropped():
    line, varied = np.array([1, 2, 3] * 30), np.random.default_rng(0).integers(0, 500, 90)
    assert uniqueness(line.tolist()) < 0.1 < 0.9 < uniqueness(varied.tolist())
    everywhere = np.ones(90, dtype=bool)
    assert (
        not worth_keeping(line, everywhere, 0.35)
        and worth_keeping(varied, everywhere, 0.35)
        and not worth_keeping(varied, ~everywhere, 0.35)
    )


# -- packed blocks ---------------------------------------------------------------------------------

TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84, 19]


def packed(net, target, tokens, anchors, visible=0):
    features = HiddenStateTaps(target, net.layer_ids).forward(tokens)[0]
    where = anchors[..., None] + torch.arange(net.block_size)
    ids = tokens.gather(1, where.clamp(max=tokens.shape[1] - 1).flatten(1)).view(where.shape)
    masked = torch.arange(net.block_size).expand(ids.shape) > visible
    return packed_blocks(net, target.get_input_embeddings().weight, features, ids, masked, anchors)


@pytest.mark.parametrize("layout", ["own", "shared"])
@pytest.mark.parametrize("visible", [0, 2])
# all of the context, a window that cuts some blocks' context, one longer than the text
@pytest.mark.parametrize("window", [None, 5, 64])
def test_packed_blocks_equal_the_drafter_one_block_at_a_time(tiny_target, layout, visible, window):
    net = make_tiny_drafter(tiny_target, layout)
    net.config.context_window = window
    tokens = torch.tensor([TEXT, TEXT[::-1]])
    anchors = torch.tensor([[1, 9, 12], [3, 4, 11]])
    together = packed(net, tiny_target, tokens, anchors, visible)
    for n, a in itertools.product(range(2), range(3)):
        spot, row = int(anchors[n, a]), tokens[n].tolist()
        cache = net.new_cache(64)
        net.extend(cache, features_of(tiny_target, net.layer_ids, row)[0][:spot], 0)
        ids = torch.full((1, net.block_size), -1)
        ids[0, : visible + 1] = tokens[n, spot : spot + visible + 1]
        torch.testing.assert_close(
            together[n, a], net.hidden(ids, spot, cache)[0], rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("visible", [0, 2])
def test_a_drafter_never_sees_its_own_answer(tiny_target, visible):
    net = make_tiny_drafter(tiny_target)
    anchor = torch.tensor([[8]])
    before = packed(net, tiny_target, torch.tensor([TEXT]), anchor, visible)
    changed = torch.tensor([TEXT])
    changed[0, 8 + visible + 1 :] = (changed[0, 8 + visible + 1 :] + 17) % 128
    assert torch.equal(before, packed(net, tiny_target, changed, anchor, visible))
    changed[0, 7] = 1  # the test would see a leak: what may be seen does change the result
    assert not torch.equal(before, packed(net, tiny_target, changed, anchor, visible))


@pytest.mark.parametrize("window", [None, 5])
def test_attention_in_two_parts_is_one_masked_attention_with_its_gradients(window):
    torch.manual_seed(0)
    N, A, B, L, anchors = 2, 3, 4, 12, torch.tensor([[3, 8, 11], [1, 5, 6]])
    shapes = (N, 6, A * B, 8), (N, 2, L + A * B, 8), (N, 2, L + A * B, 8)
    ours = [torch.randn(shape, requires_grad=True) for shape in shapes]
    plain = [t.detach().clone().requires_grad_() for t in ours]
    slots = torch.arange(A * B) // B
    spot, at = anchors[:, slots, None], torch.arange(L)
    far = (at < spot) & (at >= spot - (window or L))
    own = (slots[:, None] == slots).expand(N, -1, -1)
    mask = torch.cat((far, own), -1)[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *plain, attn_mask=mask, enable_gqa=True
    )
    out = packed_attention(anchors, L, B, window)(None, *ours)
    torch.testing.assert_close(out, expected)
    slope = torch.randn(out.shape)
    out.backward(slope)
    expected.backward(slope)
    for one, two in zip(ours, plain, strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_blocks_side_by_side_do_not_see_each_other(tiny_target):
    net = make_tiny_drafter(tiny_target)
    tokens = torch.tensor([TEXT])
    alone, beside = (
        packed(net, tiny_target, tokens, torch.tensor([[8]])),
        packed(net, tiny_target, tokens, torch.tensor([[8, 9, 3]])),
    )
    torch.testing.assert_close(alone[0, 0], beside[0, 0])


def test_taps_are_the_outputs_of_the_layers(tiny_target):
    taps = HiddenStateTaps(tiny_target, (0, 1))
    features, last = taps.forward(torch.tensor([TEXT]))
    taps.close()
    out = tiny_target(torch.tensor([TEXT]), output_hidden_states=True)
    torch.testing.assert_close(features, torch.cat(out.hidden_states[1:], -1))
    torch.testing.assert_close(tiny_target.lm_head(last), out.logits)
