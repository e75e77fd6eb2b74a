"""``runs.jsonl``: the measurements as they were made, one JSON line a trial; resumable.

The first line is the plan, then come a ``session`` line for every start of the command and a
``trial`` line for every finished trial.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import atomic_write
from .migrate import upgrade_runs

FORMAT, VERSION = "specdemo-bench-runs", 3
RUNS = "runs.jsonl"

Line = dict[str, Any]

SETTINGS = {  # of a plan, as a sentence names them
    "sha256": "the suite's content (sha256)",
    "prompts": "the number of prompts",
    "max_new_tokens": "--max-new-tokens",
    "repeats": "--repeats",
}


@dataclass(frozen=True)
class BenchPlan:
    """What is measured; two runs with the same plan continue each other.

    Attributes:
        suite, sha256: name of the prompt file and hash of its bytes.
        prompts, repeats: how many prompts are asked, and how often each.
        methods, peers: labels, as the command line names them.
        sampling: ``Sampling.to_dict()``.
    """

    suite: str
    sha256: str
    prompts: int
    pair: str
    methods: tuple[str, ...]
    repeats: int
    max_new_tokens: int
    sampling: dict[str, Any]
    peers: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"methods": list(self.methods), "peers": list(self.peers)}

    def line(self) -> Line:
        """The first line of the file."""
        return {"kind": "plan", "format": FORMAT, "version": VERSION, **self.to_dict()}


def refuse_another(folder: Path, plan: BenchPlan) -> None:
    """Asked before a model is loaded, which takes long. Raises UserError: ``folder`` holds a bench
    of another plan.
    """
    if (folder / RUNS).exists():
        resume(folder / RUNS, plan)


def resume(path: Path, plan: BenchPlan) -> list[Line]:
    """The lines written so far; a last line cut off by a kill is removed, and a file of an older
    version is rewritten in this one's form.

    Raises:
        UserError: the file holds something else or another plan, or the folder cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = path.read_bytes() if path.exists() else b""
        complete = raw[: raw.rfind(b"\n") + 1]
        if complete != raw:
            with path.open("r+b") as file:
                file.truncate(len(complete))
        lines = parse_runs(complete, path)
        if lines and lines[0]["version"] < VERSION:
            lines = upgrade_runs(lines)
            atomic_write(path, "".join(_encode(line) for line in lines))
    except OSError as error:
        raise UserError(
            f"The folder {path.parent} cannot be used ({error.strerror}); choose another --out."
        ) from None
    if lines and (differ := _differences(lines[0], plan)):
        raise UserError(
            f"{path} holds a different bench: {'; '.join(differ)}. Choose another --out to keep"
            " both."
        )
    return lines


def _differences(there: Line, plan: BenchPlan) -> list[str]:
    """What the plan in the file and this one say differently, with both values."""
    wanted = json.loads(json.dumps(plan.to_dict()))
    return [
        f"{SETTINGS.get(key, key)} {_said(there.get(key))} there, {_said(value)} here"
        for key, value in wanted.items()
        if there.get(key) != value
    ]


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return (
        "" if value is None else ",".join(value) if isinstance(value, list) else str(value)
    ) or "none"


def parse_runs(raw: bytes, path: Path) -> list[Line]:
    """The lines of a ``runs.jsonl`` of this version or an older one, as they stand there."""
    lines: list[Any]
    try:
        lines = [json.loads(line) for line in raw.split(b"\n") if line.strip()]
    except (ValueError, RecursionError):
        lines = [None]
    if lines and not (
        all(isinstance(line, dict) and "kind" in line for line in lines)
        and lines[0].get("format") == FORMAT
        and lines[0].get("version") in range(1, VERSION + 1)
    ):
        raise UserError(f"{path} is not a bench result of this program; choose another --out.")
    return lines


def append(path: Path, line: Line) -> Line:
    """Append one line, and be sure that it is on the disk before the next trial begins."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(_encode(line))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"The results cannot be written to {path} ({error.strerror}); free some space or choose"
            " another --out."
        ) from None
    return line


def _encode(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
