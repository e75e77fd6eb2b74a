"""From trials to figures.

The baseline of a trial is the faster of the plain lane (its two runs taken together) and the
one-row kernel; both sides of every ratio come from the same trial. Over a category, the speed-up is
tokens per second of all its answers together (summed tokens / summed seconds) over the same for the
baseline, so long answers count for more. Beside it stand the 95 % interval
over prompts (``intervals.py``), the quartiles of the ratios per prompt (over repeats, their median)
and the speed-up of every repeat. Predicted = baseline pass × tokens /
predicted seconds (the cost of every round's width plus measured drafting), summed alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..repetition import DEGENERATE, ECHO, loop_start
from .intervals import Timed, interval, ratio
from .schema import FewFigures, Figures, Shares

Line = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One run of a method beside the baseline of the same trial.

    Attributes:
        run: ``RunResult.to_dict()``, with ``identical``.
        ratio: tokens per second over the baseline's; None where one of them was not timed.
        tokens, baseline_tokens: decoded tokens, without the prefill's.
        baseline_seconds: what the baseline took for its own.
        flagged: whether the plain answer ends in a loop or copies its prompt.
    """

    prompt: str
    category: str
    repeat: int
    run: dict[str, Any]
    ratio: float | None
    tokens: int
    baseline_tokens: int
    baseline_seconds: float
    flagged: bool

    @property
    def timed(self) -> Timed | None:
        """Beside the baseline; None where one of them was not timed."""
        if self.ratio is None:
            return None
        return Timed(
            self.prompt,
            self.tokens,
            self.run["seconds"],
            self.baseline_tokens,
            self.baseline_seconds,
        )


def baseline_rate(trial: Line) -> float | None:
    """Tokens per second of plain decoding in this trial: the faster of its lane and the one-row
    kernel.
    """
    first, second = trial["baseline"]
    decoded, seconds = 2 * (len(first["ids"]) - 1), first["seconds"] + second["seconds"]
    if decoded <= 0 or seconds <= 0:
        return None
    rate = decoded / seconds
    one_row = [run["one_row_rate"] for run in (first, second) if run["one_row_rate"]]
    return max(rate, statistics.mean(one_row)) if one_row else rate


def decode_rate(run: dict[str, Any]) -> float | None:
    """Decoded tokens per second of one run; None for an answer of one token, which has no
    decoding.
    """
    decoded = len(run["ids"]) - 1
    return decoded / run["seconds"] if decoded > 0 and run["seconds"] > 0 else None


def loops_at(trial: Line) -> int | None:
    """The token at which the plain answer begins to loop to its end."""
    return loop_start(trial["baseline"][0]["ids"])


def echoes(trial: Line) -> bool:
    """Whether most of the plain answer stands in its prompt."""
    return bool(trial.get("echo", 0.0) > ECHO)


def rows_of(trials: Iterable[Line], label: str) -> list[Row]:
    """One row per trial of this method."""
    rows = []
    for trial in trials:
        run = trial["runs"][label]
        rate, baseline = decode_rate(run), baseline_rate(trial)
        baseline_tokens = len(trial["baseline"][0]["ids"]) - 1
        rows.append(
            Row(
                prompt=trial["prompt"],
                category=trial["category"],
                repeat=trial["repeat"],
                run=run,
                ratio=rate / baseline if rate is not None and baseline is not None else None,
                tokens=len(run["ids"]) - 1,
                baseline_tokens=baseline_tokens,
                baseline_seconds=baseline_tokens / baseline if baseline is not None else 0.0,
                flagged=loops_at(trial) is not None or echoes(trial),
            )
        )
    return rows


def speedup(rows: Sequence[Row]) -> float | None:
    """Ratio of summed tokens / summed seconds."""
    return ratio(_timed(rows))


def paired(rows: Sequence[Row], others: Sequence[Row]) -> list[float] | None:
    """Speed of ``rows`` over that of ``others`` in the same trials, and the bounds of its 95 %
    interval. Which prompts were asked moves both alike, so it is much sharper than two intervals.
    """
    theirs = {(row.prompt, row.repeat): row for row in others}
    runs = [
        Timed(row.prompt, row.tokens, row.run["seconds"], other.tokens, other.run["seconds"])
        for row in rows
        if (other := theirs.get((row.prompt, row.repeat))) is not None
        and row.ratio is not None
        and other.ratio is not None
    ]
    bounds, both = interval(runs), ratio(runs)
    return None if bounds is None or both is None else [both, *bounds]


def accepted_at(rows: Sequence[Row]) -> list[float]:
    """Share of rounds that accepted at least 1, 2, 3, … drafted tokens."""
    counts = [n for row in rows for n in row.run["accepted"]]
    most = max(counts, default=0)
    return [sum(n >= depth for n in counts) / len(counts) for depth in range(1, most + 1)]


def _timed(rows: Sequence[Row]) -> list[Timed]:
    return [row.timed for row in rows if row.timed is not None]


def predicted_speedup(rows: Sequence[Row]) -> float | None:
    """What the costs measured at load say the same rounds should give."""
    known = [
        row
        for row in rows
        if row.ratio is not None and row.run["predicted_seconds"] and row.run["baseline_ms"]
    ]
    return _ratio(
        sum(row.tokens * row.run["baseline_ms"] / 1e3 for row in known),
        sum(row.run["predicted_seconds"] for row in known),
    )


def prompt_ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Per prompt the median ratio over its repeats."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row.ratio is not None:
            ratios.setdefault(row.prompt, []).append(row.ratio)
    return {prompt: statistics.median(values) for prompt, values in ratios.items()}


def quartiles(values: Sequence[float]) -> list[float] | None:
    """Lower quartile, median, upper quartile."""
    if len(values) > 1:
        return statistics.quantiles(values, n=4, method="inclusive")
    return [values[0]] * 3 if values else None


def tokens_per_round(rows: Sequence[Row]) -> float | None:
    """Decoded tokens per round, the target's own included."""
    return _ratio(sum(row.tokens for row in rows), _rounds(rows))


def summarize(rows: Sequence[Row]) -> Figures:
    """All figures of one method over some rows."""
    rounds = _rounds(rows)
    seconds = sum(row.run["seconds"] for row in rows)
    other_text = [row for row in rows if row.run["unique"] >= DEGENERATE]
    unflagged = [row for row in other_text if not row.flagged]
    compared = [row.run["identical"] for row in rows if row.run["identical"] is not None]
    repeats = sorted({row.repeat for row in rows})
    return {
        "runs": len(rows),
        "prompts": len({row.prompt for row in rows}),
        "speedup": speedup(rows),
        "interval": interval(_timed(rows)),
        "prompt_quartiles": quartiles(list(prompt_ratios(rows).values())),
        "by_repeat": [speedup([row for row in rows if row.repeat == n]) for n in repeats],
        "predicted": predicted_speedup(rows),
        "tokens_per_second": _ratio(sum(row.tokens for row in rows), seconds),
        "tokens_per_round": tokens_per_round(rows),
        "accepted_per_round": _ratio(sum(sum(row.run["accepted"]) for row in rows), rounds),
        "accepted_at": accepted_at(rows),
        "rows_per_pass": _ratio(sum(sum(row.run["rows"]) for row in rows), rounds),
        "time": _time_shares(rows, seconds) if seconds else None,
        "degenerate": 1 - len(other_text) / len(rows) if rows else None,
        "non_degenerate": _few(other_text),
        "unflagged": _few(unflagged),
        "identical": _ratio(sum(compared), len(compared)),
    }


def _few(rows: Sequence[Row]) -> FewFigures:
    return {"speedup": speedup(rows), "tokens_per_round": tokens_per_round(rows)}


def _time_shares(rows: Sequence[Row], seconds: float) -> Shares:
    draft, verify = (
        sum(row.run[key] for row in rows) for key in ("draft_seconds", "verify_seconds")
    )
    return {
        "draft": draft / seconds,
        "verify": verify / seconds,
        "rest": max(0.0, 1 - (draft + verify) / seconds),
    }


def _rounds(rows: Sequence[Row]) -> int:
    return sum(len(row.run["accepted"]) for row in rows)


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
