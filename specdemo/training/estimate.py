"""What a training run will take, shown before it starts: arithmetic, memory, and a bound from this
device's own matrix speed.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch

from ..hardware import clock_now
from .settings import Settings

MATRIX_SIZE = {"cuda": 4096, "cpu": 768}  # large enough to reach the device's full speed


def matrix_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations a second of one plain square matrix product here and now (a share
    of this is what a run can reach).
    """
    size = MATRIX_SIZE["cuda" if device.type == "cuda" else "cpu"]
    a = torch.randn(size, size, device=device).to(dtype)
    best = float("inf")
    for _ in range(4):
        began = clock_now(device)
        a @ a
        best = min(best, clock_now(device) - began)
    return 2 * size**3 / best


def step_flops(target: Any, net: Any, settings: Settings, vocab_size: int, length: int) -> float:
    """Multiplications and additions of one step, counted as 2 a weight and token (6 with
    gradients), attention left out.

    ``vocab_size``: size of the draft vocabulary; ``length``: tokens a row.
    """
    body = sum(p.numel() for p in target.get_decoder().layers.parameters())
    layers = sum(p.numel() for p in net.layers.parameters())
    width, tokens = net.config.hidden_size, settings.batch * length
    soft = 2 * vocab_size * width if settings.mix else 0
    if settings.kind == "ar":
        return tokens * (
            6 * layers
            + 4 * vocab_size * width
            + soft
            + (2 * body / settings.reuse if settings.mix else 0)
        )
    if settings.kind == "diffusion-lm":  # about half of a row is masked; a block is less
        frozen = 4 if net.config.lora_rank else 6
        return tokens * settings.anchors * (frozen * layers + 0.25 * 6 * vocab_size * width)
    lengths = settings.lengths or (net.block_size,)
    rows = settings.batch * settings.anchors * sum(lengths) / len(lengths)
    context, reading = _context_weights(net), 2 * body / settings.reuse
    if not net.layer_ids and not soft:
        reading = 0
    if settings.kind == "markov":  # the layers are only read, and so is the head, once
        return tokens * (reading + 2 * context) + rows * (
            2 * layers
            + 0.6 * (2 * vocab_size * width + 6 * sum(p.numel() for p in net.markov.parameters()))
        )
    # about 0.6 of the slots carry loss
    return tokens * (reading + 6 * context) + rows * (
        6 * layers + 0.6 * (4 * vocab_size * width + soft)
    )


def _context_weights(net: Any) -> int:
    """Weights that every token of the text goes through."""
    if net.reads_text:
        return sum(p.numel() for p in net.layers.parameters())
    return net.fc.weight.numel() + sum(
        p.weight.numel() for layer in net.layers for p in layer.self_attn.context_projections()
    )


def memory_bytes(target: Any, net: Any, settings: Settings, vocab_size: int, length: int) -> float:
    """A generous count: what is loaded (on a CPU the whole process), gradient and two moments of
    each weight, activations kept for the backward pass, one chunk of logits.
    """
    weights = [*target.parameters(), *net.parameters()]
    loaded = (
        sum(p.numel() * p.element_size() for p in weights)
        if weights[0].is_cuda
        else psutil.Process().memory_info().rss
    )
    fixed = loaded + sum(12 * p.numel() for p in net.parameters() if p.requires_grad)
    c = net.config
    blocks = settings.anchors * max(settings.lengths or (getattr(net, "block_size", 1),))
    each = {"ar": length, "diffusion-lm": settings.anchors * length}.get(settings.kind, blocks)
    rows = settings.batch * each
    # probabilities of a block's slots over their row, in bf16; others never hold them whole
    seen = 0 if settings.kind in ("ar", "diffusion-lm") else 2 * c.num_attention_heads * length
    row = len(net.layers) * (
        24 * 4 * c.hidden_size
        + 10 * c.intermediate_size
        + 8 * c.num_attention_heads * c.head_dim
        + seen
    )
    # and their float32 scores, a few copies of one layer's
    return fixed + rows * (row + 6 * seen) + 5 * 4 * (2**22 // vocab_size) * vocab_size


def estimate(
    loaded: Any,
    net: Any,
    settings: Settings,
    vocab_size: int,
    length: int,
    speed: float,
    kept_bytes: int = 0,
) -> str:
    """A sentence for a person about to wait; ``speed`` from :func:`matrix_speed`, ``kept_bytes`` of
    the target's readings.
    """
    flops = step_flops(loaded.model, net, settings, vocab_size, length)
    need = memory_bytes(loaded.model, net, settings, vocab_size, length) + kept_bytes
    budget = (
        f"{settings.steps} step{'s' * (settings.steps > 1)}"
        if settings.steps
        else f"{settings.minutes:g} minutes"
    )
    least = flops / speed
    what = (
        f"at least {max(settings.steps * least, 1):.0f} s"
        if settings.steps
        else f"at most {60 * settings.minutes / least:.0f} steps"
    )
    return (
        f"Training {settings.kind} for {budget} on {loaded.device}:"
        f" {sum(p.numel() for p in net.parameters() if p.requires_grad) / 1e6:.1f} M weights, about"
        f" {need / 2**30:.1f} GiB of memory; {flops / 1e12:.2f} TFLOP a step, {what} at the"
        f" {speed / 1e12:.1f} TFLOP/s a plain matrix product reaches here now (expect a third of"
        " that)."
    )
