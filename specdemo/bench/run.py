"""Repeated, interleaved, resumable measurement: prompts × repeats × lanes, one JSON line a *heat*.

A heat is one prompt in one repeat: plain decoding, every method once, plain decoding again. Slow
drift of the machine so falls
on both ends of the baseline alike, and the two plain runs show how much of a difference is noise.
The methods take turns in going first (rotated by prompt, reversed on every second repeat). A heat
is written when it is complete, so a killed run loses at most one heat and the next run continues
after the last one.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import UserError
from .lanes import BASELINE, Lane, LaneRun
from .suite import Item

FORMAT, VERSION = "specdemo-bench-runs", 1
RUNS = "runs.jsonl"
WARM_UP = "Write two sentences about the sea."


@dataclass(frozen=True)
class Plan:
    """What is measured; two runs with the same plan continue each other."""

    suite: str
    sha256: str
    prompts: int
    pair: str
    methods: tuple[str, ...]
    repeats: int
    max_new_tokens: int
    sampling: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"methods": list(self.methods)}


def order(labels: Sequence[str], prompt: int, repeat: int) -> list[str]:
    """Methods of one heat in running order: rotated by prompt, reversed on every second repeat."""
    shift = prompt % max(len(labels), 1)
    turned = [*labels[shift:], *labels[:shift]]
    return turned[::-1] if repeat % 2 else turned


def measure(
    lanes: dict[str, Lane],
    items: Sequence[Item],
    plan: Plan,
    out: Path,
    tell: Callable[[int, int, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Run every heat that ``out`` does not hold yet; returns all lines of its ``runs.jsonl``.

    Args:
        lanes: baseline first (see ``lanes.race_lanes``).
        tell: called with (heats done, heats in all, what runs now).

    Raises:
        UserError: the folder holds another plan or another machine's heats, or cannot be written.
    """
    say = tell or (lambda done, total, text: None)
    path = out / RUNS
    lines = resume(path, plan)
    done = {(line["prompt"], line["repeat"]) for line in lines if line["kind"] == "heat"}
    todo = [
        (i, item, r)
        for r in range(plan.repeats)
        for i, item in enumerate(items)
        if (item.id, r) not in done
    ]
    total = len(items) * plan.repeats
    if not todo:
        return lines
    if not lines:
        lines.append(
            _write(path, {"kind": "plan", "format": FORMAT, "version": VERSION, **plan.to_dict()})
        )
    say(total - len(todo), total, "warm-up")
    lines.append(_write(path, begin(lanes, lines)))
    for count, (index, item, repeat) in enumerate(todo, total - len(todo)):
        lines.append(
            _write(
                path,
                heat(
                    lanes,
                    item,
                    index,
                    repeat,
                    plan,
                    lambda text, count=count: say(count, total, text),
                ),
            )
        )
    say(total, total, "done")
    return lines


def heat(
    lanes: dict[str, Lane],
    item: Item,
    index: int,
    repeat: int,
    plan: Plan,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """One prompt through every lane. A prompt that is refused (too long, say) is noted with the
    reason and left out of all figures.
    """
    seed = plan.sampling["seed"] + repeat
    methods = order([label for label in lanes if label != BASELINE], index, repeat)
    line: dict[str, Any] = {
        "kind": "heat",
        "prompt": item.id,
        "category": item.category,
        "repeat": repeat,
        "seed": seed,
        "order": methods,
        "started": _now(),
    }
    busy, began = Busy(), time.monotonic()
    runs: dict[str, list[LaneRun]] = {}
    try:
        for label in [BASELINE, *methods, BASELINE]:
            say(f"{item.id}: {label}")
            runs.setdefault(label, []).append(lanes[label](item.prompt, seed))
    except UserError as refusal:
        return line | {"refused": f"{label}: {refusal}"}
    first, second = runs.pop(BASELINE)
    line["baseline"] = [first.to_dict(), _brief(second)]
    line["baseline_repeats"] = first.ids == second.ids
    line["runs"] = {
        label: run.to_dict() | difference(run.ids, first.ids, run.result.get("rule", "match"), plan)
        for label, (run,) in runs.items()
    }
    return line | {"seconds": time.monotonic() - began, "others": busy.others(), "load": _load()}


def difference(ids: list[int], plain: list[int], rule: str, plan: Plan) -> dict[str, Any]:
    """Whether both lanes wrote the same ids; null where the rule keeps the distribution instead of
    the sample.
    """
    if rule != "match" and plan.sampling["temperature"] > 0:
        return {"identical": None, "first_difference": None}
    if ids == plain:
        return {"identical": True, "first_difference": None}
    shared = min(len(ids), len(plain))
    return {
        "identical": False,
        "first_difference": next((i for i in range(shared) if ids[i] != plain[i]), shared),
    }


def _brief(run: LaneRun) -> dict[str, Any]:
    """The second plain run repeats the first one's text; only its times are new."""
    return {
        "seconds": run.seconds,
        "ttft_seconds": run.ttft_seconds,
        "one_row_rate": run.one_row_rate,
        "tokens": len(run.ids),
    }


def begin(lanes: dict[str, Lane], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Warm every lane up, outside the figures, and note where and when this session runs."""
    load, busy, began = _load(), Busy(), time.monotonic()
    facts: dict[str, dict[str, Any]] = {}
    for label, lane in lanes.items():
        facts[label] = lane(WARM_UP, 0).facts
    base = facts[BASELINE]
    session = {
        "kind": "session",
        "started": _now(),
        "warm_up_seconds": time.monotonic() - began,
        "load": load,
        "others": busy.others(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
        **{
            k: base.get(k) for k in ("pair", "hardware", "dtype", "versions", "cost_ms", "ar_width")
        },
        "methods": {
            label: {k: f.get(k) for k in ("weights", "params", "rule")}
            for label, f in facts.items()
            if label != BASELINE
        },
    }
    for earlier in lines:
        if earlier["kind"] == "session" and any(
            earlier[k] != session[k] for k in ("hardware", "dtype", "versions")
        ):
            raise UserError(
                "This folder's results come from other hardware, dtype or library versions; choose"
                " another --out so that they are not mixed."
            )
    return session


def resume(path: Path, plan: Plan) -> list[dict[str, Any]]:
    """The lines written so far, if they belong to this plan; a last line cut off by a kill is
    removed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = path.read_bytes() if path.exists() else b""
        whole = raw[: raw.rfind(b"\n") + 1]
        if whole != raw:
            with path.open("r+b") as file:
                file.truncate(len(whole))
    except OSError as error:
        raise UserError(
            f"The folder {path.parent} cannot be used ({error.strerror}); choose another --out."
        ) from None
    lines = parse_runs(whole, path)
    if lines and {k: lines[0].get(k) for k in plan.to_dict()} != json.loads(
        json.dumps(plan.to_dict())
    ):
        raise UserError(
            f"{path} holds a different bench (suite, methods, lengths, repeats or sampling); choose"
            " another --out to keep both."
        )
    return lines


def parse_runs(raw: bytes, path: Path) -> list[dict[str, Any]]:
    """The lines of a ``runs.jsonl``."""
    try:
        lines = [json.loads(line) for line in raw.split(b"\n") if line.strip()]
    except (ValueError, RecursionError):
        lines = [None]
    if lines and not (
        all(isinstance(line, dict) and "kind" in line for line in lines)
        and lines[0].get("format") == FORMAT
        and lines[0].get("version") == VERSION
    ):
        raise UserError(f"{path} is not a bench result of this program; choose another --out.")
    return lines


def _write(path: Path, line: dict[str, Any]) -> dict[str, Any]:
    """Append one line, and be sure that it is on the disk before the next heat begins."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"The results cannot be written to {path} ({error.strerror}); free some space or choose"
            " another --out."
        ) from None
    return line


# -- the machine -----------------------------------------------------------------------------------


class Busy:
    """How much of the machine others used since this object was made (Linux; None elsewhere)."""

    def __init__(self) -> None:
        self.before = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float] | None:
        try:
            with open("/proc/stat", encoding="ascii") as file:
                ticks = [int(x) for x in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return None
        hertz = os.sysconf("SC_CLK_TCK")
        return sum(ticks) / hertz, (sum(ticks) - ticks[3] - ticks[4]) / hertz, sum(os.times()[:4])

    def others(self) -> float | None:
        """Share of all CPU time, 0 to 1."""
        now = self._read()
        if now is None or self.before is None or now[0] <= self.before[0]:
            return None
        total, busy, own = (a - b for a, b in zip(now, self.before, strict=True))
        return min(1.0, max(0.0, (busy - own) / total))


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def commit() -> str | None:
    """The commit this code is at, with “+” if files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        ask = lambda *words: subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()  # noqa: E731
        return ask("rev-parse", "--short=12", "HEAD") + (
            "+" if ask("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
