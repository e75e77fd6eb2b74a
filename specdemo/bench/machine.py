"""Where a bench runs: how busy the machine is besides, and which commit of the code is measured."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

# psutil's other fields (guest, guest_nice, interrupt, dpc) are parts of these
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
_WAITING = ("idle", "iowait")
_OWN = ("user", "system", "children_user", "children_system")


class CpuMonitor:
    """How much of the machine's CPU time other processes used since this object was made."""

    def __init__(self) -> None:
        self._before = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """CPU seconds so far: of the machine in all, of it busy, and of this process and
        those it started.
        """
        machine, me = psutil.cpu_times(), psutil.Process()
        busy = sum(getattr(machine, name, 0.0) for name in _BUSY)
        waiting = sum(getattr(machine, name, 0.0) for name in _WAITING)
        own = 0.0
        for process in (me, *me.children(recursive=True)):
            with suppress(psutil.Error):  # it has ended; its parent counts it from then on
                times = process.cpu_times()
                own += sum(getattr(times, name, 0.0) for name in _OWN)
        return busy + waiting, busy, own

    def other_load(self) -> float | None:
        """Their share of all CPU time, 0 to 1; None where too little time went by."""
        now = self._read()
        total, busy, own = (a - b for a, b in zip(now, self._before, strict=True))
        return min(1.0, max(0.0, (busy - own) / total)) if total > 0 else None


def load_average() -> float | None:
    """The system's load average of the last minute; None on Windows, which keeps none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def commit() -> str | None:
    """The commit this code is at, with “+” if files differ from it; None outside a checkout."""
    try:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        return _git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(Path(__file__).parent), *words],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    ).stdout.strip()
