"""One moment of a race as shapes on a screen of 1280 × 720, which pixels and SVG both draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..events import LaneName
from ..lane_names import lane_names
from .block import Cell, Moment, cells, judged, moment_at, own_token
from .fonts import fit, width
from .race import Race, Round
from .text_lines import LINE, LaneLines, printable

WIDTH, HEIGHT = 1280, 720
LANE_WIDTH, LANE_TOP, LANE_HEIGHT = 510, 84, 340
LEFT, RIGHT = 32, WIDTH - 32 - LANE_WIDTH
TEXT_SIZE, TEXT_LINES = 20, 8
MarkKind = Literal["check", "cross", "triangle", "plus"]


@dataclass(frozen=True)
class Box:
    """A rectangle with its upper left corner at (x, y)."""

    x: float
    y: float
    w: float
    h: float
    fill: str | None = None
    line: str | None = None
    dash: bool = False
    radius: float = 6


@dataclass(frozen=True)
class Label:
    """Text whose line of middle height is ``y``; ``x`` is its left, middle or right end."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"
    strike: bool = False


@dataclass(frozen=True)
class Mark:
    """A sign around (x, y), drawn as lines: not every font has it."""

    x: float
    y: float
    size: float
    kind: MarkKind
    colour: str


Shape = Box | Label | Mark


@dataclass(frozen=True)
class Colours:
    """The page's own (``base.css``)."""

    ink: str = "#14181d"
    soft: str = "#4a5460"
    paper: str = "#ffffff"
    card: str = "#f3f6f9"
    line: str = "#c9d1da"
    accepted: str = "#cfe6f8"
    accepted_line: str = "#0072b2"
    bonus: str = "#8fd6bb"
    bonus_line: str = "#00614a"
    correction: str = "#e2901c"
    correction_line: str = "#6b3300"
    rejected: str = "#a3300a"
    mask: str = "#8a95a1"


LIGHT = Colours()
DARK = Colours(
    ink="#eef2f6",
    soft="#b3bdc9",
    paper="#12161b",
    card="#1a2027",
    line="#3b4652",
    accepted="#0f3d5e",
    accepted_line="#56b4e9",
    bonus="#0b5a44",
    bonus_line="#6fe0bb",
    correction="#a05a00",
    correction_line="#ffc46b",
    rejected="#ff9a76",
    mask="#7d8894",
)
MARKS: dict[str, MarkKind] = {
    "accepted": "check",
    "rejected": "cross",
    "correction": "triangle",
    "bonus": "plus",
}
SAID = {
    "accepted": "kept",
    "rejected": "rejected",
    "unreached": "not reached",
    "dropped": "after the end",
    "correction": "corrected",
    "bonus": "bonus",
    "plain": "target's own",
}


class Stage:
    """Draws the moments of one race; the lines of both lanes are laid out once."""

    def __init__(self, race: Race, colours: Colours = LIGHT):
        self.race, self.colours = race, colours
        self.lines = {
            name: LaneLines(tokens, TEXT_SIZE, LANE_WIDTH - 32)
            for name, tokens in race.lanes.items()
        }

    def at(self, t: float) -> tuple[Shape, ...]:
        """``t`` seconds into the race, on the lanes' own clocks."""
        rounds = self.race.rounds
        of = next((r for r in rounds if r.t1 > t), None)
        if of is None:  # the last round often drafts nothing
            return self._shapes(t, self.race.round(None), judged())
        part = (t - of.t0) / (of.t1 - of.t0) if of.t1 > of.t0 else 1.0
        return self._shapes(t, of, moment_at(of, min(max(part, 0.0), 1.0)))

    def of_round(self, of: Round, t: float | None = None) -> tuple[Shape, ...]:
        """This round with its verdict, and the lanes at its end, or ``t`` seconds into the race."""
        return self._shapes(of.t1 if t is None else t, of, judged())

    def _shapes(self, t: float, of: Round, moment: Moment) -> tuple[Shape, ...]:
        c, start = self.colours, self.race.start
        left, right = names(self.race)
        method = f"method: {start.engine or start.method}"
        if start.against:
            method = f"{right} against {left}"
        room = WIDTH - 2 * LEFT - width(method, 18) - 24
        shapes: list[Shape] = [
            Label(LEFT, 44, fit(printable(start.prompt), 22, room), 22, c.ink),
            Label(WIDTH - LEFT, 44, printable(method), 18, c.soft, "end"),
            *self._lane(self.race.left, left, LEFT, t),
            *self._lane("spec", right, RIGHT, t),
            *self._ratio(t),
            *self._block(of, moment),
        ]
        whole = max(self.race.end, 1e-9)
        shapes += [
            Box(LEFT, 662, WIDTH - 2 * LEFT, 6, c.line, radius=3),
            Box(LEFT, 662, (WIDTH - 2 * LEFT) * min(t / whole, 1.0), 6, c.accepted_line, radius=3),
            Label(LEFT, 692, f"{t:.2f} s", 16, c.soft),
        ]
        where = " · ".join(printable(w) for w in (start.pair, start.hardware) if w)
        foot = f"{where} · SpecDemo" if where else "SpecDemo"
        shapes.append(Label(WIDTH - LEFT, 692, fit(foot, 16, 1000), 16, c.soft, "end"))
        return tuple(shapes)

    def _ratio(self, t: float) -> list[Shape]:
        ratio = self.race.speedup(t)
        if ratio is None:
            return []
        c, x, over, one_row = self.colours, WIDTH / 2, self.race.is_over(t), self.race.one_row_rate
        words = ["the speed of", "plain decoding"]
        if self.race.left == "against":
            words = ["the speed of", "the left lane"]
        elif one_row:
            words = ["the speed of plain", "decoding’s one-row"]
            words.append(f"kernel: {one_row:.1f} tok/s" if over else "kernel")
        if not over:
            words[-1] += ", so far"
        shapes: list[Shape] = [Label(x, 236, f"{ratio:.2f}×", 44, c.ink, "middle")]
        return shapes + [
            Label(x, 280 + 22 * i, line, 17, c.soft, "middle") for i, line in enumerate(words)
        ]

    def _lane(self, name: LaneName, title: str, x: float, t: float) -> list[Shape]:
        c, race = self.colours, self.race
        written = sum(token.t <= t for token in race.lanes[name])
        rate = race.rate(name, t)
        head = f"{written} tokens" + (f", {rate:.1f} tokens/s" if rate else "")
        shapes: list[Shape] = [
            Box(x, LANE_TOP, LANE_WIDTH, LANE_HEIGHT, c.card, c.line, radius=8),
            Label(x + 16, LANE_TOP + 28, fit(title, 21, LANE_WIDTH - 270), 21, c.ink),
            Label(x + LANE_WIDTH - 16, LANE_TOP + 28, head, 18, c.soft, "end"),
        ]
        for piece in self.lines[name].shown(written, TEXT_LINES):
            token = race.lanes[name][piece.token]
            left, y = x + 16 + piece.x, LANE_TOP + 74 + LINE * piece.line
            fill, line, dash = self._look(token.source)
            if piece.text.strip() and (fill or line):
                shapes.append(Box(left, y - 14, piece.width, 28, fill, line, dash, 4))
            shapes.append(Label(left, y, piece.text, TEXT_SIZE, c.ink))
        return shapes

    def _look(self, source: str) -> tuple[str | None, str | None, bool]:
        c = self.colours
        return {
            "accepted": (c.accepted, None, False),
            "correction": (c.correction, c.correction_line, True),
            "bonus": (c.bonus, c.bonus_line, False),
        }.get(source, (None, None, False))

    def _block(self, of: Round, moment: Moment) -> list[Shape]:
        c = self.colours
        head = f"Round {of.index + 1} of {len(self.race.rounds)}"
        shapes: list[Shape] = [
            Box(LEFT, 440, WIDTH - 2 * LEFT, 204, c.card, c.line, radius=8),
            Label(LEFT + 16, 468, head, 21, c.ink),
            Label(WIDTH - LEFT - 16, 468, words_of(of, moment), 18, c.soft, "end"),
        ]
        shown = cells(of, moment)
        own = own_token(of, moment)
        columns = max(len(shown), own[0] + 1 if own else 1, 4)
        step = min(150.0, (WIDTH - 2 * LEFT - 32) / columns)
        for k in range(columns):
            cell = shown[k] if k < len(shown) else None
            mine = own if own and own[0] == k else None
            if cell or mine:
                place = (LEFT + 16 + k * step, 496.0, step - 8)
                shapes += self._cell(cell, mine, *place)
        return shapes

    def _cell(
        self, cell: Cell | None, own: tuple[int, int, str] | None, x: float, y: float, w: float
    ) -> list[Shape]:
        c = self.colours
        kind = own[2] if own else (cell.verdict if cell else "")
        fill, line, dash = self._look(kind)
        middle = x + w / 2
        box = Box(x, y, w, 76, fill, line or c.line, dash, 8)
        if cell and cell.token is None and not own:
            return [replace(box, fill=c.line), Label(middle, y + 38, "mask", 17, c.soft, "middle")]
        token = own[1] if own else (cell.token if cell else None)
        text = printable(self.race.word(token)) if token is not None else ""
        struck = kind == "rejected"
        faint = kind in ("unreached", "dropped")
        colour = c.rejected if struck else c.mask if faint else c.ink
        word = Label(middle, y + 38, fit(text.strip() or text, 20, w - 10), 20, colour, "middle")
        shapes: list[Shape] = [box, replace(word, strike=struck)]
        if cell and cell.conf is not None and not own:
            shapes.append(Box(x + 6, y + 66, (w - 12) * cell.conf, 4, c.accepted_line, radius=2))
        if kind in MARKS:
            shapes.append(Mark(x + w - 13, y + 14, 14, MARKS[kind], self._mark_colour(kind)))
        said = SAID.get(kind, "")
        if own and cell and cell.token is not None and own[2] == "correction":
            said = f"not “{printable(self.race.word(cell.token)).strip()}”"
        if said:
            shapes.append(Label(middle, y + 98, fit(said, 15, w), 15, c.soft, "middle"))
        return shapes

    def _mark_colour(self, kind: str) -> str:
        c = self.colours
        return {
            "accepted": c.accepted_line,
            "rejected": c.rejected,
            "correction": c.correction_line,
            "bonus": c.bonus_line,
        }[kind]


def names(race: Race) -> tuple[str, str]:
    """What the lanes are called; of two methods by name, with settings where the names agree."""
    if race.start.against is None:
        return "Plain decoding", "Draft and verify"
    left, right = lane_names(race.start)
    return printable(left), printable(right)


def words_of(of: Round, moment: Moment) -> str:
    """What happens, in a few words."""
    n = of.proposed
    if moment.phase == "masks":
        return "the drafter starts from masks"
    if moment.phase == "denoise":
        return "the drafter fills the masks in"
    if moment.phase == "draft":
        return f"{n} drafted"
    if moment.phase == "check":
        return f"the target verifies {n} drafted in one pass" if n else "nothing is drafted"
    kept = len(of.kept)
    tokens = f"{kept} token{'s' if kept != 1 else ''} for one pass of the target"
    return f"{of.accepted} of {n} drafted kept: {tokens}" if n else f"nothing drafted: {tokens}"
