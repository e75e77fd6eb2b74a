"""The machine: a clock that waits for the device, the processor's name and instructions, the
threads that may compute, and what else runs.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import torch

_BF16_CHECKS = {"AMX": "_is_amx_tile_supported", "AVX512_BF16": "_is_avx512_bf16_supported"}


def clock_now(device: torch.device) -> float:
    """Seconds of a monotonic clock, after everything queued on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def bf16_instructions() -> list[str]:
    """The instruction sets by which this CPU computes in bf16 natively; empty if it cannot."""
    return [
        name for name, check in _BF16_CHECKS.items() if getattr(torch.cpu, check, lambda: False)()
    ]


def device_name(device: torch.device, threads: int | None = None) -> str:
    """What a device is, in words; ``threads`` that compute there (default: those in force now)."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {threads or torch.get_num_threads()} threads"


def cpu_facts() -> str:
    """What decides how fast this CPU computes, and with which bits: its name and instructions."""
    facts = [_cpu_line("model name") or platform.processor() or platform.machine()]
    return " ".join([*facts, _cpu_line("flags"), torch.backends.cpu.get_cpu_capability()])


def _cpu_line(name: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            line = next((line for line in file if line.startswith(name)), "")
    except OSError:
        return ""
    return line.partition(":")[2].strip()


def _cpu_name() -> str:
    name = _cpu_line("model name")
    flags = bf16_instructions()
    return " ".join(
        [
            name or platform.processor() or platform.machine(),
            *(["with " + ", ".join(flags)] if flags else []),
            f"({os.cpu_count()} cores)",
        ]
    )


# -- threads and cores -----------------------------------------------------------------------------


def thread_counts(device: torch.device, most: int | None = None) -> list[int]:
    """How many threads passes may take there, the most first: torch's own number (or ``most``), but
    no more than the cores that this process may use; one fewer, for where another process keeps a
    core busy; and half.
    """
    most = min(most or torch.get_num_threads(), usable_cores())
    if device.type != "cpu":
        return [most]
    return sorted({most, max(1, most - 1), max(1, most // 2)}, reverse=True)


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores by affinity and, on Linux, by the CPU quota of the process's control group."""
    cores = len(_own_cores()) or os.cpu_count() or 1
    quota = _quota(cgroups)
    return cores if quota is None else max(1, min(cores, int(quota)))


def _own_cores() -> set[int]:
    """Empty where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _quota(cgroups: Path, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores' worth of time that the control groups of this process allow, the least of them; None
    without a limit. Version 2 (``cpu.max``) and version 1 (``cpu.cfs_quota_us``).
    """
    try:
        paths = [line.rstrip("\n").split(":", 2)[2] for line in own.read_text().splitlines()]
    except (OSError, IndexError):
        paths = []
    limits = []
    for root in (cgroups, cgroups / "cpu"):
        folders = {root}
        for path in paths:
            folder = root / path.lstrip("/")
            folders |= {folder, *folder.parents}
        for folder in folders:
            if folder == root or root in folder.parents:
                limits.append(_limit(folder))
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        cores = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max": no limit
        return None
    return cores if cores > 0 else None


class OtherWork:
    """What other processes do on this process's cores, by Linux's own account."""

    def __init__(self, stat: Path = Path("/proc/stat")):
        self.stat, self._cores = stat, _own_cores()
        self._last = self._read()

    def cores(self) -> float | None:
        """How many cores others have kept busy since the last call (or since this was made); None
        where the system does not say, or after too short a time to tell.
        """
        before, now = self._last, self._read()
        if before is None or now is None or now[0] - before[0] < 0.5:
            return None
        self._last = now
        return max(0.0, (now[1] - before[1]) / (now[0] - before[0]))

    def start(self) -> None:
        """What was until now no longer counts."""
        self._last = self._read()

    def _read(self) -> tuple[float, float] | None:
        """Seconds, and seconds of those cores that went to other processes."""
        try:
            rows = [line.split() for line in self.stat.read_text().splitlines()]
            busy = sum(
                sum(map(int, row[1:9])) - int(row[4]) - int(row[5])  # without idle, waiting
                for row in rows
                if row and row[0][:3] == "cpu" and row[0][3:].isdecimal()
                if not self._cores or int(row[0][3:]) in self._cores
            )
            ticks = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        return time.monotonic(), busy / ticks - time.process_time()
