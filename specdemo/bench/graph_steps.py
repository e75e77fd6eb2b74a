"""Parts of :mod:`.graph_report`: single graphs and lanes, made and run."""

from __future__ import annotations

import random

import torch

from ..drafters import METHODS
from ..drafters.parts.block_context import open_context
from ..engine import Engine
from ..engine.graphs.attention import Attention
from ..engine.graphs.capture import Capture, Step, run_eagerly
from ..engine.graphs.checks import arbitrary_ids
from ..engine.graphs.choose import Processing
from ..engine.graphs.draft import DraftSteps
from ..engine.graphs.lane import for_request, make_lane
from ..engine.graphs.load import CONTEXT, graphs_of
from ..engine.graphs.rounds import LaneGraphs
from ..engine.lane import Lane
from ..engine.target import Target
from ..request import Request, Sampling

PROCESSINGS = {  # one request of every kind of graph that matters
    "greedy": Sampling(),
    "sampled": Sampling(0.8, seed=3),
    "filtered": Sampling(0.8, top_k=50, top_p=0.9, min_p=0.02, repetition_penalty=1.1, seed=3),
}


def timed_step(graphs: LaneGraphs, sampling: Sampling) -> Step:
    """A plain round behind always the same number of tokens."""
    verify, state = graphs.verify(Processing.of(sampling)), graphs.state
    state.upload([], [])

    def step() -> None:
        with torch.inference_mode():
            state.length.fill_(CONTEXT)
            verify()

    return step


def capture_draft(engine: Engine, attention: Attention, capture: Capture, gamma: int) -> bool:
    """Capture the drafter's steps and run them once; False where its block is shorter, or the pair
    has no block drafter.
    """
    if not {"block"} & set(engine.loaded.pair.drafters):
        return False
    context = open_context(engine.loaded)
    if gamma > context.max_masks:
        return False
    plain = graphs_of(engine.fast_target, attention, run_eagerly, 16)
    steps = DraftSteps(context, gamma, 15, True)
    graphs = LaneGraphs(
        engine.fast_target, plain.state.cache, 16, attention, capture, context.layer_ids, steps
    )
    graphs.verify(Processing())()
    assert graphs.extend is not None and graphs.fill is not None
    graphs.extend()
    graphs.fill()
    return True


@torch.inference_mode()
def replay_differs(
    target: Target, attention: Attention, capture: Capture, width: int, sampling: Sampling
) -> int:
    """In how many of several unlike rounds a captured round leaves other bits behind than the
    eager one: logits, keys, values, place in the text, or what is downloaded.
    """
    both = [graphs_of(target, attention, how, width) for how in (run_eagerly, capture)]
    steps = [graphs.verify(Processing.of(sampling)) for graphs in both]
    ids = arbitrary_ids(target, 53, 29, CONTEXT)
    for graphs in both:
        state = graphs.state
        state.cache.keys.zero_()
        state.cache.values.zero_()
        state.cache.length = 0
        target.prefill(state.cache, ids[:-1])
        state.begin(ids, sampling)
    bad = 0
    for tokens, parent in _drafts(target, both[0], steps[0], width, sampling, ids):
        for graphs, step in zip(both, steps, strict=True):
            graphs.state.upload(tokens, parent)
            step()
        left, right = both[0].state, both[1].state
        pairs = (
            (left.logits, right.logits),
            (left.cache.keys, right.cache.keys),
            (left.cache.values, right.cache.values),
            (left.out, right.out),
            (left.length, right.length),
            (left.anchor, right.anchor),
        )
        bad += not all(torch.equal(a, b) for a, b in pairs)
    return bad


def _drafts(
    target: Target,
    graphs: LaneGraphs,
    step: Step,
    width: int,
    sampling: Sampling,
    ids: list[int],
) -> list[tuple[list[int], list[int]]]:
    """Unlike drafts; the third is the start of what the target writes, found out beforehand and
    undone.
    """
    state, truth, kept = graphs.state, [], [graphs.state.cache.keys, graphs.state.cache.values]
    before = [stored.clone() for stored in kept]
    for _ in range(8):
        state.upload([], [])
        step()
        truth.append(int(state.anchor.cpu()[0]))
    for stored, old in zip(kept, before, strict=True):
        stored.copy_(old)
    state.begin(ids, sampling)
    rng = random.Random(width)
    tree = [rng.randint(-1, node - 1) for node in range(width - 1)]
    tokens = [rng.randrange(target.vocab_size) for _ in tree]
    return [([], []), (truth[1:7], list(range(-1, 5))), (tokens, tree), ([], [])]


def device_lane(
    engine: Engine,
    method: str,
    prompt: str,
    max_new_tokens: int,
    sampling: Sampling | None = None,
) -> Lane:
    """A lane as a race makes it, its prompt read; "ar" is the plain one."""
    request = Request(
        prompt,
        method,
        sampling=sampling or Sampling(),
        max_new_tokens=max_new_tokens,
        record=False,
    )
    engine, why = for_request(engine, request)
    if why or engine.rounds is None:
        raise RuntimeError(why or "there are no captured rounds")
    drafter = None if method == "ar" else METHODS[method].build(engine.loaded, request.params)
    lane = make_lane(engine, request, engine.encode(prompt), max_new_tokens, drafter)
    lane.prefill()
    return lane
