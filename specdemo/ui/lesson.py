"""The lesson as data: its texts, the recording each step shows, the moment, and the parts of the
view it points at.

``trace`` names a file of ``assets/traces``; ``moment`` says where the playhead is (``round``: best,
broken, bonus or branching; ``stage``: denoise, draft, verify; ``at``: start or end; ``play``:
run it);
``points`` name ``data-part`` attributes. Figures stand in braces and are read from the recording
(``FIGURES`` in ``static/lesson_figures.js``); a paragraph whose figure it lacks is left out.
``rejected`` shows rejected tokens in the text; ``bench`` names a method of the shipped report,
whose mean stands beside the recording's figure.
``experiment`` names something to do above the race (``static/lesson.js``); ``ask`` is a question,
each of whose options has its own reply. ``id`` is the step's address: ``#lesson-ID``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .lesson_basics import BASICS
from .lesson_depth import DEPTH
from .lesson_measured import read_report, read_sweep
from .lesson_words import GLOSSARY, PAPERS

STEPS: list[dict[str, Any]] = [*BASICS, *DEPTH]
SWEEPS = Path("bench") / "sweeps"
REPORT = Path("bench") / "smollm2-135m-108-prompts.json"
CURVE = Path("drafters") / "smollm2-135m-block" / "curve.svg"


def available(steps: list[dict[str, Any]], traces: list[str]) -> list[dict[str, Any]]:
    """The steps whose recordings are there; a knob keeps the options it has recordings for."""
    out = []
    for step in steps:
        if step["trace"] not in traces:
            continue
        step = dict(step)
        if "knob" in step:
            options = [o for o in step["knob"]["options"] if o["trace"] in traces]
            step["knob"] = step["knob"] | {"options": options}
            if len(options) < 2:
                del step["knob"]
        out.append(step)
    return out


def content(assets: Path, traces: list[str]) -> dict[str, Any] | None:
    """All that the lesson shows; None where no step has its recording.

    ``sweeps`` are measured curves by the name that a step gives; ``curve`` is the learning curve of
    the shipped drafter, an SVG; empty where there is none.
    """
    steps = available(STEPS, traces)
    if not steps:
        return None
    path = assets / CURVE
    measured = read_report(assets / REPORT)
    for step in steps:
        if (method := step.get("bench")) in measured:
            step["text"] = [*step["text"], measured[method]]
    return {
        "steps": steps,
        "glossary": GLOSSARY,
        "papers": PAPERS,
        "sweeps": {
            name: shown
            for step in steps
            if (name := step.get("sweep")) and (shown := read_sweep(assets / SWEEPS, name))
        },
        "curve": path.read_text(encoding="utf-8") if path.is_file() else "",
    }
