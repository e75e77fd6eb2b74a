"""Who sees whom in a block drafter's pass: the context before the anchor, and the own block."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch

WindowFrom = Literal["row", "anchor"]


class Sight(NamedTuple):
    """What the rows of one layer see.

    Attributes:
        window: of a sliding layer; None: everything.
        causal: of its block a row sees only itself and the slots before it.
        window_from: where a window ends. ``row``: with each row, which sees ``window`` positions,
            its own among them, and as many behind it (z-lab). ``anchor``: with the anchor, before
            which every row sees ``window`` positions, and its whole block (speculators).
    """

    window: int | None = None
    causal: bool = False
    window_from: WindowFrom = "row"

    def sees(self, relative: torch.Tensor, width: int) -> torch.Tensor:
        """bool ``[width, K]``: which keys the slots of a block see, for keys at positions
        ``relative [K]`` to the anchor (negative: context; 0 to ``width - 1``: the block; others are
        seen by none).
        """
        slot = torch.arange(width, device=relative.device)[:, None]
        key = relative[None]
        context, block = key < 0, (key >= 0) & (key < width)
        if self.causal:
            block = block & (key <= slot)
        if self.window is None:
            return (context | block).expand(width, -1)
        if self.window_from == "anchor":
            return ((context & (key >= -self.window)) | block).expand(width, -1)
        near = (slot - key < self.window) & (key - slot < self.window)
        return (context | block) & near


FULL = Sight()


def sights(config: Any) -> list[Sight]:
    """One per layer of a ``BlockDrafterConfig``."""
    return [
        Sight(
            config.sliding_window if kind == "sliding_attention" else None,
            causal,
            config.window_from,
        )
        for kind, causal in zip(config.layer_types, config.causal, strict=True)
    ]


def block_mask(
    sight: Sight, context: torch.Tensor, batch: int, width: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What the rows of ``batch`` blocks of ``width`` slots see, None for everything.

    Args:
        context: ``[c]`` positions of the context relative to the anchor.

    Returns:
        Of the context bool ``[batch * width, c]``, of the blocks side by side bool ``[batch *
        width, batch * width]``.
    """
    of_context = None
    if sight.window is not None:
        seen = sight.sees(context, width)
        of_context = None if bool(seen.all()) else seen.repeat(batch, 1)
    slots = torch.arange(width, device=context.device)
    inside = sight.sees(slots, width)
    if batch > 1:
        inside = torch.block_diag(*[inside.to(torch.uint8)] * batch).bool()
    return of_context, None if bool(inside.all()) else inside


class Masks(NamedTuple):
    """What the rows of one pass see, as :func:`block_mask` gives it."""

    of_context: torch.Tensor | None
    of_block: torch.Tensor | None


def whole_mask(masks: Masks, context: int, n: int, group: int) -> torch.Tensor | None:
    """One mask ``[group * n, context + n]`` of both parts, None where everything is seen."""
    of_context, of_block = masks
    if of_context is None and of_block is None:
        return None
    device = (of_block if of_context is None else of_context).device  # type: ignore[union-attr]
    if of_context is None:
        of_context = torch.ones(n, context, dtype=torch.bool, device=device)
    if of_block is None:
        of_block = torch.ones(n, n, dtype=torch.bool, device=device)
    return torch.cat((of_context, of_block), 1).repeat(group, 1)
