"""The published layouts of block drafters, read into the fields of ours.

Each has its own names for the same facts, and a rule for what is left out. A fact that nobody here
computes is refused by its name; a key that no layout knows is refused, too, as it may change what
the drafter computes.

Sources: DFlash and DFlash 2 (github.com/z-lab/dflash, ``dflash/model.py``), JetSpec
(github.com/hao-ai-lab/JetSpec, ``draft_head.py``), DSpark (github.com/deepseek-ai/DeepSpec,
``deepspec/modeling/dspark``), the speculators format (github.com/vllm-project/speculators 0.9.0,
``models/{dflash,dflash2,dspark}``).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch

from ..errors import UserError, first_line, shown
from .known_drafters import why_not_known

OURS = "specdemo_block_drafter"
Layout = Literal["ours", "dflash", "deepspec", "speculators"]
Weights = dict[str, torch.Tensor]

# keys that change no pass of a drafter: bookkeeping, training, the target's own text generation
HARMLESS = frozenset(
    """
    architectures auto_map model_type dtype torch_dtype transformers_version _name_or_path
    name_or_path use_cache initializer_range attention_dropout bos_token_id eos_token_id
    pad_token_id sep_token_id decoder_start_token_id tie_word_embeddings return_dict
    output_hidden_states output_attentions chunk_size_feed_forward is_encoder_decoder is_decoder
    id2label label2id problem_type torchscript use_bfloat16 finetuning_task tokenizer_class prefix
    task_specific_params _attn_implementation attn_implementation max_length min_length do_sample
    early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p
    repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences output_scores return_dict_in_generate forced_bos_token_id
    forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens
    """.split()
)
# the one value of a key that asks for nothing
NEUTRAL: dict[str, Any] = {
    "is_neox_style": True,
    "use_swa": False,
    "shift_label": False,
    "logit_scale": 1,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "attention_sink_bias": False,
    "pruned_heads": {},
    "partial_rotary_factor": 1,
    "hidden_act": "silu",
}
NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "vocab_size",
    "max_position_embeddings",
)
DECODER = frozenset(
    (
        *NEEDED,
        *("rope_theta", "rope_scaling", "rope_parameters", "attention_bias", "layer_types"),
        *("sliding_window", "use_sliding_window", "max_window_layers"),
    )
)
SHARED = ("block_size", "mask_token_id", "target_layer_ids", "num_target_layers")
DFLASH = (
    *SHARED,
    *("causal_head", "causal", "target_hidden_size", "training_mode", "mask_token"),
    *("input_embedding_scale", "output_multiplier", "final_logit_softcapping"),
)
DFLASH2 = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
DSPARK = ("markov_rank", "markov_head_type", "enable_confidence_head")
SPECULATORS = (
    *("speculators_model_type", "speculators_version", "speculators_config", "block_size"),
    *("transformer_layer_config", "aux_hidden_state_layer_ids", "mask_token_id"),
    *("draft_vocab_size", "sample_from_anchor", "sliding_window_non_causal", "target_hidden_size"),
)


class Published(NamedTuple):
    """What a folder holds, in our words.

    Attributes:
        fields: arguments of ``BlockDrafterConfig``.
        weights: by our names.
    """

    fields: dict[str, Any]
    weights: Weights


class Facts:
    """A config's keys, each of which has to be read by somebody."""

    def __init__(self, raw: dict[str, Any], name: str, where: str = "config.json"):
        self.raw, self.name, self.where = raw, name, where

    def need(self, key: str) -> Any:
        """Raises UserError where the key is missing."""
        if self.raw.get(key) is None:
            raise UserError(
                f"“{key}” is missing in the {self.where} of {self.name}; fetch it again, or choose"
                " another drafter."
            )
        return self.raw[key]

    def refuse(self, key: str, why: str = "") -> UserError:
        """To be raised: the key says something that is not computed here."""
        return UserError(
            f"{self.name} has “{key}”: {shown(self.raw.get(key))} in its {self.where},"
            f" {why or 'which SpecDemo does not compute'}; choose another drafter."
        )

    def check_read(self, *read: str) -> None:
        """Refuse what nobody reads."""
        for key, value in self.raw.items():
            if key in read or key in HARMLESS or value is None:
                continue
            if key in NEUTRAL and value == NEUTRAL[key]:
                continue
            raise self.refuse(key)


def layout_of(raw: dict[str, Any]) -> Layout | None:
    """Which layout a ``config.json`` is in; None for none of block drafters."""
    names = raw.get("architectures")
    names = [str(n) for n in names] if isinstance(names, list) else []
    if raw.get("model_type") == OURS:
        return "ours"
    if "speculators_model_type" in raw:
        return "speculators"
    if any(n.endswith("DSparkModel") for n in names):
        return "deepspec"
    if "dflash_config" in raw or {"DFlashDraftModel", "DFlash2DraftModel"} & set(names):
        return "dflash"
    return None


def read_published(raw: dict[str, Any], weights: Weights, name: str) -> Published:
    """A published block drafter in our words. Layers that slide without a window become full ones.

    Args:
        raw: its config.json.
        weights: its tensors, without a leading ``model.``.
        name: how to call it in a sentence.

    Raises:
        UserError: it is in no layout known here, a key is missing, or one is not computed here.
    """
    readers = {"dflash": _dflash, "deepspec": _deepspec, "speculators": _speculators}
    if reader := readers.get(layout_of(raw) or ""):
        found = reader(raw, weights, name)
        if found.fields["sliding_window"] is None:
            found.fields["layer_types"] = ["full_attention"] * len(found.fields["layer_types"])
        if "draft_vocab" in found.weights:
            found.fields["draft_vocab_size"] = len(found.weights["draft_vocab"])
        return found
    if known := why_not_known(raw):
        raise UserError(f"{name} is {known}; choose another drafter.")
    what = raw.get("architectures") or raw.get("model_type") or "a config.json without a model_type"
    raise UserError(
        f"{name} is no block drafter that SpecDemo knows ({shown(what)}); it reads DFlash,"
        " DFlash 2, JetSpec, DSpark, the speculators format, stand-alone diffusion language models,"
        " and for ar-draft Llama, Mistral, Qwen2 and Qwen3 (docs/methods.md), so choose one of"
        " these."
    )


def decoder_fields(facts: Facts, family: str = "qwen3") -> dict[str, Any]:
    """The decoder's fields, completed as the published code does: by transformers' config class."""
    from transformers import LlamaConfig, Qwen3Config

    raw = facts.raw
    for key in NEEDED:
        if not (family == "llama" and key == "head_dim"):
            facts.need(key)
    rope = raw.get("rope_parameters") or {}
    if "sliding_attention" in rope:  # by layer type: the published code takes this one for all
        rope = rope["sliding_attention"]
    rope = {**(raw.get("rope_scaling") or {}), **rope}
    rope |= {"rope_type": rope.pop("type")} if "type" in rope else {}  # its older name
    theta = raw.get("rope_theta") or rope.get("rope_theta")
    if theta is None:
        facts.need("rope_theta")
    if rope.get("partial_rotary_factor") not in (None, 1):
        raise facts.refuse("rope_parameters", "which rotates a part of each head only")
    given = {k: raw[k] for k in DECODER if raw.get(k) is not None and not k.startswith("rope")}
    kinds = set(given.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        raise facts.refuse("layer_types")
    try:
        form: Any = (LlamaConfig if family == "llama" else Qwen3Config)(**given)
        layer_types = list(getattr(form, "layer_types", None) or ())
    except Exception as error:  # a value of another type, in the words of the config class
        raise UserError(
            f"The {facts.where} of {facts.name} does not describe a drafter ({first_line(error)});"
            " fetch it again."
        ) from None
    return {key: getattr(form, key) for key in NEEDED} | {
        "biases": "q, k, v, o" if form.attention_bias else "none",
        "layer_types": layer_types or ["full_attention"] * form.num_hidden_layers,
        "sliding_window": getattr(form, "sliding_window", None),
        "rope_parameters": {**rope, "rope_theta": theta},
        "qk_norm": True,
        "context_projection": "shared",
        "mask_embedding": "token",
    }


# -- z-lab's DFlash and DFlash 2, JetSpec ----------------------------------------------------------


def _dflash(raw: dict[str, Any], weights: Weights, name: str) -> Published:
    nested = raw.get("dflash_config") or {}
    second = "DFlash2DraftModel" in (raw.get("architectures") or ()) or any(
        n.startswith("candidate_selector.") for n in weights
    )
    mine = (*DFLASH, *(DFLASH2 if second else ()))
    for key in mine:
        if key in raw and key in nested and raw[key] != nested[key]:
            raise UserError(
                f"{name} has “{key}” twice in its config.json, {shown(raw[key])} and"
                f" {shown(nested[key])}; correct it, or choose another drafter."
            )
    Facts(raw, name).check_read("dflash_config", "is_causal", *DECODER, *mine)
    Facts(nested, name, "dflash_config").check_read(*mine)
    facts = Facts(raw | nested, name)
    fields = decoder_fields(facts)
    fields |= _taps(facts) | {key: facts.need(key) for key in ("block_size", "mask_token_id")}
    fields["causal"] = _causal(facts, fields["layer_types"])
    if facts.raw.get("target_hidden_size") not in (None, fields["hidden_size"]):
        raise facts.refuse("target_hidden_size")
    for key in ("input_embedding_scale", "output_multiplier"):
        if facts.raw.get(key) is not None:
            fields[key] = float(facts.raw[key])
    if cap := facts.raw.get("final_logit_softcapping"):
        fields["final_logit_softcapping"] = float(cap)
    if second:
        fields |= {key: facts.need(key) for key in DFLASH2}
    return Published(fields, _without(_codebooks(weights), "embed_tokens.weight", "lm_head.weight"))


def _taps(facts: Facts) -> dict[str, Any]:
    """Taps, or the rule for where they are left out (z-lab's ``build_target_layer_ids``)."""
    taps, layers = facts.raw.get("target_layer_ids"), facts.raw.get("num_target_layers")
    if taps is None:
        depth, count = facts.need("num_target_layers"), facts.need("num_hidden_layers")
        span = depth - 3 - 1
        taps = (
            [depth // 2]
            if count == 1
            else [round(1 + i * span / (count - 1)) for i in range(count)]
        )
    return {"target_layer_ids": taps, "num_target_layers": layers}


def _causal(facts: Facts, layer_types: list[str]) -> list[bool]:
    """Per layer whether slots of a block see only what stands before them: as ``is_causal`` says
    (vLLM: ``causal``; JetSpec: ``causal_head``), and without it in the sliding layers.
    """
    sliding = [kind == "sliding_attention" for kind in layer_types]
    if "causal_head" in facts.raw:
        if any(sliding):
            raise facts.refuse("layer_types", "which JetSpec's code reads in more than one way")
        return [bool(facts.raw["causal_head"])] * len(sliding)
    said = {
        bool(facts.raw[key]) for key in ("is_causal", "causal") if facts.raw.get(key) is not None
    }
    if len(said) > 1:
        raise facts.refuse("causal", "and another “is_causal”")
    return [said.pop()] * len(sliding) if said else sliding


def _codebooks(weights: Weights) -> Weights:
    """z-lab stores the selector's codebooks by their bare name, as parameters."""
    return {
        f"{n}.weight" if n.endswith(("predecessor_codebook", "successor_codebook")) else n: t
        for n, t in weights.items()
    }


def _without(weights: Weights, *names: str) -> Weights:
    """``weights`` less those that the published code takes from the target."""
    return {n: t for n, t in weights.items() if n not in names}


# -- DeepSpec's DFlash and DSpark ------------------------------------------------------------------


def _deepspec(raw: dict[str, Any], weights: Weights, name: str) -> Published:
    facts = Facts(raw, name)
    if "Qwen3DSparkModel" not in raw["architectures"]:
        raise facts.refuse("architectures", "whose layers are not Qwen3's")
    facts.check_read(*DECODER, *SHARED, *DSPARK, "num_anchors", "confidence_head_with_markov")
    fields = decoder_fields(facts)
    if "sliding_attention" in fields["layer_types"]:
        raise facts.refuse("layer_types", "which DeepSpec's code reads in more than one way")
    for key in SHARED:
        fields[key] = facts.need(key)
    return Published(fields | {"row_offset": 1} | _dspark(facts), dict(weights))


def _dspark(facts: Facts) -> dict[str, Any]:
    """The Markov head on token pairs and the confidence head."""
    rank = facts.need("markov_rank")
    kind = facts.need("markov_head_type") if rank else "vanilla"
    if kind not in ("vanilla", "gated"):
        raise facts.refuse("markov_head_type")
    confidence: Literal["none", "state", "state and token"] = "none"
    if facts.raw.get("enable_confidence_head"):
        with_token = facts.need("confidence_head_with_markov")
        confidence = "state and token" if with_token else "state"
    return {"pair_rank": rank, "pair_gate": kind == "gated", "confidence": confidence}


# -- the speculators format ------------------------------------------------------------------------


def _speculators(raw: dict[str, Any], weights: Weights, name: str) -> Published:
    facts = Facts(raw, name)
    kind = raw["speculators_model_type"]
    if kind not in ("dflash", "dflash2", "dspark"):
        raise facts.refuse("speculators_model_type", "which is no block drafter that it knows")
    heads = {"dflash": (), "dflash2": DFLASH2, "dspark": (*DSPARK, "confidence_head_with_markov")}
    facts.check_read(*SPECULATORS, *heads[kind])
    inner = Facts(facts.need("transformer_layer_config"), name, "transformer_layer_config")
    family = inner.raw.get("model_type", "qwen3")
    if family not in ("qwen3", "llama"):
        raise inner.refuse("model_type")
    inner.check_read(*DECODER)
    fields = decoder_fields(inner, family)
    if raw.get("target_hidden_size") not in (None, fields["hidden_size"]):
        raise facts.refuse("target_hidden_size")
    anchored = raw.get("sample_from_anchor", kind == "dspark")
    two_way = raw.get("sliding_window_non_causal", kind == "dflash2")
    sliding = [t == "sliding_attention" and bool(fields["sliding_window"]) for t in
               fields["layer_types"]]  # fmt: skip
    fields |= {
        "block_size": facts.need("block_size"),
        "mask_token_id": facts.need("mask_token_id"),
        "target_layer_ids": [i - 1 for i in facts.need("aux_hidden_state_layer_ids")],
        "num_target_layers": None,
        "row_offset": int(bool(anchored)),
        "causal": [s and not two_way for s in sliding],
        "window_from": "anchor",
    }
    if kind == "dflash2":
        fields |= {key: facts.need(key) for key in DFLASH2}
    if kind == "dspark":
        fields |= _dspark(facts)
    own = _without(weights, "embed_tokens.weight", "verifier_lm_head.weight",
                   "verifier_norm.weight")  # fmt: skip
    return Published(fields, _draft_vocabulary(_codebooks(own), facts, fields["vocab_size"]))


def _draft_vocabulary(weights: Weights, facts: Facts, rows: int) -> Weights:
    """``d2t`` holds offsets: column d proposes token ``d + d2t[d]``. A drafter of the whole
    vocabulary has the target's own head.
    """
    size = facts.need("draft_vocab_size")
    offsets, kept = weights.get("d2t"), weights.get("t2d")
    weights = _without(weights, "d2t", "t2d")
    if size == rows:
        return _without(weights, "lm_head.weight")
    for name, tensor in (("d2t", offsets), ("lm_head.weight", weights.get("lm_head.weight"))):
        if tensor is None or len(tensor) != size:
            have = "none" if tensor is None else len(tensor)
            raise UserError(
                f"{facts.name} has a vocabulary of {size} tokens and {have} rows of {name}; fetch"
                " it again."
            )
    assert offsets is not None
    ids = torch.arange(size) + offsets.long()
    if kept is not None and not torch.equal(kept.bool().nonzero()[:, 0], ids.sort().values):
        raise UserError(
            f"The two tables d2t and t2d of {facts.name} name different tokens; fetch it again."
        )
    return weights | {"draft_vocab": ids}
