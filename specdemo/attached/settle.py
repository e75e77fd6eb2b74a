"""From a stream's steps to rounds: what each drafted and accepted, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..events import UNNAMED, named
from .client import Piece, Step, Tail

Sure = Literal["told", "inferred", "totals"]


def settle(steps: Sequence[Step], tail: Tail) -> Sure:
    """Fill in ``drafted`` and ``accepted`` of every round, that is of ``steps`` behind the first.

    Returns:
        ``told`` where the engine says each pass, ``inferred`` where one chunk is taken for one
        pass, ``totals`` where chunks were merged: then neither is filled in.
    """
    rounds = list(steps[1:])
    if all(r.drafted is not None and r.accepted is not None for r in rounds):
        return "told" if all(_fits(r, r is rounds[-1]) for r in rounds) else "inferred"
    if tail.per_pass is not None:
        return _align(rounds, tail.per_pass)
    if len(rounds) < least_rounds(tail):
        return "totals"
    for step in rounds:
        if named([piece.id for piece in step.pieces]):
            step.accepted = len(step.pieces) - 1
    return "inferred"


def least_rounds(tail: Tail) -> int:
    """Passes behind the first one, by the totals: at least those that drafted, and one for each
    token that was no accepted draft.
    """
    rounds = tail.rounds or 0
    if tail.tokens is not None and tail.accepted is not None:
        rounds = max(rounds, tail.tokens - 1 - tail.accepted)
    return rounds


def _fits(step: Step, last: bool) -> bool:
    """Whether the pass wrote what it accepted and one token; the last may be cut by the limit."""
    full = (step.accepted or 0) + 1
    return len(step.pieces) == full or (last and len(step.pieces) < full)


def _align(rounds: Sequence[Step], told: Sequence[tuple[int, int]]) -> Sure:
    """Give each pass that drafted to a chunk of its size. Passes that did not draft are not told
    and wrote one token: which of two neighbours that was cannot be known then.
    """
    left = list(told)
    found: list[tuple[int, int]] = []
    for step in rounds:
        drafted, accepted = left[0] if left else (0, 0)
        last = step is rounds[-1]
        if left and (
            len(step.pieces) == accepted + 1 or (last and len(step.pieces) <= accepted + 1)
        ):
            found.append((drafted, accepted))
            del left[0]
        elif len(step.pieces) == 1:
            found.append((0, 0))
        else:
            return "totals"
    if left:
        return "totals"
    for step, (drafted, accepted) in zip(rounds, found, strict=True):
        step.drafted, step.accepted = drafted, accepted
    return "told" if len(told) == len(rounds) else "inferred"


class Words:
    """The text of each token, learned from chunks of one, to cut the text of longer ones."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}

    def cut(self, step: Step) -> None:
        """Give every piece of a step its part of the text. Where that is unknown, the first piece
        has what the known ones at both ends leave.
        """
        ids = [piece.id for piece in step.pieces]
        if not step.text or any(piece.text for piece in step.pieces):
            for piece in step.pieces:
                self._learn(piece.id, piece.text)
            return
        rest, texts = step.text, [""] * len(ids)
        start, end = 0, len(ids)
        while start < end and (text := self.known.get(ids[start])) and rest.startswith(text):
            texts[start], rest, start = text, rest[len(text) :], start + 1
        while start < end and (text := self.known.get(ids[end - 1])) and rest.endswith(text):
            texts[end - 1], rest, end = text, rest[: len(rest) - len(text)], end - 1
        if start < end:
            texts[start] = rest
        elif rest:
            texts[-1] += rest
        if end - start == 1:
            self._learn(ids[start], rest)
        step.pieces = [Piece(text, id) for text, id in zip(texts, ids, strict=True)]

    def _learn(self, id: int, text: str) -> None:
        if id != UNNAMED and text and "\ufffd" not in text:
            self.known.setdefault(id, text)
