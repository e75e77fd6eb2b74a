"""A report as a reader takes it away: JSON, a table for spreadsheets, and the fastest first."""

from __future__ import annotations

import base64
import csv
import io
from typing import cast

from ..prompts import ALL
from .report import report_json
from .schema import Report

COLUMNS = (
    "method",
    "title",
    "category",
    "speedup",
    "low",
    "high",
    "tokens_per_second",
    "tokens_per_round",
    "accepted_per_round",
    "predicted",
    "identical",
    "degenerate",
    "runs",
    "weights",
)


def by_speed(report: Report) -> Report:
    """The same report with its methods in the order of their speed, the fastest first."""
    speeds = {label: row[ALL]["speedup"] or 0.0 for label, row in report["table"].items()}
    order = sorted(speeds, key=lambda label: -speeds[label])
    paired = report["paired"]
    return cast(
        Report,
        {
            **report,
            "methods": {label: report["methods"][label] for label in order},
            "table": {label: report["table"][label] for label in order},
            "paired": {label: paired[label] for label in order if label in paired},
        },
    )


def report_csv(report: Report) -> str:
    """A line for each method and category; empty where a figure could not be measured."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, extrasaction="ignore")
    table.writeheader()
    for label, row in report["table"].items():
        method = report["methods"][label]
        for category, figures in row.items():
            low, high = figures["interval"] or (None, None)
            names = {"method": label, "title": method["title"], "category": category}
            more = {"low": low, "high": high, "weights": method.get("weights")}
            table.writerow(figures | names | more)
    return out.getvalue()


def downloads(report: Report) -> list[tuple[str, str, str]]:
    """Words, file name and address of the report's files; the address holds the file itself."""

    def address(kind: str, text: str) -> str:
        return f"data:{kind};base64,{base64.b64encode(text.encode('utf-8')).decode('ascii')}"

    return [
        (
            "Download this report (JSON)",
            "report.json",
            address("application/json", report_json(report)),
        ),
        ("Download its table (CSV)", "report.csv", address("text/csv", report_csv(report))),
    ]
