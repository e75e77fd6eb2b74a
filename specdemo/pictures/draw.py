"""A scene as pixels or as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable
from xml.etree import ElementTree

from PIL import Image, ImageDraw

from .fonts import LONGEST, font_for, width
from .scene import HEIGHT, WIDTH, Box, Label, Mark, Shape

# in units of the sign's size, around its middle
LINES = {
    "check": [(-0.4, 0.0), (-0.1, 0.35), (0.45, -0.4)],
    "triangle": [(0.0, -0.4), (0.45, 0.35), (-0.45, 0.35), (0.0, -0.4)],
}
PAIRS = {
    "cross": [[(-0.35, -0.35), (0.35, 0.35)], [(-0.35, 0.35), (0.35, -0.35)]],
    "plus": [[(-0.45, 0.0), (0.45, 0.0)], [(0.0, -0.45), (0.0, 0.45)]],
}


def strokes(mark: Mark) -> list[list[tuple[float, float]]]:
    """The lines of a sign, as points on the screen."""
    lines = PAIRS.get(mark.kind) or [LINES[mark.kind]]
    return [[(mark.x + mark.size * x, mark.y + mark.size * y) for x, y in line] for line in lines]


def raster(shapes: Iterable[Shape], paper: str, scale: float = 1.0) -> Image.Image:
    """An RGB image of ``scale`` times 1280 × 720 pixels."""
    image = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale)), paper)
    draw = ImageDraw.Draw(image)
    for shape in shapes:
        if isinstance(shape, Box):
            _box(draw, shape, scale)
        elif isinstance(shape, Label):
            _label(draw, shape, scale)
        else:
            for line in strokes(shape):
                points = [(x * scale, y * scale) for x, y in line]
                draw.line(points, shape.colour, max(1, round(2 * scale)), "curve")
    return image


def _box(draw: ImageDraw.ImageDraw, box: Box, scale: float) -> None:
    if box.w * scale < 1 or box.h * scale < 1:
        return
    corners = [box.x * scale, box.y * scale, (box.x + box.w) * scale, (box.y + box.h) * scale]
    line = None if box.dash else box.line
    wide = max(1, round(1.5 * scale))
    radius = min(box.radius * scale, (corners[2] - corners[0]) / 2, (corners[3] - corners[1]) / 2)
    draw.rounded_rectangle(corners, radius, box.fill, line, wide)
    if box.dash and box.line:
        x0, y0, x1, y1 = corners
        for a, b in (
            ((x0, y0), (x1, y0)),
            ((x0, y1), (x1, y1)),
            ((x0, y0), (x0, y1)),
            ((x1, y0), (x1, y1)),
        ):
            _dashes(draw, a, b, box.line, wide, 6 * scale)


def _dashes(
    draw: ImageDraw.ImageDraw,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    wide: int,
    step: float,
) -> None:
    length = math.dist(start, end)
    n = max(1, int(length / step))
    for k in range(0, n, 2):
        a, b = k / n, min((k + 1) / n, 1.0)
        points = [
            (start[0] + (end[0] - start[0]) * s, start[1] + (end[1] - start[1]) * s) for s in (a, b)
        ]
        draw.line(points, colour, wide)


def _label(draw: ImageDraw.ImageDraw, label: Label, scale: float) -> None:
    text = label.text[:LONGEST]
    font = font_for(text, label.size * scale)
    anchor = {"start": "lm", "middle": "mm", "end": "rm"}[label.anchor]
    draw.text((label.x * scale, label.y * scale), text, label.colour, font, anchor=anchor)
    if label.strike:
        half = width(text, label.size) / 2
        points = [((label.x + side * half) * scale, label.y * scale) for side in (-1, 1)]
        draw.line(points, label.colour, max(1, round(1.5 * scale)))


def svg(shapes: Iterable[Shape], paper: str, title: str) -> str:
    """The scene as an SVG document. Text is text, never markup: the tree's writer escapes it."""
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {HEIGHT}",
            "font-family": "Aileron, 'Segoe UI', 'Helvetica Neue', 'Noto Sans', Arial, sans-serif",
        },
    )
    ElementTree.SubElement(root, "title").text = title
    ElementTree.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": paper})
    for shape in shapes:
        if isinstance(shape, Box):
            _svg_box(root, shape)
        elif isinstance(shape, Label):
            _svg_label(root, shape)
        else:
            for line in strokes(shape):
                points = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
                look = {"fill": "none", "stroke": shape.colour, "stroke-width": "2"}
                ElementTree.SubElement(root, "polyline", {"points": points, **look})
    return ElementTree.tostring(root, "unicode", xml_declaration=False) + "\n"


def _svg_box(root: ElementTree.Element, box: Box) -> None:
    look = {
        "x": f"{box.x:.1f}",
        "y": f"{box.y:.1f}",
        "width": f"{box.w:.1f}",
        "height": f"{box.h:.1f}",
        "rx": f"{min(box.radius, box.w / 2, box.h / 2):.1f}",
        "fill": box.fill or "none",
    }
    if box.line:
        look |= {"stroke": box.line, "stroke-width": "1.5"}
    if box.dash:
        look["stroke-dasharray"] = "5 4"
    ElementTree.SubElement(root, "rect", look)


def _svg_label(root: ElementTree.Element, label: Label) -> None:
    """The width is that of the layout, whatever font the reader has."""
    text = label.text[:LONGEST]
    look = {
        "x": f"{label.x:.1f}",
        "y": f"{label.y:.1f}",
        "font-size": f"{label.size:g}",
        "fill": label.colour,
        "dominant-baseline": "central",
        "text-anchor": label.anchor,
    }
    if text.strip():
        look |= {"textLength": f"{width(text, label.size):.1f}", "lengthAdjust": "spacingAndGlyphs"}
    if label.strike:
        look["text-decoration"] = "line-through"
    ElementTree.SubElement(root, "text", look).text = text
