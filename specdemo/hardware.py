"""The machine: a clock that waits for the device, the processor's name and bf16 instructions."""

from __future__ import annotations

import os
import platform
import time

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


def device_name(device: torch.device) -> str:
    """What a device is, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {torch.get_num_threads()} threads"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        lines = []
    name = lines[0].split(":", 1)[1].strip() if lines else ""
    flags = bf16_instructions()
    return " ".join(
        [
            name or platform.processor() or platform.machine(),
            *(["with " + ", ".join(flags)] if flags else []),
            f"({os.cpu_count()} cores)",
        ]
    )
