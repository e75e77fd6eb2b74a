"""The report as HTML: one file that opens without a network (tables, and Plotly charts with the
library inside), and the same tables for the page's Bench tab.

The templates escape every text of a report: none of it can become markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..files import write_output
from ..prompts import ALL
from .files import by_speed, downloads
from .schema import Figures, Report, ServedFields

if TYPE_CHECKING:
    import plotly.graph_objects as go

TEMPLATES = Path(__file__).with_name("templates")
NOT_TOLD = "not told by the engine"
NONE = "–"  # where a figure could not be measured


def stylesheet() -> str:
    """CSS of the tables, for ``report.html`` and for the page."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")


def save_html(report: Report, path: Path) -> None:
    """Write the one-file page, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    write_output(path, page(report), "The report")


def page(report: Report) -> str:
    """The whole HTML text of the one-file page."""
    from .charts import charts

    report = by_speed(report)
    drawn = drawn_charts(charts(report))
    return _render("page.html.j2", report, charts=drawn, css=Markup(stylesheet()))


def drawn_charts(charts: Sequence[tuple[str, go.Figure]]) -> list[tuple[str, Markup]]:
    """Titles and charts as HTML, the first with Plotly's library; Plotly escapes what stands in its
    own script.
    """
    import plotly.io

    return [
        (
            title,
            Markup(
                plotly.io.to_html(
                    figure,
                    full_html=False,
                    include_plotlyjs=number == 0,
                    config={"displaylogo": False, "responsive": True},
                    div_id=f"chart{number}",
                )
            ),
        )
        for number, (title, figure) in enumerate(charts)
    ]


def fragment(report: Report) -> str:
    """The report's sentences and tables, for the Bench tab."""
    return _render("fragment.html.j2", by_speed(report))


def download_links(report: Report) -> str:
    """Links to the report's files, for the Bench tab."""
    template = environment().get_template("downloads.html.j2")
    return template.render(downloads=downloads(report))


def environment() -> Environment:
    """Of the templates: every text is escaped, and a field that is missing is an error."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "times": times, "percent": percent}
    return made


def _render(template: str, report: Report, **more: Any) -> str:
    made = environment()
    made.filters["title_of"] = lambda label: report["methods"][label]["title"]
    return made.get_template(template).render(
        report=report,
        columns=[ALL, *report["categories"]],
        best=_best_speedups(report),
        fastest=_fastest(report),
        facts=_facts(report),
        all=ALL,
        **more,
    )


def _fastest(report: Report) -> str | None:
    """Label of the method with the highest speed-up; None where nothing was timed."""
    timed = {label: row[ALL]["speedup"] or 0.0 for label, row in report["table"].items()}
    best = max(timed, key=timed.__getitem__, default=None)
    return best if best is not None and timed[best] else None


def _best_speedups(report: Report) -> dict[str, float]:
    """By category, the highest speed-up."""
    rows: list[dict[str, Figures]] = list(report["table"].values())
    return {
        column: max((row[column]["speedup"] or 0.0 for row in rows), default=0.0)
        for column in [ALL, *report["categories"]]
    }


def _facts(report: Report) -> dict[str, str]:
    """How it was measured: what each fact is called, and the fact."""
    measured, plan = report["environment"], report["plan"]
    idle = {True: "yes", False: "no", None: "unknown"}[measured["idle"]]
    versions = {**measured["versions"], "python": measured["python"]}
    warm_up = ", ".join(f"{seconds:.1f} s" for seconds in measured["warm_up_seconds"])
    load = ", ".join(number(value) for value in measured["load_at_start"])
    facts = {
        "hardware": f"{measured['hardware']} ({measured['system']})",
        "dtype": measured["dtype"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "pair": measured["pair"],
        "prompts": f"{plan['prompts']} of {plan['suite']}, sha256 {plan['sha256']}",
        "run": (
            f"{plan['repeats']} repeats, at most {plan['max_new_tokens']} new tokens, sampling"
            f" {', '.join(f'{name} {value}' for name, value in plan['sampling'].items())}"
        ),
        "commit": ", ".join(measured["commits"]) or "unknown",
        "started": (
            f"{measured['started']} ({measured['sessions']} session(s), warm-up {warm_up},"
            " not counted)"
        ),
        "machine otherwise idle": (
            f"{idle} (load at start {load}; other programs used {percent(measured['other_load'])})"
        ),
        "one pass of the target, ms by rows": ", ".join(
            f"{rows}: {ms:.2f}" for rows, ms in (measured["cost_ms"] or {}).items()
        ),
    }
    if served := report.get("served"):
        return facts | _served_facts(served, measured["system"], measured["hardware"])
    for label, method in report["methods"].items():
        params = (method.get("params") or {}).items()
        settings = ", ".join(f"{name} {value}" for name, value in params) or "no parameters"
        facts[f"{method['title']} ({label})"] = (
            f"rule {method.get('rule')}; {settings}; weights: {method.get('weights') or 'none'}"
        )
    return facts


def _served_facts(served: ServedFields, system: str, hardware: str) -> dict[str, str]:
    """What is otherwise with a serving engine, of whose machine nothing is known."""
    return {
        "hardware": f"{hardware}, asked from {system}",
        "dtype": NOT_TOLD,
        "machine otherwise idle": "unknown",
        "one pass of the target, ms by rows": NOT_TOLD,
        "drafts": served["drafts"] or NOT_TOLD,
    }


def number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"
