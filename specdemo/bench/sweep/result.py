"""What a sweep measured: one entry a point, as ``sweep.json`` and ``sweep.csv`` hold it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from ...files import write_output
from ..figures import Line, Row, rows_of, summarize
from ..intervals import Timed, interval
from ..report import make_report
from ..schema import Environment, PlanFields, Shares
from .points import Point, Sweep

FORMAT: Final = "specdemo-sweep"


class Measured(TypedDict):
    """A point: ``speedup`` and ``tokens_per_round`` with their 95 % intervals over prompts."""

    x: str
    label: str
    temperature: float
    runs: int
    speedup: float | None
    interval: list[float] | None
    tokens_per_round: float | None
    tokens_interval: list[float] | None
    accepted_per_round: float | None
    accepted_at: list[float]
    rows_per_pass: float | None
    time: Shares | None
    identical: float | None


class Drawn(TypedDict):
    name: str
    points: list[Measured]


class Result(TypedDict):
    """``weights`` by label: whose weights drafted. ``complete``: every trial was made."""

    format: Literal["specdemo-sweep"]
    version: Literal[1]
    name: str
    title: str
    axis: str
    source: str
    paper: str
    plan: PlanFields
    environment: Environment
    weights: dict[str, str]
    lines: list[Drawn]
    complete: bool


def make_result(sweep: Sweep, runs: Mapping[float, Sequence[Line]]) -> Result:
    """The result of the ``runs.jsonl`` of every temperature that has begun.

    Raises:
        UserError: nothing is measured yet.
    """
    reports = {temperature: make_report(lines) for temperature, lines in runs.items()}
    first = next(iter(reports.values()))
    trials = {
        temperature: [line for line in lines if line["kind"] == "trial" and "runs" in line]
        for temperature, lines in runs.items()
    }
    methods = [known for report in reports.values() for known in report["methods"].items()]
    return {
        "format": FORMAT,
        "version": 1,
        "name": sweep.name,
        "title": sweep.title,
        "axis": sweep.axis,
        "source": sweep.source,
        "paper": sweep.paper,
        "plan": first["plan"],
        "environment": first["environment"],
        "weights": {label: method.get("weights") or "" for label, method in methods},
        "lines": [
            {
                "name": name,
                "points": [
                    _measured(point, rows_of(trials[point.temperature], point.label))
                    for point in points
                    if point.temperature in trials
                ],
            }
            for name, points in sweep.lines.items()
        ],
        "complete": len(reports) == len(sweep.temperatures)
        and all(report["complete"] for report in reports.values()),
    }


def _measured(point: Point, rows: Sequence[Row]) -> Measured:
    figures = summarize(rows)
    rounds = [Timed(row.prompt, row.tokens, len(row.run["accepted"]), 1, 1) for row in rows]
    return {
        "x": point.x,
        "label": point.label,
        "temperature": point.temperature,
        "runs": figures["runs"],
        "speedup": figures["speedup"],
        "interval": figures["interval"],
        "tokens_per_round": figures["tokens_per_round"],
        "tokens_interval": interval([run for run in rounds if run.seconds]),
        "accepted_per_round": figures["accepted_per_round"],
        "accepted_at": figures["accepted_at"],
        "rows_per_pass": figures["rows_per_pass"],
        "time": figures["time"],
        "identical": figures["identical"],
    }


def save_json(result: Result, path: Path) -> None:
    """Raises UserError: it cannot be written."""
    write_output(path, json.dumps(result, ensure_ascii=False, indent=1), "The sweep")


def save_csv(result: Result, path: Path) -> None:
    """A row a point, for a spreadsheet or a plotting program. Raises UserError."""
    write_output(path, csv_text(result), "The sweep's table")


def csv_text(result: Result) -> str:
    """The header and a row a point; acceptance by position is the last columns."""
    points = [(line["name"], point) for line in result["lines"] for point in line["points"]]
    depth = max((len(point["accepted_at"]) for _, point in points), default=0)
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    figures = ("speedup", "tokens_per_round", "accepted_per_round", "rows_per_pass", "identical")
    shares = ("draft", "verify", "rest")
    write(
        [
            *("line", result["axis"], "method", "temperature", "runs", *figures),
            *("speedup_low", "speedup_high", "tokens_low", "tokens_high"),
            *(f"{share}_share" for share in shares),
            *(f"accepted_at_least_{n}" for n in range(1, depth + 1)),
        ]
    )
    for name, point in points:
        figure: dict[str, Any] = dict(point)
        write(
            [
                *(name, point["x"], point["label"], point["temperature"], point["runs"]),
                *(figure[key] for key in figures),
                *(point["interval"] or (None, None)),
                *(point["tokens_interval"] or (None, None)),
                *(figure["time"][share] if figure["time"] else None for share in shares),
                *point["accepted_at"],
                *[0.0] * (depth - len(point["accepted_at"])),
            ]
        )
    return text.getvalue()
