"""From heats to figures: one JSON report, small enough for the page, with ids and categories but no
prompt and no output text.

How figures are made. The baseline of a heat is the faster of the plain lane (its two runs taken
together) and the one-row kernel; both lanes of every ratio come from the same heat. Over a
category, the speed-up is tokens per second of all its answers together (summed tokens / summed
seconds) over the same for the baseline, so long answers count for more. Beside it stand the median
and the quartiles of the ratios per prompt (over repeats, their median) and the range over repeats.
Predicted = plain step by the cost curve × tokens / (cost of every round's width + measured
drafting), summed alike.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..drafters import METHODS
from ..errors import UserError
from ..files import atomic_write
from .run import FORMAT as RUNS_FORMAT
from .suite import ALL

FORMAT, VERSION = "specdemo-bench", 1
# 4-gram uniqueness below this: the text runs in circles, which flatters any drafter
DEGENERATE = 0.35
IDLE = 0.05  # others may use this share of the machine before the report says that it was not idle


def baseline_rate(heat: dict[str, Any]) -> float | None:
    """Tokens per second of plain decoding in this heat: the faster of its lane and the one-row
    kernel.
    """
    first, second = heat["baseline"]
    decoded, seconds = 2 * (len(first["ids"]) - 1), first["seconds"] + second["seconds"]
    if decoded <= 0 or seconds <= 0:
        return None
    rate = decoded / seconds
    one_row = [r["one_row_rate"] for r in (first, second) if r["one_row_rate"]]
    return max(rate, statistics.mean(one_row)) if one_row else rate


def rate(run: dict[str, Any]) -> float | None:
    """Decode tokens per second of one run; None for an answer of one token, which has no
    decoding.
    """
    decoded = len(run["ids"]) - 1
    return decoded / run["seconds"] if decoded > 0 and run["seconds"] > 0 else None


def _rows(heats: Iterable[dict[str, Any]], label: str) -> list[dict[str, Any]]:
    """One flat row per heat of this method: its run, its baseline, its ratio."""
    rows = []
    for heat in heats:
        run, plain = heat["runs"][label], baseline_rate(heat)
        mine = rate(run)
        timed = plain is not None and mine is not None
        rows.append(
            {
                "prompt": heat["prompt"],
                "category": heat["category"],
                "repeat": heat["repeat"],
                "run": run,
                "ratio": mine / plain if timed else None,
                "tokens": len(run["ids"]) - 1,
                "plain_tokens": len(heat["baseline"][0]["ids"]) - 1,
                "plain_seconds": (len(heat["baseline"][0]["ids"]) - 1) / plain if timed else None,
            }
        )
    return rows


def speedup(rows: Sequence[dict[str, Any]]) -> float | None:
    """Ratio of summed tokens / summed seconds."""
    rows = [r for r in rows if r["ratio"] is not None]
    if not rows:
        return None
    mine = sum(r["tokens"] for r in rows) / sum(r["run"]["seconds"] for r in rows)
    return mine * sum(r["plain_seconds"] for r in rows) / sum(r["plain_tokens"] for r in rows)


def predicted(rows: Sequence[dict[str, Any]]) -> float | None:
    """What the cost curve says the same rounds should give."""
    rows = [
        r
        for r in rows
        if r["ratio"] is not None and r["run"]["predicted_seconds"] and r["run"]["plain_ms"]
    ]
    if not rows:
        return None
    return sum(r["tokens"] * r["run"]["plain_ms"] / 1e3 for r in rows) / sum(
        r["run"]["predicted_seconds"] for r in rows
    )


def prompt_ratios(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Per prompt the median ratio over its repeats."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["ratio"] is not None:
            ratios.setdefault(row["prompt"], []).append(row["ratio"])
    return {prompt: statistics.median(r) for prompt, r in ratios.items()}


def quartiles(values: Sequence[float]) -> list[float] | None:
    """Lower quartile, median, upper quartile."""
    if not values:
        return None
    return (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else [values[0]] * 3
    )


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All figures of one method over some rows."""
    rounds = sum(len(r["run"]["accepted"]) for r in rows)
    seconds = sum(r["run"]["seconds"] for r in rows)
    draft, verify = (
        sum(r["run"][key] for r in rows) for key in ("draft_seconds", "verify_seconds")
    )
    sound = [r for r in rows if r["run"]["unique"] >= DEGENERATE]
    judged = [r["run"]["identical"] for r in rows if r["run"]["identical"] is not None]
    repeats = [
        speedup([r for r in rows if r["repeat"] == n]) for n in sorted({r["repeat"] for r in rows})
    ]
    return {
        "runs": len(rows),
        "prompts": len({r["prompt"] for r in rows}),
        "speedup": speedup(rows),
        "prompt_quartiles": quartiles(list(prompt_ratios(rows).values())),
        "by_repeat": repeats,
        "predicted": predicted(rows),
        "tokens_per_second": sum(r["tokens"] for r in rows) / seconds if seconds else None,
        "tokens_per_round": sum(r["tokens"] for r in rows) / rounds if rounds else None,
        "accepted_per_round": (
            sum(sum(r["run"]["accepted"]) for r in rows) / rounds if rounds else None
        ),
        "rows_per_pass": sum(sum(r["run"]["rows"]) for r in rows) / rounds if rounds else None,
        "time": (
            {
                "draft": draft / seconds,
                "verify": verify / seconds,
                "rest": max(0.0, 1 - (draft + verify) / seconds),
            }
            if seconds
            else None
        ),
        "degenerate": 1 - len(sound) / len(rows) if rows else None,
        "sound": {"speedup": speedup(sound), "tokens_per_round": _per_round(sound)},
        "identical": sum(judged) / len(judged) if judged else None,
    }


def _per_round(rows: Sequence[dict[str, Any]]) -> float | None:
    rounds = sum(len(r["run"]["accepted"]) for r in rows)
    return sum(r["tokens"] for r in rows) / rounds if rounds else None


def make_report(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report of a ``runs.jsonl`` (complete or not).

    ``table[method][category or "all"]`` is a ``summary``; ``prompts`` holds per prompt and method
    [speed-up, tokens per round].
    """
    plan = next((line for line in lines if line["kind"] == "plan"), None)
    heats = [line for line in lines if line["kind"] == "heat" and "runs" in line]
    sessions = [line for line in lines if line["kind"] == "session"]
    if plan is None or plan["format"] != RUNS_FORMAT or not heats or not sessions:
        raise UserError("There are no measured runs to report yet; run the bench first.")
    categories = list(dict.fromkeys(h["category"] for h in heats))
    flat = {label: _rows(heats, label) for label in plan["methods"]}
    refused = [f"{line['prompt']}: {line['refused']}" for line in lines if line.get("refused")]
    report = {
        "format": FORMAT,
        "version": VERSION,
        "plan": {k: v for k, v in plan.items() if k not in ("kind", "format", "version")},
        "environment": environment(sessions, heats),
        "categories": categories,
        "methods": {label: _method(label, sessions[-1]) for label in plan["methods"]},
        "plain": plain(heats, categories),
        "table": {
            label: (
                {ALL: summary(rows)}
                | {c: summary([r for r in rows if r["category"] == c]) for c in categories}
            )
            for label, rows in flat.items()
        },
        "prompts": _per_prompt(heats, flat),
        "complete": len(heats) + len(refused) == plan["prompts"] * plan["repeats"],
        "refused": refused,
    }
    report["remarks"] = remarks(report)
    return report


def _method(label: str, session: dict[str, Any]) -> dict[str, Any]:
    name, _, extra = label.partition(":")
    title = METHODS[name].title if name in METHODS else name
    return {
        "title": f"{title} ({extra.replace(':', ', ')})" if extra else title,
        **session["methods"].get(label, {}),
    }


def plain(heats: Sequence[dict[str, Any]], categories: Sequence[str]) -> dict[str, Any]:
    """The baseline itself: its rate, and how much two runs of the same thing differ (the noise of
    every ratio).
    """
    against_itself = []
    for heat in heats:
        first, second = heat["baseline"]
        if first["seconds"] and second["seconds"]:
            against_itself.append(first["seconds"] / second["seconds"])
    rates = {}
    for category in [ALL, *categories]:
        timed = [
            (len(h["baseline"][0]["ids"]) - 1, baseline_rate(h))
            for h in heats
            if category in (ALL, h["category"])
        ]
        timed = [(tokens, r) for tokens, r in timed if r]
        rates[category] = sum(t for t, _ in timed) / sum(t / r for t, r in timed) if timed else None
    ttft = [h["baseline"][0]["ttft_seconds"] for h in heats]
    return {
        "tokens_per_second": rates,
        "against_itself": quartiles(against_itself),
        "ttft_seconds": statistics.median(ttft),
        "degenerate": sum(h["baseline"][0]["unique"] < DEGENERATE for h in heats) / len(heats),
        "repeats_itself": all(h["baseline_repeats"] for h in heats),
    }


def environment(
    sessions: Sequence[dict[str, Any]], heats: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What a report has to name."""
    last = sessions[-1]
    others = [h["others"] for h in heats if h.get("others") is not None]
    return {
        **{
            k: last[k]
            for k in (
                "pair",
                "hardware",
                "dtype",
                "versions",
                "python",
                "system",
                "cost_ms",
                "ar_width",
            )
        },
        "commits": list(dict.fromkeys(s["commit"] for s in sessions if s["commit"])),
        "started": sessions[0]["started"],
        "sessions": len(sessions),
        "warm_up_seconds": [s["warm_up_seconds"] for s in sessions],
        "load_at_start": [s["load"] for s in sessions],
        "others_share": statistics.median(others) if others else None,
        "idle": statistics.median(others) <= IDLE if others else None,
    }


def _per_prompt(
    heats: Sequence[dict[str, Any]], flat: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    categories = {h["prompt"]: h["category"] for h in heats}
    ratios = {label: prompt_ratios(rows) for label, rows in flat.items()}
    return [
        {
            "id": prompt,
            "category": category,
            "methods": {
                label: [
                    ratios[label].get(prompt),
                    _per_round([r for r in rows if r["prompt"] == prompt]),
                ]
                for label, rows in flat.items()
            },
        }
        for prompt, category in categories.items()
    ]


def remarks(report: dict[str, Any]) -> list[str]:
    """What a reader must know before believing the table, in words."""
    out = []
    env, base = report["environment"], report["plain"]
    if not report["complete"]:
        out.append("This run is not complete yet; start it again with the same options to go on.")
    if env["idle"] is False:
        out.append(
            f"Other programs used {env['others_share']:.0%} of the machine while this ran, so times"
            " are rough and only ratios within one heat mean much."
        )
    if base["against_itself"]:
        low, _, high = base["against_itself"]
        out.append(
            "Plain decoding against itself, twice within a heat: half of all ratios lie between"
            f" {low:.3f} and {high:.3f}; smaller differences are noise."
        )
        if not 0.9 < low <= high < 1.1:
            out.append(
                "That is too far from 1: the machine was too busy for any speed-up here to mean"
                " something. Run it again when it is idle."
            )
    if base["degenerate"]:
        out.append(
            f"{base['degenerate']:.0%} of the plain answers repeat themselves (4-gram uniqueness"
            f" below {DEGENERATE}), which flatters every drafter; figures without them stand"
            " beside."
        )
    slower = [
        label for label, row in report["table"].items() if round(row[ALL]["speedup"] or 1, 2) < 1
    ]
    if slower:
        out.append(f"Slower than plain decoding here: {', '.join(slower)}.")
    parted = [
        f"{label} ({1 - row[ALL]['identical']:.1%} of runs)"
        for label, row in report["table"].items()
        if row[ALL]["identical"] not in (None, 1.0)
    ]
    if parted:
        out.append(f"Not token-identical to plain decoding: {', '.join(parted)}.")
    if not base["repeats_itself"]:
        out.append("Plain decoding did not always repeat its own text.")
    if report["refused"]:
        out.append(
            f"{len(report['refused'])} answers were refused and left out: {report['refused'][0]}"
        )
    return out


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return value


def save_report(report: dict[str, Any], path: Path) -> None:
    """Write the JSON form, rounded to 5 digits; ``assets/bench`` takes the same file."""
    try:
        atomic_write(path, json.dumps(_rounded(report), ensure_ascii=False, separators=(",", ":")))
    except OSError as error:
        raise UserError(
            f"The report cannot be written to {path} ({error.strerror}); free some space or choose"
            " another --out."
        ) from None


def load_report(path: str | Path) -> dict[str, Any]:
    """A saved report; anything else is refused with one sentence."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"The report {path} cannot be read ({error.strerror}); check its name."
        ) from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise UserError(
            f"{path} is not a bench report of this version; make one with “python -m specdemo"
            " bench”."
        )
    return data
