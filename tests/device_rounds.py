"""Engines whose rounds run on the device, and what tests do with them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import torch
from tiny import PROMPT, engine_for
from tiny_models import make_tiny_drafter, make_tiny_target
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specdemo.drafters import METHODS
from specdemo.engine.graphs.attention import DoubleAttention
from specdemo.engine.graphs.capture import run_eagerly
from specdemo.engine.graphs.lane import for_request, make_lane
from specdemo.engine.graphs.rounds import DeviceRounds
from specdemo.engine.target import Target
from specdemo.request import Request, Sampling


def rounds_of(target, width=16, capture=run_eagerly, attention=None):
    group = target.shape.heads // target.shape.kv_heads
    return DeviceRounds(target, attention or DoubleAttention(group), capture, width)


def device_engine(width=16, capture=run_eagerly, device="cpu", net=True, **changes):
    """A tiny pair whose target runs its rounds on the device."""
    model = make_tiny_target(**changes).to(device)
    target = Target(model)
    engine = engine_for(target)
    engine.loaded = SimpleNamespace(**vars(engine.loaded) | {"model": model, "networks": {}})
    if net:
        engine.loaded.networks["block"] = make_tiny_drafter(model, block_size=16).to(device)
        head = model.get_output_embeddings().weight
        engine.loaded.networks["block"].bind(model.get_input_embeddings().weight, head)
        engine.loaded.pair = SimpleNamespace(
            id="tiny", drafters={"block": "tiny"}, thinking=None, ngram=None
        )
    return replace(engine, rounds=rounds_of(target, width, capture))


def lane_of(engine, method="ar", new=40, prompt=PROMPT, params=None, drafter=None, **more):
    """A lane as a race makes it, its prompt read."""
    request = Request("x", method, params or {}, max_new_tokens=new, **more)
    engine, _ = for_request(engine, request)
    if drafter is None and method != "ar":
        drafter = METHODS[method].build(engine.loaded, request.params)
    lane = make_lane(engine, request, list(prompt), new, drafter)
    lane.prefill()
    return lane


def finish(lane):
    while not lane.finish:
        lane.advance()
    return lane.output


def written(engine, method="ar", **more):
    return finish(lane_of(engine, method, **more))


SAMPLED = Sampling(
    temperature=0.9, top_k=60, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=3
)


class Tape(TorchDispatchMode):
    """Every operator with shapes, strides and dtypes of its tensors and all of its numbers."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((str(func), tuple(map(self._seen, tree_leaves((args, kwargs))))))
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _seen(x):
        if isinstance(x, torch.Tensor):
            packed = x.layout != torch.strided
            return tuple(x.shape), () if packed else x.stride(), x.dtype
        return x if isinstance(x, (int, float, bool, str)) else str(x)
