"""A drafter reads at most its window: the same numbers as from a text that begins there, in a cache
that does not grow.
"""

from __future__ import annotations

import pytest
import torch
from tiny_models import make_tiny_drafter, make_tiny_target

from specdemo.drafters.parts.base import Context
from specdemo.drafters.parts.block_context import BlockContext
from specdemo.errors import UserError
from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig
from specdemo.models.block_drafter import MASK
from specdemo.models.decoder import WindowCache
from specdemo.models.validate import check_context_window

W = 24
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def target():
    return make_tiny_target()


@pytest.fixture
def net(target):
    return make_tiny_drafter(target, context_window=W)


def features(net, n, seed=0):
    torch.manual_seed(seed)
    return torch.randn(n, len(net.layer_ids) * net.config.hidden_size)


def block(*tokens):
    return torch.tensor([[*tokens, MASK, MASK, MASK, MASK]])


def of_the_window_alone(target, rows, anchor, ids, first):
    """The same block by a drafter without a window that knows ``rows[first:anchor]`` alone."""
    net = make_tiny_drafter(target)
    cache = net.new_cache(len(rows) + 8)
    cache.place(first, 0)
    net.extend(cache, rows[first:anchor], first)
    return net.hidden(ids, anchor, cache)


@pytest.mark.parametrize("pieces", [[700], [1] * 700, [30, 1, 5, 300, 2, 250, 7, 105], [10, 690]])
def test_what_is_read_does_not_depend_on_how_it_arrived(net, target, pieces):
    """However the context comes in, a block sees the window before its anchor and no more."""
    rows, cache, at = features(net, sum(pieces)), net.new_cache(1000), 0
    for n in pieces:
        net.extend(cache, rows[at : at + n], at)
        at += n
        if n > 1 or at % 97 == 0:
            for ids in (block(5), block(5, 9).repeat(3, 1)):
                torch.testing.assert_close(
                    net.hidden(ids, at, cache),
                    of_the_window_alone(target, rows, at, ids, max(0, at - W)),
                    rtol=1e-4,
                    atol=1e-4,
                )
    assert cache.end == 700 and cache.capacity <= W + WindowCache.SPARE + 16


def test_an_anchor_inside_the_cache_sees_the_window_before_it(net, target):
    rows, cache = features(net, 60), net.new_cache(100)
    for at in range(60):
        net.extend(cache, rows[at : at + 1], at)
    torch.testing.assert_close(
        net.hidden(block(5), 50, cache),
        of_the_window_alone(target, rows, 50, block(5), 50 - W),
        rtol=1e-4,
        atol=1e-4,
    )


def test_far_positions_are_near_ones(net):
    """Positions are relative: the same window ten thousand tokens later gives the same block."""
    rows = features(net, W)
    near, far = net.new_cache(W), net.new_cache(W)
    net.extend(near, rows, 0)
    far.place(10_000, 0)
    net.extend(far, rows, 10_000)
    torch.testing.assert_close(
        net.hidden(block(5), W, near), net.hidden(block(5), W + 10_000, far), rtol=1e-3, atol=1e-3
    )


def test_the_window_is_said_once_it_is_passed(net):
    said = []
    drafter = BlockContext(net)
    drafter.start(400)
    for n in (W + 1, W + 2, W + 3):
        rows = features(net, n - 1)
        drafter.table(
            Context([3] * n, lambda rows=rows: (rows, 0), budget=8, remark=said.append), 3
        )
        assert bool(said) == (n - 1 > W)
    assert len(set(said)) == 1 and f"last {W} tokens" in said[0]


def test_an_autoregressive_drafter_slides(target):
    def make(window):
        torch.manual_seed(2)
        net = ArDrafter(
            ArDrafterConfig(
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=1,
                num_attention_heads=4,
                num_key_value_heads=2,
                vocab_size=128,
                context_window=window,
            )
        )
        net.requires_grad_(False)
        net.bind(target.get_input_embeddings().weight, target.get_output_embeddings().weight)
        return net

    text = torch.tensor([(7 * i * i + 3) % 128 for i in range(400)])
    sliding, whole = make(W), make(None)
    cache, at = sliding.new_cache(1000), 0
    for n in (10, 1, 30, 1, 1, 200, 1, 150, 6):
        got = sliding.step(text[at : at + n], at, cache)[-1]
        at += n
        first = max(0, at - W)
        alone = whole.new_cache(500)
        alone.place(first, 0)
        # one layer: what a row sees is its window alone
        want = whole.step(text[first:at], first, alone)[-1]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        cache.rollback(at - 1)  # as after a draft
        sliding.step(text[at - 1 : at], at - 1, cache)
    assert cache.capacity <= W + WindowCache.SPARE + 200
    with pytest.raises(ValueError, match="roll back"):
        cache.rollback(3)


@pytest.mark.parametrize("window", [0, -1, 2.5, "448", True, 10**9])
def test_a_window_that_is_none_is_refused(window):
    class Config:
        context_window = window

    with pytest.raises(UserError, match="context window .* correct context_window"):
        check_context_window(Config, "folder")
