"""What a drafter learns during a run: how often its probabilities come true, and whether drafting
pays at all.
"""

from __future__ import annotations

import math
from bisect import bisect
from typing import Literal, NamedTuple

# where a candidate's probability comes from: the drafter; the drafter at a node where n-grams
# propose other tokens; both, for the same token; n-grams
Source = Literal["block", "beside", "both", "copy"]

# borders between bands of stated log-odds
BANDS = [1 / (1 + math.exp(-x)) for x in (-4.5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5)]

# weight, in tokens, of the prior that every promise is kept
PRIOR_TOKENS = 4.0


class Cell(NamedTuple):
    """Probabilities that are calibrated together: same source, same depth (1, 2, 3 to 4, deeper:
    5), same band of stated log-odds.
    """

    source: Source
    depth: int
    band: int


class Calibration:
    """Turns a stated probability into how often such a statement came true in this run.

    The stated probability itself is the prior, worth ``weight`` observations, so a new calibration
    returns what it is given.
    """

    def __init__(self, weight: float = 16.0) -> None:
        self.weight = weight
        self._seen: dict[Cell, list[int]] = {}  # observations, and how many of them came true

    def estimate(self, source: Source, depth: int, stated: float) -> tuple[float, Cell]:
        """The probability that a candidate is right, given that its whole path is, and the cell to
        learn in.
        """
        cell = Cell(source, depth if depth < 3 else 3 if depth < 5 else 5, bisect(BANDS, stated))
        seen = self._seen.get(cell)
        if seen is None:
            return stated, cell
        return (seen[1] + self.weight * stated) / (seen[0] + self.weight), cell

    def learn(self, cell: Cell, correct: bool) -> None:
        """The target verified such a candidate behind an accepted path."""
        seen = self._seen.setdefault(cell, [0, 0])
        seen[0] += 1
        seen[1] += correct


class DraftingPolicy:
    """Decides before each round whether a draft pass pays.

    A round with a draft pass is expected to write what such rounds promised recently (1 plus the
    sum of their nodes' calibrated path probabilities, which varies much less than what they
    happened to write), times the share of promises kept in this run. A round without it is expected
    to write what n-gram copies promise (one token if there are none). While drafting does not pay
    it is paused, and is tried again after ever longer pauses, or at once after a trial that paid.
    No trial is made that could bring the cost of all trials above ``share`` of the run, but for the
    first one, which may cost ``FIRST_TRIAL`` plain rounds: that is the most drafting can cost a run
    in which it never pays. What rounds with a draft pass have gained, up to ``CREDIT`` plain
    rounds, may be lost in trials, too.
    """

    FIRST_TRIAL = 1.5  # where wide passes are dear, nothing would ever be tried without it
    CREDIT = 6.0

    def __init__(
        self, prior: float = 1.5, weight: float = 3.0, memory: float = 16.0, share: float = 0.01
    ) -> None:
        """
        Args:
            prior: tokens expected of the first rounds with a draft pass. weight: rounds that this
                is worth.
            memory: rounds with a draft pass that the recent mean remembers.
            share: most milliseconds lost in trials, as a part of the run's.
        """
        self.memory, self.share = memory, share
        # drafted tokens promised in recent rounds with a draft pass, and the number of those rounds
        self.recent_promised, self.recent_rounds = (prior - 1) * weight, weight
        self.promised = self.kept = PRIOR_TOKENS  # drafted tokens in the whole run
        # milliseconds of the run so far; those lost in trials against plain rounds, less than 0
        # where rounds with a draft pass have gained some
        self.spent_ms = self.lost_ms = 0.0
        self.pause, self.skipped, self.trial, self.trials = 4, 0, False, 0

    @property
    def expected(self) -> float:
        """Tokens of a round with a draft pass."""
        return 1 + self.recent_promised / self.recent_rounds * self.kept / self.promised

    def should_draft(
        self,
        draft_ms: float,
        plain_ms: float,
        copy_tokens: float = 1.0,
        copy_ms: float | None = None,
    ) -> bool:
        """Whether to run the drafter this round.

        Args:
            draft_ms, plain_ms: milliseconds of a round with a draft pass, and of a plain one.
            copy_tokens, copy_ms: expected tokens and milliseconds of the best round without a
                draft pass (default: a plain one).
        """
        self.trial = False
        without = copy_tokens / (copy_ms or plain_ms)
        if max(self.expected, copy_tokens) / draft_ms >= without:
            self.skipped, self.pause = 0, 4
            return True
        if self.expected / draft_ms >= 1.0 / plain_ms:
            return False  # drafting would pay, but copies pay more
        self.skipped += 1
        loss = draft_ms - plain_ms
        self.trial = (
            self.skipped > self.pause and self.lost_ms + loss <= self.share * self.spent_ms
        ) or (not self.trials and loss <= self.FIRST_TRIAL * plain_ms)
        self.trials += self.trial
        return self.trial

    def update(
        self,
        drafted: bool,
        tokens: int,
        round_ms: float,
        plain_ms: float,
        promised: float | None = None,
    ) -> None:
        """Account for a round.

        Args:
            drafted: whether the drafter ran.
            tokens: tokens written. promised: those expected of the draft (default: ``tokens``).
            round_ms, plain_ms: milliseconds of this round, and of a plain one.
        """
        self.spent_ms += round_ms
        if not drafted:
            return
        loss = round_ms - tokens * plain_ms
        if self.trial or loss < 0:
            self.lost_ms = max(-self.CREDIT * plain_ms, self.lost_ms + loss)
        if self.trial:
            self.skipped = 0
            self.pause = 0 if loss < 0 else min(max(2 * self.pause, 4), 64)
        promised = tokens if promised is None else promised
        self.promised, self.kept = self.promised + promised - 1, self.kept + tokens - 1
        fade = min(1.0, self.memory / (self.recent_rounds + 1))
        self.recent_promised = fade * (self.recent_promised + promised - 1)
        self.recent_rounds = fade * (self.recent_rounds + 1)


class EMA:
    """An exponential moving average that starts at its first value; one value counts for at most
    four times the average.
    """

    def __init__(self, rate: float = 0.2) -> None:
        self.rate, self.value = rate, 0.0

    def add(self, x: float) -> None:
        if not self.value:
            self.value = x
        else:
            self.value += self.rate * (min(x, 4 * self.value) - self.value)
