"""A pass of :mod:`.whole_pass` as the numbers that it is handed, and the threads that run it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..interrupts import interrupt_after
from .team import TEAM

NO_LAYER = torch.zeros(32, dtype=torch.int64)  # of a pass without layers, read but not used


def like_of(dtype: torch.dtype) -> Any:
    """A zero of the type in memory, as :mod:`.kernels` takes it."""
    import numpy as np

    return np.uint16(0) if dtype == torch.bfloat16 else np.float32(0)


def numbers_of(whole: bool) -> Any:
    """What says to :func:`.whole_pass.run_pass` that weights are whole numbers."""
    import numpy as np

    return np.int8(0) if whole else None


@cache
def prepare(dtype: torch.dtype, whole: bool) -> None:
    """Compile passes for rows of that type, and weights that are whole numbers or are not, before
    several threads ask for it.
    """
    from numba import float64, int64, typeof

    from .whole_pass import run_pass

    of_rows, of_weights = typeof(like_of(dtype)), typeof(numbers_of(whole))
    with interrupt_after():
        run_pass.compile((int64, int64, float64, float64, of_rows, of_weights))


def run(
    fields: dict[str, int],
    stages: int,
    floats: int,
    dtype: torch.dtype,
    whole: bool,
    threads: int,
    hold: object,
    eps: float = 0.0,
    scale: float = 0.0,
) -> None:
    """Run a pass to its end.

    Args:
        fields: of :data:`.whole_pass.FIELDS`, without counters and scratch memory; 0 otherwise.
        floats: of scratch memory for each thread.
        whole: weights are whole numbers; see :func:`prepare`.
        hold: what must stay in memory until every thread is done with it.
    """
    from .whole_pass import COUNTERS, FIELDS, run_pass

    skip = -(-floats // 16) * 64  # bytes, so that each thread's begins on a cache line
    counters = torch.zeros(COUNTERS * stages, dtype=torch.int64)
    scratch = torch.empty(threads * skip + 64, dtype=torch.uint8)
    places = {
        "counters_at": counters.data_ptr(),
        "scratch_at": -(-scratch.data_ptr() // 64) * 64,
        "scratch_bytes": skip,
    }
    if "layers_at" not in fields:
        places["layers_at"] = NO_LAYER.data_ptr()
    every = fields | places
    job = torch.tensor([every.get(name, 0) for name in FIELDS], dtype=torch.int64)
    job_at, like, numbers = job.data_ptr(), like_of(dtype), numbers_of(whole)

    def work(thread: int, held: object = (hold, counters, scratch, job)) -> None:
        run_pass(job_at, thread, eps, scale, like, numbers)

    TEAM.share(work, threads)
