"""Drafters: read from their folders, checked against a target and bound to it."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError, first_line
from ..files import read_json
from .ar_drafter import ArDrafter, ArDrafterConfig
from .block_drafter import BlockDrafter, BlockDrafterConfig
from .diffusion_lm import DiffusionLM
from .diffusion_lm_files import read_diffusion_lm
from .drafter_files import read_weights
from .fetch import drafter_folder, find_drafter, find_target
from .foreign_code import no_foreign_code
from .kinds import ROLES, is_autoregressive, is_diffusion_lm, role_for
from .language_model import is_language_model, read_language_model
from .layers import DrafterConfig
from .layouts import NEEDED, Facts, layout_of, read_published
from .load import Loaded, check_target_folder
from .pair_heads import DsparkPairs
from .pairs import Pair
from .text_drafter import block_network
from .validate import (
    check_context_window,
    check_drafter_config,
    check_drafter_weights,
    check_sizes,
    check_tokenizers,
    check_types,
)


def load_drafter(pair: Pair, kind: str, loaded: Loaded) -> BlockDrafter | ArDrafter | DiffusionLM:
    """The pair's drafter of that kind, bound to the target's embedding and head, or a stand-alone
    diffusion language model with its own.

    A diffusion kind without weights of its own gets others (:data:`.kinds.INSTEAD`);
    ``network.weights`` says in words what it runs on. Networks hold no state of a run (that is in
    their caches), so each is loaded once for ``loaded`` and shared.
    """
    if kind not in ROLES:
        raise UserError(f"There is no drafter kind “{kind}”; kinds are {', '.join(ROLES)}.")
    if kind in loaded.networks:
        return loaded.networks[kind]
    role = role_for(kind, pair.drafters)
    place = pair.drafters.get(kind)
    if place:
        folder = drafter_folder(place)
        raw = drafter_config(folder)
        net: Any = (
            read_diffusion_lm(folder, raw, loaded)
            if is_diffusion_lm(raw)
            else read_drafter(folder, loaded)
        )
        if isinstance(net, ArDrafter) != (kind == "ar"):
            raise UserError(
                f"The drafter in {place} is not of the kind “{kind}”; correct models.yaml."
            )
        net.weights = f"{kind} weights ({Path(place.removeprefix('hub:')).name}){_parts(net)}"
    elif role is None:
        why = (
            pair.blocked
            or "train one with “python -m specdemo train --kind "
            + ("diffusion-lm" if kind == "diffusion" else kind)
            + "” or name it in models.yaml"
        )
        raise UserError(
            f"The pair {pair.id} has no {'autoregressive' if kind == 'ar' else 'diffusion'}"
            f" drafter; {why}."
        )
    else:
        # shares every tensor, only the words differ
        net = copy.copy(load_drafter(pair, role, loaded))
        net.weights = (
            f"{role} weights ({Path(pair.drafters[role].removeprefix('hub:')).name}){_parts(net)}"
        )
        # a diffusion drafter of any kind is what these ask for
        if kind not in ("block", "diffusion") and (kind, role) != ("mdlm", "diffusion"):
            net.weights += f", as there are none trained for {kind} yet"
            net.borrowed = True
    loaded.networks[kind] = net
    return net


def _parts(net: BlockDrafter | ArDrafter | DiffusionLM) -> str:
    """What else belongs to the words for its weights: a Markov head, a window."""
    if isinstance(net, DiffusionLM):
        return f", a stand-alone diffusion language model ({net.config.family}): {net.rereads}"
    pairs = getattr(net, "pair_head", None)
    head = " with a Markov head" if getattr(net, "markov_tables", None) is not None else ""
    if isinstance(pairs, DsparkPairs):
        head = " with DSpark's Markov head"
        head += " and its confidence head" if pairs.has_confidence else ""
    elif pairs is not None:
        head = " with DFlash 2's candidate selector"
    window = net.config.context_window
    if getattr(net, "reads_text", False):
        head += ", which reads the text alone"
        return head + (f", at most its last {window} tokens" if window else "")
    return head + (f" reading at most the last {window} tokens" if window else "")


def read_drafter(folder: str | Path, loaded: Loaded | None = None) -> BlockDrafter | ArDrafter:
    """A trained drafter from its folder, in the stored precision's bf16 or float32; with ``loaded``
    it is checked against that target and bound to it.
    """
    folder = Path(folder)
    raw = drafter_config(folder)
    weights = read_weights(folder)
    config, weights = _config(raw, weights, folder, loaded)
    check_sizes(config, str(folder))
    if loaded is not None:
        _check_fit(config, folder, loaded)
    is_block = isinstance(config, BlockDrafterConfig)
    cls: Any = block_network(config) if is_block else ArDrafter
    try:
        with torch.device("meta"):  # the names and shapes alone
            shapes = cls(config, weights.get("draft_vocab"))
    except UserError:
        raise
    except Exception as error:  # of torch or transformers: two values do not fit
        raise _no_drafter(folder, error) from None
    rows = (
        loaded.model.get_output_embeddings().weight.shape[0]
        if loaded is not None
        else config.vocab_size
    )
    check_drafter_weights(shapes, weights, rows, str(folder))
    net: Any = cls(config, weights.get("draft_vocab"))
    net.load_state_dict({k: v for k, v in weights.items() if k in net.state_dict()})
    net.eval()
    if loaded is not None:
        net.to(loaded.device, loaded.dtype).requires_grad_(False)
        net.bind(
            loaded.model.get_input_embeddings().weight,
            loaded.model.get_output_embeddings().weight.to(loaded.device),
            max(loaded.tokenizer.get_vocab().values()) + 1,
        )
    return net


def drafter_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a drafter folder.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        raw = read_json(folder / "config.json")
    except OSError:
        raise UserError(
            f"The drafter folder {folder} has no config.json; correct it in models.yaml or train"
            " one with “python -m specdemo train”."
        ) from None
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        raise UserError(
            f"{folder / 'config.json'} is not JSON of a drafter; fetch or train it again."
        )
    return raw


def _config(
    raw: dict[str, Any],
    weights: dict[str, torch.Tensor],
    folder: Path,
    loaded: Loaded | None,
) -> tuple[Any, dict[str, torch.Tensor]]:
    """The config of a drafter, and its weights by our names."""
    cls: Any = ArDrafterConfig if is_autoregressive(raw) else BlockDrafterConfig
    if is_language_model(raw):
        fields, weights = read_language_model(raw, weights, str(folder))
    elif is_autoregressive(raw) or layout_of(raw) == "ours":
        fields = _our_fields(raw, weights, cls, str(folder))
    else:
        fields, weights = read_published(raw, weights, str(folder))
        weights = _without_the_targets(weights, loaded)
    fields["own_embedding"] = "embed_tokens.weight" in weights
    fields["own_head"] = "lm_head.weight" in weights
    check_types(cls, fields, str(folder))
    try:
        return cls(**fields), weights
    except Exception as error:  # a value of another type, in the words of transformers
        raise _no_drafter(folder, error) from None


def _no_drafter(folder: Path, error: Exception) -> UserError:
    return UserError(
        f"{folder / 'config.json'} does not describe a drafter ({first_line(error)}); fetch or"
        " train it again."
    )


def _without_the_targets(
    weights: dict[str, torch.Tensor], loaded: Loaded | None
) -> dict[str, torch.Tensor]:
    """``weights`` less an embedding and a head that are copies of the target's."""
    if loaded is None:
        return weights
    places = {
        "embed_tokens.weight": loaded.model.get_input_embeddings().weight,
        "lm_head.weight": loaded.model.get_output_embeddings().weight,
    }
    return {
        name: tensor
        for name, tensor in weights.items()
        if name not in places
        or tensor.shape != places[name].shape
        or not torch.equal(tensor.to(places[name]), places[name])
    }


def _our_fields(
    raw: dict[str, Any], weights: dict[str, torch.Tensor], cls: type, name: str
) -> dict[str, Any]:
    """Fields that older drafters of ours leave out follow from their weights."""
    allowed = {
        key
        for form in (cls, DrafterConfig)
        for key in inspect.signature(form).parameters
        if key != "more"
    }
    facts = Facts(raw, name)
    for key in NEEDED:
        facts.need(key)
    facts.check_read("target", *allowed)
    known = {k: v for k, v in raw.items() if k in allowed and v is not None}
    known.setdefault("qk_norm", "layers.0.self_attn.q_norm.weight" in weights)
    if cls is BlockDrafterConfig:
        facts.need("num_target_layers")
        facts.need("block_size")
        known.setdefault(
            "context_projection",
            "own" if "layers.0.self_attn.context_k_proj.weight" in weights else "shared",
        )
        known.setdefault(
            "markov_rank",
            weights["markov.out.weight"].shape[-1] if "markov.out.weight" in weights else 0,
        )
        known.setdefault("mask_embedding", "learned" if "mask_embedding" in weights else "token")
    return known


def _compare_tokenizers(folder: Path, tokenizer: Any) -> bool:
    """Whether the drafter in ``folder`` has a tokenizer; it then is the target's.

    Raises:
        UserError: it is another.
    """
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        return False
    from transformers import AutoTokenizer

    with no_foreign_code(folder, "drafter"):
        theirs = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    check_tokenizers(tokenizer, theirs, str(folder))
    return True


def check_drafter_files(pair: Pair) -> None:
    """Compare the tokenizers of the pair's drafters with its target's, of those that are on this
    computer; of a stand-alone diffusion language model, whose mask is a token of its own, loading
    does.

    Raises:
        UserError: one is another.
    """
    target = find_target(pair)
    if target is None:
        return
    _, tokenizer = check_target_folder(target, pair)
    for place in pair.drafters.values():
        folder = find_drafter(place)
        if folder is not None and not is_diffusion_lm(drafter_config(folder)):
            _compare_tokenizers(folder, tokenizer)


def _check_fit(config: Any, folder: Path, loaded: Loaded) -> None:
    target = loaded.model.config
    tokenizes = _compare_tokenizers(folder, loaded.tokenizer)
    if isinstance(config, BlockDrafterConfig):
        check_drafter_config(config, target, loaded.tokenizer, loaded.eos_ids, str(folder))
        return
    if config.own_embedding and not tokenizes:
        raise UserError(
            f"The language model in {folder} has no tokenizer.json to be compared with the"
            " target's; fetch it again."
        )
    check_context_window(config, str(folder))
    if not config.own_embedding and config.hidden_size != target.get_text_config().hidden_size:
        raise UserError(
            f"{folder} has hidden size {config.hidden_size} and the target"
            f" {target.get_text_config().hidden_size}; choose a drafter made for this target."
        )
