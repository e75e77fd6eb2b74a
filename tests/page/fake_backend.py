"""A backend, methods, pairs and a report for tests of the page, with no model behind them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from fake_race import NAMES, fake_events, fake_result

from specdemo.drafters import METHODS as REAL_METHODS
from specdemo.errors import UserError
from specdemo.events import Done
from specdemo.request import Request

METHODS = {
    n: SimpleNamespace(
        name=n,
        refuse_pair=lambda pair: None,
        title=f"Method {n}",
        explain=f"What {n} does.",
        params=REAL_METHODS[n].params,
        rules=REAL_METHODS[n].rules,
    )
    for n in NAMES
}
PAIRS = {
    "fake": SimpleNamespace(title="A made-up pair", dtypes=("bf16", "int4"), engine=None),
    "slow": SimpleNamespace(title="Another pair", dtypes=("bf16",), engine=None),
}


def fake_report(methods: list[str], prompts: list[tuple[str, str]]) -> dict[str, Any]:
    """A bench report of made-up runs, through the bench's own code."""
    from specdemo.bench.measure import run_trial, start_session
    from specdemo.bench.report import make_report
    from specdemo.bench.runners import RunResult
    from specdemo.bench.runs_file import BenchPlan
    from specdemo.prompts import Prompt

    facts = {
        "pair": "fake",
        "hardware": "a test",
        "dtype": "float32",
        "versions": {},
        "cost_ms": {"1": 20.0},
        "ar_width": 1,
        "weights": "made up",
        "params": {},
        "rule": "match",
    }

    def runner(speed: float):
        return lambda prompt, seed: RunResult(
            list(range(40)),
            prompt,
            1.0 / speed,
            0.1,
            accepted=[2] * 13,
            rows=[8] * 13,
            draft_seconds=0.2 / speed,
            verify_seconds=0.7 / speed,
            predicted_seconds=0.9 / speed,
            baseline_ms=25.0,
            facts=facts,
        )

    runners = {"ar": runner(1.0)} | {name: runner(1.2 + 0.2 * k) for k, name in enumerate(methods)}
    plan = BenchPlan(
        "made up", "", len(prompts), "fake", tuple(methods), 1, 40, {"seed": 0, "temperature": 0.0}
    )
    trials = [
        run_trial(runners, Prompt(str(k), *pair), k, 0, plan) for k, pair in enumerate(prompts)
    ]
    return make_report([plan.line(), start_session(runners, []), *trials])


class FakeBackend:
    """Plays synthetic races at a steady pace; counts what runs, so that tests can see whether
    anything is left running.
    """

    def __init__(self, pace: float = 0.0, words: list[str] | None = None, fail: str | None = None):
        self.pace, self.words, self.fail = pace, words, fail
        self.own = {}
        self.running, self.most, self.asked, self.finished = 0, 0, [], 0
        self.keys: list[str] = []  # of the engines that raced
        self.lock = threading.Lock()
        self.absent: set[str] = set()  # pairs, by name and by title, that are not here
        # loading ends when this is set, as it is unless a test clears it
        self.weights = threading.Event()
        self.weights.set()
        # a prompt with “wait here” stops before its ninth round until this is set
        self.gate = threading.Event()

    def load(self, pair: str, progress: Any) -> str:
        for k in range(4):
            progress("Reading weights", k / 4)
        self.weights.wait(120)
        if self.fail:
            raise UserError(self.fail)
        return pair

    def fetch(self, pair: str, progress: Any) -> None:
        if pair in self.absent:
            raise UserError(f"{pair} could not be fetched: no network; try again with one.")

    def refuse(self, pair: Any) -> str:
        return ""

    def fits(self, pair: Any) -> tuple[list[str], list[str]]:
        return ["bf16", "int4"], ["bf16: fits: about 0.1 GB", "int4: does not fit: about 9 GB"]

    def own_pair(self, pair: Any, target: Any, drafter: Any, thinking: Any) -> Any:
        if target == "nowhere":
            raise UserError("There is no target in nowhere; name a folder.")
        return SimpleNamespace(
            **vars(PAIRS["fake"])
            | {"id": f"own-{target}", "title": target, "thinking": thinking, "dtypes": ("bf16",)}
        )

    def missing(self, pair: Any) -> str:
        return "not on this computer" if pair.title in self.absent else ""

    can_bench = can_measure = True

    def measure_again(self, engine: Any) -> str:
        return f"Measured {engine} again."

    def bench(
        self,
        engine: Any,
        methods: list[str],
        prompts: list[tuple[str, str]],
        new_tokens: int,
        cancel: threading.Event,
    ):
        yield 0.0, None, "warming up"
        for k in range(len(prompts)):
            if cancel.wait(self.pace):
                return
            yield (
                (k + 1) / len(prompts),
                fake_report(methods, prompts[: k + 1]),
                f"prompt {k + 1} of {len(prompts)}",
            )

    def runs_on_cpu(self, engine: Any) -> bool:
        return True

    def race(self, engine: Any, request: Request, cancel: threading.Event):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.asked.append(request)
            self.keys.append(engine)
        prompt = request.prompt
        # long enough for some of it to be on the screen
        pace = 0.08 if "slowly" in prompt else self.pace
        try:
            if "refuse me" in prompt:
                raise UserError("This prompt is refused; type another.")
            if "break now" in prompt:
                raise RuntimeError("a defect")
            asked = request.to_dict()
            left = None
            if request.against:
                params = asked["against_params"]
                left = {"method": request.against, "params": params, "weights": "made up"}
            events = fake_events(
                prompt,
                request.method,
                request.max_new_tokens,
                self.words,
                request.rule,
                params=asked["params"],
                sampling=asked["sampling"],
                against=left,
            )
            for event in events:
                if event.kind == "verify" and event.round == 4 and "out of memory" in prompt:
                    raise UserError("The GPU ran out of memory; ask for fewer tokens.")
                held = event.kind == "verify" and event.round == 8 and "wait here" in prompt
                while held and not self.gate.is_set() and not cancel.is_set():
                    cancel.wait(0.05)
                if event.kind == "verify" and (cancel.wait(pace) if pace else cancel.is_set()):
                    yield Done(fake_result(request.method), stopped=True)
                    return
                yield event
        finally:
            with self.lock:
                self.running -= 1
                self.finished += 1
