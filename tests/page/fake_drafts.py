"""Made-up drafts for tests of the page: one answer, and what each method proposes for it."""

from __future__ import annotations

import random
from typing import Any

from specdemo.drafters.parts.candidates import HEAD
from specdemo.events import Denoise, DraftMade


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
    tokens, parent, q = list(guess), list(range(-1, n - 1)), list(conf)
    origin = [{"lookup": "ngram", "ar-draft": "ar"}.get(method, "block")] * n
    frames = _frames(method, guess, tops, conf)
    notes = _notes(method, guess, tops, right)
    if method in ("d2sd", "best", "tree", "specdiff2"):
        at_branch = min(1, n - 1)
        for k in range(at_branch, n):  # a second branch after the first token
            tokens.append(2010 + k)
            parent.append(0 if k == at_branch else len(tokens) - 2)
            q.append(0.2)
            origin.append("branch")
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


def _frames(method: str, guess: list[int], tops: list[Any], conf: list[float]) -> list[Denoise]:
    n = len(guess)

    def frame(step: int, steps: int, label: str, ids: list[int], **more: Any) -> Denoise:
        masked = more.pop("masked", [False] * n)
        return Denoise(
            step=step, steps=steps, label=label, ids=ids, masked=masked, conf=conf, top=tops, **more
        )

    if method in ("lookup", "ar-draft"):
        return []
    if method == "specdiff":
        return [
            frame(
                step,
                3,
                f"step {step + 1} of 3",
                guess,
                masked=[k > (step + 1) * n / 3 for k in range(n)],
            )
            for step in range(3)
        ]
    if method in ("tree", "block"):  # a Markov head changes every second guess
        alone = [2010 + k if k % 2 else g for k, g in enumerate(guess)]
        return [frame(0, 2, "block", alone), frame(1, 2, HEAD, guess)]
    if method in ("d2sd", "best"):
        branch = guess[:1] + [2010 + k for k in range(1, n)]
        return [
            frame(0, 2, "block", list(guess)),
            frame(1, 2, "branch after 1", branch, row=1),
        ]
    return [frame(0, 1, "block", list(guess))]


def _notes(method: str, guess: list[int], tops: list[Any], right: int) -> dict[str, Any]:
    n = len(guess)
    other = [2010 + k for k in range(n)]
    if method == "diffuspec":
        return {
            "lattice": tops,
            "paths": [{"ids": guess, "score": -1.25}, {"ids": other, "score": -2.5}],
            "path": 0,
            "length": {"k": n, "gen": n - 0.5, "acc": float(right)},
        }
    if method == "specdiff2":
        return {
            "drafts": [
                {"ids": guess, "drafter_score": 1.75, "target_score": 2.5},
                {"ids": other, "drafter_score": 1.25, "target_score": 0.5},
            ],
            "chosen": 0,
        }
    if method in ("d2sd", "best"):
        return {"boundaries": [0.1, 0.4, 0.2, 0.1][:n], "branches": [1], "expected": 3.2}
    return {}
