"""The events of a race folded into what is drawn: the tokens of both lanes, and its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import UserError
from ..events import (
    ArToken,
    Denoise,
    Done,
    DraftMade,
    Event,
    LaneName,
    Prefill,
    Start,
    Verify,
)


@dataclass(frozen=True)
class Token:
    """A written token; ``t`` is when, in seconds on its lane's own clock."""

    text: str
    source: str
    t: float


@dataclass
class Round:
    """One round of the speculative lane, from ``t0`` to ``t1`` seconds on its clock; ``first`` is
    the index of its first token there.
    """

    index: int
    number: int
    first: int
    t0: float
    t1: float
    frames: list[Denoise] = field(default_factory=list)
    draft: DraftMade | None = None
    verify: Verify | None = None

    @property
    def accepted(self) -> int:
        """Drafted tokens that were kept."""
        return sum(k["source"] == "accepted" for k in self.kept)

    @property
    def kept(self) -> list:
        return self.verify.kept if self.verify else []

    @property
    def proposed(self) -> int:
        """Drafted tokens."""
        return len(self.draft.tokens) if self.draft else 0


class Race:
    """What a finished, stopped or cut race wrote, and when. ``left`` is the lane beside the
    speculative one, as on the page: plain decoding, or the other method.
    """

    def __init__(self, events: Sequence[Event]):
        self.start = Start()
        self.words: dict[int, str] = {}
        self.left: LaneName = "ar"
        if any(isinstance(event, Start) and event.against for event in events):
            self.left = "against"
        self.lanes: dict[LaneName, list[Token]] = {self.left: [], "spec": []}
        self.rounds: list[Round] = []
        self.done: Done | None = None
        for event in events:
            for token, text in getattr(event, "vocab", {}).items():
                self.words[int(token)] = text
            self._take(event)
        self.rounds = [r for r in self.rounds if r.verify]  # Stop may have cut the last one short

    def _take(self, event: Event) -> None:
        lane = "ar" if isinstance(event, ArToken) else getattr(event, "lane", None) or "spec"
        if lane not in self.lanes:
            return  # plain decoding, which runs beside two methods as well
        if isinstance(event, Start):
            self.start = event
        elif isinstance(event, Prefill):
            self.lanes[lane].append(Token(event.text, "first", 0.0))
        elif isinstance(event, ArToken):
            self.lanes[lane].append(Token(event.text, "plain", event.clock))
        elif isinstance(event, Verify) and lane == "against":
            self._write(lane, event)
        elif lane == "against":
            return  # the block strip shows the right lane's rounds
        elif isinstance(event, Denoise):
            self._round(event.round).frames.append(event)
        elif isinstance(event, DraftMade):
            self._round(event.round).draft = event
        elif isinstance(event, Verify):
            of = self._round(event.round)
            of.verify, of.t1, of.first = event, event.clock, len(self.lanes["spec"])
            self._write(lane, event)
        elif isinstance(event, Done):
            self.done = event

    def _write(self, lane: LaneName, event: Verify) -> None:
        self.lanes[lane] += [Token(k["text"], k["source"], event.clock) for k in event.kept]

    def _round(self, number: int) -> Round:
        if self.rounds and self.rounds[-1].number == number:
            return self.rounds[-1]
        t0 = self.rounds[-1].t1 if self.rounds else 0.0
        self.rounds.append(Round(len(self.rounds), number, len(self.lanes["spec"]), t0, t0))
        return self.rounds[-1]

    @property
    def end(self) -> float:
        """Seconds on the slower lane's clock."""
        return max((tokens[-1].t for tokens in self.lanes.values() if tokens), default=0.0)

    def word(self, token: int) -> str:
        """The text of a token id."""
        return self.words.get(token, f"#{token}")

    def round(self, number: int | None) -> Round:
        """The round of this number, from 1; without one the last with the most kept drafts.

        Raises:
            UserError: there is no such round.
        """
        if not self.rounds:
            raise UserError("This trace ends before its first round; there is nothing to draw.")
        if number is None:
            return max(self.rounds, key=lambda r: (r.accepted, r.index))
        if not 1 <= number <= len(self.rounds):
            raise UserError(
                f"This race has rounds 1 to {len(self.rounds)}; there is no round {number}."
            )
        return self.rounds[number - 1]

    def speedup(self, t: float) -> float | None:
        """The right lane's tokens per second over the left one's, ``t`` seconds into the race, on
        the scale of the figure that the finished race reports; None before both have written.
        """
        so_far, whole = self._ratio(t), self._ratio(self.end)
        told = self._told()
        return so_far * told / whole if so_far and whole and told else None

    def _told(self) -> float | None:
        """The ratio of the two lanes that the race itself reports."""
        if self.done is None:
            return None
        if self.left == "against":
            against = self.done.result.get("against")
            return against["ratio"] if against else None
        return self.done.result["speedup"]

    @property
    def one_row_rate(self) -> float | None:
        """Tokens per second of the one-row kernel where the ratio is against it, as it is faster
        than the plain lane in the picture.
        """
        plain = self.done.result["ar"] if self.done and self.left == "ar" else None
        if plain is None or plain["one_row_tokens_per_second"] <= plain["tokens_per_second"]:
            return None
        return plain["one_row_tokens_per_second"]

    def is_over(self, t: float) -> bool:
        """Whether both lanes have written all that they ever will."""
        return t >= self.end and self.done is not None and not self.done.stopped

    def _ratio(self, t: float) -> float | None:
        rates = []
        for lane in self.lanes:
            rate = self.rate(lane, t)
            if rate is None:
                return None
            rates.append(rate)
        return rates[1] / rates[0]

    def rate(self, lane: LaneName, t: float) -> float | None:
        """Tokens per second of a lane so far; None before its second token."""
        tokens = self.lanes[lane]
        written = [token for token in tokens if token.t <= t]
        if len(written) < 2 or t <= 0:
            return None
        return (len(written) - 1) / (min(t, tokens[-1].t))
