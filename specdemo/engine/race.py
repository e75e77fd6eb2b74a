"""The race: lanes answer the same prompt on the same target, one at a time, each on its own clock:
plain decoding and a method, or plain decoding and two methods.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator

import torch
import transformers

from .. import __version__
from ..drafters import METHODS
from ..drafters.parts.base import Drafter
from ..errors import UserError
from ..events import (
    Against,
    Done,
    Event,
    PrefillProgress,
    Start,
)
from ..request import Request
from ..totals import ArTotals, RaceResult, SpecTotals
from .comparison import compare, over
from .engine import Engine
from .exactness import check_exact
from .graphs.lane import for_request, make_lane
from .lane import Lane
from .nodes import cut_note, refuse_nodes
from .prompt import ReadPrompt
from .roofline import roofline
from .target import BUCKETS

PAUSE = 1.0  # seconds of one round without any computing that are worth a sentence


def race(
    engine: Engine, request: Request, cancel: threading.Event | None = None
) -> Iterator[Event]:
    """Events of one race, as they happen: ``Start``, a ``PrefillProgress`` between two chunks of a
    long prompt, a ``Prefill`` a lane, rounds of all lanes, ``Done``.

    The prompt is read once, for both lanes; once more where two methods read different layers of
    it. The lane whose clock is behind always moves next, so what is seen live is the true ratio.
    ``cancel`` is looked at before each chunk, each lane's first token and each round; closing the
    generator ends the race at once and leaves the engine ready for the next one.
    """
    asked = [request, request.left] if request.against else [request]
    engine.widen(max(one.params.most_nodes() for one in asked))
    engine, why_host = for_request(engine, request)
    prompt_ids = engine.encode(request.prompt)
    limit, note = _fit(engine, prompt_ids, request.max_new_tokens)
    with engine.lock:
        engine.begin_race()
        try:
            drafter = _drafter(engine, request) if request.lanes != "ar" else None
            left = _drafter(engine, request.left) if request.against else None
            yield _start(engine, request, prompt_ids, limit, drafter, left, why_host)
            lanes = _lanes(engine, request, prompt_ids, limit, drafter, left)
            paused = 0.0
            stopped = yield from _prefill(engine, lanes, prompt_ids, cancel)
            while not stopped and (running := [lane for lane in lanes if not lane.finish]):
                if stopped := _is_set(cancel):
                    break
                events, idle = _advance(engine, min(running, key=lambda lane: lane.clock))
                paused += idle if idle >= PAUSE else 0
                yield from events
            done = _done(engine, request, lanes, stopped, [note, _pause_remark(paused)])
            if request.check and not stopped:
                for lane in lanes:
                    if lane.name != "ar":
                        checked = done.result if lane.name == "spec" else done.result["against"]
                        checked["exact"] = check_exact(engine, lane.request, lane, limit)
            yield done
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            raise UserError(
                "The GPU ran out of memory; ask for fewer new tokens, shorten the prompt, or close"
                " other programs that use the GPU."
            ) from None
        finally:
            engine.end_race()


def _drafter(engine: Engine, request: Request) -> Drafter:
    drafter = METHODS[request.method].build(engine.loaded, request.params)
    most_rows = engine.costs.rows_for(request.params.most_nodes())
    refuse_nodes(drafter.params, most_rows, engine.costs.widths)
    return drafter


def _lanes(
    engine: Engine,
    request: Request,
    prompt_ids: list[int],
    limit: int,
    drafter: Drafter | None,
    left: Drafter | None,
) -> list[Lane]:
    """The lanes of a race in the order in which they begin; ``left`` drafts for the left one."""
    lanes = []
    if request.lanes != "spec":
        lanes.append(make_lane(engine, request, prompt_ids, limit))
    if left is not None:
        lanes.append(make_lane(engine, request.left, prompt_ids, limit, left, "against"))
    if drafter is not None:
        lanes.append(make_lane(engine, request, prompt_ids, limit, drafter))
    # no lane always meets the colder cache
    return lanes[::-1] if request.sampling.seed % 2 else lanes


def _prefill(
    engine: Engine, lanes: list[Lane], prompt_ids: list[int], cancel: threading.Event | None
) -> Generator[Event, None, bool]:
    """Read the prompt and begin every lane; whether it was stopped before the end."""
    owners: dict[tuple[int, ...], Lane] = {}  # by the layers that they read
    for lane in sorted(lanes, key=lambda lane: not lane.taps):
        if lane.taps or not owners:
            owners.setdefault(lane.taps, lane)
    prompts = [ReadPrompt(engine, prompt_ids, owner.cache, taps) for taps, owner in owners.items()]
    for prompt in prompts:
        for read in prompt.chunks():
            if 0 < read < len(prompt_ids):
                yield PrefillProgress(read, len(prompt_ids))
            if _is_set(cancel):
                return True
    for lane in lanes:
        if _is_set(cancel):
            return True
        yield lane.prefill(next((p for p in prompts if p.taps == lane.taps), prompts[0]))
    return False


def _advance(engine: Engine, lane: Lane) -> tuple[list[Event], float]:
    """One round, and the seconds of its clock in which no thread of this process computed; 0 on a
    GPU, for which the process waits.
    """
    clock, computed = lane.clock, time.process_time()
    events = lane.advance()
    if engine.target.device.type != "cpu":
        return events, 0.0
    return events, (lane.clock - clock) - (time.process_time() - computed)


def _pause_remark(seconds: float) -> str | None:
    """A sentence on rounds during which the process stood still: their clock went on."""
    if not seconds:
        return None
    return (
        f"The clocks count {seconds:.1f} seconds in which this program did not run"
        " (halted, or crowded out by others), so the speeds mean nothing; race again."
    )


def _is_set(cancel: threading.Event | None) -> bool:
    return cancel is not None and cancel.is_set()


def _fit(engine: Engine, prompt_ids: list[int], wanted: int) -> tuple[int, str | None]:
    """How many new tokens fit behind the prompt, and a sentence if that is fewer than asked for."""
    # the last passes may reach past the target's last position: only with rows that cannot be kept
    last = BUCKETS[-1] - engine.costs.max_rows  # of what a cache holds
    room = min(engine.target.max_positions, last) - len(prompt_ids)
    if not prompt_ids:
        raise UserError("The prompt is empty; type a question or choose an example.")
    if room < 1:
        raise UserError(
            f"The prompt has {len(prompt_ids)} tokens and prompt and answer together can have at"
            f" most {len(prompt_ids) + room} with this target; shorten it."
        )
    if wanted > room:
        fit = "token fits" if room == 1 else "tokens fit"
        return room, (
            f"Only {room} new {fit} behind this prompt, so the limit was lowered from {wanted}."
        )
    return wanted, None


def _start(
    engine: Engine,
    request: Request,
    prompt_ids: list[int],
    limit: int,
    drafter: Drafter | None,
    left: Drafter | None,
    why_host: str,
) -> Start:
    middle = len(prompt_ids) + limit // 2
    costs = engine.costs.at(middle)
    against: Against | None = None
    if left is not None:
        params = dict(left.params)
        against = {"method": request.against, "params": params, "weights": left.weights}
    return Start(
        prompt=request.prompt,
        prompt_ids=prompt_ids,
        pair=engine.loaded.pair.id,
        method=request.method,
        rule=request.rule,
        params=dict(drafter.params if drafter else request.params),
        sampling=request.sampling.to_dict(),
        max_new_tokens=request.max_new_tokens,
        hardware=engine.hardware(),
        dtype=engine.dtype,
        versions={
            "specdemo": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        weights=drafter.weights if drafter else "",
        borrowed=_borrows(drafter) if drafter else None,
        cost_ms={str(rows): ms for rows, ms in costs.ms.items()},
        most_nodes=costs.rows_for(request.params.most_nodes()) - 1,
        one_row_ms=costs.one_row_ms,
        ar_width=costs.ar_width,
        baseline_ms=costs.baseline_ms,
        roofline=roofline(engine.target, engine.speeds, middle),
        target_pass=engine.pass_kind,
        target_step=engine.step,
        why_general=engine.why_general,
        why_host=why_host,
        vocab=engine.vocab(prompt_ids),
        against=against,
    )


def _borrows(drafter: Drafter) -> bool:
    """Whether it, or a network of it, runs on weights that were trained for another kind."""
    parts = (drafter, *vars(drafter).values())
    return any(getattr(part, "borrowed", False) for part in parts)


def _done(
    engine: Engine,
    request: Request,
    lanes: list[Lane],
    stopped: bool,
    notes: list[str | None],
) -> Done:
    ar = next((lane for lane in lanes if lane.name == "ar"), None)
    spec = next((lane for lane in lanes if lane.name == "spec"), None)
    left = next((lane for lane in lanes if lane.name == "against"), None)
    answer = spec or lanes[0]
    remarks = dict.fromkeys([*answer.remarks, *(left.remarks if left else ())])
    slower = engine.pace.remark() if engine.pace is not None else None
    result: RaceResult = {
        "method": request.method,
        "pair": engine.loaded.pair.id,
        "rule": request.rule,
        "hardware": engine.hardware(),
        "dtype": engine.dtype,
        "prompt_tokens": answer.prompt_length,
        "finish_reason": answer.finish or "stopped",
        "ar": _ar_totals(engine, ar) if ar else None,
        "spec": _spec_totals(spec) if spec else None,
        "speedup": None,
        "predicted_speedup": None,
        "identical": None,
        "first_difference": None,
        "output_ids": answer.output,
        "note": " ".join(filter(None, [*notes, slower, cut_note(answer), *remarks])) or None,
    }
    if ar and spec:
        against_plain = compare(spec, ar, _ar_totals(engine, ar), stopped)
        result["speedup"] = against_plain["speedup"]
        result["predicted_speedup"] = against_plain["predicted_speedup"]
        result["identical"] = against_plain["identical"]
        result["first_difference"] = against_plain["first_difference"]
    if ar and spec and left:
        result["against"] = {
            "method": request.against,
            "spec": _spec_totals(left),
            **compare(left, ar, _ar_totals(engine, ar), stopped),
            "ratio": over(spec.totals(), left.totals()),
        }
    return Done(
        result,
        ar.stop.text if ar else "",
        spec.stop.text if spec else "",
        stopped,
        left.stop.text if left else None,
    )


def _ar_totals(engine: Engine, lane: Lane) -> ArTotals:
    """The plain lane, and the one-row kernel beside it: the lane's own rate scaled by the two
    passes' costs in the middle of the answer.
    """
    totals = lane.totals()
    costs = engine.costs.at(lane.prompt_length + len(lane.output) // 2)
    scale = costs.ms[lane.width] / costs.one_row_ms
    return {
        **totals,
        "width": lane.width,
        "one_row_tokens_per_second": totals["tokens_per_second"] * scale,
    }


def _spec_totals(lane: Lane) -> SpecTotals:
    rounds = max(lane.rounds, 1)
    return {
        **lane.totals(),
        "rounds": lane.rounds,
        "cut_rounds": lane.cut_rounds,
        "drafting_rounds": lane.drafting_rounds,
        "accepted_per_round": lane.accepted / rounds,
        "tokens_per_round": max(len(lane.output) - 1, 0) / rounds,
        "draft_seconds": lane.draft_seconds,
        "verify_seconds": lane.verify_seconds,
    }
