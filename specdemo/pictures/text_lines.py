"""The text of a lane in lines, each token where it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .fonts import LONGEST, width
from .race import Token

LINE = 32  # pixels from one line to the next


@dataclass(frozen=True)
class Piece:
    """A token's text in one line: index of the token, the line, where it begins, in pixels."""

    token: int
    line: int
    x: float
    width: float
    text: str


def printable(text: str) -> str:
    """The text in one line, without characters that would rearrange or hide their neighbours, or
    that XML cannot hold.
    """
    shown = (
        " " if c.isspace() else c if c.isprintable() or c in "\u200c\u200d" else "¤" for c in text
    )
    return "".join(shown)


class LaneLines:
    """Words are kept together where a line has room for them, however many tokens they have."""

    def __init__(self, tokens: Sequence[Token], size: float, room: float):
        self.pieces: list[Piece] = []
        self.size, self.room = size, room
        self.line, self.x = 0, 0.0
        self.wrapped = False  # the line begins in the middle of a paragraph
        word: list[tuple[int, str]] = []
        for i, token in enumerate(tokens):
            for part in re.findall(r"\n|[^\S\n]+|\S+", token.text):
                if part.isspace():
                    self._place(word)
                    word = []
                    self._space(part, i)
                else:
                    word.append((i, printable(part)))
        self._place(word)

    def _space(self, part: str, token: int) -> None:
        if part == "\n":
            self.line, self.x, self.wrapped = self.line + 1, 0.0, False
        elif self.x or not self.wrapped:
            wide = min(width(" ", self.size) * len(part), self.room - self.x)
            self.pieces.append(Piece(token, self.line, self.x, wide, " "))
            self.x += wide

    def _place(self, word: list[tuple[int, str]]) -> None:
        wide = sum(width(text[:LONGEST], self.size) for _, text in word)
        if self.x + wide > self.room and self.x:
            self.line, self.x, self.wrapped = self.line + 1, 0.0, True
        for token, text in word:
            while text:
                cut = self._longest(text)
                if cut:
                    wide = width(text[:cut], self.size)
                    self.pieces.append(Piece(token, self.line, self.x, wide, text[:cut]))
                    self.x += wide
                text = text[cut:]
                if text:
                    self.line, self.x, self.wrapped = self.line + 1, 0.0, True

    def _longest(self, text: str) -> int:
        """How many characters fit in what is left of the line, at least one at its beginning."""
        low, high = int(not self.x), min(len(text), LONGEST)
        while low < high:
            middle = (low + high + 1) // 2
            if self.x + width(text[:middle], self.size) <= self.room:
                low = middle
            else:
                high = middle - 1
        return low

    def shown(self, tokens: int, lines: int) -> list[Piece]:
        """Pieces of the first ``tokens`` in the last ``lines``; the first line shown is 0."""
        pieces = [piece for piece in self.pieces if piece.token < tokens]
        top = max(0, pieces[-1].line - lines + 1) if pieces else 0
        return [replace(p, line=p.line - top) for p in pieces if p.line >= top]
