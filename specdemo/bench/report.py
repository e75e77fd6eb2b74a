"""The report of a bench: ids, categories and figures, but no prompt and no output text, so that it
is small enough for the page.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ..errors import UserError
from ..events import named
from ..files import write_output
from ..models.served import METHOD
from ..prompts import ALL
from ..repetition import DEGENERATE
from .figures import (
    Line,
    Row,
    baseline_rate,
    echoes,
    loops_at,
    paired,
    prompt_ratios,
    quartiles,
    rows_of,
    summarize,
    tokens_per_round,
)
from .methods import method_title
from .migrate import upgrade_report
from .peer_table import peer_table
from .remarks import IDLE, remarks
from .schema import (
    FORMAT,
    VERSION,
    Baseline,
    Environment,
    Figures,
    MethodFields,
    PlanFields,
    PromptFigures,
    Report,
    ServedFields,
    check_report,
)

# what no serving engine tells; figures that only some tell
_NEVER_TOLD = ("the number type", "the time of drafting and of verifying")
_NOT_TOLD = {
    "tokens_per_second": "how many tokens it writes when it drafts",
    "rows_per_pass": "how many tokens each round drafts",
    "accepted_per_round": "how many of them it accepts",
    "degenerate": "which tokens it writes, so loops are not looked for",
}


def make_report(lines: Sequence[Line]) -> Report:
    """The report of the lines of a ``runs.jsonl``, complete or not.

    Raises:
        UserError: there is no finished trial in it.
    """
    plan = next((line for line in lines if line["kind"] == "plan"), None)
    trials = [line for line in lines if line["kind"] == "trial" and "runs" in line]
    sessions = [line for line in lines if line["kind"] == "session"]
    if plan is None or not trials or not sessions:
        raise UserError("There are no measured runs to report yet; run the bench first.")
    categories = list(dict.fromkeys(trial["category"] for trial in trials))
    rows = {label: rows_of(trials, label) for label in plan["methods"]}
    refused = [f"{line['prompt']}: {line['refused']}" for line in lines if line.get("refused")]
    report: Report = {
        "format": FORMAT,
        "version": VERSION,
        "plan": cast(
            PlanFields,
            {k: v for k, v in plan.items() if k not in ("kind", "format", "version")},
        ),
        "environment": _environment(sessions, trials),
        "categories": categories,
        "methods": {label: _method(label, sessions[-1]) for label in plan["methods"]},
        "baseline": _baseline(trials, categories),
        "table": {label: _by_category(mine, categories) for label, mine in rows.items()},
        "paired": _paired(rows),
        "prompts": _by_prompt(trials, rows),
        "peers": peer_table(trials, sessions[-1], plan["methods"]),
        "complete": len(trials) + len(refused) == plan["prompts"] * plan["repeats"],
        "refused": refused,
        "remarks": [],
    }
    if engine := sessions[-1].get("served"):
        report["served"] = _served(trials, engine, report["table"][METHOD][ALL])
    report["remarks"] = remarks(report)
    return report


def _by_category(rows: Sequence[Row], categories: Sequence[str]) -> dict[str, Any]:
    return {ALL: summarize(rows)} | {
        category: summarize([row for row in rows if row.category == category])
        for category in categories
    }


def _paired(rows: dict[str, list[Row]]) -> dict[str, dict[str, list[float]]]:
    return {
        label: {
            other: figure
            for other, theirs in rows.items()
            if other != label and (figure := paired(mine, theirs)) is not None
        }
        for label, mine in rows.items()
    }


def _method(label: str, session: Line) -> MethodFields:
    return {"title": method_title(label), **session["methods"].get(label, {})}


def _served(trials: Sequence[Line], engine: dict[str, str], figures: Figures) -> ServedFields:
    told = [trial["runs"][METHOD]["result"]["served"] for trial in trials]
    known: dict[str, Any] = {**figures}
    return {
        "engine": engine["engine"],
        "drafts": engine["drafts"],
        "clock": told[0]["clock"],
        "inferred": sum(each["rounds"] == "inferred" for each in told),
        "totals": sum(each["rounds"] == "totals" for each in told),
        "runs": len(told),
        "not_told": [
            *_NEVER_TOLD,
            *(what for key, what in _NOT_TOLD.items() if known[key] is None),
        ],
    }


def _baseline(trials: Sequence[Line], categories: Sequence[str]) -> Baseline:
    """Plain decoding: its rate, and how much two runs of the same thing differ (the noise of every
    ratio).
    """
    both = [trial["baseline"] for trial in trials]
    loops = [at for trial in trials if (at := loops_at(trial)) is not None]
    known = [trial for trial in trials if "echo" in trial]
    return {
        "tokens_per_second": {
            category: _baseline_rate(
                [trial for trial in trials if category in (ALL, trial["category"])]
            )
            for category in [ALL, *categories]
        },
        "repeat_ratio": quartiles(
            [
                first["seconds"] / second["seconds"]
                for first, second in both
                if first["seconds"] and second["seconds"]
            ]
        ),
        "ttft_seconds": statistics.median(first["ttft_seconds"] for first, _ in both),
        "degenerate": _share(
            [r["unique"] < DEGENERATE for r, _ in both if r["unique"] is not None]
        ),
        "loops": _share(
            [loops_at(t) is not None for t in trials if named(t["baseline"][0]["ids"])]
        ),
        "loop_at": statistics.median(loops) if loops else None,
        "echoes": sum(echoes(trial) for trial in known) / len(known) if known else None,
        "repeatable": all(trial["baseline_repeatable"] for trial in trials),
    }


def _share(known: Sequence[bool]) -> float | None:
    return sum(known) / len(known) if known else None


def _baseline_rate(trials: Sequence[Line]) -> float | None:
    """Summed tokens / summed seconds of the baseline."""
    rates = [(len(trial["baseline"][0]["ids"]) - 1, baseline_rate(trial)) for trial in trials]
    timed = [(tokens, rate) for tokens, rate in rates if rate]
    if not timed:
        return None
    return sum(tokens for tokens, _ in timed) / sum(tokens / rate for tokens, rate in timed)


def _environment(sessions: Sequence[Line], trials: Sequence[Line]) -> Environment:
    last = sessions[-1]
    # a serving engine is another program itself, perhaps on another machine
    loads = [
        trial["other_load"]
        for trial in trials
        if trial.get("other_load") is not None and not last.get("served")
    ]
    other_load = statistics.median(loads) if loads else None
    return {
        "pair": last["pair"],
        "hardware": last["hardware"],
        "dtype": last["dtype"],
        "versions": last["versions"],
        "python": last["python"],
        "system": last["system"],
        "cost_ms": last["cost_ms"],
        "ar_width": last["ar_width"],
        "commits": list(dict.fromkeys(s["commit"] for s in sessions if s["commit"])),
        "started": sessions[0]["started"],
        "sessions": len(sessions),
        "warm_up_seconds": [session["warm_up_seconds"] for session in sessions],
        "load_at_start": [session["load_average"] for session in sessions],
        "other_load": other_load,
        "idle": None if other_load is None else other_load <= IDLE,
    }


def _by_prompt(trials: Sequence[Line], rows: dict[str, list[Row]]) -> list[PromptFigures]:
    categories = {trial["prompt"]: trial["category"] for trial in trials}
    ratios = {label: prompt_ratios(mine) for label, mine in rows.items()}
    return [
        {
            "id": prompt,
            "category": category,
            "methods": {
                label: [
                    ratios[label].get(prompt),
                    tokens_per_round([row for row in mine if row.prompt == prompt]),
                ]
                for label, mine in rows.items()
            },
        }
        for prompt, category in categories.items()
    ]


# -- files -----------------------------------------------------------------------------------------


def save_report(report: Report, path: Path) -> None:
    """Write the JSON form, rounded to 5 digits; ``assets/bench`` takes the same file."""
    write_output(path, report_json(report), "The report")


def report_json(report: Report) -> str:
    """The text of a ``report.json``."""
    return json.dumps(_rounded(report), ensure_ascii=False, separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return value


def load_report(path: str | Path) -> Report:
    """A saved report of this version or an older one.

    Raises:
        UserError: the file cannot be read, is no report, or is damaged.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"The report {path} cannot be read ({error.strerror}); check its name."
        ) from None
    except (ValueError, RecursionError):
        data = None
    if (
        not isinstance(data, dict)
        or data.get("format") != FORMAT
        or data.get("version") not in range(1, VERSION + 1)
    ):
        raise UserError(
            f"{path} is not a bench report of this version; make one with “python -m specdemo"
            " bench”."
        )
    try:
        return check_report(upgrade_report(data))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"The report {path} is damaged; make it again with “python -m specdemo bench”."
        ) from None
