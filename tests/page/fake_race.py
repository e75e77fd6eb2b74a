"""Synthetic races for tests of the page: every kind of event and every note a method can leave.
Never shipped.
"""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

from specdemo.drafters import METHODS as REAL_METHODS
from specdemo.drafters.parts.candidates import HEAD
from specdemo.errors import UserError
from specdemo.events import ArToken, Denoise, Done, DraftMade, Prefill, RaceResult, Start, Verify
from specdemo.request import Request

WORDS = [
    "The",
    " baker",
    " has",
    " 24",
    " rolls",
    ".",
    " She",
    " sells",
    " 15",
    ",",
    " and",
    " gives",
    " 3",
    " away",
    "\n",
    "So",
    " 6",
    " are",
    " left",
    " every",
    " day",
]
HOSTILE = [
    "<script>",
    "window.pwned=1",
    "</script>",
    "${window.pwned=2}",
    "{{window.pwned}}",
    "`",
    "<img src=x onerror=window.pwned=3>",
    "\u202e",
    "abc",
    "\u202c",
    " שלום",
    "x" * 10_000,
    " \ufffd",
    "",
    "🙂",
    "\\",
    "</style>",
    "&lt;",
    "\u2028",
    "\x00",
]


class Story:
    """The one text that both lanes write, and the vocabulary of its wrong guesses."""

    def __init__(self, length: int, words: list[str], seed: int = 0):
        self.words = words
        self.text = [words[i % len(words)] for i in range(length)]
        self.ids = [1000 + (i % len(words)) for i in range(length)]
        self.random = random.Random(seed)

    def vocab(self, *ids: int) -> dict[str, str]:
        return {str(i): self.words[i - 1000] if i < 2000 else f" wrong{i - 2000}" for i in ids}

    def guesses(self, at: int, count: int, right: int) -> list[int]:
        """``count`` drafts for positions ``at`` on, of which the first ``right`` are what the
        target will say.
        """
        real = self.ids[at : at + count]
        return [t if k < right else 2000 + k for k, t in enumerate(real)]


def draft_of(
    story: Story, method: str, at: int, right: int, gamma: int
) -> tuple[list[Denoise], DraftMade]:
    """Frames and tree of one round in the manner of ``method``."""
    guess = story.guesses(at, gamma, right)
    n = len(guess)
    tops = [[[g, 0.6], [2010 + k, 0.2], [2020 + k, 0.05]] for k, g in enumerate(guess)]
    conf = [max(0.05, 0.95 - 0.1 * k) for k in range(n)]
    frames: list[Denoise] = []
    tokens, parent, q, origin, notes = (
        list(guess),
        list(range(-1, n - 1)),
        list(conf),
        ["block"] * n,
        {},
    )
    if method in ("lookup", "ar-draft"):
        origin = ["ngram" if method == "lookup" else "ar"] * n
    elif method == "specdiff":
        for step in range(3):
            frames.append(
                Denoise(
                    step=step,
                    steps=3,
                    label=f"step {step + 1} of 3",
                    ids=guess,
                    masked=[k > (step + 1) * n / 3 for k in range(n)],
                    conf=conf,
                    top=tops,
                )
            )
    else:
        headed = method in ("tree", "block")
        # the head changes every second guess
        alone = [2010 + k if headed and k % 2 else g for k, g in enumerate(guess)]
        frames.append(
            Denoise(
                step=0,
                steps=2 if headed or method in ("d2sd", "best") else 1,
                label="block",
                ids=alone,
                masked=[False] * n,
                conf=conf,
                top=tops,
            )
        )
        if headed:
            frames.append(
                Denoise(
                    step=1, steps=2, label=HEAD, ids=guess, masked=[False] * n, conf=conf, top=tops
                )
            )
    if method == "diffuspec":
        notes = {
            "lattice": tops,
            "paths": [
                {"ids": guess, "score": -1.25},
                {"ids": [2010 + k for k in range(n)], "score": -2.5},
            ],
            "path": 0,
            "length": {"k": n, "gen": n - 0.5, "acc": float(right)},
        }
    if method == "specdiff2":
        notes = {
            "drafts": [
                {"ids": guess, "drafter_score": 1.75, "target_score": 2.5},
                {
                    "ids": [2010 + k for k in range(n)],
                    "drafter_score": 1.25,
                    "target_score": 0.5,
                },
            ],
            "chosen": 0,
        }
    if method in ("d2sd", "best", "tree", "specdiff2"):
        at_branch = min(1, n - 1)
        for k in range(at_branch, n):  # a second branch after the first token
            tokens.append(2010 + k)
            parent.append(0 if k == at_branch else len(tokens) - 2)
            q.append(0.2)
            origin.append("branch")
        if method in ("d2sd", "best"):
            frames.append(
                Denoise(
                    step=1,
                    steps=2,
                    row=1,
                    label="branch after 1",
                    ids=guess[:1] + [2010 + k for k in range(1, n)],
                    masked=[False] * n,
                    conf=conf,
                    top=tops,
                )
            )
            notes = {"boundaries": [0.1, 0.4, 0.2, 0.1][:n], "branches": [1], "expected": 3.2}
    used = set(tokens) | {int(c[0]) for column in tops for c in column}
    return frames, DraftMade(
        tokens=tokens,
        parent=parent,
        q=q,
        origin=origin,
        notes=notes,
        seconds=0.008,
        vocab=story.vocab(*used),
    )


def fake_events(
    prompt: str = "A baker…",
    method: str = "d2sd",
    tokens: int = 40,
    words: list[str] | None = None,
    rule: str = "match",
    gamma: int = 5,
    differs: int | None = None,
    **start: Any,
):
    """All events of one race, in the order in which the engine would tell them."""
    story = Story(tokens, words or WORDS, 1)
    yield Start(
        prompt=prompt,
        prompt_ids=[1, 2, 3],
        pair="fake",
        method=method,
        rule=rule,
        max_new_tokens=tokens,
        hardware="a test, 2 threads",
        dtype="float32",
        weights="made up",
        cost_ms={"1": 20.0, "2": 21.0, "8": 27.0, "16": 30.0},
        ar_width=2,
        baseline_ms=start.get("one_row_ms", 20.0),
        **{"params": {"gamma": gamma}, "sampling": {"temperature": 0.0, "seed": 3, "top_p": 1.0}}
        | start,
    )
    for lane in ("ar", "spec"):
        yield Prefill(lane, story.ids[0], story.text[0], -0.1, 0.05, story.vocab(story.ids[0]))
    ar_at = spec_at = 1
    ar_clock = spec_clock = 0.0
    number_of_round = 0
    while ar_at < tokens or spec_at < tokens:
        if ar_at < tokens and (ar_clock <= spec_clock or spec_at >= tokens):
            ar_clock += 0.021
            wrong = differs is not None and ar_at == differs
            token = 2999 if wrong else story.ids[ar_at]
            yield ArToken(
                ar_at,
                token,
                " other" if wrong else story.text[ar_at],
                -0.2,
                ar_clock,
                {str(token): " other" if wrong else story.text[ar_at]},
            )
            ar_at += 1
            continue
        right = (3, 0, 5, 1, 2)[number_of_round % 5]
        plain = method == "ar" or number_of_round % 7 == 6
        if plain:
            frames, draft = (
                [],
                DraftMade(notes={"why": "drafting does not pay here"} if method != "ar" else {}),
            )
        else:
            frames, draft = draft_of(story, method, spec_at, right, gamma)
        for event in (*frames, draft):
            event.round = number_of_round
            yield event
        path = list(range(min(right, len(draft.tokens), tokens - spec_at, gamma)))
        kept = [
            {
                "id": story.ids[spec_at + k],
                "text": story.text[spec_at + k],
                "source": "accepted",
                "node": k,
                "logprob": -0.1,
                "p": 0.9,
                "q": 0.6,
                "rank": 1,
                "step": 0,
            }
            for k in path
        ]
        if spec_at + len(kept) < tokens:
            own = spec_at + len(kept)
            source = (
                "plain"
                if plain
                else "bonus"
                if len(path) == min(gamma, tokens - spec_at)
                else "correction"
            )
            kept.append(
                {
                    "id": story.ids[own],
                    "text": story.text[own],
                    "source": source,
                    "node": None,
                    "logprob": -0.5,
                    "p": 0.6,
                    "q": None,
                    "rank": None,
                    "step": None,
                }
            )
        spec_clock += 0.034
        walked = [-1, *path]
        status = [
            "accepted" if i in path else "rejected" if draft.parent[i] in walked else "unreached"
            for i in range(len(draft.tokens))
        ]
        picks = [None] * (len(draft.tokens) + 1)
        for depth, node in enumerate(walked):
            if spec_at + depth < tokens:
                picks[node + 1] = story.ids[spec_at + depth]
        yield Verify(
            number_of_round,
            8,
            kept,
            status,
            [0.5 if draft.parent[i] in walked else None for i in range(len(draft.tokens))],
            picks,
            0,
            0.008,
            0.025,
            0.001,
            35.0,
            spec_clock,
            story.vocab(*[k["id"] for k in kept]),
        )
        spec_at += len(kept)
        number_of_round += 1
    yield Done(
        fake_result(
            method,
            rule=rule,
            speedup=ar_clock / spec_clock if spec_clock else None,
            predicted_speedup=1.4,
            identical=differs is None and rule == "match" or None,
            first_difference=(
                None if differs is None else {"position": differs, "top2_gap": 0.0123}
            ),
            finish_reason="length",
            ar={
                "tokens": tokens,
                "seconds": ar_clock,
                "tokens_per_second": (tokens - 1) / (ar_clock or 1),
                "ttft_seconds": 0.05,
                "width": 2,
                "one_row_tokens_per_second": (tokens - 1) / (ar_clock or 1),
            },
            spec={
                "tokens": tokens,
                "seconds": spec_clock,
                "tokens_per_second": (tokens - 1) / (spec_clock or 1),
                "ttft_seconds": 0.05,
                "rounds": number_of_round,
                "drafting_rounds": number_of_round,
                "accepted_per_round": (tokens - 1) / max(number_of_round, 1) - 1,
                "tokens_per_round": (tokens - 1) / max(number_of_round, 1),
                "draft_seconds": 0.008 * number_of_round,
                "verify_seconds": 0.025 * number_of_round,
            },
            output_ids=story.ids[:tokens],
        )
    )


def fake_result(method: str, **known: Any) -> RaceResult:
    """Totals of a race that a person stopped, but for what is ``known``."""
    return {
        "method": method,
        "pair": "fake",
        "rule": "match",
        "hardware": "a test, 2 threads",
        "dtype": "float32",
        "prompt_tokens": 3,
        "finish_reason": "stopped",
        "ar": None,
        "spec": None,
        "speedup": None,
        "predicted_speedup": None,
        "identical": None,
        "first_difference": None,
        "output_ids": [],
        "note": None,
        **known,
    }


NAMES = (
    "ar",
    "lookup",
    "ar-draft",
    "specdiff",
    "specdiff2",
    "diffuspec",
    "d2sd",
    "tree",
    "best",
    "block",
)
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
    "fake": SimpleNamespace(title="A made-up pair"),
    "slow": SimpleNamespace(title="Another pair"),
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
        self.running, self.most, self.asked, self.finished = 0, 0, [], 0
        self.lock = threading.Lock()
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

    can_bench = True

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
        prompt = request.prompt
        # long enough for some of it to be on the screen
        pace = 0.08 if "slowly" in prompt else self.pace
        try:
            if "refuse me" in prompt:
                raise UserError("This prompt is refused; type another.")
            if "break now" in prompt:
                raise RuntimeError("a defect")
            asked = request.to_dict()
            events = fake_events(
                prompt,
                request.method,
                request.max_new_tokens,
                self.words,
                request.rule,
                params=asked["params"],
                sampling=asked["sampling"],
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
