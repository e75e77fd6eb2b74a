"""CUDA graphs behind one function: a step goes in, something that repeats it comes out."""

from __future__ import annotations

from collections.abc import Callable

import torch

Step = Callable[[], None]
Capture = Callable[[Step], Step]

WARM_UPS = 3  # runs before capture, in which libraries choose kernels and allocate workspaces


def run_eagerly(step: Step) -> Step:
    """No capture: the step itself, operator by operator."""
    return step


class CudaCapture:
    """Captures steps into graphs that share one memory pool.

    A step must have no arguments, write its results into buffers that outlive it, and never wait.
    Capturing runs it a few times, so what it changes must be set afterwards.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        # 1) Warm up beside the stream everything else uses.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(self._stream)
        # 2) Capture. Other threads may use the GPU meanwhile.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            step()
        return graph.replay
