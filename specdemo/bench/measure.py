"""Repeated, interleaved, resumable measurement: prompts × repeats, one *trial* each.

A trial is one prompt in one repeat: plain decoding, every method and peer once, plain decoding
again. Slow drift of the machine so falls on both ends of the baseline alike, and the two plain runs
show how much of a difference is noise. Methods and peers take turns in going first (rotated by
prompt, reversed on every second repeat). A trial is written when it is complete, so a killed run
loses at most one trial and the next run continues after the last one.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..events import named
from ..prompts import Prompt, number_prompts
from ..repetition import echo
from ..request import Sampling
from .machine import CpuMonitor, commit, load_average
from .methods import BASELINE, parse_methods
from .report import Report, make_report
from .runners import Broken, Runner, RunResult, Stopped, make_runners
from .runs_file import RUNS, BenchPlan, Line, append, resume

if TYPE_CHECKING:
    from ..engine import Engine
    from .peers.group import PeerRun, Peers

GREEDY = Sampling()
WARM_UP = "Write two sentences about the sea."


def method_order(labels: Sequence[str], prompt: int, repeat: int) -> list[str]:
    """Methods and peers of one trial in running order: rotated by prompt, reversed on every second
    repeat.
    """
    shift = prompt % max(len(labels), 1)
    rotated = [*labels[shift:], *labels[:shift]]
    return rotated[::-1] if repeat % 2 else rotated


def measure(
    runners: dict[str, Runner],
    prompts: Sequence[Prompt],
    plan: BenchPlan,
    out: Path,
    on_progress: Callable[[int, int, str], None] = lambda done, total, text: None,
    peers: Peers | None = None,
) -> list[Line]:
    """Run every trial that ``out`` does not hold yet; returns all lines of its ``runs.jsonl``.

    Args:
        runners: baseline first (see ``runners.make_runners``).
        on_progress: called with (trials done, trials in all, what runs now).
        peers: run in turns with the methods.

    Raises:
        UserError: the folder holds another plan or another machine's trials, or cannot be written.
    """
    path = out / RUNS
    lines = resume(path, plan)
    done = {(line["prompt"], line["repeat"]) for line in lines if line["kind"] == "trial"}
    todo = [
        (index, prompt, repeat)
        for repeat in range(plan.repeats)
        for index, prompt in enumerate(prompts)
        if (prompt.id, repeat) not in done
    ]
    total = len(prompts) * plan.repeats
    if not todo:
        return lines
    if not lines:
        lines.append(append(path, plan.line()))
    on_progress(total - len(todo), total, "warm-up")
    lines.append(append(path, start_session(runners, lines, peers)))
    for count, (index, prompt, repeat) in enumerate(todo, total - len(todo)):

        def on_run(text: str, count: int = count) -> None:
            on_progress(count, total, text)

        lines.append(append(path, run_trial(runners, prompt, index, repeat, plan, on_run, peers)))
    on_progress(total, total, "done")
    return lines


def short_run(
    engine: Engine,
    methods: str | Sequence[str],
    prompts: Sequence[str | Prompt],
    max_new_tokens: int = 64,
    sampling: Sampling = GREEDY,
    cancel: threading.Event | None = None,
) -> Iterator[tuple[float, Report | None, str]]:
    """A short bench for the page's button, one repeat, nothing written to disk.

    Args:
        cancel: ends it within one round; what is complete stays in the last report.

    Yields:
        (fraction done, report so far or None, what comes next).
    """
    configs, asked = parse_methods(methods), number_prompts(prompts)
    if not asked:
        raise UserError("There is no prompt to measure; choose at least one.")
    plan = BenchPlan(
        suite="short local run",
        sha256="",
        prompts=len(asked),
        pair=engine.loaded.pair.id,
        methods=tuple(config.label for config in configs),
        repeats=1,
        max_new_tokens=max_new_tokens,
        sampling=sampling.to_dict(),
    )
    runners = make_runners(engine, configs, sampling, max_new_tokens, cancel)
    lines: list[Line] = [plan.line()]
    report, done = None, 0
    yield 0.0, None, "warming up"
    try:
        lines.append(start_session(runners, []))
        for done, prompt in enumerate(asked):
            yield done / len(asked), report, f"prompt {done + 1} of {len(asked)}"
            lines.append(run_trial(runners, prompt, done, 0, plan))
            report = make_report(lines) if any("runs" in line for line in lines) else None
    except Stopped:
        yield done / len(asked), report, "stopped"
        return
    yield 1.0, report, "done"


def run_trial(
    runners: dict[str, Runner],
    prompt: Prompt,
    index: int,
    repeat: int,
    plan: BenchPlan,
    on_run: Callable[[str], None] = lambda text: None,
    peers: Peers | None = None,
) -> Line:
    """One prompt through every runner, as a line of the file. A prompt that is refused (too long,
    say) is noted with the reason and left out of all figures.

    Args:
        index: the prompt's place, which rotates the methods. on_run: called with what runs now.
    """
    seed = plan.sampling["seed"] + repeat
    others = peers.names if peers else []
    methods = [label for label in runners if label != BASELINE]
    order = method_order([*methods, *others], index, repeat)
    line: Line = {
        "kind": "trial",
        "prompt": prompt.id,
        "category": prompt.category,
        "repeat": repeat,
        "seed": seed,
        "order": order,
        "started": _now(),
    }
    monitor, began = CpuMonitor(), time.monotonic()
    runs: dict[str, list[RunResult]] = {}
    answers: dict[str, PeerRun] = {}
    label = BASELINE
    try:
        for label in [BASELINE, *order, BASELINE]:
            on_run(f"{prompt.id}: {label}")
            if peers is not None and label in others:
                answers[label] = peers.answer(label, prompt.text)
            else:
                runs.setdefault(label, []).append(runners[label](prompt.text, seed))
    except Broken:
        raise
    except UserError as error:
        return line | {"refused": f"{label}: {error}"}
    first, second = runs.pop(BASELINE)
    return line | {
        "echo": echo(first.text, prompt.text),
        "baseline": [first.to_dict(), _times_only(second)],
        "baseline_repeatable": _same(first, second),
        "runs": {
            label: run.to_dict() | _difference(run, first, plan) for label, (run,) in runs.items()
        },
        "peers": {name: _compared(answer, first, peers) for name, answer in answers.items()},
        "seconds": time.monotonic() - began,
        "other_load": monitor.other_load(),
        "load_average": load_average(),
    }


def _difference(run: RunResult, baseline: RunResult, plan: BenchPlan) -> dict[str, Any]:
    """Whether both wrote the same ids (a serving engine: the same text); None where the rule keeps
    the distribution instead of the sample, or a serving engine sampled.
    """
    if "served" in run.result:
        equal = None if plan.sampling["temperature"] > 0 else _same(run, baseline)
        return {"identical": equal, "first_difference": None}
    if run.result.get("rule", "match") != "match" and plan.sampling["temperature"] > 0:
        return {"identical": None, "first_difference": None}
    if run.ids == baseline.ids:
        return {"identical": True, "first_difference": None}
    pairs = zip(run.ids, baseline.ids, strict=False)
    shared = min(len(run.ids), len(baseline.ids))
    first = next((i for i, (mine, theirs) in enumerate(pairs) if mine != theirs), shared)
    return {"identical": False, "first_difference": first}


def _same(one: RunResult, other: RunResult) -> bool:
    """By ids, or by text: a serving engine may not name tokens, or leave the end token out."""
    same_text = "served" in one.result and one.text == other.text
    return same_text or named(one.ids) and one.ids == other.ids


def _compared(answer: PeerRun, baseline: RunResult, peers: Peers | None) -> PeerRun:
    """With ``same``: whether its ids are those of plain decoding, an end token aside."""
    if peers is None or "failed" in answer:
        return answer
    return answer | {"same": peers.same(answer["ids"], baseline.ids)}


def _times_only(run: RunResult) -> dict[str, Any]:
    """The second plain run repeats the first one's text; only its times are new."""
    return {
        "seconds": run.seconds,
        "ttft_seconds": run.ttft_seconds,
        "one_row_rate": run.one_row_rate,
        "tokens": len(run.ids),
    }


def start_session(
    runners: dict[str, Runner], lines: Sequence[Line], peers: Peers | None = None
) -> Line:
    """Warm every runner up, outside the figures, and note where and when this session runs.

    Args:
        lines: what the file holds so far.

    Raises:
        UserError: its results come from another machine.
    """
    load, monitor, began = load_average(), CpuMonitor(), time.monotonic()
    facts = {label: run(WARM_UP, 0).facts for label, run in runners.items()}
    if peers is not None:
        for name in peers.names:
            peers.answer(name, WARM_UP)
    base = facts[BASELINE]
    session: Line = {
        "kind": "session",
        "started": _now(),
        "warm_up_seconds": time.monotonic() - began,
        "load_average": load,
        "other_load": monitor.other_load(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
        **{
            name: base.get(name)
            for name in ("pair", "hardware", "dtype", "versions", "cost_ms", "ar_width")
        },
        "methods": {
            label: {name: known.get(name) for name in ("weights", "params", "rule", "most_nodes")}
            for label, known in facts.items()
            if label != BASELINE
        },
        "peers": peers.facts if peers else {},
        "served": base.get("served"),
    }
    same = ("hardware", "dtype", "versions")
    for earlier in lines:
        if earlier["kind"] == "session" and any(earlier[k] != session[k] for k in same):
            raise UserError(
                "This folder's results come from other hardware, dtype or library versions; choose"
                " another --out so that they are not mixed."
            )
    return session


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
