"""Where a drafter's first weights, its mask and its vocabulary come from."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from tiny_models import make_tiny_target
from tiny_training import periodic_corpus

from specdemo.errors import UserError
from specdemo.models.drafter_files import save_drafter
from specdemo.training.data import draft_vocabulary
from specdemo.training.initialize import copy_target_layers, init_drafter, initial_network
from specdemo.training.mask_token import choose_mask_token
from specdemo.training.new_drafter import new_drafter, spread
from specdemo.training.settings import Settings
from specdemo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


def test_starting_from_the_targets_layers_makes_a_shallower_target():
    target = make_tiny_target(layers=3)
    assert spread(4, 0, 29) == [0, 10, 19, 29] and spread(1, 0, 5) == [0]
    net = new_drafter(target, "ar", 3, 6, None, 0)
    assert copy_target_layers(net, target) == [0, 1, 2]
    ids = torch.arange(5, 25)[None]
    states = net(torch.nn.functional.embedding(ids, target.model.embed_tokens.weight))
    torch.testing.assert_close(states, target.model(ids).last_hidden_state, rtol=1e-3, atol=1e-3)


class Words:
    """As much of a tokenizer as choosing a mask looks at."""

    def __init__(self, words, special, pad=None, unk=None, bos=None):
        self.words, self.all_special_ids, self.added_tokens_decoder = words, special, {}
        self.pad_token_id, self.unk_token_id, self.bos_token_id = pad, unk, bos

    def get_vocab(self):
        return {f"w{i}": i for i in range(self.words)}


@pytest.mark.parametrize(
    "tokenizer, unwritten, expected",
    [
        (Words(20, [0, 1, 2, 16, 17]), {16, 17}, 17),  # the last special token
        (Words(20, [0, 1, 2, 16, 17]), {15, 16}, 16),  # of those never written; 15 is a word
        # a row beside the tokenizer's words, sooner than padding
        (Words(20, [0, 1, 2], pad=0, unk=1), {0, 1, *range(20, 24)}, 23),
        (Words(24, [0, 1, 2], pad=0, unk=1), {0, 1}, 0),  # padding, sooner than an unknown word
        (Words(24, [0, 1, 2], bos=1), {1, 2}, 1),  # 2 ends answers
        (Words(24, [0, 1, 2]), set(), 0),  # written least
    ],
)
def test_the_mask_is_a_token_the_target_never_writes(tokenizer, unwritten, expected):
    assert (
        choose_mask_token(
            tokenizer, 24, (2,), np.array([0 if i in unwritten else 5 + i for i in range(22)])
        )
        == expected
    )


def test_a_target_without_a_spare_token_is_refused():
    with pytest.raises(UserError, match="no special token to spare"):
        choose_mask_token(Words(24, [2]), 24, (2,), np.zeros(24))


def test_the_mask_is_never_drafted():
    corpus = periodic_corpus(8)
    most = int(np.bincount(corpus.tokens[corpus.answer]).argmax())
    assert most in draft_vocabulary(corpus, 4) and most not in draft_vocabulary(
        corpus, 4, without=most
    )
    assert (
        len(draft_vocabulary(corpus, 10**6, without=most)) == int(corpus.tokens.max())
        and len(draft_vocabulary(corpus, 5, without=10**6)) == 5
    )


def test_qwen_type_targets_give_a_drafter_with_query_and_key_norms(tmp_path):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    target = (
        Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=128,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=32,
                max_position_embeddings=256,
            )
        )
        .eval()
        .requires_grad_(False)
    )
    net, _ = init_drafter(target, "block", "target-layers", 2, 6, torch.arange(0, 128, 2))
    assert net.config.qk_norm and net.config.head_dim == 32
    trainer = Trainer(
        target,
        net,
        periodic_corpus(),
        Settings(steps=4, batch=2, anchors=3),
        tmp_path,
        torch.arange(0, 128, 2),
    )
    trainer.run(log_every=2, show=False)
    assert np.isfinite([p["loss"] for p in trainer.curve]).all()


@pytest.mark.parametrize("kind", ["block", "ar"])
def test_the_window_follows_from_the_rows_and_never_shrinks(tiny_loaded, tmp_path, kind):
    """Three quarters of a row; a drafter that was trained on longer ones keeps reading them."""
    args = Namespace(
        kind=kind,
        draft_vocab=0,
        start="random",
        layers=1,
        block_size=6,
        seed=0,
        rank=4,
        shape=None,
    )
    net, _ = initial_network(tiny_loaded, periodic_corpus(4, length=80), args)
    assert net.config.context_window == 60
    args.start = str(save_drafter(net, tmp_path / "d", "#"))
    for length, window in ((40, 60), (400, 300)):
        again, _ = initial_network(tiny_loaded, periodic_corpus(4, length=length), args)
        assert again.config.context_window == window
