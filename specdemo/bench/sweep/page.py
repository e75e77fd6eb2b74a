"""A sweep as one HTML file with Plotly's charts in it, which opens without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import plotly.graph_objects as go
from markupsafe import Markup

from ...files import write_output
from ..charts import COLORS, GREY, MARKS, PARTS, make_figure
from ..html import drawn_charts, environment, stylesheet
from .result import Measured, Result

Key = Literal["speedup", "tokens_per_round"]
BOUNDS: dict[Key, Literal["interval", "tokens_interval"]] = {
    "speedup": "interval",
    "tokens_per_round": "tokens_interval",
}


def save_page(result: Result, path: Path) -> None:
    """Raises UserError: it cannot be written."""
    write_output(path, page(result), "The sweep's page")


def page(result: Result) -> str:
    """The whole HTML text. The template escapes every text of ``result``."""
    charts = drawn_charts(charts_of(result))
    template = environment().get_template("sweep.html.j2")
    return template.render(result=result, charts=charts, css=Markup(stylesheet()))


def charts_of(result: Result) -> list[tuple[str, go.Figure]]:
    """The charts with their titles."""
    return [
        ("Speed-up over plain decoding", curves(result, "speedup", "times plain decoding", 1.0)),
        ("Tokens per round", curves(result, "tokens_per_round", "tokens per round")),
        ("How many drafted tokens a round accepts", positions(result)),
        ("Where the time goes", shares(result)),
    ]


def _xs(points: list[Measured]) -> list[float] | list[str]:
    """Numbers where all are numbers, so that the axis is to scale."""
    try:
        return [float(point["x"]) for point in points]
    except ValueError:
        return [point["x"] for point in points]


def curves(result: Result, key: Key, axis: str, line: float | None = None) -> go.Figure:
    """A line for each of the sweep's, with 95 % intervals."""
    traces = []
    for number, drawn in enumerate(result["lines"]):
        points = [point for point in drawn["points"] if point[key] is not None]
        middle = [point[key] or 0.0 for point in points]
        bounds = [
            point[BOUNDS[key]] or [value, value]
            for point, value in zip(points, middle, strict=True)
        ]
        traces.append(
            go.Scatter(
                name=drawn["name"],
                x=_xs(points),
                y=middle,
                text=[point["label"] for point in points],
                mode="lines+markers",
                line={"color": COLORS[number % len(COLORS)]},
                marker={"symbol": MARKS[number % len(MARKS)], "size": 9},
                error_y={
                    "array": [high - y for (_, high), y in zip(bounds, middle, strict=True)],
                    "arrayminus": [y - low for (low, _), y in zip(bounds, middle, strict=True)],
                    "thickness": 1,
                    "width": 3,
                },
            )
        )
    figure = make_figure(
        *traces,
        xaxis={"title": result["axis"]},
        yaxis={"title": axis, "rangemode": "tozero"},
        showlegend=True,
    )
    return figure if line is None else figure.add_hline(line, line_dash="dash", line_color=GREY)


def _each(result: Result) -> list[tuple[str, Measured]]:
    return [
        (f"{drawn['name']}, {point['x']}", point)
        for drawn in result["lines"]
        for point in drawn["points"]
    ]


def positions(result: Result) -> go.Figure:
    """Share of rounds that accept at least n drafted tokens, a line a point."""
    traces = [
        go.Scatter(
            name=name,
            x=list(range(1, len(point["accepted_at"]) + 1)),
            y=point["accepted_at"],
            mode="lines+markers",
            line={"color": COLORS[number % len(COLORS)]},
            marker={"symbol": MARKS[number % len(MARKS)], "size": 7},
        )
        for number, (name, point) in enumerate(_each(result))
    ]
    return make_figure(
        *traces,
        xaxis={"title": "drafted tokens accepted, at least", "dtick": 1},
        yaxis={"title": "share of rounds", "range": [0, 1.02], "tickformat": ".0%"},
        height=600,
    )


def shares(result: Result) -> go.Figure:
    """Of the decoding time: drafting, verifying, the rest; a bar a point."""
    timed = [(name, point["time"]) for name, point in _each(result) if point["time"]]
    traces = [
        go.Bar(
            name=part,
            x=[name for name, _ in timed],
            y=[time[part] for _, time in timed],
            marker={"color": color, "pattern": {"shape": pattern}},
        )
        for part, color, pattern in PARTS
    ]
    return make_figure(*traces, barmode="stack", yaxis={"tickformat": ".0%"}, height=520)
