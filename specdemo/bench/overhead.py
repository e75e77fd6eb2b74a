"""``specdemo device --shape``: how much of a round is not a pass, for models of any size.

Two lanes decode a pair with random weights (:mod:`.shapes`), through the loop that races use: one
plainly, one with drafts of which a chosen number of tokens is right. The rates say nothing about
any drafter; the share outside passes is what a real one of that size would meet here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ..drafters.parts.base import Drafter
from ..engine import Engine
from ..engine.graphs.lane import DeviceLane, for_request, make_lane
from ..engine.graphs.rounds import median_ms
from ..engine.lane import Lane
from ..hardware import clock_now
from ..request import Request
from .shapes import BLOCK, SHAPES, ForcedChain, parameters

PROMPT = "".join(chr(33 + 7 * i % 90) for i in range(160))
REPEATS = 20  # replays of a captured round that are timed


def overhead(
    engine: Engine, shape: str, tokens_per_round: float, max_new_tokens: int
) -> dict[str, Any]:
    """Both lanes' figures, see :func:`_figures`, and the ratio of their rates."""
    plain = _figures(engine, None, max_new_tokens)
    forced = _figures(engine, ForcedChain(engine.loaded, tokens_per_round), max_new_tokens)
    count = parameters(SHAPES[shape])
    return {
        "shape": shape,
        "parameters": count,
        "weights_gib": count * engine.target.dtype.itemsize / 2**30,
        "target_pass": engine.pass_kind,
        "plain": plain,
        "forced": forced,
        "ratio": forced["tokens_per_second"] / plain["tokens_per_second"],
    }


def _figures(engine: Engine, drafter: Drafter | None, max_new_tokens: int) -> dict[str, Any]:
    """Of one answer, after another that warms up: what a round takes from its begin until its
    events are there, inside passes of the target and the drafter and outside them, in
    milliseconds.
    """
    for measured in (False, True):
        lane = _lane(engine, drafter, max_new_tokens)
        inside = _Inside(lane)
        began = time.perf_counter()
        with inside.measured() if measured else _nothing():
            while not lane.finish:
                lane.advance()
        whole = (time.perf_counter() - began) * 1e3 / lane.rounds
    within, tokens, costs = inside.ms(), len(lane.output) - 1, lane.engine.costs
    return {
        "rounds": lane.rounds,
        "rows": lane.width if drafter is None else costs.width_for(min(BLOCK, costs.max_rows)),
        "tokens_per_round": tokens / lane.rounds,
        "ms_per_round": whole,
        "ms_inside_passes": within,
        "ms_outside_passes": whole - within,
        "share_outside": (whole - within) / whole,
        "tokens_per_second": tokens * 1e3 / (whole * lane.rounds),
    }


def _lane(engine: Engine, drafter: Drafter | None, max_new_tokens: int) -> Lane:
    """Its prompt read."""
    method = "ar" if drafter is None else "block"
    request = Request(PROMPT, method, max_new_tokens=max_new_tokens, record=False)
    engine, _ = for_request(engine, request)
    lane = make_lane(engine, request, engine.encode(PROMPT), max_new_tokens, drafter)
    lane.prefill()
    return lane


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class _Inside:
    """Milliseconds a round of ``lane`` spends in passes: by a clock around each, or, where a whole
    round is captured, of the captured passes alone.
    """

    def __init__(self, lane: Lane):
        self.lane, self.seconds = lane, 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        with ExitStack() as stack:
            if not isinstance(self.lane, DeviceLane):
                stack.enter_context(self._timed(self.lane.engine.target, ("verify",)))
                if isinstance(self.lane.drafter, ForcedChain):
                    net = self.lane.drafter.network.net
                    stack.enter_context(self._timed(net, ("extend", "hidden", "logits")))
            yield

    @contextmanager
    def _timed(self, owner: Any, names: Sequence[str]) -> Iterator[None]:
        device = self.lane.engine.target.device

        def timed(call: Any) -> Any:
            def run(*args: Any, **more: Any) -> Any:
                began = clock_now(device)
                found = call(*args, **more)
                self.seconds += clock_now(device) - began
                return found

            return run

        for name in names:
            setattr(owner, name, timed(getattr(owner, name)))
        try:
            yield
        finally:
            for name in names:
                delattr(owner, name)

    def ms(self) -> float:
        if not isinstance(self.lane, DeviceLane):
            return self.seconds * 1e3 / self.lane.rounds
        graphs, state = self.lane.graphs, self.lane.graphs.state
        steps = [step for step in (self.lane.verify, graphs.extend, graphs.fill) if step]
        length = state.length.clone()

        def again(step: Any) -> Any:
            def run() -> None:
                state.length.copy_(length)
                step()

            return run

        with torch.inference_mode():
            device = self.lane.engine.target.device
            return sum(median_ms(device, again(step), REPEATS) for step in steps)
