"""What a sweep measures: lines of points, each a method with its settings at one temperature."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UserError

TEMPERATURE = "answer-temperature"  # an axis of its own: how the answers are sampled
MOST_VALUES = 40

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(\d+))?")


@dataclass(frozen=True)
class Point:
    """A method label as ``bench --methods`` takes it, at one temperature of the answers.

    Attributes:
        x: the value on the axis, as it is written there.
    """

    x: str
    label: str
    temperature: float = 0.0


@dataclass(frozen=True)
class Sweep:
    """What is measured and how it is drawn.

    Attributes:
        axis: what ``x`` is.
        lines: by the name in the legend.
        source: the figure or table of a paper that this follows.
        paper: what stands there, with pair and hardware; empty for one of a person's own.
    """

    name: str
    title: str
    axis: str
    lines: dict[str, tuple[Point, ...]]
    source: str = ""
    paper: str = ""

    @property
    def temperatures(self) -> tuple[float, ...]:
        return tuple(sorted({point.temperature for point in self.points}))

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(itertools.chain(*self.lines.values()))

    def labels(self, temperature: float) -> tuple[str, ...]:
        """The methods that are measured at one temperature, each once."""
        return tuple(dict.fromkeys(p.label for p in self.points if p.temperature == temperature))


def own_sweep(label: str, varied: Sequence[str]) -> Sweep:
    """One method over one or two of its settings, as the command line names them.

    Args:
        label: as ``bench --methods`` takes it; its settings hold for every point.
        varied: ``NAME=VALUES``; the first is the axis, the second gives the lines.

    Raises:
        UserError: nothing or too much is varied, or values cannot be read.
    """
    if not 1 <= len(varied) <= 2:
        raise UserError(
            "Name one setting to vary, or two (the second gives the lines), for instance"
            " --vary gamma=2..15 --vary steps=1,2."
        )
    (name, values), *more = (_parse_varied(text) for text in varied)
    line_name, line_values = more[0] if more else ("", ("",))
    lines = {
        f"{line_name}={value}" if line_name else label: tuple(
            _point(label, x, {name: x} | ({line_name: value} if line_name else {})) for x in values
        )
        for value in line_values
    }
    return Sweep(label, f"{label}: {name}", name, lines)


def _point(label: str, x: str, settings: dict[str, str]) -> Point:
    temperature = settings.pop(TEMPERATURE, "0")
    try:
        number = float(temperature)
    except ValueError:
        raise UserError(
            f"{TEMPERATURE} takes numbers from 0 up, not “{temperature}”; correct it."
        ) from None
    words = [label, *(f"{name}={value}" for name, value in settings.items())]
    return Point(x, ":".join(words), number)


def _parse_varied(text: str) -> tuple[str, tuple[str, ...]]:
    """``gamma=2..15``, ``gamma=2..14:4`` (every fourth) or ``reveal=confidence,left-to-right``."""
    name, equals, rest = text.partition("=")
    if not name or not equals or not rest:
        raise UserError(
            f"“{text}” names no setting with values; write it as gamma=2..15 or steps=1,2,4."
        )
    values: list[str] = []
    for word in rest.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match:
            first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
            span = range(first, last + 1, max(step, 1))
            if len(span) > MOST_VALUES:
                raise UserError(
                    f"“{word}” is {len(span)} values and a sweep takes at most {MOST_VALUES};"
                    " give a step, as in 2..100:10."
                )
            values += map(str, span)
        else:
            values.append(word.strip())
    values = [value for value in dict.fromkeys(values) if value]
    if not 1 <= len(values) <= MOST_VALUES:
        raise UserError(
            f"“{text}” gives {len(values)} values; a sweep takes 1 to {MOST_VALUES} of a setting."
        )
    return name.strip(), tuple(values)
