"""A drafter with random weights, shaped after its target."""

from __future__ import annotations

from typing import Any

import torch

from ..models.ar_drafter import ArDrafter, ArDrafterConfig
from ..models.block_drafter import BlockDrafter, BlockDrafterConfig
from ..models.dflash_layout import FORM
from ..models.text_drafter import block_network

TAPS = 5  # target layers whose outputs a block drafter reads (DFlash: 5, spread evenly)


def spread(count: int, first: int, last: int) -> list[int]:
    """``count`` whole numbers from first to last, evenly spaced and without repeats."""
    return sorted({round(first + i * (last - first) / max(count - 1, 1)) for i in range(count)})


def shape_of(target_config: Any, layers: int) -> dict[str, Any]:
    """The fields a drafter of ``layers`` layers shares with its target."""
    c = target_config
    rope = dict(
        getattr(c, "rope_parameters", None)
        or {"rope_type": "default", "rope_theta": getattr(c, "rope_theta", 10000.0)}
    )
    # where kinds of layers rotate differently, as those that see all
    rope = dict(rope.get("full_attention") or rope)
    return {
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": getattr(c, "num_key_value_heads", None) or c.num_attention_heads,
        "head_dim": getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_parameters": rope,
        "max_position_embeddings": c.max_position_embeddings,
        "vocab_size": c.vocab_size,
    }


def new_drafter(
    target: Any,
    kind: str,
    layers: int,
    block_size: int,
    draft_vocab: torch.Tensor | None,
    seed: int,
    mask_id: int | None = None,
    shape: str = "own",
) -> ArDrafter | BlockDrafter:
    """A drafter with random weights whose shape follows the target's; float32, on the CPU.

    Args:
        shape: of a block drafter, one of :data:`.recipes.BLOCK_SHAPES`.
    """
    config = target.config.get_text_config()
    torch.manual_seed(seed)
    vocab = None if draft_vocab is None else draft_vocab.to(torch.int32)
    if kind == "ar":
        has_norm = hasattr(target.get_decoder().layers[0].self_attn, "q_norm")
        return ArDrafter(
            ArDrafterConfig(**shape_of(config, layers), qk_norm=has_norm), vocab
        ).float()
    depth = config.num_hidden_layers
    form: dict[str, Any] = {
        "qk_norm": hasattr(target.get_decoder().layers[0].self_attn, "q_norm"),
        "context_projection": "own",
        "mask_embedding": "learned",
        "target_layer_ids": spread(TAPS, min(1, depth - 1), max(depth - 2, 0)),
    }
    if shape == "dflash":
        form |= FORM
    elif shape == "text":
        form |= {"context": "text", "context_projection": "shared", "target_layer_ids": []}
    made = BlockDrafterConfig(
        **shape_of(config, layers),
        block_size=block_size,
        mask_token_id=mask_id,
        num_target_layers=depth,
        **form,
    )
    return block_network(made)(made, vocab).float()
