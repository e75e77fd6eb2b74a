"""Fields of a target's config that are refused by name: numbers that none can have, and what would
change its function but is computed by nobody, as transformers passes over keys that a model type
does not have.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

from ..errors import UserError, shown

# What other model types compute by fields of these names, and the values that change nothing.
CHANGES: dict[str, tuple[Any, ...]] = {
    "attention_multiplier": (),
    "attn_logit_softcapping": (0,),
    "attention_chunk_size": (0,),
    "clip_qkv": (0,),
    "embedding_multiplier": (1,),
    "final_logit_softcapping": (0,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "no_rope_layers": ([],),
    "parallel_attn": (False,),
    "qk_layernorm": (False,),
    "qk_norm": (False,),
    "residual_multiplier": (1,),
    "scale_depth": (1,),
    "scale_emb": (1,),
    "use_mup": (False,),
    "use_parallel_residual": (False,),
    "use_qk_norm": (False,),
}


def check_fields(config: Any, name: str) -> None:
    """Refuse what no text can be computed from, or would be computed otherwise than it says.

    Args:
        config: of the target's language model. name: how to call the target.

    Raises:
        UserError: a field is odd, or nobody reads it.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and (type(positions) is not int or positions < 1):
        raise UserError(
            f"{name} has max_position_embeddings {shown(positions)}; it must be a whole number from"
            " 1; correct its config.json."
        )
    values = config.to_dict()
    for key in sorted(values.keys() & CHANGES.keys()):
        value = values[key]
        if value is not None and value not in CHANGES[key] and not _is_read(key, type(config)):
            raise UserError(
                f"{name} has {key} {shown(value)}, which models of type “{config.model_type}” do"
                " not compute, so its text would be another model's; correct its config.json, or"
                " choose another target."
            )


def _is_read(key: str, form: Any) -> bool:
    """Whether configs of the class ``form`` have a field ``key``, declared or made."""
    declared = {*inspect.signature(form.__init__).parameters, *form.attribute_map}
    if key in declared | {*getattr(form, "__dataclass_fields__", ())}:
        return True
    with suppress(Exception):  # of a class without defaults, whose declarations have to do
        return key in form().to_dict()
    return False


def quantized_as(config: Any) -> str:
    """How the weights are quantized by the config's own words; empty if they are not."""
    said = getattr(config, "quantization_config", None)
    if said is None:
        return ""
    method = said.get("quant_method") if isinstance(said, dict) else said.quant_method
    return str(getattr(method, "value", method) or "by an unknown method")
