"""What the rows of one compiled pass read of the cache."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .decoder import KVCache

LANES = 16  # as in kernels, which is imported only where it is used


class Reads(NamedTuple):
    """What the rows of one pass read of the cache.

    Attributes:
        first, end: the slots read, without ``end``.
        tail: slots before it are seen by all rows.
        hidden: float32 ``[end - tail, lanes]`` from :func:`hide` for the slots from ``tail`` on;
            None: seen by all rows.
        chunks: int64 ``[n]``, where the layers read far slots in chunks (see
            :attr:`.compiled.CompiledLayers.far_step`): how many of the first ones each row reads
            beside these slots.
        far_end: where not 0, slots before it are read by PyTorch's flash kernel, with the additive
            mask ``far [G * n, far_end]``, and join the others by their log-sum-exp; ``no_far [G *
            n]`` marks queries that read nothing there.
    """

    first: int
    tail: int
    end: int
    hidden: Tensor | None = None
    chunks: Tensor | None = None
    far_end: int = 0
    far: Tensor | None = None
    no_far: Tensor | None = None


class PassRows(NamedTuple):
    """The rows of one compiled pass.

    Attributes:
        x: ``[n, H]`` embedded rows, overwritten.
        cos, sin: ``[n, 1, D]`` or ``[n, D]``, as for :class:`.decoder.DecoderLayer`.
        start: the slot of the first row; the rows' keys and values are stored from there on.
    """

    x: Tensor
    cos: Tensor
    sin: Tensor
    cache: KVCache
    start: int
    reads: Reads


def lanes(rows: int) -> int:
    """Lanes of a vector loop over ``rows`` rows of all heads that share a key head."""
    return -(-rows // LANES) * LANES


def hide(seen: Tensor, group: int) -> Tensor:
    """``seen [n, slots]`` bool as numbers to add to scores: 0 or −inf, float32 ``[slots, lanes]``,
    for ``group`` query heads that share a key head.
    """
    n, slots = seen.shape
    hidden = torch.zeros(slots, lanes(group * n))
    columns = torch.zeros(slots, n).masked_fill_(~seen.T, float("-inf"))
    hidden[:, : group * n] = columns.repeat(1, group)
    return hidden
