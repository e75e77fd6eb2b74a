"""The report's charts, made with Plotly; the Bench tab and ``report.html`` show the same ones."""

from __future__ import annotations

from typing import Any, Literal

import plotly.graph_objects as go

from ..prompts import ALL
from .schema import Figures, Report

# Okabe-Ito first
COLORS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#8C8C00",
    "#7F7F7F",
    "#332288",
    "#44AA99",
)
# told apart without colour too
MARKS = (
    "circle",
    "square",
    "diamond",
    "cross",
    "x",
    "triangle-up",
    "star",
    "hexagon",
    "pentagon",
    "bowtie",
)

ByCategory = Literal["speedup", "tokens_per_round"]
PARTS: tuple[tuple[Literal["draft", "verify", "rest"], str, str], ...] = (
    ("draft", "#E69F00", "/"),
    ("verify", "#0072B2", ""),
    ("rest", "#7F7F7F", "."),
)  # of a round: name, colour, pattern
GREY = "#808080"  # readable on light and on dark


def charts(report: Report) -> list[tuple[str, go.Figure]]:
    """All charts with their titles, in the order they are shown in."""
    peers = [("Tokens per second beside other engines", beside(report))] if report["peers"] else []
    figures = [row[ALL] for row in report["table"].values()]
    positions = []
    if any(row["accepted_at"] for row in figures):
        positions = [("How many drafted tokens a round accepts", accepted(report))]
    if any(row.get("reliability") for row in figures):
        positions.append(
            ("How sure the drafter is, and how often it is right", calibration(report))
        )
    return [
        *peers,
        (
            "Speed-up over plain decoding, by category",
            bars(report, "speedup", "times plain decoding", line=1.0),
        ),
        (
            "Tokens per round, by category",
            bars(report, "tokens_per_round", "tokens per round (the target's own included)"),
        ),
        *positions,
        ("Speed-up of every prompt", spread(report)),
        *([("Predicted and measured", scatter(report))] if not report.get("served") else []),
        *([("Where the time goes", times(report))] if not report.get("served") else []),
    ]


def make_figure(*traces: Any, **layout: Any) -> go.Figure:
    """Transparent, grey ink: readable on light and dark."""
    base = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": GREY, "size": 14},
        "margin": {"t": 30, "r": 10},
        "height": 460,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY},  # else a grey box over the title
    }
    base["legend"] = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}
    figure = go.Figure(traces, {**base, **layout})
    figure.update_xaxes(gridcolor="#88888840", automargin=True).update_yaxes(gridcolor="#88888840")
    return figure


def _titles(report: Report) -> list[tuple[str, str, str, str]]:
    return [
        (label, m["title"], COLORS[i % len(COLORS)], MARKS[i % len(MARKS)])
        for i, (label, m) in enumerate(report["methods"].items())
    ]


def bars(report: Report, key: ByCategory, axis: str, line: float | None = None) -> go.Figure:
    """Grouped bars, a group a category."""
    columns = [ALL, *report["categories"]]
    traces = [
        go.Bar(
            name=title,
            x=[c.replace("_", " ") for c in columns],
            y=[report["table"][label][c][key] for c in columns],
            error_y=_bounds([report["table"][label][c] for c in columns], key),
            marker_color=color,
        )
        for label, title, color, _ in _titles(report)
    ]
    figure = make_figure(*traces, barmode="group", yaxis={"title": axis, "rangemode": "tozero"})
    if line is not None:
        figure.add_hline(line, line_dash="dash", line_color=GREY)
    return figure


def _bounds(figures: list[Figures], key: ByCategory) -> dict[str, Any] | None:
    """Error bars where ``key`` has an interval."""
    if key != "speedup" or not any(f["interval"] for f in figures):
        return None
    both = [(f["speedup"] or 0.0, f["interval"] or [f["speedup"] or 0.0] * 2) for f in figures]
    return {
        "array": [high - middle for middle, (_, high) in both],
        "arrayminus": [middle - low for middle, (low, _) in both],
        "color": GREY,
        "thickness": 1,
        "width": 2,
    }


def accepted(report: Report) -> go.Figure:
    """Share of rounds that accept at least n drafted tokens, a line a method."""
    traces = [
        go.Scatter(
            name=title,
            x=list(range(1, len(shares) + 1)),
            y=shares,
            mode="lines+markers",
            line={"color": color},
            marker={"symbol": mark, "size": 7},
        )
        for label, title, color, mark in _titles(report)
        if (shares := report["table"][label][ALL]["accepted_at"])
    ]
    return make_figure(
        *traces,
        xaxis={"title": "drafted tokens accepted, at least", "dtick": 1},
        yaxis={"title": "share of rounds", "range": [0, 1.02], "tickformat": ".0%"},
    )


def calibration(report: Report) -> go.Figure:
    """The share accepted of drafted tokens by the drafter's probability, a line a method; on the
    diagonal it is right as often as it is sure.
    """
    traces = []
    for label, title, color, mark in _titles(report):
        bins = report["table"][label][ALL].get("reliability", [])
        if bins:
            traces.append(
                go.Scatter(
                    name=title,
                    x=[sure for sure, _, _ in bins],
                    y=[right for _, right, _ in bins],
                    text=[f"{int(tokens):,} tokens" for _, _, tokens in bins],
                    mode="lines+markers",
                    line={"color": color},
                    marker={"symbol": mark, "size": 7},
                )
            )
    traces.append(
        go.Scatter(
            x=[0, 1],
            y=[0, 1],
            mode="lines",
            line={"dash": "dash", "color": GREY},
            name="right as often as sure",
            hoverinfo="skip",
        )
    )
    share = {"range": [0, 1.02], "tickformat": ".0%"}
    return make_figure(
        *traces,
        xaxis={"title": "the drafter's probability of a token", **share},
        yaxis={"title": "accepted, where its parent was", **share},
    )


def beside(report: Report) -> go.Figure:
    """A bar for every way to decode, ours and other engines', with its interval."""
    rows = report["peers"]["rows"] if report["peers"] else []
    timed = [row for row in reversed(rows) if row["ratio"] and row["tokens_per_second"]]
    per_ratio = [(r["tokens_per_second"] or 0) / (r["ratio"] or 1) for r in timed]
    bounds = [r["interval"] or [r["ratio"] or 0] * 2 for r in timed]
    bar = go.Bar(
        orientation="h",
        y=[f"{row['title']} ({row['dtype']})" for row in timed],
        x=[row["tokens_per_second"] for row in timed],
        error_x={
            "array": [
                (high - (r["ratio"] or 0)) * one
                for r, (_, high), one in zip(timed, bounds, per_ratio, strict=True)
            ],
            "arrayminus": [
                ((r["ratio"] or 0) - low) * one
                for r, (low, _), one in zip(timed, bounds, per_ratio, strict=True)
            ],
            "color": GREY,
        },
        marker={
            "color": [COLORS[0] if row["own"] else COLORS[1] for row in timed],
            "pattern": {"shape": ["" if row["own"] else "/" for row in timed]},
        },
    )
    return make_figure(
        bar,
        showlegend=False,
        height=120 + 34 * len(timed),
        xaxis={"title": "tokens per second (ours plain, others striped)", "rangemode": "tozero"},
    )


def spread(report: Report) -> go.Figure:
    """Every prompt's ratio, a box a method."""
    traces = []
    for label, title, color, _ in _titles(report):
        points = [
            (p["methods"][label][0], p["id"])
            for p in report["prompts"]
            if p["methods"][label][0] is not None
        ]
        traces.append(
            go.Box(
                name=title,
                y=[y for y, _ in points],
                text=[t for _, t in points],
                boxpoints="all",
                jitter=0.4,
                pointpos=0,
                marker={"color": color, "size": 4},
            )
        )
    figure = make_figure(
        *traces, showlegend=False, yaxis={"title": "times plain decoding", "rangemode": "tozero"}
    )
    return figure.add_hline(1.0, line_dash="dash", line_color=GREY)


def scatter(report: Report) -> go.Figure:
    """A point a method and category; on the line the overhead is nil."""
    traces, most = [], 1.0
    for label, title, color, mark in _titles(report):
        points = [
            (s["predicted"], s["speedup"], c.replace("_", " "))
            for c, s in report["table"][label].items()
            if s["predicted"] and s["speedup"]
        ]
        most = max([most, *(max(x, y) for x, y, _ in points)])
        traces.append(
            go.Scatter(
                name=title,
                x=[p[0] for p in points],
                y=[p[1] for p in points],
                text=[p[2] for p in points],
                mode="markers",
                marker={"color": color, "symbol": mark, "size": 9},
            )
        )
    traces.append(
        go.Scatter(
            x=[0, most],
            y=[0, most],
            mode="lines",
            line={"dash": "dash", "color": GREY},
            name="predicted = measured",
            hoverinfo="skip",
        )
    )
    return make_figure(
        *traces, xaxis={"title": "predicted speed-up"}, yaxis={"title": "measured speed-up"}
    )


def times(report: Report) -> go.Figure:
    """Milliseconds per token, stacked; plain decoding beside."""
    titles, rows = _titles(report), report["table"]
    plain = report["baseline"]["tokens_per_second"][ALL]
    names = ["Plain decoding", *(title for _, title, _, _ in titles)]
    traces = []
    for part, color, pattern in PARTS:
        values = [1e3 / plain if plain and part == "verify" else 0.0]
        for label, *_ in titles:
            s = rows[label][ALL]
            values.append(
                1e3 / s["tokens_per_second"] * s["time"][part]
                if s["time"] and s["tokens_per_second"]
                else 0.0
            )
        traces.append(
            go.Bar(
                name=part, x=names, y=values, marker={"color": color, "pattern": {"shape": pattern}}
            )
        )
    return make_figure(*traces, barmode="stack", yaxis={"title": "milliseconds per token"})
