"""Plotly figures from events (plain dicts); no template, because Plotly's default one weighs more
than the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

PLAIN, DRAFTED, OWN, PREDICTED = "#6b7785", "#0072B2", "#E69F00", "#CC79A7"
MAX_POINTS = 256
# below: above, it lay over the title on a phone
LEGEND = {
    "orientation": "h",
    "yref": "container",
    "y": 0,
    "yanchor": "bottom",
    "x": 0,
    "xanchor": "left",
}
# Plotly lays them over the title; dragging zooms and a double click resets
BUTTONS = [
    "zoom",
    "pan",
    "select",
    "lasso",
    "zoomin",
    "zoomout",
    "autoscale",
    "resetscale",
    "toimage",
]


def layout(figure: go.Figure, title: str, x: str, y: str, height: int = 320) -> go.Figure:
    """Axes with names, transparent ground so that both themes show through, a grey that reads on
    both.
    """
    axis = {
        "gridcolor": "rgba(128,140,152,.25)",
        "zerolinecolor": "rgba(128,140,152,.5)",
        "rangemode": "tozero",
        "automargin": True,
    }
    figure.update_layout(
        template="none",
        title={"text": title, "font": {"size": 15}},
        height=height,
        modebar={"remove": BUTTONS},
        margin={"l": 55, "r": 15, "t": 40, "b": 80},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#7d8894", "size": 13},
        xaxis=axis | {"title": {"text": x, "standoff": 12}},
        yaxis=axis | {"title": {"text": y}},
        legend=LEGEND,
    )
    return figure


def thin(points: list[tuple[float, float]], most: int = MAX_POINTS) -> list[tuple[float, float]]:
    """At most ``most`` of the points, the last always among them."""
    if len(points) <= most:
        return points
    step = -(-len(points) // (most - 1))
    return points[::step] + ([] if (len(points) - 1) % step == 0 else [points[-1]])


def lanes(
    events: Iterable[dict[str, Any]],
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(clock, tokens written) of the plain and of the drafted lane."""
    ar, spec = [], []
    for event in events:
        kind = event["kind"]
        if kind == "prefill":
            (ar if event.get("lane") == "ar" else spec).append((0.0, 1))
        elif kind == "ar_token":
            ar.append((event["clock"], len(ar) + 1))
        elif kind == "verify":
            spec.append((event["clock"], (spec[-1][1] if spec else 0) + len(event["kept"])))
    return ar, spec


def tokens_over_time(events: Iterable[dict[str, Any]]) -> go.Figure:
    """Tokens against time for both lanes, each on its own clock."""
    figure = go.Figure()
    for name, points, color, dash in zip(
        ("plain decoding", "draft and verify"),
        lanes(events),
        (PLAIN, DRAFTED),
        ("dash", "solid"),
        strict=True,
    ):
        points = thin(points)
        figure.add_scatter(
            x=[p[0] for p in points],
            y=[p[1] for p in points],
            name=name,
            mode="lines",
            line={"color": color, "width": 3, "dash": dash, "shape": "hv"},
        )
    return layout(figure, "Tokens against time", "seconds on the lane's own clock", "tokens")
