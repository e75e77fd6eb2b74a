"""Runners with fixed times, for the bench's tests."""

from __future__ import annotations

import json

from specdemo.bench.methods import BASELINE
from specdemo.bench.runners import RunResult
from specdemo.bench.runs_file import BenchPlan
from specdemo.errors import UserError
from specdemo.prompts import Prompt
from specdemo.request import Sampling

GREEDY = Sampling().to_dict()
FACTS = {
    "pair": "tiny",
    "hardware": "an abacus",
    "dtype": "float32",
    "versions": {"torch": "1"},
    "cost_ms": {"1": 10.0, "4": 12.0},
    "ar_width": 1,
    "weights": "w",
    "params": {"gamma": 3},
    "rule": "match",
}
PROSE = list(range(100, 121))  # 20 decoded tokens, nothing repeats


class FakeRunners:
    """Runners with fixed times that log their calls: plain takes 1 s for 20 tokens, fast 0.5 s in 5
    rounds, slow 2 s.
    """

    def __init__(self, die_after: int | None = None):
        self.calls, self.die_after = [], die_after

    def runner(self, label, seconds, accepted=()):
        def run(prompt, seed):
            self.calls.append((label, prompt, seed))
            if self.die_after is not None and len(self.calls) > self.die_after:
                raise KeyboardInterrupt
            if prompt == "refuse me":
                raise UserError("The prompt is too long; shorten it.")
            factor = 2.0 if prompt == "hard" and label == "fast" else 1.0
            return RunResult(
                ids=[7] * 21 if prompt == "loop" else PROSE,
                text="<b>words</b>",
                seconds=seconds * factor,
                ttft_seconds=0.1,
                accepted=list(accepted),
                rows=[4] * len(accepted),
                draft_seconds=0.1 * len(accepted) / 5,
                verify_seconds=0.3 * len(accepted) / 5,
                predicted_seconds=0.4 if accepted else None,
                baseline_ms=20.0,
                result={"rule": "match", "output_ids": PROSE},
                facts=FACTS,
            )

        return run

    def by_label(self):
        return {
            BASELINE: self.runner(BASELINE, 1.0),
            "block": self.runner("block", 2.0, [0] * 20),
            "tree": self.runner("fast", 0.5, [3, 3, 3, 3, 3]),
        }


PROMPTS = (Prompt("e1", "easy", "easy"), Prompt("h1", "hard", "hard"), Prompt("e2", "easy", "loop"))


def plan(**more):
    return BenchPlan(
        **{
            "suite": "s.jsonl",
            "sha256": "ab" * 32,
            "prompts": 3,
            "pair": "tiny",
            "methods": ("block", "tree"),
            "repeats": 2,
            "max_new_tokens": 21,
            "sampling": GREEDY,
            **more,
        }
    )


def write(path, *lines):
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines),
        encoding="utf-8",
    )
    return path
