"""Tiny random models of every family that transformers maps to a causal language model."""

from __future__ import annotations

import inspect

import torch

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "dim": 64,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "n_inner": 96,
    "decoder_ffn_dim": 96,
    "encoder_ffn_dim": 96,
    "num_hidden_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "decoder_layers": 2,
    "encoder_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 16,
    "rotary_dim": 8,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "max_seq_len": 512,
    "sliding_window": 24,
    "attention_chunk_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "expert_dim": 32,
    "first_k_dense_replace": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 128,
    "num_kv_shared_layers": 0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 126,
    "word_embed_proj_dim": 64,
    "embedding_size": 64,
}
LARGEST = 20_000_000  # parameters
# what the sizes above do not fit
MORE = {
    "codegen": {"n_head": 4, "rotary_dim": 8},
    "dbrx": {"ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}},
    "dots1": {"n_shared_experts": 1},
    "gemma3": {
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        "mm_tokens_per_image": 1,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 24},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "smollm3": {"no_rope_layers": [1, 0]},
    "granite": {
        "embedding_multiplier": 1.2,
        "residual_multiplier": 0.9,
        "attention_multiplier": 0.2,
        "logits_scaling": 1.1,
    },
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "llama_4_scaling_beta": 0.5,
        }
    },
}


def tiny_config(config_class, **more):
    """A config of that class with the sizes above, as far as it has such fields."""
    fields = inspect.signature(config_class.__init__).parameters
    known = set(fields) | set(getattr(config_class, "attribute_map", {}))
    known |= set(getattr(config_class, "__dataclass_fields__", {}))
    sizes = {name: value for name, value in SIZES.items() if name in known}
    if {"kv_lora_rank", "v_head_dim"} <= known:  # latent attention has a key head a query head
        sizes["num_key_value_heads"] = 4
    if "layer_types" in known:
        kinds = set(getattr(config_class(), "layer_types", None) or ())
        if kinds:
            sizes["layer_types"] = (sorted(kinds) * 2)[-2:]
    for name, part in getattr(config_class, "sub_configs", {}).items():
        if (
            isinstance(part, type)
            and part.__module__.startswith("transformers.models.")
            and (not part.__name__.startswith("Auto"))
        ):
            sizes[name] = tiny_config(part)
    return config_class(**{**sizes, **MORE.get(config_class.model_type, {}), **more})


def tiny_family(config, seed=0):
    """A random model of ``config``, sharpened so that its picks are clear and its text moves."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size / 1e6:.0f} M parameters are not tiny")
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for weight in model.parameters():
        weight.requires_grad_(False)
        if weight.dim() > 1:
            weight.mul_(4)
        elif not weight.any():  # biases must matter
            weight.normal_(std=0.1)
    model.generation_config.eos_token_id = None
    return model
