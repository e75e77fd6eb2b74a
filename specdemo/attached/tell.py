"""One lane's steps as events, and its totals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import UserError
from ..events import (
    UNNAMED,
    ArToken,
    DraftMade,
    Event,
    KeptToken,
    LaneName,
    NodeStatus,
    Prefill,
    Verify,
)
from ..totals import ArTotals, LaneTotals, SpecTotals
from .client import Piece, Step, Tail
from .settle import Sure, Words, least_rounds

NAMELESS = "·"  # what stands for a token without a name


@dataclass
class Log:
    """What one endpoint answered.

    Attributes:
        error: why it ended before its time, where it did. stopped: a person stopped it.
        sure: how sure its rounds are, once it has ended.
    """

    steps: list[Step] = field(default_factory=list)
    tail: Tail = field(default_factory=Tail)
    error: UserError | None = None
    stopped: bool = False
    sure: Sure = "told"

    def clock(self, step: Step) -> float:
        """Seconds since the first token, the engine's own where it tells them."""
        if step.clock is not None:
            return step.clock
        return max(0.0, step.arrived - self.steps[0].arrived)

    @property
    def engine_clock(self) -> bool:
        return bool(self.steps) and all(step.clock is not None for step in self.steps)

    @property
    def pieces(self) -> list[Piece]:
        return [piece for step in self.steps for piece in step.pieces]

    @property
    def ids(self) -> list[int]:
        return [piece.id for piece in self.pieces]

    @property
    def text(self) -> str:
        return "".join(step.text or "".join(p.text for p in step.pieces) for step in self.steps)

    @property
    def tokens(self) -> int | None:
        """Of the answer; None where the engine counts passes only."""
        if self.tail.tokens is not None:
            return self.tail.tokens
        return len(self.pieces) if self.tail.counts_tokens else None

    @property
    def ttft(self) -> float:
        return self.tail.ttft or (self.steps[0].arrived if self.steps else 0.0)

    def totals(self) -> LaneTotals:
        # a lane's clock begins with its first token
        seconds = self.clock(self.steps[-1]) if len(self.pieces) > 1 else 0.0
        tokens = self.tokens
        return {
            "tokens": len(self.pieces) if tokens is None else tokens,
            "seconds": seconds,
            "tokens_per_second": (tokens - 1) / seconds if tokens and seconds > 0 else 0.0,
            "ttft_seconds": self.ttft,
        }

    def ar_totals(self) -> ArTotals:
        return {**self.totals(), "width": 1, "one_row_tokens_per_second": 0.0}

    def spec_totals(self) -> SpecTotals:
        accepted, tokens = self.accepted, self.tokens
        rounds = least_rounds(self.tail) if self.sure == "totals" else len(self.steps[1:])
        drafting = sum(step.drafted != 0 for step in self.steps[1:])
        return {
            **self.totals(),
            "rounds": rounds,
            "drafting_rounds": min(drafting, rounds),
            "accepted_per_round": (accepted or 0) / max(rounds, 1),
            "tokens_per_round": max((tokens or 0) - 1, 0) / max(rounds, 1),
            "draft_seconds": 0.0,
            "verify_seconds": 0.0,
        }

    @property
    def accepted(self) -> int | None:
        """Accepted drafts, as the engine counts them, else as the rounds tell."""
        if self.tail.accepted is not None:
            return self.tail.accepted
        known = [step.accepted for step in self.steps[1:] if step.accepted is not None]
        return sum(known) if known else None


class Teller:
    """Makes the events of both lanes; a token's text goes with the first event that uses it."""

    def __init__(self) -> None:
        self.words, self._sent = Words(), set[int]()
        self.position = self.round = 0

    def plain(self, log: Log) -> Iterator[tuple[float, Event]]:
        """(clock, event) of the plain lane, a token each."""
        clock = 0.0
        for step in log.steps:
            self.words.cut(step)
            for piece in step.pieces:
                clock = max(clock, log.clock(step))
                if self.position == 0:
                    yield 0.0, self._prefill("ar", piece, log.ttft)
                else:
                    yield (
                        clock,
                        ArToken(
                            position=self.position,
                            id=piece.id,
                            text=piece.text,
                            clock=clock,
                            vocab=self._vocab([piece]),
                        ),
                    )
                self.position += 1

    def _prefill(self, lane: LaneName, piece: Piece, seconds: float) -> Event:
        return Prefill(
            lane=lane, id=piece.id, text=piece.text, seconds=seconds, vocab=self._vocab([piece])
        )

    def first(self, step: Step, ttft: float, clock: float) -> Iterator[Event]:
        """The speculative lane's first token; what else its chunk holds is a round of its own, at
        the chunk's ``clock``.
        """
        self.words.cut(step)
        yield self._prefill("spec", step.pieces[0], ttft)
        if rest := step.pieces[1:]:
            yield from self.next(Step(rest), clock)

    def next(self, step: Step, clock: float) -> Iterator[Event]:
        """The events of one round."""
        self.words.cut(step)
        pieces = step.pieces
        told = step.accepted is not None
        accepted = min(step.accepted or 0, len(pieces)) if told else 0
        drafted = max(step.drafted or 0, accepted)
        tokens = [p.id for p in pieces[:accepted]] + [UNNAMED] * (drafted - accepted)
        yield DraftMade(
            round=self.round,
            tokens=tokens,
            parent=list(range(-1, drafted - 1)),
            q=[None] * drafted,
            origin=["engine"] * drafted,
            notes={} if step.drafted is not None else {"why": "what was drafted is not told"},
            vocab=self._vocab([Piece("", UNNAMED)] if drafted > accepted else []),
        )
        yield Verify(
            round=self.round,
            rows=drafted + 1,
            kept=[self._kept(p, i, step, accepted) for i, p in enumerate(pieces)],
            status=_status(step, len(pieces), accepted, drafted),
            p=[None] * drafted,
            picks=[None] * (drafted + 1),
            cut=max(0, (step.accepted or 0) + 1 - len(pieces)) if told else 0,
            clock=clock,
            vocab=self._vocab(pieces),
        )
        self.round += 1

    def _kept(self, piece: Piece, place: int, step: Step, accepted: int) -> KeptToken:
        known = step.drafted is not None
        return {
            "id": piece.id,
            "text": piece.text,
            "source": (
                "accepted"
                if place < accepted
                else "plain"
                if not known or not step.drafted or step.accepted is None
                else "correction"
                if step.accepted < step.drafted
                else "bonus"
            ),
            "node": place if place < accepted else None,
            "p": None,
            "logprob": None,
            "q": None,
            "rank": None,
            "step": None,
        }

    def _vocab(self, pieces: list[Piece]) -> dict[str, str]:
        new: dict[str, str] = {}
        for piece in pieces:
            if piece.id not in self._sent:
                self._sent.add(piece.id)
                new[str(piece.id)] = NAMELESS if piece.id == UNNAMED else piece.text
        return new


def _status(step: Step, written: int, accepted: int, drafted: int) -> list[NodeStatus]:
    """A word for each draft: behind the answer's end the engine may have accepted more."""
    told = step.accepted or accepted
    dropped = min(drafted, told) - accepted if written <= told else 0
    left = drafted - accepted - dropped
    words: list[tuple[NodeStatus, int]] = [
        ("accepted", accepted),
        ("dropped", dropped),
        ("rejected", min(left, 1)),
        ("unreached", max(left - 1, 0)),
    ]
    return [word for word, n in words for _ in range(n)]
