"""Measuring what passes cost here: the target's own cost curve and its trusted widths, at load, and
passes of a drafter, on demand.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from ..hardware import clock_now
from .attention import AttentionKind, LayoutInvariantAttention
from .cost import VERIFY_WIDTH, WIDTHS, CostModel
from .target import Target

if TYPE_CHECKING:
    from ..models.block_drafter import BlockDrafter
    from .engine import Engine

Pass = tuple[AttentionKind, int]  # kind of attention, rows


# two of a pass's turns agree within this, else the least of them is not yet believed
AGREEMENT = 1.05
# nor is a pass that seems dearer than this times a wider one, to which it could be padded
NARROW_EXCESS = 1.25


@torch.inference_mode()
def calibrate(
    target: Target, repeats: int = 7, seconds: float = 4.0, patience: float = 16.0
) -> CostModel:
    """Measure the cost of every width and find the widths that agree bit for bit.

    The widths take turns, so that a slow moment hits them all; no third turn begins after
    ``seconds``. The least of a width's turns counts: whatever else runs on the machine while it
    loads, a browser that draws for one, only ever adds to a pass, and not to all of them in
    proportion. Every speed-up rests on these figures, so what looks disturbed is measured on for up
    to ``patience`` seconds more.
    """
    prompt = _ids(target, 37, 101, 160)  # long enough for every part of the attention to work
    cache = target.new_cache(len(prompt) + 2 * WIDTHS[-1])
    target.prefill(cache, prompt)
    samples: dict[Pass, list[float]] = {("layout_invariant", width): [] for width in WIDTHS}
    samples["masked", 1] = []

    def now() -> float:
        return clock_now(target.device)

    def measure(kind: AttentionKind, width: int) -> float:
        began = now()
        nodes = 1 if width > 1 else 0
        logits, _ = target.verify(
            cache, prompt[0], prompt[1:2][:nodes], [-1][:nodes], width, attention=kind
        )
        logits.max(-1).indices.tolist()
        return (now() - began) * 1e3

    # 1) Every pass in turn; the first turn only warms up.
    started = now()
    for turn in range(repeats + 1):
        if turn > 2 and now() - started > seconds:
            break
        for one, taken in samples.items():
            ms = measure(*one)
            if turn:
                taken.append(ms)
    # 2) What looks disturbed, again.
    while (doubtful := _doubtful(samples)) and now() - started < seconds + patience:
        for one in doubtful:
            samples[one].append(measure(*one))
    # 3) The least counts; on a machine that was never quiet, at least no more than a wider pass.
    ms_of = {width: min(samples["layout_invariant", width]) for width in WIDTHS}
    for kind, width in doubtful:
        if kind == "layout_invariant":
            ms_of[width] = min(ms for wider, ms in ms_of.items() if wider >= width)
    return CostModel(ms_of, min(samples["masked", 1]), equal_widths(target))


def _doubtful(samples: dict[Pass, list[float]]) -> list[Pass]:
    """Passes whose least turn no second one confirms, or which seem dearer than a wider pass."""
    least = {one: sorted(taken)[:2] for one, taken in samples.items()}
    return [
        one
        for one, (first, second) in least.items()
        if second > AGREEMENT * first
        or first > NARROW_EXCESS * min(ms for (_, w), (ms, _) in least.items() if w >= one[1])
    ]


def equal_widths(target: Target) -> list[int]:
    """Widths whose logits equal, bit for bit, those of ``VERIFY_WIDTH`` rows, however the rows are
    shared out between passes.

    Three tokens behind a prompt that ends just before the attention is first cut in two
    (``LayoutInvariantAttention.SHORT``) are read one a pass, as one chain, and as a tree beside a
    branch that is rejected.
    """
    text = _ids(target, 91, 7, 3)
    prompt = _ids(target, 53, 29, LayoutInvariantAttention.SHORT - 2, spare=len(text))
    cache = target.new_cache(len(prompt) + len(text) + WIDTHS[-1])
    target.prefill(cache, prompt)

    def steps(width: int) -> torch.Tensor:
        cache.rollback(len(prompt))
        rows = []
        for token in text:
            rows.append(target.verify(cache, token, [], [], width)[0][0])
            cache.commit([])
        return torch.stack(rows)

    def block(width: int) -> torch.Tensor:
        cache.rollback(len(prompt))
        return target.verify(cache, text[0], text[1:], [-1, 0], width)[0]

    def tree(width: int) -> torch.Tensor:
        cache.rollback(len(prompt))
        return target.verify(cache, text[0], [*prompt[:2], *text[1:]], [-1, 0, -1, 2], width)[0][
            [0, 3, 4]
        ]

    reference = block(VERIFY_WIDTH)

    def agrees(width: int) -> bool:
        return (
            torch.equal(steps(width), reference)
            and (width < 3 or torch.equal(block(width), reference))
            and (width < 5 or torch.equal(tree(width), reference))
        )

    return [w for w in WIDTHS if w == VERIFY_WIDTH or agrees(w)]


def _ids(target: Target, step: int, first: int, count: int, spare: int = 0) -> list[int]:
    """Arbitrary token ids, no more than leave room for ``spare`` and the widest pass."""
    return [
        (step * i + first) % (target.vocab_size - 1)
        for i in range(min(count, target.max_positions - spare - WIDTHS[-1]))
    ]


def draft_pass_ms(
    engine: Engine,
    net: BlockDrafter | None = None,
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
    if net is None:
        net = _block_drafter(engine)
    device = engine.target.device
    out: dict[str, float] = {}
    with torch.inference_mode():
        cache = net.new_cache(context + 64)
        features = torch.randn(
            context,
            len(net.layer_ids) * engine.target.config.hidden_size,
            dtype=engine.target.dtype,
            device=device,
        )
        net.extend(cache, features, 0)

        def step(ids: torch.Tensor) -> torch.Tensor:
            net.extend(cache, features[:catch_up], context - catch_up)
            return net.logits(net.hidden(ids, context, cache)[:, 1:])

        for blocks, slots in shapes or ((1, 8), (1, net.block_size), (4, net.block_size)):
            ids = torch.full((blocks, slots), -1, device=device)
            ids[:, 0] = 11
            out[f"{blocks}x{slots}"] = median_ms(device, partial(step, ids), repeats)
    return out


def _block_drafter(engine: Engine) -> BlockDrafter:
    from ..models.block_drafter import BlockDrafter
    from ..models.drafters import load_drafter

    net = load_drafter(engine.loaded.pair, "block", engine.loaded)
    assert isinstance(net, BlockDrafter)  # the kind decides the class
    return net


def median_ms(device: torch.device, step: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of ``step`` on ``device`` after three warm-up calls."""
    for _ in range(3):
        step()
    samples = []
    for _ in range(repeats):
        began = clock_now(device)
        step()
        samples.append((clock_now(device) - began) * 1e3)
    return statistics.median(samples)
