"""A race as an animation: GIF by Pillow, MP4 by the ffmpeg that imageio-ffmpeg ships."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from ..errors import UserError
from .draw import raster
from .race import Race
from .scene import DARK, LIGHT, Shape, Stage

FRAMES_PER_SECOND = 10
GIF_SCALE, MP4_SCALE = 0.75, 1.0
REST = 2.0  # seconds that the end stays on screen
COLOURS = 64  # of a GIF: the scene's own, and the steps between ink and paper
MAX_SECONDS = 60.0
NO_FFMPEG = (
    "An MP4 needs imageio-ffmpeg, which is not installed: “pip install imageio-ffmpeg”, or take"
    " .gif instead."
)


def scenes(race: Race, stage: Stage, seconds: float) -> Iterator[tuple[tuple[Shape, ...], int]]:
    """The moments of a race that is replayed in ``seconds``, each with the frames it lasts."""
    if not race.rounds:
        raise UserError("This trace ends before its first round; there is nothing to draw.")
    n = max(2, round(seconds * FRAMES_PER_SECOND))
    last, lasts = stage.at(0.0), 1
    for k in range(1, n):
        scene = stage.at(race.end * k / (n - 1))
        if scene == last:
            lasts += 1
        else:
            yield last, lasts
            last, lasts = scene, 1
    yield last, lasts + round(REST * FRAMES_PER_SECOND)


def check_seconds(seconds: float) -> None:
    """Raises UserError for a length that is not sensible."""
    if not 1 <= seconds <= MAX_SECONDS:
        raise UserError(f"An animation lasts from 1 to {MAX_SECONDS:g} seconds, not {seconds:g}.")


def gif(race: Race, seconds: float, dark: bool = False) -> bytes:
    """The race as an animated GIF of 960 × 540 pixels that repeats.

    Raises:
        UserError: nothing to draw, or a length that is not sensible.
    """
    check_seconds(seconds)
    colours = DARK if dark else LIGHT
    stage = Stage(race, colours)
    palette = raster(stage.of_round(race.round(None)), colours.paper, GIF_SCALE).quantize(COLOURS)
    frames, durations = [], []
    for scene, lasts in scenes(race, stage, seconds):
        image = raster(scene, colours.paper, GIF_SCALE)
        frames.append(image.quantize(palette=palette, dither=Image.Dither.NONE))
        durations.append(lasts * 1000 // FRAMES_PER_SECOND)
    out = io.BytesIO()
    frames[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        optimize=False,
        disposal=1,
    )
    return out.getvalue()


def can_mp4() -> bool:
    """Whether the optional package is there."""
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        return False
    return True


def mp4(race: Race, seconds: float, dark: bool = False) -> bytes:
    """The race as an H.264 film of 1280 × 720 pixels.

    Raises:
        UserError: as :func:`gif`, or the package is not there.
    """
    check_seconds(seconds)
    if not can_mp4():
        raise UserError(NO_FFMPEG)
    import imageio_ffmpeg

    colours = DARK if dark else LIGHT
    stage = Stage(race, colours)
    first = next(scenes(race, stage, seconds))[0]
    size = raster(first, colours.paper, MP4_SCALE).size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "race.mp4"
        writer = imageio_ffmpeg.write_frames(
            str(path),
            size,
            fps=FRAMES_PER_SECOND,
            macro_block_size=16,
            output_params=["-crf", "24"],
        )
        writer.send(None)
        try:
            for scene, lasts in scenes(race, stage, seconds):
                data = raster(scene, colours.paper, MP4_SCALE).tobytes()
                for _ in range(lasts):
                    writer.send(data)
        finally:
            writer.close()
        return path.read_bytes()
