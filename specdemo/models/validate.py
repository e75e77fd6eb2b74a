"""What cannot work is refused here, before anything is generated, with a sentence that says what to
do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserError, shown
from .target_config import check_fields

MAX_BLOCK, MAX_RANK = 256, 4096  # slots of a block, inner width of a Markov head
# what a drafter may have of these; more than any model there is
SIZES = {
    "hidden_size": 65_536,
    "intermediate_size": 1_048_576,
    "num_hidden_layers": 1_000,
    "num_attention_heads": 4_096,
    "num_key_value_heads": 4_096,
    "head_dim": 4_096,
    "vocab_size": 10_000_000,
    "max_position_embeddings": 1_000_000_000,
}
MAX_CANDIDATES = 64  # of a slot, among which a selector chooses
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
SLIDING = ("sliding_attention", "chunked_attention")


def check_target(config: Any, name: str) -> None:
    """Refuse targets whose past cannot be cut back on a static cache (transformers 5.24 is silently
    wrong there or raises).

    Args:
        config: the target's transformers config.
        name: how to call it in the sentence.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(f"{name} is an encoder-decoder model; choose a decoder-only target.")
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    kinds = set(getattr(text, "layer_types", None) or ())
    recurrent = kinds - {"full_attention", *SLIDING}
    if recurrent or _stateful(text):
        what = ", ".join(sorted(recurrent)) or text.model_type
        raise UserError(
            f"{name} keeps a recurrent state ({what}) that cannot forget rejected tokens; choose a"
            " target that only attends."
        )
    check_fields(text, name)


def _stateful(config: Any) -> bool:
    """Whether transformers itself marks the model class of this config as stateful (Mamba, RWKV and
    their hybrids).
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    model = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return bool(getattr(model, "_is_stateful", False))


def check_tokenizers(target: Any, drafter: Any, name: str) -> None:
    """Refuse a drafter whose tokenizer gives other texts to the ids both know; extra ids at the end
    (padding, a mask) are fine.
    """
    ours, theirs = target.get_vocab(), drafter.get_vocab()
    mine, other = ({i: t for t, i in v.items()} for v in (ours, theirs))
    wrong = sorted(i for i in mine.keys() & other.keys() if mine[i] != other[i])
    smaller = min(len(mine), len(other))
    if wrong or len(mine.keys() & other.keys()) < smaller:
        table = (
            "; ".join(f"id {i} is {mine[i]!r} here and {other[i]!r} there" for i in wrong[:3])
            or "they share hardly any ids"
        )
        raise UserError(
            f"The tokenizer of {name} differs from the target's ({len(wrong)} ids mean something"
            f" else: {table}); choose a drafter made for this target."
        )


def check_drafter_config(
    config: Any,
    target: Any,
    tokenizer: Any,
    eos_ids: tuple[int, ...],
    name: str,
) -> None:
    """Everything about a block drafter that can be told from its config.

    Args:
        config: ``BlockDrafterConfig``.
        target: the target's transformers config.
    """
    text = target.get_text_config()
    if config.hidden_size != text.hidden_size:
        raise UserError(
            f"{name} has hidden size {config.hidden_size} and the target {text.hidden_size}; choose"
            " a drafter made for this target."
        )
    if config.num_target_layers not in (None, text.num_hidden_layers):
        raise UserError(
            f"{name} was made for a target of {config.num_target_layers} layers and this one has"
            f" {text.num_hidden_layers}; choose a drafter made for this target."
        )
    if config.context == "target":
        _check_taps(config.target_layer_ids, text.num_hidden_layers, name)
    else:
        _check_text(config, name)
    if not isinstance(config.block_size, int) or not 2 <= config.block_size <= MAX_BLOCK:
        raise UserError(
            f"{name} has block size {config.block_size!r}; it must be a whole number from 2 to"
            f" {MAX_BLOCK}."
        )
    if not isinstance(config.markov_rank, int) or not 0 <= config.markov_rank <= MAX_RANK:
        raise UserError(
            f"{name} has a Markov head of rank {config.markov_rank!r}; it must be a whole number"
            f" from 0 to {MAX_RANK}."
        )
    check_context_window(config, name)
    _check_layers(config, name)
    check_mask_id(config.mask_token_id, text.vocab_size, tokenizer, eos_ids, name)


def _check_text(config: Any, name: str) -> None:
    """What a drafter that reads the text alone does not have."""
    if config.target_layer_ids or config.context_projection == "own":
        raise UserError(
            f"{name} reads the text alone, and its config.json asks for the target's layers"
            f" {config.target_layer_ids}, too; take target_layer_ids and context_projection out."
        )
    strange = {
        "row_offset": config.row_offset != 0,
        "causal": any(config.causal),
        "layer_types": "sliding_attention" in config.layer_types,
        "conv_kernel_size": config.conv_kernel_size != 0,
    }
    if any(strange.values()):
        key = next(key for key, found in strange.items() if found)
        raise UserError(
            f"{name} reads the text alone and has {key} {shown(getattr(config, key))}, which is not"
            f" computed for such a drafter; take {key} out of its config.json."
        )


def _check_layers(config: Any, name: str) -> None:
    """Windows, convolutions and the selector's numbers."""
    window, depth = config.sliding_window, config.num_hidden_layers
    slides = "sliding_attention" in config.layer_types
    for key in ("causal", "layer_types"):
        if len(said := getattr(config, key)) != depth:
            raise UserError(
                f"{name} has {key} of {len(said)} layers and {depth} layers; correct its"
                " config.json."
            )
    if strange := set(config.layer_types) - {"full_attention", "sliding_attention"}:
        raise UserError(
            f"{name} has a layer of the kind {shown(min(strange))}, which is not computed here;"
            " choose another drafter."
        )
    if slides and (type(window) is not int or window < 1):
        raise UserError(
            f"{name} has sliding layers and sliding_window {window!r}; it must be a whole number"
            " from 1; correct its config.json."
        )
    sizes = {
        "conv_kernel_size": (0, config.block_size),
        "conv_group_size": (1, config.hidden_size),
        "selector_rank": (0, MAX_RANK),
        "selector_top_k": (1, min(MAX_CANDIDATES, config.vocab_size)),
        "pair_rank": (0, MAX_RANK),
    }
    for key, (least, most) in sizes.items():
        value = getattr(config, key)
        if type(value) is not int or not least <= value <= most:
            key = key.replace("pair_rank", "markov_rank")
            raise UserError(
                f"{name} has {key} {value!r}; it must be a whole number from {least} to {most};"
                " correct its config.json."
            )
    if config.hidden_size % config.conv_group_size and config.conv_kernel_size:
        raise UserError(
            f"{name} has conv_group_size {config.conv_group_size}, which does not divide its hidden"
            f" size {config.hidden_size}; correct its config.json."
        )


def check_context_window(config: Any, name: str) -> None:
    """The tokens a drafter reads at most: a whole number, or None for all of them."""
    window = config.context_window
    if window is not None and (type(window) is not int or not 1 <= window <= 1_000_000):
        raise UserError(
            f"{name} has context window {window!r}; it must be a whole number from 1 to 1,000,000,"
            " or left out; correct context_window in its config.json."
        )


def _check_taps(ids: list[int], layers: int, name: str) -> None:
    if (
        not ids
        or any(not isinstance(i, int) or not -1 <= i < layers for i in ids)
        or len(set(ids)) != len(ids)
    ):
        raise UserError(
            f"{name} taps the target's layers {ids}, but they must be different numbers from 0 to"
            f" {layers - 1}, or -1 for its embeddings; choose a drafter made for this target."
        )
    if layers - 1 in ids and layers > 2:
        warnings.warn(
            f"{name} taps the last layer, whose hidden state transformers reports after the final"
            " norm; check that it was trained that way.",
            stacklevel=3,
        )


def check_mask_id(
    mask: Any, rows: int, tokenizer: Any, eos_ids: tuple[int, ...], name: str
) -> None:
    """The mask must be a real row of the embedding (``rows``) that the target never writes: unused,
    or a special token.
    """
    if not isinstance(mask, int) or not 0 <= mask < rows:
        raise UserError(
            f"{name} uses mask id {mask!r}, which is no row of the target's embedding (0 to"
            f" {rows - 1}); correct mask_token_id in its config.json."
        )
    known = {i: t for t, i in tokenizer.get_vocab().items()}
    special = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
    if mask in eos_ids or (mask in known and mask not in special):
        raise UserError(
            f"{name} uses mask id {mask}, which is the real token {known.get(mask)!r}; correct"
            " mask_token_id in its config.json."
        )


def check_drafter_weights(
    net: Any, weights: dict[str, torch.Tensor], head_rows: int, name: str
) -> None:
    """Names and shapes against the network, then the draft vocabulary against the target's head."""
    config, want = (
        net.config,
        {k: v.shape for k, v in net.state_dict().items() if k != "draft_vocab"},
    )
    fc, taps = weights.get("fc.weight"), getattr(config, "target_layer_ids", ())
    if fc is not None and fc.dim() == 2 and fc.shape[1] != len(taps) * config.hidden_size:
        raise UserError(
            f"{name} fuses {fc.shape[1]} features, but {len(taps)} target layers of"
            f" {config.hidden_size} give {len(taps) * config.hidden_size}; its target_layer_ids do"
            " not belong to these weights."
        )
    have = weights.keys() - {"draft_vocab"}
    if lacking := want.keys() - have:
        raise UserError(
            f"{name} lacks weights ({len(lacking)}, for instance {min(lacking)}); its config.json"
            " does not belong to them, so fetch or train it again."
        )
    if unknown := have - want.keys():
        raise UserError(
            f"{name} has unknown weights ({len(unknown)}, for instance {min(unknown)}): its"
            " config.json does not belong to them, or they are of a kind that SpecDemo does not"
            " compute; fetch it again, or choose another drafter."
        )
    wrong = sorted(k for k in want if weights[k].shape != want[k])
    if wrong:
        raise UserError(
            f"{name} has {wrong[0]} of shape {list(weights[wrong[0]].shape)} where its config.json"
            f" asks for {list(want[wrong[0]])}; fetch or train it again."
        )
    whole = sorted(k for k in want if not weights[k].is_floating_point())
    if whole:
        raise UserError(
            f"{name} has whole numbers where its {whole[0]} should be; fetch or train it again."
        )
    if "draft_vocab" in weights:
        check_draft_vocab(
            weights["draft_vocab"], head_rows, getattr(config, "mask_token_id", None), name
        )


@cache
def _types(form: type) -> dict[str, TypeAdapter[Any]]:
    """What reads each argument of a config class."""
    return {
        key: TypeAdapter(kind, config=STRICT)
        for each in reversed(form.__mro__)
        if each.__module__.startswith(str(__package__))
        for key, kind in get_type_hints(vars(each)["__init__"]).items()
    }


def check_types(form: type, fields: Mapping[str, Any], name: str) -> None:
    """The values of a drafter's config by the types of ``form``, a config class."""
    types = _types(form)
    for key in fields.keys() & types.keys():
        try:
            types[key].validate_python(fields[key])
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"]
            raise UserError(
                f"{name} has {key} {shown(fields[key])} ({why[:1].lower()}{why[1:]}); correct its"
                " config.json."
            ) from None


def check_sizes(config: Any, name: str) -> None:
    """The numbers that decide how large a drafter is, before any of it is made."""
    for key, most in SIZES.items():
        value = getattr(config, key)
        if type(value) is not int or not 1 <= value <= most:
            raise UserError(
                f"{name} has {key} {shown(value)}; it must be a whole number from 1 to {most:,};"
                " correct its config.json."
            )
    if config.num_attention_heads % config.num_key_value_heads:
        raise UserError(
            f"{name} has {config.num_attention_heads} attention heads on"
            f" {config.num_key_value_heads} of keys and values, which does not divide them; correct"
            " its config.json."
        )


def check_draft_vocab(ids: torch.Tensor, rows: int, mask: int | None, name: str) -> None:
    """``[Vd]`` target ids: rows of the head, each once, the mask not among them."""
    if ids.dim() != 1 or not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= rows:
        raise UserError(
            f"The draft vocabulary of {name} names tokens outside the target's {rows}; choose a"
            " drafter made for this target."
        )
    if len(ids.unique()) != len(ids):
        raise UserError(
            f"The draft vocabulary of {name} names a token twice; train or convert it again."
        )
    if mask is not None and bool((ids == mask).any()):
        raise UserError(
            f"The draft vocabulary of {name} contains the mask id {mask}, which must never be"
            " proposed; convert it again without."
        )


def finite(tensor: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite, in one pass and without a copy."""
    return (
        not tensor.is_floating_point()
        or not tensor.numel()
        or bool(torch.isfinite(torch.stack(tensor.aminmax())).all())
    )
