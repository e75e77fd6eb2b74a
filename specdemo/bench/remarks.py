"""What a reader must know before believing a report's table, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..prompts import ALL
from ..repetition import DEGENERATE
from ..totals import UNRELIABLE

IDLE = 0.05  # the share of all CPU time that the background services of an idle system may use
# How far from 1 the middle half of the baseline-to-baseline ratios may reach; beyond it, noise is
# as large as the differences between methods.
MAX_NOISE = 0.1


def remarks(report: Any) -> list[str]:
    """What a reader must know before believing the table, in sentences."""
    served = report.get("served")
    of_engine = _remarks_on_engine(served) if served else ()
    noise = report["baseline"]["repeat_ratio"]
    slower = () if noise and _is_noisy(noise) else _remarks_on_speed(report)
    return [
        *_remarks_on_conditions(report),
        *_remarks_on_predictions(report),
        *of_engine,
        *slower,
        *_remarks_on_methods(report),
    ]


def _is_noisy(ratio: Any) -> bool:
    """Whether the middle half of the baseline-to-baseline ratios is too far from 1."""
    low, _, high = ratio
    return not 1 - MAX_NOISE < low <= high < 1 + MAX_NOISE


def _remarks_on_conditions(report: Any) -> Iterator[str]:
    environment, baseline = report["environment"], report["baseline"]
    if not report["complete"]:
        yield "This run is not complete yet; start it again with the same options to go on."
    if environment["idle"] is False:
        yield (
            f"Other programs used {environment['other_load']:.0%} of the machine while this ran,"
            " so times are rough and only ratios within one trial mean much."
        )
    if baseline["repeat_ratio"]:
        low, _, high = baseline["repeat_ratio"]
        spread = f"half of all ratios lie between {low:.3f} and {high:.3f}"
        if low == high:
            spread = f"the ratio is {low:.3f}"
        yield (
            f"Plain decoding against itself, twice within a trial: {spread}. The intervals in the"
            " tables hold this noise and that of which prompts were asked."
        )
        if _is_noisy(baseline["repeat_ratio"]):
            yield (
                "That is too far from 1: the machine was too busy for any speed-up here to mean"
                " something. Run it again when it is idle."
            )
    if baseline["degenerate"]:
        yield (
            f"{baseline['degenerate']:.0%} of the plain answers repeat themselves (4-gram"
            f" uniqueness below {DEGENERATE}), which flatters every drafter; figures without them"
            " stand beside."
        )
    if baseline["loops"]:
        yield (
            f"{baseline['loops']:.0%} of the plain answers end in a loop (from token"
            f" {baseline['loop_at']:.0f} on, by the median), which drafters follow easily."
        )
    if baseline["echoes"]:
        yield (
            f"{baseline['echoes']:.0%} of the plain answers are mostly copied from their prompt,"
            " where looking up n-grams is as good as any network."
        )


def _remarks_on_predictions(report: Any) -> Iterator[str]:
    """Of the methods whose speed-up is not what the costs measured at load say."""
    apart = []
    for label, row in report["table"].items():
        measured, predicted = row[ALL]["speedup"], row[ALL].get("predicted")
        if measured and predicted and not 1 / UNRELIABLE <= measured / predicted <= UNRELIABLE:
            apart.append(f"{label} ({measured:.2f}, predicted {predicted:.2f})")
    if apart:
        yield (
            f"Unreliable, as measured and predicted speed-up are more than {UNRELIABLE} times"
            f" apart: {', '.join(apart)}. The machine was busy here or when its passes were"
            " measured; run again with --remeasure and another --out when it is idle."
        )


def _remarks_on_engine(served: Any) -> Iterator[str]:
    clock = "its own clock" if served["clock"] == "engine" else "the arrival of its chunks"
    yield f"{served['engine']} decoded both sides, timed by {clock}; SpecDemo only asked."
    yield f"It does not tell {', nor '.join(served['not_told'])}; a dash stands there."
    if served["inferred"]:
        yield (
            f"In {served['inferred']} of {served['runs']} answers it does not tell each round: one"
            " chunk is taken for one pass."
        )
    if served["totals"]:
        yield (
            f"In {served['totals']} of {served['runs']} answers chunks of several rounds were"
            " merged on their way, so only totals are known."
        )


def _remarks_on_speed(report: Any) -> Iterator[str]:
    """Not where the machine was too busy for them."""
    totals = {label: row[ALL] for label, row in report["table"].items()}
    slower = [label for label, all_ in totals.items() if round(all_["speedup"] or 1, 2) < 1]
    if slower:
        yield f"Slower than plain decoding here: {', '.join(slower)}."


def _remarks_on_methods(report: Any) -> Iterator[str]:
    totals = {label: row[ALL] for label, row in report["table"].items()}
    cut = [
        f"{label} ({all_['cut']:.0%} of rounds, {nodes} nodes)"
        for label, all_ in totals.items()
        if all_.get("cut") and (nodes := report["methods"][label].get("most_nodes"))
    ]
    if cut:
        widths = ", ".join(report["environment"]["cost_ms"] or ())
        yield (
            f"Trees were cut to what one pass verifies here: {'; '.join(cut)}. Rows have the same"
            f" bits in passes of {widths} rows."
        )
    different = [
        f"{label} ({1 - all_['identical']:.1%} of runs)"
        for label, all_ in totals.items()
        if all_["identical"] not in (None, 1.0)
    ]
    if different and report.get("served"):
        share = next(iter(totals.values()))["identical"]
        yield (
            f"The two endpoints wrote different texts in {1 - share:.1%} of the runs; this engine"
            " does not promise otherwise."
        )
    elif different:
        yield f"Not token-identical to plain decoding: {', '.join(different)}."
    if not report["baseline"]["repeatable"]:
        yield "Plain decoding did not always repeat its own text."
    if report["refused"]:
        count = len(report["refused"])
        yield f"{count} answers were refused and left out: {report['refused'][0]}"
