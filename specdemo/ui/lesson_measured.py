"""What the lesson says of measurements over many prompts: sweeps and the shipped report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..drafters import METHODS

AXES = {"gamma": "γ (tokens drafted)", "steps": "T (denoising steps)"}
STEPS = re.compile(r"steps=(\d+)")


def read_sweep(folder: Path, name: str) -> dict[str, Any] | None:
    """Of a ``sweep.json`` what the page draws; None where there is none."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    plan, where = data["plan"], data["environment"]
    method = plan["methods"][0].split(":")[0]
    weights = re.sub(
        r", as there are none trained for \S+ yet", "", next(iter(data["weights"].values()))
    )
    keys = ("x", "speedup", "interval", "tokens_per_round", "tokens_interval")
    return {
        "title": f"Measured: {METHODS[method].title}, {AXES.get(data['axis'], data['axis'])}",
        "axis": AXES.get(data["axis"], data["axis"]),
        "note": (
            f"{plan['prompts']} held-out prompts, {plan['max_new_tokens']} tokens each, on"
            f" {where['hardware']}; drafted with {weights}."
        ),
        "lines": [
            {
                "name": _line_name(line["name"], method),
                "points": [{key: point[key] for key in keys} for point in line["points"]],
            }
            for line in data["lines"]
        ],
    }


def _line_name(name: str, method: str) -> str:
    """A line's name in words."""
    if name == method:
        return METHODS[method].title
    found = STEPS.fullmatch(name)
    return name if found is None else f"{found[1]} step{'s' if found[1] != '1' else ''}"


def read_report(path: Path) -> dict[str, str]:
    """Of each method of a report one sentence beside the recording's own speed-up; empty where
    there is none. ``{speedup}`` is the recording's, which the page knows.
    """
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    prompts, hardware = data["plan"]["prompts"], data["environment"]["hardware"]
    return {
        name: (
            f"The race below is one prompt, whose speed-up is {{speedup}}. Over the {prompts}"
            f" prompts of the report on the Bench tab {METHODS[name].title} reaches"
            f" {groups['all']['speedup']:.2f}× (on {hardware})."
        )
        for name, groups in data["table"].items()
        if name in METHODS
    }
