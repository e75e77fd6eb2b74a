"""Which picture a file name asks for."""

from __future__ import annotations

import io
from collections.abc import Sequence

from ..errors import UserError
from ..events import Event
from .animate import gif, mp4
from .draw import raster, svg
from .race import Race
from .scene import DARK, LIGHT, Stage

STILLS, ANIMATIONS = ("png", "svg"), ("gif", "mp4")
SECONDS = 10.0  # of an animation
PNG_SCALE = 2.0  # sharp on a slide
MAX_TOKENS = 4096  # of a race that is drawn


def picture(
    events: Sequence[Event],
    kind: str,
    round_number: int | None = None,
    seconds: float | None = None,
    dark: bool = False,
) -> bytes:
    """A picture of a race, as the bytes of its file.

    Args:
        kind: png or svg, a still of one round; gif or mp4, the whole race.
        round_number: of a still, from 1, with the lanes at its end; None: the round with the most
            kept drafts, and both lanes complete.
        seconds: of an animation; None: ``SECONDS``.

    Raises:
        UserError: there is nothing to draw, no such round, no such kind, or the race is too long.
    """
    race = Race(events)
    if (longest := max(len(tokens) for tokens in race.lanes.values())) > MAX_TOKENS:
        raise UserError(
            f"This race has {longest:,} tokens and a picture draws at most {MAX_TOKENS:,};"
            " export it as a web page instead."
        )
    if kind in ANIMATIONS:
        if round_number is not None:
            raise UserError("A round is drawn as .png or .svg; .gif and .mp4 show the whole race.")
        draw = gif if kind == "gif" else mp4
        return draw(race, SECONDS if seconds is None else seconds, dark)
    if kind not in STILLS:
        raise UserError("Pictures are .png, .svg, .gif or .mp4.")
    if seconds is not None:
        raise UserError("A length in seconds is for .gif and .mp4; a still has none.")
    colours = DARK if dark else LIGHT
    of = race.round(round_number)
    shapes = Stage(race, colours).of_round(of, race.end if round_number is None else None)
    if kind == "svg":
        title = f"Round {of.index + 1} of {len(race.rounds)} of a race in SpecDemo"
        return svg(shapes, colours.paper, title).encode()
    out = io.BytesIO()
    raster(shapes, colours.paper, PNG_SCALE).save(out, "PNG", optimize=True)
    return out.getvalue()
