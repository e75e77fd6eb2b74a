"""DFlash's published layout, written: the form of a block drafter that other engines load.

Sources: github.com/z-lab/dflash (``config.json`` and tensors of z-lab/Qwen3-4B-DFlash-b16); read
again by :mod:`.layouts`, by vLLM, SGLang and llama.cpp.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch

from ..errors import UserError
from .block_config import BlockDrafterConfig
from .block_drafter import BlockDrafter

# a drafter of this form takes all else from the target
FORM: dict[str, Any] = {"qk_norm": True, "context_projection": "shared", "mask_embedding": "token"}


def has_dflash_form(config: Any) -> bool:
    """Whether a drafter of this config is one whose layers and mask are DFlash's: context and block
    share projections, queries and keys are normed, the mask is a row of the target's embedding.
    """
    return isinstance(config, BlockDrafterConfig) and all(
        getattr(config, name) == value for name, value in FORM.items()
    )


def why_not_dflash(net: Any) -> str | None:
    """What of a drafter DFlash's layout cannot say, in words behind “it has”; None: nothing."""
    if not isinstance(net, BlockDrafter):
        return "no block: it is autoregressive"
    c = net.config
    unsaid = {
        "no features of the target: it reads the text alone": net.reads_text,
        "projections of its own for the context": c.context_projection != "shared",
        "no norm of queries and keys": not c.qk_norm,
        "a learned vector for the mask": c.mask_embedding != "token",
        "a Markov head of SpecDemo's own kind": c.markov_rank > 0,
        "a draft vocabulary of its own": net.draft_vocab is not None,
        f"a window of {c.context_window} tokens on its context": c.context_window is not None,
        "biases in q, k and v alone": c.biases == "q, k, v",
        "heads, rows or an attention of another published layout (DSpark's, say, whose folder"
        " other engines load as it is)": not net.is_plain,
    }
    return next((words for words, found in unsaid.items() if found), None)


def is_dflash(net: Any) -> TypeGuard[BlockDrafter]:
    """Whether DFlash's layout says everything about ``net``."""
    return why_not_dflash(net) is None


def check_dflash(net: Any, name: str) -> None:
    """Raises UserError: DFlash's layout cannot say everything about ``net``."""
    if why := why_not_dflash(net):
        raise UserError(
            f"{name} has {why}, which DFlash's published layout cannot say; train one that other"
            " engines load with “python -m specdemo train --shape dflash”."
        )


def dflash_config(config: BlockDrafterConfig) -> dict[str, Any]:
    """The ``config.json`` of a drafter that :func:`is_dflash`."""
    rope = dict(config.rope_parameters)
    theta, scaled = rope.pop("rope_theta"), rope.get("rope_type", "default") != "default"
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": config.block_size,
        "dflash_config": {
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
        },
        "num_target_layers": config.num_target_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": theta,
        "rope_scaling": rope if scaled else None,
        "attention_bias": config.biases == "q, k, v, o",
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "layer_types": list(config.layer_types),
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": config.num_hidden_layers,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }


def dflash_tensors(net: BlockDrafter) -> dict[str, torch.Tensor]:
    """Its tensors by their published names, which are ours; bf16, on the CPU."""
    return {
        name: tensor.detach().to("cpu", torch.bfloat16, copy=True).contiguous()
        for name, tensor in net.state_dict().items()
    }
