"""Small targets and scripted drafters for exact, fast tests: no weights are fetched."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from tiny_models import make_tiny_target

from specdemo.drafters.parts.base import Draft
from specdemo.engine import Engine
from specdemo.engine.calibrate import equal_widths
from specdemo.engine.cost import CostModel
from specdemo.engine.lane import Lane
from specdemo.engine.target import Target
from specdemo.request import Request, Sampling

VOCAB = 128
PROMPT = [3, 14, 15, 92, 65]


class Letters:
    """Tokenizer whose token i reads as one piece: letters for 0..25, else ``<i>``; encoding is the
    code point modulo the vocabulary.
    """

    chat_template = None

    def __init__(self, pieces: dict[int, str] | None = None):
        self.pieces = pieces or {}

    def decode(self, ids, **_):
        return "".join(self.pieces.get(i, chr(97 + i) if i < 26 else f"<{i}>") for i in ids)

    def __call__(self, text, **_):
        return {"input_ids": [ord(c) % VOCAB for c in text]}


def engine_for(target, eos=(), pieces=None, widths=(1, 2, 4, 8, 16, 32, 64)) -> Engine:
    pair = SimpleNamespace(id="tiny", drafters={}, thinking=None, ngram=None)
    loaded = SimpleNamespace(
        pair=pair,
        model=None,
        tokenizer=Letters(pieces),
        eos_ids=tuple(eos),
        dtype=target.dtype,
        quantized=None,
        device=target.device,
    )
    costs = CostModel({w: 1.0 + w / 64 for w in (1, *widths)}, 1.0, list(widths))
    return Engine(loaded, target, costs)


def tiny_engine(eos=(), pieces=None, **changes) -> Engine:
    target = Target(make_tiny_target(**changes))
    with torch.inference_mode():
        return engine_for(target, eos, pieces, equal_widths(target))


class Script:
    """A target that says what it is told: ``rule(prefix) -> logits [V]`` for the token after
    ``prefix``.
    """

    pass_kind = "eager"

    def __init__(self, rule, vocab=32, max_positions=4096):
        self.rule, self.vocab_size, self.max_positions = rule, vocab, max_positions
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.config = SimpleNamespace(hidden_size=4)
        self.calls: list[int] = []  # rows of every pass

    @classmethod
    def saying(cls, prompt_length: int, text: list[int], vocab=32):
        """Writes ``text`` after the prompt, then token 0 for ever; the runner-up is always one
        below.
        """

        def rule(prefix):
            at = len(prefix) - prompt_length
            logits = torch.zeros(vocab)
            logits[text[at] if at < len(text) else 0] = 5.0
            return logits

        return cls(rule, vocab)

    def new_cache(self, slots):
        return ScriptCache(slots)

    def prefill(self, cache, ids, taps=()):
        cache.ids += ids
        return self.rule(cache.ids)[None], torch.zeros(len(ids), 4 * len(taps)) if taps else None

    def verify(self, cache, anchor, tokens, parent, width, taps=(), attention="layout_invariant"):
        assert len(tokens) < width and len(cache.ids) + width <= cache.capacity
        self.calls.append(width)
        paths = [[*cache.ids, anchor]]
        for token, above in zip(tokens, parent, strict=True):
            paths.append([*paths[above + 1], token])
        cache.last = paths
        return torch.stack([self.rule(p) for p in paths]), (
            torch.zeros(len(paths), 4 * len(taps)) if taps else None
        )


class ScriptCache:
    def __init__(self, capacity):
        self.capacity, self.ids, self.last = capacity, [], None

    @property
    def length(self):
        return len(self.ids)

    def commit(self, path):
        self.ids = list(self.last[path[-1] + 1 if path else 0])


class Proposes:
    """A drafter that proposes ``make(ids) -> Draft | list`` and remembers what it heard."""

    layer_ids: tuple[int, ...] = ()
    weights = "scripted"

    def __init__(self, make, layer_ids=()):
        self.make, self.layer_ids, self.calls, self.verdicts = make, layer_ids, 0, []

    def start(self, prompt_ids, capacity):
        self.prompt = list(prompt_ids)

    def propose(self, context):
        self.calls += 1
        made = self.make(list(context.ids))
        return made if isinstance(made, Draft) else Draft.chain(made)

    def observe(self, verdict):
        self.verdicts.append(verdict)


def oracle(truth: list[int], prompt: int, depth: int = 7):
    """Proposes what the target will write."""
    return lambda ids: truth[len(ids) - prompt :][:depth]


def write(engine, drafter=None, max_new=48, sampling=None, **more):
    """The finished lane of an answer to ``PROMPT``."""
    lane = Lane(
        engine,
        Request("x", "ar", sampling=sampling or Sampling(), **more),
        PROMPT,
        max_new,
        drafter,
    )
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            lane.advance()
    return lane
