"""What a run teaches a drafter about itself: how often its guesses come true, and whether drafting
pays at all.
"""

from __future__ import annotations

import math
from bisect import bisect
from typing import NamedTuple

# borders between bands of stated log-odds
BANDS = [1 / (1 + math.exp(-x)) for x in (-4.5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5)]


# promised tokens before a run's own share of kept promises outweighs the belief that all are kept
TRUST = 4.0


class Cell(NamedTuple):
    """Statements that are judged together: same source, same depth (1, 2, 3 to 4, deeper: 5), same
    band of stated log-odds.
    """

    kind: str
    depth: int
    band: int


class Calibration:
    """Turns a stated probability into how often such a statement came true in this run.

    The statement itself is the prior, worth ``weight`` observations, so a fresh calibration repeats
    what it is told.
    """

    def __init__(self, weight: float = 16.0) -> None:
        self.weight = weight
        self._seen: dict[Cell, list[int]] = {}

    def judge(self, kind: str, depth: int, stated: float) -> tuple[float, Cell]:
        """How likely the statement is, given that everything above it was right, and the cell to
        learn in.
        """
        cell = Cell(kind, depth if depth < 3 else 3 if depth < 5 else 5, bisect(BANDS, stated))
        seen = self._seen.get(cell)
        return (
            stated if seen is None else (seen[1] + self.weight * stated) / (seen[0] + self.weight)
        ), cell

    def learn(self, cell: Cell, came_true: bool) -> None:
        """The target looked at such a statement: everything above it was right."""
        seen = self._seen.setdefault(cell, [0, 0])
        seen[0] += 1
        seen[1] += came_true


class Pace:
    """Decides before each round whether the network is worth its pass.

    A round with the network is expected to write what such rounds promised lately (the sum of its
    nodes' calibrated chances, which varies much less than what they happened to write), times the
    share of promises kept in this run. A round without it is expected to write what the copies at
    hand promise (one token if there are none). While the network does not pay it sleeps, and is
    tried again after ever longer pauses, or at once after a trial that paid; no trial is made that
    could bring their cost above ``share`` of the run, which is all that a hopeless run loses.
    """

    def __init__(
        self, prior: float = 1.5, weight: float = 3.0, memory: float = 16.0, share: float = 0.01
    ) -> None:
        self.memory, self.share = memory, share
        # drafts of rounds with the network, old ones fading
        self.promised, self.rounds = (prior - 1) * weight, weight
        self.said = self.came = TRUST  # drafts promised and kept in the whole run
        # milliseconds: of the run so far; of trials, beyond what plain rounds would have taken
        self.spent = self.lost = 0.0
        self.pause, self.skipped, self.trial = 4, 0, False

    @property
    def expected(self) -> float:
        """Tokens of a round with the network."""
        return 1 + self.promised / self.rounds * self.came / self.said

    def wants(
        self,
        with_ms: float,
        plain_ms: float,
        free_tokens: float = 1.0,
        free_ms: float | None = None,
    ) -> bool:
        """Whether to run the network now.

        Args:
            with_ms, plain_ms: milliseconds of a round with the network, and of a plain one.
            free_tokens, free_ms: expected tokens and milliseconds of the best round without it
                (default: a plain one).
        """
        self.trial = False
        free = free_tokens / (free_ms or plain_ms)
        if max(self.expected, free_tokens) / with_ms >= free:
            self.skipped, self.pause = 0, 4
            return True
        if self.expected / with_ms >= 1.0 / plain_ms:
            return False  # it would pay, but the copies at hand pay more
        self.skipped += 1
        self.trial = (
            self.skipped > self.pause and self.lost + with_ms - plain_ms <= self.share * self.spent
        )
        return self.trial

    def note(
        self,
        network: bool,
        tokens: int,
        took_ms: float,
        plain_ms: float,
        promised: float | None = None,
    ) -> None:
        """A round is over: whether the network ran, the tokens written (and promised by its draft,
        if it can tell), the milliseconds it took.
        """
        self.spent += took_ms
        if not network:
            return
        if self.trial:
            loss = took_ms - tokens * plain_ms
            self.lost, self.skipped = max(0.0, self.lost + loss), 0
            self.pause = 0 if loss < 0 else min(max(2 * self.pause, 4), 64)
        promised = tokens if promised is None else promised
        self.said, self.came = self.said + promised - 1, self.came + tokens - 1
        fade = min(1.0, self.memory / (self.rounds + 1))
        self.promised, self.rounds = fade * (self.promised + promised - 1), fade * (self.rounds + 1)


class Smooth:
    """A moving mean that starts at its first value and is not thrown off by one slow moment."""

    def __init__(self, rate: float = 0.2) -> None:
        self.rate, self.value = rate, 0.0

    def add(self, x: float) -> None:
        self.value = (
            x if not self.value else self.value + self.rate * (min(x, 4 * self.value) - self.value)
        )
