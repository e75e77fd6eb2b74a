"""Graphs, events and streams of the made-up accelerator of :mod:`.made_up_gpu`.

A graph is the list of operators that ran while it was captured. Replaying it runs them again on the
very same tensors with the very same numbers, as a CUDA graph does: a number that the host worked
out, or a buffer that was exchanged, stays what it was at capture. Unlike on a GPU, capturing also
runs the operators once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

Call = tuple[Callable[..., Any], Any, dict[str, Any], Any]  # operator, arguments, results


class MadeUpGraph:
    """``torch.cuda.CUDAGraph``; ``active`` is the one that is being captured."""

    active: MadeUpGraph | None = None
    replays = 0  # of all graphs

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def replay(self) -> None:
        if MadeUpGraph.active is not None:
            raise RuntimeError("a graph cannot be replayed while another one is captured")
        MadeUpGraph.replays += 1
        with torch._C.DisableTorchFunction(), torch.inference_mode():
            for func, args, kwargs, results in self.calls:
                _write(results, func(*args, **kwargs))


def _write(results: Any, fresh: Any) -> None:
    """Put ``fresh`` where the results lay at capture; views and in-place results lie there
    already.
    """
    if isinstance(results, torch.Tensor):
        if results.data_ptr() != fresh.data_ptr() or results.shape != fresh.shape:
            results.copy_(fresh)
    elif isinstance(results, (tuple, list)):
        for old, new in zip(results, fresh, strict=True):
            _write(old, new)


def record(func: Callable[..., Any], args: Any, kwargs: dict[str, Any], results: Any) -> None:
    """Called for every operator on the device."""
    if MadeUpGraph.active is not None:
        MadeUpGraph.active.calls.append((func, args, kwargs, results))


def refuse_while_capturing(what: str) -> None:
    """Raises RuntimeError, as a wait for the device does there during capture."""
    if MadeUpGraph.active is not None:
        raise RuntimeError(f"operation not permitted when stream is capturing: {what}")


@contextlib.contextmanager
def graph(made: MadeUpGraph, **_: Any) -> Iterator[None]:
    """``torch.cuda.graph``"""
    MadeUpGraph.active = made
    try:
        yield
    finally:
        MadeUpGraph.active = None


def event_class(waited: Callable[[str], None]) -> type:
    """``torch.cuda.Event`` whose waits are told to ``waited``. Everything queued is done at once,
    so its time is that of the host.
    """

    class MadeUpEvent:
        def __init__(self, enable_timing: bool = False) -> None:
            self.timing, self.at = enable_timing, 0.0

        def record(self, stream: Any = None) -> None:
            refuse_while_capturing("an event with timing")
            self.at = time.perf_counter()

        def synchronize(self) -> None:
            waited("synchronize of an event")

        def elapsed_time(self, end: Any) -> float:
            assert self.timing and end.timing and self.at and end.at
            return (end.at - self.at) * 1e3

    return MadeUpEvent
