"""The report as one HTML file that opens without a network: tables, and Plotly charts with the
library inside.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from ..errors import UserError
from ..files import atomic_write
from .report import ALL

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

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #0072b233; --bad: #d55e0033; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1180px; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: .2rem .45rem; text-align: right; white-space: nowrap; font-size: .94rem; } thead th { white-space: normal; } th:first-child { text-align: left; }
td.good { background: var(--good); } td.bad { background: var(--bad); } td.best { font-weight: 700; }
th:first-child { position: sticky; left: 0; background: Canvas; max-width: 40vw; white-space: normal; } .js-plotly-plot text { fill: CanvasText !important; }
td small { opacity: .75; } caption { text-align: left; padding: .3rem 0; } dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; overflow-wrap: anywhere; }
"""


def save_html(report: dict[str, Any], path: Path) -> None:
    """Write the page, whole or not at all."""
    try:
        atomic_write(path, page(report))
    except OSError as error:
        raise UserError(
            f"The report cannot be written to {path} ({error.strerror}); free some space or choose"
            " another --out."
        ) from None


def page(report: dict[str, Any]) -> str:
    """The whole HTML text."""
    env, plan = report["environment"], report["plan"]
    title = f"SpecDemo bench: {plan['suite']} on {env['pair']}"
    charts = [
        (
            "Speed-up over plain decoding, by category",
            bars(report, "speedup", "times plain decoding", 1.0),
        ),
        (
            "Tokens per round, by category",
            bars(report, "tokens_per_round", "tokens per round (the target's own included)", None),
        ),
        ("Speed-up of every prompt", spread(report)),
        ("Predicted and measured", scatter(report)),
        ("Where the time goes", times(report)),
    ]
    parts = [
        f"<h1>{escape(title)}</h1>",
        headline(report),
        *(f"<p>{escape(remark)}</p>" for remark in report["remarks"]),
        *tables(report),
    ]
    for index, (name, figure) in enumerate(charts):
        body = pio.to_html(
            figure,
            full_html=False,
            include_plotlyjs=index == 0,
            config={"displaylogo": False, "responsive": True},
            div_id=f"chart{index}",
        )
        parts.append(f"<h2>{escape(name)}</h2>{body}")
    parts.append(facts(report))
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,'
        f' initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style>'
    )
    return (
        "<!doctype html><html"
        f' lang="en"><head>{head}</head><body><main>{"".join(parts)}</main></body></html>\n'
    )


def headline(report: dict[str, Any]) -> str:
    """The result in one sentence."""
    timed = {
        label: row[ALL]["speedup"] for label, row in report["table"].items() if row[ALL]["speedup"]
    }
    if not timed:
        return "<p>Nothing was long enough to be timed.</p>"
    best = max(timed, key=timed.__getitem__)
    rate = report["plain"]["tokens_per_second"][ALL]
    verdict = (
        f"is the fastest method: {timed[best]:.2f} times plain decoding"
        if timed[best] >= 1
        else f"comes closest, but nothing beats plain decoding here ({timed[best]:.2f} times)"
    )
    return (
        f"<p><strong>{escape(report['methods'][best]['title'])}</strong> {verdict}, which writes"
        f" {rate:.1f} tokens per second.</p>"
    )


# -- tables ----------------------------------------------------------------------------------------


def tables(report: dict[str, Any]) -> list[str]:
    """Method × category, one table a figure, then the totals."""
    number = lambda key, digits: lambda s: "–" if s[key] is None else f"{s[key]:.{digits}f}"  # noqa: E731
    return [
        table(
            report,
            "Speed-up (summed tokens / summed seconds; below it the range of the middle half of the"
            " prompts)",
            _speed,
            shade="speedup",
        ),
        table(
            report, "Tokens per round (with the target's own token)", number("tokens_per_round", 2)
        ),
        table(report, "Accepted drafts per round (without it)", number("accepted_per_round", 2)),
        totals(report),
    ]


def _speed(s: dict[str, Any]) -> str:
    if s["speedup"] is None:
        return "–"
    q = s["prompt_quartiles"]
    return f"{s['speedup']:.2f}<br><small>{q[0]:.2f} – {q[2]:.2f}</small>"


def table(
    report: dict[str, Any],
    caption: str,
    cell: Callable[[dict[str, Any]], str],
    shade: str | None = None,
) -> str:
    columns = [ALL, *report["categories"]]
    best = (
        {c: max((r[c][shade] or 0 for r in report["table"].values()), default=0) for c in columns}
        if shade
        else {}
    )
    body = []
    for label, row in report["table"].items():
        cells = []
        for column in columns:
            value = row[column][shade] if shade else None
            kind = (
                []
                if value is None
                else (["good"] if value >= 1 else ["bad"])
                + (["best"] if value == best[column] else [])
            )
            cells.append(f'<td class="{" ".join(kind)}">{cell(row[column])}</td>')
        body.append(
            "<tr><th"
            f' scope="row">{escape(report["methods"][label]["title"])}</th>{"".join(cells)}</tr>'
        )
    return _table(caption, ["method", *columns], body)


def totals(report: dict[str, Any]) -> str:
    """Everything that is not by category."""
    body = []
    for label, row in report["table"].items():
        s = row[ALL]
        share = s["time"] or {"draft": None, "verify": None, "rest": None}
        cells = [
            _times(s["speedup"]),
            " · ".join(_times(x) for x in s["by_repeat"]),
            _times(s["predicted"]),
            _number(s["rows_per_pass"], 1),
            " · ".join(_percent(share[k]) for k in ("draft", "verify", "rest")),
            _percent(s["degenerate"]),
            f"{_times(s['sound']['speedup'])}, {_number(s['sound']['tokens_per_round'], 2)}",
            _percent(s["identical"]) if s["identical"] is not None else "same law",
        ]
        body.append(
            "<tr><th"
            f' scope="row">{escape(report["methods"][label]["title"])}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
        )
    columns = [
        "method",
        "speed-up",
        "each repeat",
        "predicted",
        "rows a pass",
        "draft · verify · rest",
        "degenerate",
        "without those: speed-up, tokens/round",
        "token-identical",
    ]
    return _table("All prompts", columns, body)


def _table(caption: str, columns: list[str], body: list[str]) -> str:
    head = "".join(f'<th scope="col">{escape(c.replace("_", " "))}</th>' for c in columns)
    return (
        "<div"
        f' class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def facts(report: dict[str, Any]) -> str:
    """The environment and the plan, as a list."""
    env, plan = report["environment"], report["plan"]
    idle = {True: "yes", False: "no", None: "unknown"}[env["idle"]]
    items = {
        "hardware": f"{env['hardware']} ({env['system']})",
        "dtype": env["dtype"],
        "versions": ", ".join(
            f"{k} {v}" for k, v in {**env["versions"], "python": env["python"]}.items()
        ),
        "pair": env["pair"],
        "prompts": f"{plan['prompts']} of {plan['suite']}, sha256 {plan['sha256']}",
        "run": (
            f"{plan['repeats']} repeats, at most {plan['max_new_tokens']} new tokens, sampling"
            f" {', '.join(f'{k} {v}' for k, v in plan['sampling'].items())}"
        ),
        "commit": ", ".join(env["commits"]) or "unknown",
        "started": (
            f"{env['started']} ({env['sessions']} session(s), warm-up"
            f" {', '.join(f'{s:.1f} s' for s in env['warm_up_seconds'])}, not counted)"
        ),
        "machine otherwise idle": (
            f"{idle} (load at start {', '.join(_number(x, 2) for x in env['load_at_start'])};"
            f" others used {_percent(env['others_share'])})"
        ),
        "one pass of the target, ms by rows": ", ".join(
            f"{k}: {v:.2f}" for k, v in (env["cost_ms"] or {}).items()
        ),
    }
    for label, method in report["methods"].items():
        settings = (
            ", ".join(f"{k} {v}" for k, v in (method.get("params") or {}).items())
            or "no parameters"
        )
        items[f"{method['title']} ({label})"] = (
            f"rule {method.get('rule')}; {settings}; weights: {method.get('weights') or 'none'}"
        )
    return (
        "<h2>How it was measured</h2><dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in items.items())
        + "</dl>"
    )


# -- charts ----------------------------------------------------------------------------------------


def _figure(*traces: Any, **layout: Any) -> go.Figure:
    """Transparent, grey ink: readable on light and dark."""
    base = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "#808080", "size": 14},
        "margin": {"t": 30, "r": 10},
        "height": 460,
    }
    base["legend"] = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}
    figure = go.Figure(traces, {**base, **layout})
    figure.update_xaxes(gridcolor="#88888840", automargin=True).update_yaxes(gridcolor="#88888840")
    return figure


def _titles(report: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [
        (label, m["title"], COLORS[i % len(COLORS)], MARKS[i % len(MARKS)])
        for i, (label, m) in enumerate(report["methods"].items())
    ]


def bars(report: dict[str, Any], key: str, axis: str, line: float | None) -> go.Figure:
    """Grouped bars, a group a category."""
    columns = [ALL, *report["categories"]]
    traces = [
        go.Bar(
            name=title,
            x=columns,
            y=[report["table"][label][c][key] for c in columns],
            marker_color=color,
        )
        for label, title, color, _ in _titles(report)
    ]
    figure = _figure(*traces, barmode="group", yaxis={"title": axis, "rangemode": "tozero"})
    if line is not None:
        figure.add_hline(line, line_dash="dash", line_color="#808080")
    return figure


def spread(report: dict[str, Any]) -> go.Figure:
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
    figure = _figure(
        *traces, showlegend=False, yaxis={"title": "times plain decoding", "rangemode": "tozero"}
    )
    return figure.add_hline(1.0, line_dash="dash", line_color="#808080")


def scatter(report: dict[str, Any]) -> go.Figure:
    """A point a method and category; on the line the overhead is nil."""
    traces, most = [], 1.0
    for label, title, color, mark in _titles(report):
        points = [
            (s["predicted"], s["speedup"], c)
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
            line={"dash": "dash", "color": "#808080"},
            name="predicted = measured",
            hoverinfo="skip",
        )
    )
    return _figure(
        *traces, xaxis={"title": "predicted speed-up"}, yaxis={"title": "measured speed-up"}
    )


def times(report: dict[str, Any]) -> go.Figure:
    """Milliseconds per token, stacked; plain decoding beside."""
    titles, rows = _titles(report), report["table"]
    plain = report["plain"]["tokens_per_second"][ALL]
    names = ["Plain decoding", *(title for _, title, _, _ in titles)]
    traces = []
    for part, color, pattern in (
        ("draft", "#E69F00", "/"),
        ("verify", "#0072B2", ""),
        ("rest", "#7F7F7F", "."),
    ):
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
    return _figure(*traces, barmode="stack", yaxis={"title": "milliseconds per token"})
