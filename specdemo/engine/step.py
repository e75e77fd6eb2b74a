"""Which of the two steps a target's passes take: our fast one, or the general one through
transformers' own model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from transformers import PretrainedConfig

from .general.target import GeneralTarget
from .target import Target

AnyTarget = Target | GeneralTarget
StepKind = Literal["fast", "general"]

# Fields that only give sizes and ids, that the fast step reads, or that matter to training alone.
READ = frozenset(
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads"
    " num_key_value_heads head_dim max_position_embeddings rms_norm_eps tie_word_embeddings"
    " initializer_range use_cache pretraining_tp pad_token_id bos_token_id eos_token_id"
    " attention_dropout residual_dropout max_window_layers".split()
)


def _no(value: Any, config: Any) -> bool:
    return not value


def _silu(value: Any, config: Any) -> bool:
    return value == "silu"


def _rotation(value: Any, config: Any) -> bool:
    kinds = ("default", "linear", "llama3", "yarn")
    partial = (value or {}).get("partial_rotary_factor") or 1.0
    return (value or {}).get("rope_type", "default") in kinds and partial == 1.0


def _no_window(value: Any, config: Any) -> bool:
    return not value or not getattr(config, "use_sliding_window", True)


def _all_full(value: Any, config: Any) -> bool:
    return set(value or ()) <= {"full_attention"}


_COMMON: dict[str, Callable[[Any, Any], bool]] = {"hidden_act": _silu, "rope_parameters": _rotation}
_WINDOW: dict[str, Callable[[Any, Any], bool]] = {
    "use_sliding_window": _no,
    "sliding_window": _no_window,
    "layer_types": _all_full,
}
# model type -> the fields of its config that change its function, and whether a value is one that
# the fast step computes. (Seed-OSS has biases in q, k and v, as Qwen2 has.)
FAST: dict[str, dict[str, Callable[[Any, Any], bool]]] = {
    "llama": {**_COMMON, "attention_bias": _no, "mlp_bias": _no},
    "mistral": {**_COMMON, "sliding_window": _no_window},
    "qwen2": {**_COMMON, **_WINDOW},
    "qwen3": {**_COMMON, **_WINDOW, "attention_bias": _no},
    "seed_oss": {
        **_COMMON,
        "attention_bias": lambda value, config: True,
        "attention_out_bias": _no,
        "mlp_bias": _no,
    },
}


def why_not_fast(config: Any) -> str:
    """What the fast step does not compute of a target with this config, in words; empty: it may be
    tried. A field that a newer transformers adds is one of those.
    """
    rules = FAST.get(config.model_type)
    if rules is None:
        return f"model type {config.model_type}"
    common = PretrainedConfig().to_dict().keys()
    for name in type(config)().to_dict().keys() - common - READ:
        value = getattr(config, name, None)
        if name not in rules or not rules[name](value, config):
            return f"{name} {_short(value)}"
    return ""


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("rope_type", "of its own kind"))
    return ", ".join(sorted(set(map(str, value)))) if isinstance(value, list) else str(value)
