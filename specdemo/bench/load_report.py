"""``load.html``: the figures of ``specdemo load`` as one page that opens without a network."""

from __future__ import annotations

from typing import Any

from markupsafe import escape

NAMES = {"ar": ("plain endpoint", "#0072B2"), "spec": ("speculative endpoint", "#E69F00")}


def page(report: dict[str, Any]) -> str:
    """The HTML text; every text of the report is escaped."""
    import plotly.io

    drawn = "".join(
        plotly.io.to_html(figure, full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures(report["levels"]))
    )
    title = f"{report['engine']} under load"
    drafts = f"Drafts: {report['drafts']}. " if report["drafts"] else ""
    words = f"{drafts}{report['max_new_tokens']} new tokens an answer. {report['advice']}"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><body style='font-family:system-ui;max-width:60rem;"
        f"margin:2rem auto'><h1>{escape(title)}</h1><p>{escape(words)}</p>{drawn}</body></html>"
    )


def figures(levels: list[dict[str, Any]]) -> list[Any]:
    """Tokens per second, time to the first token, time between tokens, over the streams."""
    return [
        _figure(levels, "tokens per second, all streams", {"": _rate}),
        _figure(
            levels, "ms to the first token", {"p50": _place("ttft", 0), "p95": _place("ttft", 1)}
        ),
        _figure(levels, "ms between tokens", {"p50": _place("itl", 0), "p95": _place("itl", 1)}),
    ]


def _rate(level: dict[str, Any]) -> float:
    return level["tokens_per_second"]


def _place(name: str, place: int) -> Any:
    return lambda level: 1e3 * level[name][place] if level[name] else None


def _figure(levels: list[dict[str, Any]], axis: str, values: dict[str, Any]) -> Any:
    import plotly.graph_objects as go

    traces = []
    for lane, (name, color) in NAMES.items():
        mine = sorted((x for x in levels if x["endpoint"] == lane), key=lambda x: x["streams"])
        for number, (word, value) in enumerate(values.items()):
            traces.append(
                go.Scatter(
                    name=f"{name} {word}".strip(),
                    x=[level["streams"] for level in mine],
                    y=[value(level) for level in mine],
                    mode="lines+markers",
                    line={"color": color, "dash": "dash" if number else "solid"},
                )
            )
    return go.Figure(
        traces,
        {
            "height": 420,
            "xaxis": {"title": "streams at once", "type": "log"},
            "yaxis": {"title": axis, "rangemode": "tozero"},
        },
    )
