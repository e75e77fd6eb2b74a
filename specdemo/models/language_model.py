"""A small language model of its own as an autoregressive drafter: any Llama, Mistral, Qwen2 or
Qwen3 with the target's tokenizer, such as Qwen3-0.6B for Qwen3-8B.
"""

from __future__ import annotations

from typing import Any

from ..errors import UserError
from .layouts import DECODER, Facts, Published, Weights, decoder_fields

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


def is_language_model(config: dict[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a causal language model that can draft as it is."""
    names = config.get("architectures")
    return isinstance(names, list) and len(names) == 1 and str(names[0]) in ARCHITECTURES


def read_language_model(raw: dict[str, Any], weights: Weights, name: str) -> Published:
    """Fields of an ``ArDrafterConfig``, and the weights by our names.

    Raises:
        UserError: a key is missing, or says something that is not computed here.
    """
    facts, family = Facts(raw, name), ARCHITECTURES[raw["architectures"][0]]
    facts.check_read(*DECODER)
    fields = decoder_fields(facts, "qwen3" if family == "qwen3" else "llama")
    fields.pop("sliding_window")
    slides = raw.get("use_sliding_window", raw["architectures"] == ["MistralForCausalLM"])
    if raw.get("sliding_window") and slides:
        raise facts.refuse("sliding_window")
    for key in ("layer_types", "context_projection", "mask_embedding"):
        fields.pop(key)
    if family == "qwen2":
        fields["biases"] = "q, k, v"
    fields["qk_norm"] = family == "qwen3"
    own = {n: t for n, t in weights.items() if not n.endswith("rotary_emb.inv_freq")}
    if "embed_tokens.weight" not in own:
        raise UserError(f"{name} has no embed_tokens.weight; fetch it again.")
    if raw.get("tie_word_embeddings") or "lm_head.weight" not in own:
        own["lm_head.weight"] = own["embed_tokens.weight"]
    return Published(fields, own)
