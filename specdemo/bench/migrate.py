"""Reports and measurements of older versions, in today's words. No figure changes."""

from __future__ import annotations

from typing import Any

from ..drafters.parts.params import upgrade_params
from .remarks import remarks

_REPORT_V1 = {
    "environment": {"others_share": "other_load"},
    "baseline": {"against_itself": "repeat_ratio", "repeats_itself": "repeatable"},
    "figures": {"sound": "non_degenerate"},
}
_RUNS_V1 = {
    "others": "other_load",
    "load": "load_average",
    "baseline_repeats": "baseline_repeatable",
}
_RUN_V1 = {"plain_ms": "baseline_ms"}


def upgrade_report(data: dict[str, Any]) -> dict[str, Any]:
    """A report of an older version as today's.

    Raises:
        KeyError, TypeError, AttributeError: ``data`` is no such report.
    """
    if data["version"] == 1:
        data = _report_2(data)
    if data["version"] == 2:  # before there were peers
        data = data | {"version": 3, "peers": None, "plan": {**data["plan"], "peers": []}}
    if data["version"] == 3:
        data = _report_4(data)
    return data


def _report_4(data: dict[str, Any]) -> dict[str, Any]:
    """A version 3 report as version 4, without what was not kept then: intervals, pairs of methods,
    acceptance by position, loops and copies. Its remarks are written anew.
    """
    more: dict[str, Any] = {"interval": None, "accepted_at": [], "unflagged": None}
    report = data | {
        "version": 4,
        "baseline": data["baseline"] | {"loops": None, "loop_at": None, "echoes": None},
        "table": {
            label: {category: figures | more for category, figures in row.items()}
            for label, row in data["table"].items()
        },
        "paired": {},
    }
    return report | {"remarks": remarks(report)}


def _report_2(data: dict[str, Any]) -> dict[str, Any]:
    """A version 1 report as version 2."""
    report = {("baseline" if key == "plain" else key): value for key, value in data.items()}
    report |= {
        "version": 2,
        "environment": _renamed(report["environment"], _REPORT_V1["environment"]),
        "baseline": _renamed(report["baseline"], _REPORT_V1["baseline"]),
        "methods": {label: _method(label, known) for label, known in report["methods"].items()},
        "table": {
            label: {
                category: _renamed(figures, _REPORT_V1["figures"])
                for category, figures in row.items()
            }
            for label, row in report["table"].items()
        },
    }
    return report


def upgrade_runs(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a ``runs.jsonl`` of an older version as today's."""
    if lines[0]["version"] == 1:
        lines = [_run_line_2(line) for line in lines]
    if lines[0]["version"] == 2:  # before there were peers
        lines = [
            line | ({"version": 3, "peers": []} if line["kind"] == "plan" else {"peers": {}})
            for line in lines
        ]
    return lines


def _run_line_2(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a version 1 ``runs.jsonl`` as version 2."""
    out = _renamed(line, _RUNS_V1)
    if line["kind"] == "plan":
        out["version"] = 2
    elif line["kind"] == "session":
        out["methods"] = {label: _method(label, known) for label, known in line["methods"].items()}
    elif line["kind"] == "heat":
        out["kind"] = "trial"
    if "runs" in line:
        out["baseline"] = [_renamed(run, _RUN_V1) for run in line["baseline"]]
        out["runs"] = {label: _renamed(run, _RUN_V1) for label, run in line["runs"].items()}
    return out


def _method(label: str, known: dict[str, Any]) -> dict[str, Any]:
    params = known.get("params")
    upgraded = upgrade_params(label.partition(":")[0], params) if params else params
    return {**known, "params": upgraded} if "params" in known else dict(known)


def _renamed(old: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in old.items()}
