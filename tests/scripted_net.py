"""Scripted networks: a drafter whose every logit a test writes down, and methods built on it."""

import math
from types import SimpleNamespace

import torch

from specdemo.drafters import METHODS
from specdemo.drafters.parts import block_context
from specdemo.drafters.parts.base import Context

V = 8


class FakeNet:
    """A network of the block interface whose logits are scripted: ``script(block, anchor_position)
    -> [[V floats] per slot]``.
    """

    layer_ids, weights = (1, 3), "scripted"
    markov_tables = pair_head = None
    reads_text = False

    def __init__(self, script, block_size=8, vocab_ids=None, mask_id=None):
        self.script, self.most_masks = script, block_size - 1
        self.vocab_ids = None if vocab_ids is None else torch.tensor(vocab_ids)
        self.config = SimpleNamespace(mask_token_id=mask_id)
        self.passes = []  # (blocks, anchor position, rows of context seen) of every pass

    def new_cache(self, capacity):
        return SimpleNamespace(rows=[], capacity=capacity)

    def extend(self, cache, features, start):
        assert start == len(cache.rows), "features must arrive in order and without gaps"
        cache.rows += features.tolist()

    def hidden(self, ids, anchor_position, cache):
        self.passes.append((ids.tolist(), anchor_position, len(cache.rows)))
        return torch.tensor([self.script(block, anchor_position) for block in ids.tolist()])

    def logits(self, hidden):
        return hidden


def logs(*rows):
    """Logits whose softmax is these probabilities; what a row lacks to one is not filled up, so
    give whole rows.
    """
    return [[math.log(p) if p > 0 else -1e9 for p in row] for row in rows]


def loaded(monkeypatch=None, **nets):
    """A stand-in for models.Loaded whose networks are ``nets`` by kind."""
    if monkeypatch is not None:
        monkeypatch.setattr(
            block_context, "load_network", lambda loaded, kind: nets.get(kind, nets.get("block"))
        )
    vocab = SimpleNamespace(config=SimpleNamespace(vocab_size=8))
    return SimpleNamespace(
        pair=SimpleNamespace(id="fake", drafters={k: k for k in nets}, ngram=None),
        model=vocab,
        device="cpu",
        eos_ids=(7,),
        tokenizer=None,
    )


def context(ids, fresh=None, budget=31, **more):
    """A round's context whose features are ``fresh`` rows that start at the given position: (start,
    count).
    """
    start, count = fresh or (0, 0)
    rows = torch.arange(start, start + count, dtype=torch.float32)[:, None].repeat(1, 4)
    return Context(ids=ids, take_features=lambda: (rows, start), budget=budget, **more)


def depths(draft):
    """``[n]`` distance of each node from the anchor, 1 for its children."""
    out = []
    for parent in draft.parent:
        out.append(1 if parent < 0 else out[parent] + 1)
    return out


def make(monkeypatch, name, params=None, **nets):
    drafter = METHODS[name].build(
        loaded(monkeypatch, **nets), METHODS[name].parse_params(params or {})
    )
    drafter.start([1, 2, 3], 64)
    return drafter


def peaked(token, p=0.9):
    """A distribution over V ids with ``p`` on one token, the rest shared by the others."""
    return [p if i == token else (1 - p) / (V - 1) for i in range(V)]


def same_row(*rows):
    """A script whose slot k > 0 always says rows[k - 1]."""
    return lambda block, at: logs(peaked(0), *rows)[: len(block)]


def noisy(block, at):
    """Some network that depends on everything it sees."""
    rng = torch.Generator().manual_seed(
        (sum((k + 3) * (b + 2) for k, b in enumerate(block)) * 31 + at) % 100003
    )
    return (torch.rand(len(block), V, generator=rng) * 4).tolist()


def chained(block, at):
    """Predicts a token from its left neighbour alone: after a visible t, t + 1 with confidence;
    after a mask, 6 without.
    """
    rows = [peaked(0)]
    for k in range(1, len(block)):
        rows.append(
            peaked((block[k - 1] + 1) % V, 0.9) if block[k - 1] >= 0 else peaked(6, 0.4 - 0.01 * k)
        )
    return logs(*rows)
