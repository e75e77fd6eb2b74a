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

from ..events import named
from ..repetition import DEGENERATE, ECHO, loop_start
from .intervals import Timed, interval, ratio
from .reliability import reliability
from .schema import FewFigures, Figures, Shares

Line = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One run of a method beside the baseline of the same trial.

    Attributes:
        run: ``RunResult.to_dict()``, with ``identical``.
        ratio: tokens per second over the baseline's; None where one of them was not timed.
        tokens, baseline_tokens: decoded tokens, without the prefill's.
        counted: whether ``tokens`` is told; else it is the baseline's for the same text, or 0.
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
    counted: bool = True

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
    """The token at which the plain answer begins to loop to its end, where its tokens are named."""
    ids = trial["baseline"][0]["ids"]
    return loop_start(ids) if named(ids) else None


def echoes(trial: Line) -> bool:
    """Whether most of the plain answer stands in its prompt."""
    return bool(trial.get("echo", 0.0) > ECHO)


def rows_of(trials: Iterable[Line], label: str) -> list[Row]:
    """One row per trial of this method."""
    rows = []
    for trial in trials:
        run = trial["runs"][label]
        baseline = baseline_rate(trial)
        baseline_tokens = max(0, len(trial["baseline"][0]["ids"]) - 1)
        counted, tokens = bool(run["ids"]), max(0, len(run["ids"]) - 1)
        if not counted and run["identical"]:
            tokens = baseline_tokens
        rate = tokens / run["seconds"] if tokens and run["seconds"] > 0 else None
        rows.append(
            Row(
                prompt=trial["prompt"],
                category=trial["category"],
                repeat=trial["repeat"],
                run=run,
                ratio=rate / baseline if rate is not None and baseline is not None else None,
                tokens=tokens,
                baseline_tokens=baseline_tokens,
                baseline_seconds=baseline_tokens / baseline if baseline is not None else 0.0,
                flagged=loops_at(trial) is not None or echoes(trial),
                counted=counted,
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


def cut_share(rows: Sequence[Row]) -> float | None:
    """Share of rounds whose tree did not fit into a pass; None where that is not known."""
    totals = [row.run["result"].get("spec") for row in rows]
    known = [spec for spec in totals if spec and "cut_rounds" in spec]
    return _ratio(sum(s["cut_rounds"] for s in known), sum(s["rounds"] for s in known))


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
    known = [(row.tokens, n) for row in rows if row.counted and (n := _rounds(row)) is not None]
    return _ratio(sum(tokens for tokens, _ in known), sum(n for _, n in known))


def summarize(rows: Sequence[Row]) -> Figures:
    """All figures of one method over some rows."""
    seconds = sum(row.run["seconds"] for row in rows)
    looked_at = [row for row in rows if row.run["unique"] is not None]
    other_text = [row for row in looked_at if row.run["unique"] >= DEGENERATE]
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
        "tokens_per_second": _ratio(
            sum(row.tokens for row in rows if row.counted),
            sum(row.run["seconds"] for row in rows if row.counted),
        ),
        "tokens_per_round": tokens_per_round(rows),
        "accepted_per_round": _accepted_per_round(rows),
        "accepted_at": accepted_at(rows),
        "cut": cut_share(rows),
        "reliability": reliability(row.run.get("confidence", []) for row in rows),
        "rows_per_pass": _ratio(
            sum(sum(row.run["rows"]) for row in rows), sum(len(row.run["rows"]) for row in rows)
        ),
        "time": _time_shares(rows, seconds) if seconds else None,
        "degenerate": 1 - len(other_text) / len(looked_at) if looked_at else None,
        "non_degenerate": _few(other_text),
        "unflagged": _few(unflagged),
        "identical": _ratio(sum(compared), len(compared)),
    }


def _few(rows: Sequence[Row]) -> FewFigures:
    return {"speedup": speedup(rows), "tokens_per_round": tokens_per_round(rows)}


def _time_shares(rows: Sequence[Row], seconds: float) -> Shares | None:
    """None where neither part was timed."""
    draft, verify = (
        sum(row.run[key] for row in rows) for key in ("draft_seconds", "verify_seconds")
    )
    if not draft and not verify:
        return None
    return {
        "draft": draft / seconds,
        "verify": verify / seconds,
        "rest": max(0.0, 1 - (draft + verify) / seconds),
    }


def _rounds(row: Row) -> int | None:
    """None where they are not told."""
    totals = row.run.get("totals")
    return totals[0] if totals else len(row.run["accepted"])


def _accepted_per_round(rows: Sequence[Row]) -> float | None:
    accepted = rounds = 0
    for row in rows:
        totals = row.run.get("totals") or (len(row.run["accepted"]), sum(row.run["accepted"]))
        if None not in totals:
            rounds, accepted = rounds + totals[0], accepted + totals[1]
    return _ratio(accepted, rounds)


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
