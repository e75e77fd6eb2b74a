"""What a pass has to read and compute, and how fast this machine reads and computes: the least time
that a pass of so many rows can take (the roofline model of Williams, Waterman and Patterson, 2009).

A pass reads every weight once, however many rows it has; each row computes with every weight. So
rows cost next to nothing until computing takes longer than reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..events import Roofline
from ..hardware import clock_now
from ..models.shapes import cache_values
from .step import AnyTarget
from .target import Target

TURNS = 4  # the fastest counts: whatever else runs only ever slows one down
LEAST = 1e-3  # seconds of one measurement; sizes grow until it takes them, or are the largest
READ_BYTES = 1 << 28, 1 << 31  # the smallest and the largest: more than any cache holds
SIDE = 1024, 8192  # of the square matrices that are multiplied


class Speeds(NamedTuple):
    """Bytes that this machine reads in a second, and operations (a product and its sum are two) of
    a plain matrix product.
    """

    bytes_per_second: float
    flops_per_second: float


@torch.inference_mode()
def machine_speeds(device: torch.device, dtype: torch.dtype) -> Speeds | None:
    """Measured with torch's own sum and product, with the threads in force, in about a tenth of a
    second; None on a device of another kind, or where memory is short.
    """
    if device.type not in ("cpu", "cuda"):
        return None
    try:
        size, most = READ_BYTES
        while (reading := _reading(device, size)) < LEAST and size < most:
            size *= 2
        side, widest = SIDE
        while (computing := _computing(device, dtype, side)) < LEAST and side < widest:
            side *= 2
    except RuntimeError:  # of which torch.OutOfMemoryError is one
        return None
    return Speeds(size / reading, 2 * side**3 / computing)


def _reading(device: torch.device, size: int) -> float:
    many = torch.ones(size // 4, device=device)
    return _seconds(device, many.sum)


def _computing(device: torch.device, dtype: torch.dtype, side: int) -> float:
    matrix = torch.ones(side, side, dtype=dtype, device=device)
    return _seconds(device, lambda: matrix @ matrix)


def _seconds(device: torch.device, call: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(TURNS):
        began = clock_now(device)
        call()
        least = min(least, clock_now(device) - began)
    return least


def roofline(target: AnyTarget, speeds: Speeds | None, context: int) -> Roofline | None:
    """What a pass behind ``context`` tokens reads and computes; None where passes run through
    transformers' own model, of which not all weights may take part.
    """
    if speeds is None or not isinstance(target, Target):
        return None
    shape, layers = target.shape, len(target.layers)
    products = [target.head]
    for layer in target.layers:
        products += [layer.qkv, layer.out, layer.gate_up, layer.down]
    item = torch.empty(0, dtype=target.dtype).element_size()
    values = cache_values(layers, shape.kv_heads, shape.head_dim)
    attention = 4 * layers * shape.heads * shape.head_dim * context
    return {
        "pass_bytes": sum(product.stored_bytes for product in products) + values * item * context,
        "row_flops": sum(2 * p.in_features * p.out_features for p in products) + attention,
        "bytes_per_second": speeds.bytes_per_second,
        "flops_per_second": speeds.flops_per_second,
    }
