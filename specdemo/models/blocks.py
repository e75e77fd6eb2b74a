"""Weights in the layouts of :mod:`.dots`, which this imports only where they are used: bfloat16,
and whole numbers of 4 or 8 bits with a scale for every 32 of a row.

4 bits are GGUF's Q4_1 (a minimum beside the scale), 8 bits its Q8_0. Weights that were expanded
from such a file get back the numbers the file has (of 8 bits nearly all, as bfloat16 has no more):
they are the nearest ones, and scale and minimum are the least squares of the 32 expanded weights,
which rounding to bfloat16 has moved a little.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from ..hardware import bf16_instructions
from .jobs import run

Bits = Literal[4, 8, 16]
LANES, GROUP = 16, 32  # as in dots
ALONE = 1 << 20  # products that one thread has done before another has woken up


class Numbers(NamedTuple):
    """Weights ``[out, in]`` as whole numbers: weight = number * scale + least; ``scale, least
    [out, in / 32]`` float32, ``least`` None where it is 0.
    """

    numbers: torch.Tensor
    scale: torch.Tensor
    least: torch.Tensor | None

    def weights(self) -> torch.Tensor:
        """float32 ``[out, in]``"""
        found = self.numbers.float().unflatten(-1, (-1, GROUP)) * self.scale[..., None]
        return (found if self.least is None else found + self.least[..., None]).flatten(-2)


class Blocks(NamedTuple):
    """A matrix as :func:`.dots.product` reads it."""

    kind: int
    weights: torch.Tensor
    scales: torch.Tensor | None
    out_features: int
    in_features: int

    @property
    def whole(self) -> bool:
        """Whether weights are whole numbers."""
        return self.scales is not None

    @property
    def row(self) -> tuple[int, int, int]:
        """Addresses of weights and scales, and the kind."""
        scales = 0 if self.scales is None else self.scales.data_ptr()
        return self.weights.data_ptr(), scales, self.kind


def usable(weight: torch.Tensor, dtype: torch.dtype, bits: Bits) -> bool:
    """Whether products of rows in ``dtype`` with ``weight [out, in]`` run as blocks here.

    In bfloat16 they are preferred where the processor has AVX512_BF16 and no AMX, whose tiles are
    faster for many rows.
    """
    out, size = weight.shape
    if weight.device.type != "cpu" or out % LANES or size % GROUP or not out or not size:
        return False
    found = bf16_instructions()
    if bits == 16:
        if dtype != torch.bfloat16 or found != ["AVX512_BF16"]:
            return False
    elif dtype not in (torch.bfloat16, torch.float32):
        return False
    try:
        from . import dots, jobs
        from .kernels import has_fma

        if not (dots.NATIVE if bits == 16 else has_fma()):
            return False
        jobs.prepare(dtype, bits < 16)
        return True
    except Exception:  # no Numba, or none for this processor
        return False


def to_numbers(weight: torch.Tensor, bits: Literal[4, 8]) -> Numbers:
    """The nearest whole numbers to ``weight [out, in]``, and their best scales."""
    w = weight.detach().float().unflatten(-1, (-1, GROUP))
    if bits == 8:
        scale = w.abs().amax(-1, keepdim=True) / 127
        for _ in range(2):  # the largest weight alone says less about the scale than all 32 do
            q = (w / _not_zero(scale)).round_().clamp_(-127, 127)
            scale = (q * w).sum(-1, keepdim=True) / _not_zero((q * q).sum(-1, keepdim=True))
        return Numbers(q.to(torch.int8).flatten(-2), scale[..., 0], None)
    low, high = w.amin(-1, keepdim=True), w.amax(-1, keepdim=True)
    q = ((w - low) / _not_zero((high - low) / 15)).round_().clamp_(0, 15)
    mean_q, mean_w = q.mean(-1, keepdim=True), w.mean(-1, keepdim=True)
    spread = (q - mean_q).square().sum(-1, keepdim=True)
    scale = ((q - mean_q) * (w - mean_w)).sum(-1, keepdim=True) / _not_zero(spread)
    least = mean_w - scale * mean_q
    return Numbers(q.to(torch.uint8).flatten(-2), scale[..., 0], least[..., 0])


def _not_zero(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 0, 1.0, x)


def pack(weight: torch.Tensor, bits: Bits) -> Blocks:
    """``weight [out, in]``, in a dtype of floats, as blocks; see :func:`usable`."""
    from .dots import BF16, INT4, INT8

    out, size = weight.shape
    if bits == 16:
        pairs = weight.detach().to(torch.bfloat16).reshape(-1, LANES, size // 2, 2)
        return Blocks(BF16, pairs.transpose(1, 2).contiguous(), None, out, size)
    q, scale, least = to_numbers(weight, bits)
    # [V, in / 32, 16]
    scales = scale.reshape(-1, LANES, size // GROUP).transpose(1, 2)
    if least is None:
        pairs = q.reshape(-1, LANES, size // 2, 2).transpose(1, 2)
        return Blocks(INT8, pairs.contiguous(), scales.contiguous(), out, size)
    leasts = least.reshape(-1, LANES, size // GROUP).transpose(1, 2)
    both = torch.stack((scales, leasts), 2).contiguous()
    # [V, 16, in / 32, 4 words, 4 numbers of a word, 2 of a pair]
    words = q.reshape(-1, LANES, size // GROUP, 4, 4, 2).to(torch.int32)
    parts = [words[:, :, :, :, i] << 4 * i for i in range(4)]
    words = (parts[0] + parts[1] + parts[2] + parts[3]).permute(0, 2, 3, 1, 4)
    signed = torch.where(words > 0x7FFF, words - 0x10000, words).to(torch.int16)
    return Blocks(INT4, signed.contiguous(), both, out, size)


def pair_sums(rows: int, size: int) -> int:
    """Floats of scratch memory that a product of ``rows [rows, size]`` takes of each thread."""
    return rows * size // GROUP


def multiply(x: torch.Tensor, by: Blocks) -> torch.Tensor:
    """``x [n, in]``, bfloat16 or float32 -> ``[n, out]``."""
    out = x.new_empty(len(x), by.out_features)
    if len(x):
        alone = out.numel() * by.in_features < ALONE
        weights, scales, kind = by.row
        fields = {
            "n": len(x), "size": by.in_features, "normed_at": x.data_ptr(), "head": weights,
            "head_scales": scales, "head_kind": kind, "head_outs": by.out_features,
            "logits_at": out.data_ptr(),
        }  # fmt: skip
        threads = 1 if alone else torch.get_num_threads()
        sums = pair_sums(len(x), by.in_features)
        run(fields, 1, sums, x.dtype, by.whole, threads, (x, out, by))
    return out
