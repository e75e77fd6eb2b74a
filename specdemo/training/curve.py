"""The learning curve as data and as a picture.

The picture stands in a drafter's folder on a hub, which shows static SVG and runs no scripts, and
Plotly would need a browser (kaleido) to draw one. Hence three polylines by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import atomic_write

WIDE, HIGH, LEFT, TOP = 640, 200, 60, 30


def _panel(title: str, points: list[tuple[float, float]], top: int, colour: str) -> str:
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    dx, dy = (x1 - x0) or 1.0, (y1 - y0) or 1.0

    def place(x: float, y: float) -> str:
        right = LEFT + (x - x0) / dx * (WIDE - LEFT - 20)
        down = top + TOP + (1 - (y - y0) / dy) * (HIGH - 2 * TOP)
        return f"{right:.1f},{down:.1f}"

    line = " ".join(place(x, y) for x, y in points)
    base = top + HIGH - TOP
    dots = (
        "".join(
            f'<circle cx="{c.split(",")[0]}" cy="{c.split(",")[1]}" r="2.5" fill="{colour}"/>'
            for c in line.split()
        )
        if len(points) < 60
        else ""
    )
    return (
        f'<text x="{LEFT}" y="{top + 18}" font-size="13">{title}</text><rect x="{LEFT}"'
        f' y="{top + TOP}" width="{WIDE - LEFT - 20}" height="{HIGH - 2 * TOP}" fill="none"'
        f' stroke="#bbb"/><polyline points="{line}" fill="none" stroke="{colour}"'
        f' stroke-width="1.6"/>{dots}<text x="{LEFT - 6}" y="{top + TOP + 10}" font-size="11"'
        f' text-anchor="end">{y1:.3g}</text><text x="{LEFT - 6}" y="{base}" font-size="11"'
        f' text-anchor="end">{y0:.3g}</text><text x="{LEFT}" y="{base + 14}"'
        f' font-size="11">{x0:.3g}</text><text x="{WIDE - 20}" y="{base + 14}" font-size="11"'
        f' text-anchor="end">{x1:.3g} steps</text>'
    )


def draw(curve: list[dict[str, Any]]) -> str:
    """An SVG of what a run logged: loss, share of right first tokens, and tokens per round where it
    was evaluated.
    """
    wanted = (
        ("training loss", "loss", "#4269d0"),
        ("first choice right, training text", "first", "#3ca951"),
        ("tokens per round, held-out prompts, greedy", "tokens_per_round", "#ff725c"),
    )
    panels, top = [], 0
    for title, key, colour in wanted:
        points = [(float(p["step"]), float(p[key])) for p in curve if p.get(key) is not None]
        if points:
            panels.append(_panel(title, points, top, colour))
            top += HIGH
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {max(top, 20)}"'
        ' font-family="sans-serif" fill="#333">'
    )
    return (
        head
        + f'<rect width="{WIDE}" height="{max(top, 20)}" fill="#fff"/>'
        + "".join(panels)
        + "</svg>"
    )


def write_curve(folder: Path, curve: list[dict[str, Any]]) -> None:
    """``curve.json`` and ``curve.svg`` in ``folder``."""
    for name, text in (("curve.json", json.dumps(curve, indent=0)), ("curve.svg", draw(curve))):
        atomic_write(folder / name, text)
