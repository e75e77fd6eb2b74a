"""What passes cost, measured on demand. (The target's own cost curve is measured at load, see
:mod:`.load`.)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch


def draft_pass(
    engine: Any,
    net: Any = None,
    shapes: Sequence[tuple[int, int]] = (),
    catch_up: int = 0,
    context: int = 160,
    repeats: int = 20,
) -> dict[str, float]:
    """Milliseconds of one pass of a block drafter and its head, by ``blocks x slots``.

    Args:
        net: bound to the engine's target (default: the pair's own). shapes: (blocks, slots)
            (default: blocks of 8 and of all its slots, and four of those at once).
        catch_up: also take in the target's features of that many new tokens, as every round must.
    """
    from ..models.drafters import load_drafter

    net = net or load_drafter(engine.loaded.pair, "block", engine.loaded)
    out = {}
    with torch.inference_mode():
        cache = net.new_cache(context + 64)
        features = torch.randn(
            context,
            len(net.layer_ids) * engine.target.config.hidden_size,
            dtype=engine.target.dtype,
            device=engine.target.device,
        )
        net.extend(cache, features, 0)

        def step(ids):
            net.extend(cache, features[:catch_up], context - catch_up)
            return net.logits(net.hidden(ids, context, cache)[:, 1:])

        for blocks, slots in shapes or ((1, 8), (1, net.block_size), (4, net.block_size)):
            ids = torch.full((blocks, slots), -1, device=engine.target.device)
            ids[:, 0] = 11
            out[f"{blocks}x{slots}"] = median_ms(engine, lambda ids=ids: step(ids), repeats)
    return out


def median_ms(engine: Any, step: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds of ``step`` after three warm-up calls."""
    for _ in range(3):
        step()
    samples = []
    for _ in range(repeats):
        began = engine.now()
        step()
        samples.append((engine.now() - began) * 1e3)
    return statistics.median(samples)
