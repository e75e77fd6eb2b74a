"""A pair in memory: the target with its tokenizer, and drafters bound to it."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..errors import UserError
from .ar_drafter import ArDrafter, ArDrafterConfig
from .block_drafter import BlockDrafter, BlockDrafterConfig
from .drafter_files import finite, read_weights
from .fetch import Progress, drafter_folder, drafter_present, find_target, quiet, target_folder
from .pairs import KINDS, Pair, load_pairs
from .validate import check_drafter_config, check_drafter_weights, check_target, check_tokenizers

DTYPES = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp32": torch.float32,
    "float32": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
}


@dataclass
class Loaded:
    """A target ready to run.

    Attributes:
        model: transformers causal LM, eval mode, no gradients.
        eos_ids: every id that ends a text.
        dtype: what it computes in; quantized: ``4bit``, ``8bit`` or None.
        networks: drafters loaded so far, by kind (filled by :func:`load_drafter`).
    """

    pair: Pair
    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    quantized: str | None = None
    networks: dict[str, Any] = field(default_factory=dict, repr=False)


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def default_dtype(device: torch.device | str) -> torch.dtype:
    """bf16 where the hardware computes in it natively (CUDA from Ampere on; CPUs with AVX512_BF16
    or AMX), else fp32.
    """
    if torch.device(device).type == "cuda":
        return (
            torch.bfloat16
            if torch.cuda.is_bf16_supported(including_emulation=False)
            else torch.float32
        )
    native = any(
        getattr(torch.cpu, name, lambda: False)()
        for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )
    return torch.bfloat16 if torch.device(device).type == "cpu" and native else torch.float32


def load_target(
    pair: Pair,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """The pair's target and tokenizer, fetched first if need be.

    Args:
        dtype: a torch dtype, or one of bf16, fp32, fp16, 8bit, 4bit; None takes
            :func:`default_dtype`.
        device: default: the GPU if there is one.
        progress: called with a message and a fraction from 0 to 1 (None where it is not known).
    Raises:
        UserError: it cannot be fetched, is damaged, or is of a kind that cannot be verified
            losslessly.
    """
    place, (kind, quantized) = _device(device), _dtype(dtype)
    kind = kind or default_dtype(place)
    folder = target_folder(pair, progress)
    if progress:
        progress("loading the target", None)
    from transformers import AutoConfig, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        check_target(config, pair.title)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"The target in {folder} cannot be read ({_first_line(error)}); delete that folder to"
            " fetch it again, or choose another pair."
        ) from None
    model = _model(folder, config, kind, place, quantized)
    return Loaded(pair, model, tokenizer, find_eos_ids(model, tokenizer), kind, place, quantized)


def _model(
    folder: Path, config: Any, dtype: torch.dtype, device: torch.device, quantized: str | None
) -> Any:
    from transformers import AutoModelForCausalLM

    extra: dict[str, Any] = (
        {
            "quantization_config": _bits(quantized, dtype, device),
            "device_map": {"": device.index or 0},
        }
        if quantized
        else {}
    )
    damaged = (
        f"The target's weights in {folder} are damaged or incomplete ({{}}); delete that folder to"
        " fetch them again."
    )
    try:
        with quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **extra,
            )
        model = model if quantized else model.to(device)
    except torch.OutOfMemoryError:
        raise UserError(
            f"The target does not fit into the memory of {device} as {quantized or dtype}; choose a"
            " smaller pair, or dtype 8bit or 4bit."
        ) from None
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise UserError(damaged.format(_first_line(error))) from None
    if report["missing_keys"]:
        raise UserError(damaged.format(f"{min(report['missing_keys'])} is missing"))
    bad = next((n for n, p in model.named_parameters() if not finite(p.detach())), None)
    if bad:
        raise UserError(damaged.format(f"{bad} has values that are not finite"))
    return model.eval().requires_grad_(False)


def _bits(quantized: str, dtype: torch.dtype, device: torch.device) -> Any:
    import importlib.util

    from transformers import BitsAndBytesConfig

    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(
            f"dtype {quantized} needs bitsandbytes; install it with “pip install bitsandbytes” or"
            " choose bf16."
        )
    if device.type != "cuda":
        raise UserError(f"dtype {quantized} is for GPUs; choose bf16 or fp32 on {device.type}.")
    return (
        BitsAndBytesConfig(load_in_8bit=True)
        if quantized == "8bit"
        else BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    )


def _dtype(value: torch.dtype | str | None) -> tuple[torch.dtype | None, str | None]:
    if value is None or value == "auto":
        return None, None
    if value in ("4bit", "8bit"):
        return None, str(value)
    name = str(value).removeprefix("torch.")
    if name not in DTYPES:
        raise UserError(f"There is no dtype “{value}” here; choose bf16, fp32, fp16, 8bit or 4bit.")
    return DTYPES[name], None


def _device(value: torch.device | str | None) -> torch.device:
    try:
        device = default_device() if value is None else torch.device(value)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(
            f"The device “{value}” is not available here; choose"
            f" cpu{' or cuda' if torch.cuda.is_available() else ''}."
        ) from None
    return device


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def find_eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a text: those of the generation config, the tokenizer's, and the token its
    chat template puts after an answer.
    """
    found: list[int] = []
    for value in (
        model.generation_config.eos_token_id,
        tokenizer.eos_token_id,
        _chat_end(tokenizer),
    ):
        found += [value] if isinstance(value, int) else list(value or ())
    return tuple(dict.fromkeys(found))


def _chat_end(tokenizer: Any) -> int | None:
    if not getattr(tokenizer, "chat_template", None):
        return None
    talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "specdemo-answer"}]
    try:
        text = tokenizer.apply_chat_template(talk, tokenize=False)
    # templates are programs and fail in their own ways; the other two sources remain
    except Exception:
        return None
    tail = tokenizer(text.rpartition("specdemo-answer")[2], add_special_tokens=False)["input_ids"]
    special = set(tokenizer.all_special_ids) | {
        i for i, t in tokenizer.added_tokens_decoder.items() if t.special
    }
    return tail[0] if tail and tail[0] in special else None


# -- drafters --------------------------------------------------------------------------------------


def load_drafter(pair: Pair, kind: str, loaded: Loaded) -> BlockDrafter | ArDrafter:
    """The pair's drafter of that kind, bound to the target's embedding and head.

    A diffusion kind without weights of its own gets those of ``block``; ``network.weights`` says in
    words what it runs on. Networks hold no state of a run (that is in their caches), so each is
    loaded once for ``loaded`` and shared.
    """
    if kind not in KINDS:
        raise UserError(f"There is no drafter kind “{kind}”; kinds are {', '.join(KINDS)}.")
    if kind in loaded.networks:
        return loaded.networks[kind]
    place = pair.drafters.get(kind)
    if place:
        net = read_drafter(drafter_folder(place), loaded)
        if isinstance(net, ArDrafter) != (kind == "ar"):
            raise UserError(
                f"The drafter in {place} is not of the kind “{kind}”; correct models.yaml."
            )
        net.weights = f"{kind} weights ({Path(place.removeprefix('hub:')).name}){_head_words(net)}"
    elif kind == "ar" or "block" not in pair.drafters:
        why = (
            pair.blocked
            or "train one with “python -m specdemo train --kind "
            + kind
            + "” or name it in models.yaml"
        )
        raise UserError(
            f"The pair {pair.id} has no {'autoregressive' if kind == 'ar' else 'diffusion'}"
            f" drafter; {why}."
        )
    else:
        # shares every tensor, only the words differ
        net = copy.copy(load_drafter(pair, "block", loaded))
        net.weights = (
            "block weights"
            f" ({Path(pair.drafters['block'].removeprefix('hub:')).name}){_head_words(net)}, as"
            f" there are none trained for {kind} yet"
        )
    loaded.networks[kind] = net
    return net


def _head_words(net: BlockDrafter | ArDrafter) -> str:
    return " with a Markov head" if getattr(net, "follow", None) is not None else ""


def read_drafter(folder: str | Path, loaded: Loaded | None = None) -> BlockDrafter | ArDrafter:
    """A drafter from its folder, in the stored precision's bf16 or float32; with ``loaded`` it is
    checked against that target and bound to it.
    """
    folder = Path(folder)
    raw = _read_config(folder)
    weights = read_weights(folder)
    autoregressive = "ArDrafter" in (raw.get("architectures") or ())
    config = _config(
        ArDrafterConfig if autoregressive else BlockDrafterConfig, raw, weights, folder
    )
    if loaded is not None:
        _check_fit(config, raw, folder, loaded)
    net = (ArDrafter if autoregressive else BlockDrafter)(config, weights.get("draft_vocab"))
    rows = (
        loaded.model.get_output_embeddings().weight.shape[0]
        if loaded is not None
        else config.vocab_size
    )
    check_drafter_weights(net, weights, rows, str(folder))
    net.load_state_dict({k: v for k, v in weights.items() if k in net.state_dict()})
    net.eval()
    if loaded is not None:
        net.to(loaded.device, loaded.dtype).requires_grad_(False)
        net.bind(
            loaded.model.get_input_embeddings().weight, loaded.model.get_output_embeddings().weight
        )
    return net


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
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


def _config(cls: type, raw: dict[str, Any], weights: dict[str, torch.Tensor], folder: Path) -> Any:
    """Fields that older drafters leave out are told from their weights."""
    known = {
        k: v for k, v in raw.items() if k not in ("model_type", "auto_map", "dtype", "torch_dtype")
    }
    known.setdefault("qk_norm", "layers.0.self_attn.q_norm.weight" in weights)
    if cls is BlockDrafterConfig:
        known.setdefault(
            "context_projection",
            "own" if "layers.0.self_attn.context_k_proj.weight" in weights else "shared",
        )
        known.setdefault(
            "markov_rank",
            weights["markov.out.weight"].shape[-1] if "markov.out.weight" in weights else 0,
        )
        known.setdefault("mask_embedding", "learned" if "mask_embedding" in weights else "token")
    try:
        return cls(**known)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{folder / 'config.json'} does not describe a drafter ({_first_line(error)}); fetch or"
            " train it again."
        ) from None


def _check_fit(config: Any, raw: dict[str, Any], folder: Path, loaded: Loaded) -> None:
    target = loaded.model.config
    if (folder / "tokenizer.json").is_file():
        from transformers import AutoTokenizer

        check_tokenizers(
            loaded.tokenizer,
            AutoTokenizer.from_pretrained(folder, local_files_only=True),
            str(folder),
        )
    if isinstance(config, BlockDrafterConfig):
        check_drafter_config(config, raw, target, loaded.tokenizer, loaded.eos_ids, str(folder))
    elif config.hidden_size != target.get_text_config().hidden_size:
        raise UserError(
            f"{folder} has hidden size {config.hidden_size} and the target"
            f" {target.get_text_config().hidden_size}; choose a drafter made for this target."
        )


# -- what is here, for `python -m specdemo models` -------------------------------------------------


def pair_states(path: str | Path | None = None) -> list[dict[str, Any]]:
    """One dict a pair: id, title, license, size, hardware, dtypes, thinking, notes, ``target``
    (folder or None), ``drafters`` (kind to present or not), ``state`` (ready, to fetch, no drafter)
    and ``missing`` in words. Touches no network."""
    return [_state(pair) for pair in load_pairs(path).values()]


def _state(pair: Pair) -> dict[str, Any]:
    try:
        target, trouble = find_target(pair), []
    except UserError as refusal:
        target, trouble = None, [str(refusal)]
    drafters = {kind: drafter_present(place) for kind, place in pair.drafters.items()}
    missing = trouble or (
        [] if target else [f"target, from {_source_word(pair.target[0])} at the first run"]
    )
    missing += [
        f"{kind} drafter ({pair.drafters[kind]})" for kind, here in drafters.items() if not here
    ]
    if not drafters:
        missing.append(
            f"diffusion drafter: {pair.blocked or 'name one in models.yaml or train it'}"
        )
    state = (
        "no drafter"
        if not drafters
        else "ready"
        if target and all(drafters.values())
        else "to fetch"
    )
    return {
        "id": pair.id,
        "title": pair.title,
        "license": pair.license,
        "size": pair.size,
        "hardware": pair.hardware,
        "dtypes": list(pair.dtypes),
        "thinking": pair.thinking,
        "notes": pair.notes,
        "target": str(target) if target else None,
        "drafters": drafters,
        "state": state,
        "missing": missing,
    }


def _source_word(source: dict[str, str]) -> str:
    if "wheel" in source:
        return f"the package {source['wheel']}"
    return f"the hub ({source['hub']})" if "hub" in source else f"the folder {source['path']}"


__all__ = [
    "Loaded",
    "default_device",
    "default_dtype",
    "load_drafter",
    "load_target",
    "pair_states",
    "read_drafter",
]
