"""``specdemo device --graphs``: everything that captured rounds promise, tried on the card itself,
with a line that says passed or failed for each and one report of all figures.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine import Engine
from ..engine.graphs.attention import Attention, DoubleAttention
from ..engine.graphs.capture import Capture, CudaCapture, run_eagerly
from ..engine.graphs.checks import CONTEXTS, unequal_rows
from ..engine.graphs.load import graphs_of, round_ms
from ..engine.graphs.rounds import SLOTS, median_ms, slots_for
from ..request import Sampling
from .graph_steps import PROCESSINGS, capture_draft, device_lane, replay_differs, timed_step

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
FAR = (1022, 4094, 7902)  # long contexts at which rows are compared
SECONDS = 330.0  # no further race begins after this
SAMPLED = 0.8  # the second temperature of the races

# whether it holds (None: nothing was promised), and figures
Outcome = tuple[bool | None, dict[str, Any]]


@dataclass
class GraphReport:
    """Runs the steps and keeps what they found.

    Args:
        methods: to race; those whose rounds take one pass of one network wait once a round.
        timed: whether this device's times mean anything, which a made-up one's do not.
        say: takes a line for whoever watches.
    """

    engine: Engine
    methods: Sequence[str]
    prompts: Sequence[str]
    max_new_tokens: int
    repeats: int
    say: Callable[[str], object]
    timed: bool = True
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        target, rounds = self.engine.fast_target, self.engine.rounds
        group = target.shape.heads // target.shape.kv_heads
        self.attention: Attention = rounds.attention if rounds else DoubleAttention(group)
        self.capture: Capture = CudaCapture(target.device)

    def run(self) -> dict[str, Any]:
        """All steps; a report whose ``passed`` says whether every promise held."""
        for name, step in (
            ("an engine has captured rounds", self.rounds),
            ("each graph can be captured", self.captures),
            ("a replay has the bits of the eager round", self.replays),
            ("rows do not feel their place, at any context", self.places),
            ("a pass of 64 rows costs at most 1.1 times one of 16", self.costs),
            ("a round waits once and launches little", self.calls),
            ("both lanes write the same text, and nothing else waits", self.races),
        ):
            self._step(name, step)
        return {
            "passed": all(step["passed"] is not False for step in self.steps.values()),
            "seconds": time.perf_counter() - self.began,
            "attention": self.attention.name,
            "timed": self.timed,
            "steps": self.steps,
        }

    def _step(self, name: str, step: Callable[[], Outcome]) -> None:
        began = time.perf_counter()
        try:
            passed, figures = step()
        except Exception as error:  # the other steps still tell something
            passed, figures = False, {"error": f"{type(error).__name__}: {error}"}
        seconds = time.perf_counter() - began
        self.steps[name] = {"passed": passed, "seconds": seconds, **figures}
        word = {True: "passed", False: "FAILED", None: "noted"}[passed]
        why = f": {figures['error']}" if "error" in figures else ""
        self.say(f"{word:6}  {name} ({seconds:.1f} s){why}")

    # -- steps -------------------------------------------------------------------------------------

    def rounds(self) -> Outcome:
        """Whether loading found rounds worth having, and which."""
        rounds = self.engine.rounds
        if rounds is None:
            return False, {"why": self.engine.why_no_rounds}
        found = {"width": rounds.width, "attention": rounds.attention.name}
        return True, {**found, "remark": rounds.remark, "ms": rounds.costs.ms}

    def captures(self) -> Outcome:
        """Seconds to capture every graph a race may ask for."""
        target, seconds = self.engine.fast_target, {}
        for slots in (slots for slots in SLOTS[:3] if slots <= slots_for(target.max_positions)):
            for width in (16, 64):
                graphs = graphs_of(target, self.attention, self.capture, width, slots)
                for name, sampling in PROCESSINGS.items():
                    began = time.perf_counter()
                    timed_step(graphs, sampling)()
                    torch.cuda.synchronize()
                    seconds[f"{width} rows, {slots} slots, {name}"] = time.perf_counter() - began
        for gamma in (8, 15):
            began = time.perf_counter()
            if capture_draft(self.engine, self.attention, self.capture, gamma):
                torch.cuda.synchronize()
                seconds[f"draft of {gamma}"] = time.perf_counter() - began
        return True, {"capture_seconds": seconds}

    def replays(self) -> Outcome:
        """The same unlike rounds captured and operator by operator, bit for bit."""
        unequal = {
            f"{width} rows, {name}": replay_differs(
                self.engine.fast_target, self.attention, self.capture, width, sampling
            )
            for width in (16, 64)
            for name, sampling in PROCESSINGS.items()
        }
        return not any(unequal.values()), {"unequal": unequal}

    def places(self) -> Outcome:
        """Rows one a pass, in a chain and in a tree, behind contexts on both sides of all cuts."""
        target = self.engine.fast_target
        width = self.engine.rounds.width if self.engine.rounds else 16
        unequal = {}
        for context in (*CONTEXTS, *FAR):
            if context + width > target.max_positions:
                continue
            slots = slots_for(context + width)
            graphs = graphs_of(target, self.attention, self.capture, width, slots)
            unequal[str(context)] = unequal_rows(graphs, context)
        return not any(unequal.values()), {"width": width, "unequal_rows": unequal}

    def costs(self) -> Outcome:
        """Milliseconds a width: of the device, and of a whole round as a lane runs it."""
        target, device_ms, whole_ms = self.engine.fast_target, {}, {}
        for width in WIDTHS:
            graphs = graphs_of(target, self.attention, self.capture, width)
            whole_ms[str(width)] = round_ms(graphs, self.repeats)
            step = timed_step(graphs, Sampling())
            device_ms[str(width)] = median_ms(target.device, step, self.repeats)
        eager = graphs_of(target, self.attention, run_eagerly, 16)
        ratio = device_ms["64"] / device_ms["16"]
        return ratio <= 1.1 if self.timed else None, {
            "device_ms": device_ms,
            "whole_round_ms": whole_ms,
            "eager_16_rows_ms": median_ms(target.device, timed_step(eager, Sampling()), 5),
            "64_by_16": ratio,
        }

    def calls(self) -> Outcome:
        """What the host asks of the driver in a round, counted by the profiler."""
        figures: dict[str, Any] = {}
        for method in ("ar", *self.methods):
            lane = device_lane(self.engine, method, self.prompts[0], self.max_new_tokens)
            for _ in range(2):
                lane.advance()
            rounds, counts, began = 0, Counter[str](), time.perf_counter()
            with torch.profiler.profile() as profile:
                while not lane.finish and rounds < 10:
                    lane.advance()
                    rounds += 1
            seconds = time.perf_counter() - began
            for event in profile.key_averages():
                if event.key.startswith("cuda"):
                    counts[event.key] += event.count
            figures[method] = {
                "ms_a_round_profiled": seconds * 1e3 / max(rounds, 1),
                "calls_a_round": {name: n / max(rounds, 1) for name, n in counts.items()},
            }
        waits = [
            sum(n for name, n in one["calls_a_round"].items() if "Synchronize" in name)
            for one in figures.values()
        ]
        seen = any(one["calls_a_round"] for one in figures.values())
        return (max(waits) <= 2 if seen else None), figures

    def races(self) -> Outcome:
        """Every method against the plain lane, greedily and sampled, with waits forbidden."""
        figures: dict[str, Any] = {}
        for temperature in (0.0, SAMPLED):
            plain: dict[int, list[int]] = {}
            for method in ("ar", *self.methods):
                runs = identical = 0
                tokens = rounds = seconds = 0.0
                for seed, prompt in enumerate(self.prompts):
                    if time.perf_counter() - self.began > SECONDS:
                        break
                    sampling = Sampling(temperature, seed=seed)
                    lane = device_lane(self.engine, method, prompt, self.max_new_tokens, sampling)
                    with no_waits():
                        while not lane.finish:
                            lane.advance()
                    truth = plain.setdefault(seed, lane.output)
                    runs, identical = runs + 1, identical + (lane.output == truth)
                    tokens += len(lane.output) - 1
                    rounds, seconds = rounds + lane.rounds, seconds + lane.clock
                figures[f"{method}, temperature {temperature}"] = {
                    "runs": runs,
                    "identical": identical,
                    "tokens_per_second": tokens / seconds if seconds else None,
                    "tokens_per_round": tokens / rounds if rounds else None,
                    "ms_per_round": seconds * 1e3 / rounds if rounds else None,
                }
        right = all(one["identical"] == one["runs"] for one in figures.values())
        whole = all(one["runs"] == len(self.prompts) for one in figures.values())
        return right and whole, figures


@contextmanager
def no_waits() -> Iterator[None]:
    """Inside, everything that waits for the device is an error, the wait for an event apart."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
