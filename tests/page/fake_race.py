"""Made-up races for tests of the page: every kind of event and every note a method can leave."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from fake_drafts import Story, draft_of

from specdemo.events import (
    ArToken,
    Done,
    DraftMade,
    Event,
    Prefill,
    Start,
    Verify,
)
from specdemo.totals import RaceResult

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


class FakeRace:
    """Both lanes of one race, each on a clock of its own."""

    def __init__(self, method: str, tokens: int, words: list[str], gamma: int, differs: int | None):
        self.method, self.tokens, self.gamma, self.differs = method, tokens, gamma, differs
        self.story = Story(tokens, words, 1)
        self.ar_at = self.spec_at = 1
        self.ar_clock = self.spec_clock = 0.0
        self.rounds = 0

    def events(self) -> Iterator[Event]:
        story = self.story
        for lane in ("ar", "spec"):
            yield Prefill(lane, story.ids[0], story.text[0], -0.1, 0.05, story.vocab(story.ids[0]))
        while self.ar_at < self.tokens or self.spec_at < self.tokens:
            behind = self.ar_clock <= self.spec_clock or self.spec_at >= self.tokens
            if self.ar_at < self.tokens and behind:
                yield self.plain_token()
            else:
                yield from self.round()

    def plain_token(self) -> ArToken:
        at = self.ar_at
        self.ar_clock += 0.021
        self.ar_at += 1
        token, text = self.story.ids[at], self.story.text[at]
        if at == self.differs:
            token, text = 2999, " other"
        return ArToken(at, token, text, -0.2, self.ar_clock, {str(token): text})

    def round(self) -> Iterator[Event]:
        right = (3, 0, 5, 1, 2)[self.rounds % 5]
        if self.method == "ar":
            frames, draft = [], DraftMade()
        elif self.rounds % 7 == 6:
            frames, draft = [], DraftMade(notes={"why": "drafting does not pay here"})
        else:
            frames, draft = draft_of(self.story, self.method, self.spec_at, right, self.gamma)
        for event in (*frames, draft):
            event.round = self.rounds
            yield event
        accepted = min(right, len(draft.tokens), self.tokens - self.spec_at, self.gamma)
        self.spec_clock += 0.034
        yield self.verify(draft, accepted)
        self.rounds += 1

    def verify(self, draft: DraftMade, accepted: int) -> Verify:
        kept = self.kept(draft, accepted)
        walked = [-1, *range(accepted)]
        status = [
            "accepted" if i < accepted else "rejected" if parent in walked else "unreached"
            for i, parent in enumerate(draft.parent)
        ]
        picks: list[int | None] = [None] * (len(draft.tokens) + 1)
        for depth, node in enumerate(walked):
            if self.spec_at + depth < self.tokens:
                picks[node + 1] = self.story.ids[self.spec_at + depth]
        self.spec_at += len(kept)
        return Verify(
            self.rounds,
            8,
            kept,
            status,
            [0.5 if parent in walked else None for parent in draft.parent],
            picks,
            0,
            0.008,
            0.025,
            0.001,
            35.0,
            self.spec_clock,
            self.story.vocab(*[k["id"] for k in kept], 2010),
            top=[[(k["id"], 0.9), (2010, 0.04)] for k in kept],
        )

    def kept(self, draft: DraftMade, accepted: int) -> list[dict[str, Any]]:
        """The accepted drafts and, unless the answer is full, the target's own token."""

        def token(at: int, source: str, node: int | None, **more: Any) -> dict[str, Any]:
            id, text = self.story.ids[at], self.story.text[at]
            return {"id": id, "text": text, "source": source, "node": node, **more}

        drafted = {"logprob": -0.1, "p": 0.9, "q": 0.6, "rank": 1, "step": 0}
        kept = [token(self.spec_at + k, "accepted", k, **drafted) for k in range(accepted)]
        if self.spec_at + accepted < self.tokens:
            full = accepted == min(self.gamma, self.tokens - self.spec_at)
            source = "plain" if not draft.tokens else "bonus" if full else "correction"
            own = {"logprob": -0.5, "p": 0.6, "q": None, "rank": None, "step": None}
            kept.append(token(self.spec_at + accepted, source, None, **own))
        return kept

    def done(self, rule: str) -> Done:
        tokens, rounds, decoded = self.tokens, self.rounds, self.tokens - 1
        return Done(
            fake_result(
                self.method,
                rule=rule,
                speedup=self.ar_clock / self.spec_clock if self.spec_clock else None,
                predicted_speedup=1.4,
                identical=self.differs is None and rule == "match" or None,
                first_difference=(
                    None if self.differs is None else {"position": self.differs, "top2_gap": 0.0123}
                ),
                finish_reason="length",
                ar={
                    "tokens": tokens,
                    "seconds": self.ar_clock,
                    "tokens_per_second": decoded / (self.ar_clock or 1),
                    "ttft_seconds": 0.05,
                    "width": 2,
                    "one_row_tokens_per_second": decoded / (self.ar_clock or 1),
                },
                spec={
                    "tokens": tokens,
                    "seconds": self.spec_clock,
                    "tokens_per_second": decoded / (self.spec_clock or 1),
                    "ttft_seconds": 0.05,
                    "rounds": rounds,
                    "drafting_rounds": rounds,
                    "accepted_per_round": decoded / max(rounds, 1) - 1,
                    "tokens_per_round": decoded / max(rounds, 1),
                    "draft_seconds": 0.008 * rounds,
                    "verify_seconds": 0.025 * rounds,
                },
                output_ids=self.story.ids[:tokens],
            )
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
) -> Iterator[Event]:
    """All events of one race, in the order in which the engine yields them.

    Args:
        words: the vocabulary of the answer.
        differs: the position at which the plain lane writes another token.
        start: other fields of the ``Start`` event.
    """
    yield Start(
        prompt=prompt,
        prompt_ids=[1, 2, 3],
        pair="fake",
        method=method,
        rule=rule,
        max_new_tokens=tokens,
        hardware="a test, 2 threads",
        dtype="float32",
        cost_ms={"1": 20.0, "2": 21.0, "8": 27.0, "16": 30.0},
        ar_width=2,
        baseline_ms=start.get("one_row_ms", 20.0),
        **{
            "weights": "made up",
            "params": {"gamma": gamma},
            "sampling": {"temperature": 0.0, "seed": 3, "top_p": 1.0},
        }
        | start,
    )
    race = FakeRace(method, tokens, words or WORDS, gamma, differs)
    if not start.get("against"):
        yield from race.events()
        yield race.done(rule)
        return
    method = start["against"]["method"]
    left = FakeRace(method, tokens, words or WORDS, 3, None)
    yield from with_left_lane(race.events(), left)
    done, other = race.done(rule), left.done(rule).result
    done.result["against"] = {
        "method": method,
        "ratio": left.spec_clock / race.spec_clock,
        **{k: other[k] for k in ("spec", "speedup", "predicted_speedup")},
        "identical": True,
        "first_difference": None,
    }
    yield done


def with_left_lane(events: Iterator[Event], left: FakeRace) -> Iterator[Event]:
    """The events of a race, and behind each round of it one of the left lane."""
    theirs = [e for e in left.events() if e.kind != "ar_token" and getattr(e, "lane", "") != "ar"]
    for event in theirs:
        event.lane = "against"
    yield from itertools.islice(events, 2)
    yield theirs.pop(0)
    for event in events:
        yield event
        while event.kind == "verify" and theirs:
            yield theirs.pop(0)
            if theirs and theirs[0].kind in ("denoise", "draft") and theirs[0].round > event.round:
                break
    yield from theirs


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
