"""Fonts of pictures: the one that Pillow ships, and for what it lacks one of the system's."""

from __future__ import annotations

import functools

from PIL import ImageFont

# found by name in the system's folders of fonts
OTHERS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "Arial.ttf",
    "Arial Unicode.ttf",
    "NotoSansCJK-Regular.ttc",
    "msyh.ttc",
    "Hiragino Sans GB.ttc",
)
NO_CHARACTER = "\uffff"  # what a font draws for it stands for everything that it lacks
LONGEST = 400  # characters of a text in one line, far more than a screen holds
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@functools.lru_cache(maxsize=64)
def _font(which: int, size: float) -> Font | None:
    if which == 0:
        return ImageFont.load_default(size)
    try:
        return ImageFont.truetype(OTHERS[which - 1], size)
    except OSError:
        return None


@functools.lru_cache(maxsize=8192)
def _has(which: int, character: str) -> bool:
    font = _font(which, 16)
    if font is None:
        return False
    return bytes(font.getmask(character)) != bytes(font.getmask(NO_CHARACTER))


@functools.lru_cache(maxsize=8192)
def _best(text: str) -> int:
    """The first font that lacks the fewest characters of the text."""
    characters = {c for c in text if not c.isspace()}
    fonts = range(len(OTHERS) + 1)
    first = sum(not _has(0, c) for c in characters)
    if not first:
        return 0
    return min(fonts, key=lambda i: sum(not _has(i, c) for c in characters))


def font_for(text: str, size: float) -> Font:
    """The font to draw ``text`` with at ``size`` pixels."""
    font = _font(_best(text), size)
    assert font is not None
    return font


@functools.lru_cache(maxsize=16384)
def width(text: str, size: float) -> float:
    """Pixels that ``text`` takes."""
    return float(font_for(text, size).getlength(text))


def fit(text: str, size: float, room: float) -> str:
    """The text, cut with an ellipsis where it is wider than ``room``."""
    if len(text) <= LONGEST and width(text, size) <= room:
        return text
    low, high = 0, min(len(text), LONGEST)
    while low < high:
        middle = (low + high + 1) // 2
        if width(text[:middle] + "…", size) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low] + "…"
