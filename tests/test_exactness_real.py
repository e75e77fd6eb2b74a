"""Exactness at full size, on the embedded target in every dtype: whatever drafts, the text is the
plain lane's, and a row has the same bits in any pass, as far as the target's positions go.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specdemo.drafters import METHODS
from specdemo.engine import race
from specdemo.engine.cost import VERIFY_WIDTH, WIDTHS
from specdemo.prompts import HELD_OUT, load_suite
from specdemo.request import Request

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent
PROMPTS = 20
TOKENS = {"bf16": 24, "fp32": 10, "int4": 24}  # of an answer; fp32 is several times slower
METHODS_HERE = ("best", "tree", "block", "lookup", "d2sd")
# each but the first ends before rows whose far part is one chunk longer than their neighbours'
CONTEXTS = (160, 1015, 4120, 7960)
CHAIN = 12  # tokens behind a context


@pytest.fixture(params=["bf16", "int4"])
def long_engine(request):
    return request.getfixturevalue(f"engine_{request.param}")


@pytest.mark.parametrize("dtype", TOKENS)
def test_twenty_prompts_have_the_plain_text_with_every_method(dtype, request):
    # without a pace nothing is measured after a race
    engine, wrong = replace(request.getfixturevalue(f"engine_{dtype}"), pace=None), []
    for prompt in load_suite(HELD_OUT).first(PROMPTS):
        found = {}
        for method in ("lookup", *METHODS_HERE):
            lanes = "spec" if found else "ar"
            asked = Request(
                prompt.text, method, max_new_tokens=TOKENS[dtype], lanes=lanes, record=False
            )
            *_, done = race(engine, asked)
            found["plain" if lanes == "ar" else method] = done.result["output_ids"]
        wrong += [(prompt.id, name) for name, ids in found.items() if ids != found["plain"]]
        assert found.keys() == {"plain", *METHODS_HERE}
    assert set(METHODS_HERE) <= set(METHODS) and not wrong


@pytest.fixture(scope="module")
def long_text(engine_bf16):
    """A cache that holds a text of more tokens than any of the contexts; one dtype's is as good as
    the other's.
    """
    target, tokenizer = engine_bf16.target, engine_bf16.tokenizer
    ids = tokenizer((ROOT / "LICENSE").read_text(encoding="utf-8"))["input_ids"]
    while len(ids) < CONTEXTS[-1]:
        ids = ids + ids[::-1]
    cache = target.new_cache(CONTEXTS[-1])
    with torch.inference_mode():
        target.prefill(cache, ids[: CONTEXTS[-1]])
    return cache


class Behind:
    """Passes of ``target`` behind the first ``context`` tokens of ``text``.

    Attributes:
        tokens: the first is the anchor of every pass.
        rows: what the target says after each, read one a pass.
    """

    def __init__(self, target, text, context, width):
        self.target, self.context = target, context
        self.cache = target.new_cache(context + CHAIN + WIDTHS[-1])
        self.cache.repeat(text, context, context)
        rng = random.Random(context)
        self.tokens = [rng.randrange(target.vocab_size) for _ in range(CHAIN)]
        self.rng, rows = rng, []
        for token in self.tokens:
            rows.append(target.verify(self.cache, token, [], [], width)[0][0])
            self.cache.commit([])
        self.rows = torch.stack(rows)

    def chain(self, width: int) -> bool:
        """Whether a chain of as many tokens as fit, and the row after half of it is committed, have
        these bits.
        """
        nodes = self.tokens[1:width]
        path = list(range(len(nodes)))
        return self._agree(nodes, [node - 1 for node in path], path, width)

    def tree(self, width: int) -> bool:
        """The same of a path through a tree of ``width`` rows whose other nodes are wrong."""
        places = self.rng.sample(range(width - 1), min(CHAIN - 1, width // 2))
        nodes, parent, path = [], [], []
        for i in range(width - 1):
            if i in places:
                nodes.append(self.tokens[len(path) + 1])
                parent.append(path[-1] if path else -1)
                path.append(i)
            else:
                nodes.append(self.rng.randrange(self.target.vocab_size))
                parent.append(self.rng.randrange(-1, i) if i else -1)
        return self._agree(nodes, parent, path, width)

    def _agree(self, nodes, parent, path, width) -> bool:
        self.cache.rollback(self.context)
        rows = self.target.verify(self.cache, self.tokens[0], nodes, parent, width)[0]
        kept = path[: len(path) // 2]
        self.cache.commit(kept)
        after = self.target.verify(self.cache, self.tokens[len(kept) + 1], [], [], width)[0][0]
        return torch.equal(
            rows[[0, *(node + 1 for node in path)]], self.rows[: len(path) + 1]
        ) and torch.equal(after, self.rows[len(kept) + 1])


@pytest.mark.parametrize("context", CONTEXTS)
def test_rows_of_any_pass_have_the_bits_of_one_token_a_pass(long_engine, long_text, context):
    """All widths that races use, as chains and as trees whose nodes lie anywhere among others."""
    target, widths = long_engine.target, long_engine.costs.widths
    assert VERIFY_WIDTH in widths
    with torch.inference_mode():
        behind = Behind(target, long_text, context, widths[0])
        wrong = [
            (form.__name__, width)
            for width in widths
            if width > 1
            for form in (behind.chain, behind.tree)
            if not form(width)
        ]
    assert not wrong
    if target.pass_kind == "compiled" and target._compiled.far_step:
        assert widths == list(WIDTHS)  # one call computes a whole pass, by one row or by 64
