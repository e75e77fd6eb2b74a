"""The target in memory with its tokenizer."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ..errors import UserError, first_line
from ..files import read_json
from ..hardware import bf16_instructions
from .blocks import GROUP, to_numbers
from .chat import check_thinking, prompt_ids, render
from .fetch import Progress, cache_root, is_fetched, target_folder
from .foreign_code import no_foreign_code
from .hf_progress import no_progress_bars
from .kinds import is_diffusion_lm
from .pairs import Pair
from .spread import AUTO, refuse_offloaded_ends, where
from .target_config import quantized_as
from .validate import check_target, finite

DTYPES = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp32": torch.float32,
    "float32": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
}

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
NOT_READ = (".bin", ".gguf", ".pt", ".pth")  # weights of other kinds
# tables that older checkpoints store and a model makes by itself
BUFFERS = re.compile(r"inv_freq$|\.(attn|attention)\.(masked_)?bias$|position_ids$")

SEVERAL = (
    "Several devices are named “auto”: layers then go to the GPUs that there are, and what does not"
    " fit into the machine's memory; choose auto, or one device."
)


@dataclass
class Loaded:
    """A target ready to run.

    Attributes:
        model: transformers causal LM, eval mode, no gradients.
        eos_ids: every id that ends a text.
        dtype: what it computes in; quantized: ``int4`` (on a CPU, by :mod:`.blocks`), ``4bit`` or
            ``8bit`` (on a GPU, by bitsandbytes), or None.
        networks: drafters loaded so far, by kind (filled by :func:`.drafters.load_drafter`).
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
    native = torch.device(device).type == "cpu" and bf16_instructions()
    return torch.bfloat16 if native else torch.float32


def load_target(
    pair: Pair,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """The pair's target and tokenizer, fetched first if need be.

    Args:
        dtype: a torch dtype, or one of bf16, fp32, fp16, int4, 8bit, 4bit; None takes
            :func:`default_dtype`.
        device: default: the GPU if there is one; “auto”: all there are (see :mod:`.spread`).
        progress: called with a message and a fraction from 0 to 1 (None where it is not known).
    Raises:
        UserError: it cannot be fetched, is damaged, or is of a kind that cannot be verified
            losslessly.
    """
    place, (kind, quantized) = _device(device), _dtype(dtype)
    kind = kind or default_dtype(place)
    if quantized and quantized != "int4":
        check_bits(quantized)
    folder = target_folder(pair, progress)
    if progress:
        progress("loading the target", None)
    config, tokenizer = check_target_folder(folder, pair)
    if quantized == "int4":
        if place.type != "cpu":
            raise UserError("dtype int4 is for CPUs; choose bf16, or 4bit on a GPU.")
        model = _model(folder, config, kind, place, None)
        round_weights(model)
    else:
        model = _model(folder, config, kind, place, quantized, device == AUTO)
    if where(model):
        refuse_offloaded_ends(model)
        place = model.get_input_embeddings().weight.device
    return Loaded(pair, model, tokenizer, find_eos_ids(model, tokenizer), kind, place, quantized)


def _damaged(folder: Path, why: str) -> UserError:
    """What is wrong with the weights in ``folder``, and what to do."""
    return UserError(
        f"The target's weights in {folder} are damaged or incomplete ({why}); {_mend(folder)}."
    )


def _mend(folder: Path) -> str:
    """What a person may do about files that cannot be used: what we fetched is fetched again, their
    own files are theirs.
    """
    if is_fetched(folder):
        return "delete that folder to fetch it again, or choose another pair"
    return "mend that folder's files, or name another folder or pair"


def _refuse_drafter(folder: Path) -> None:
    """Raises UserError: the folder holds a drafter, where a target is needed."""
    try:
        config = read_json(folder / "config.json")
        drafts = str(config["model_type"]).startswith("specdemo_") or is_diffusion_lm(config)
        drafts = drafts or any("DFlash" in str(name) for name in config.get("architectures") or ())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # said by whoever reads it as a target
    if drafts:
        raise UserError(
            f"{folder} holds a drafter, and a target is needed there; name it with --drafter, or"
            " under “drafters” in models.yaml."
        )


def check_target_folder(folder: Path, pair: Pair) -> tuple[Any, Any]:
    """(config, tokenizer) of the target in ``folder``; of its weights only the files' headers are
    read.

    Raises:
        UserError: it cannot be read, is of a kind that cannot be verified losslessly, its chat
            template fails, or its weights are missing or cut short.
    """
    from transformers import AutoConfig, AutoTokenizer

    _refuse_drafter(folder)
    try:
        with no_foreign_code(folder, "target"):
            config = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            check_target(config, pair.title)
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except UserError:
        raise
    except Exception as error:  # of transformers and tokenizers, which have no class in common
        why = first_line(error)
        if not any((folder / name).exists() for name in TOKENIZERS):
            why = "there is no tokenizer.json"
        raise UserError(
            f"The target in {folder} cannot be read ({why}); {_mend(folder)}."
        ) from None
    check_thinking(tokenizer, pair.thinking)
    prompt_ids(tokenizer, "?", pair.thinking)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        other = next((f for f in sorted(folder.iterdir()) if f.suffix in NOT_READ), None)
        why = f", and {other.name} is of a kind that is not read" if other else ""
        raise _damaged(folder, f"there is no *.safetensors{why}")
    for file in files:
        if not file.is_file():  # to open a pipe would wait for ever
            raise _damaged(folder, f"{file.name} is no file")
        try:
            with safe_open(file, "pt"):  # compares the file's length with what its header says
                pass
        except (SafetensorError, OSError) as error:
            raise _damaged(folder, f"{file.name}: {first_line(error)}") from None
    return config, tokenizer


def _model(
    folder: Path,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    quantized: str | None,
    spread: bool = False,
) -> Any:
    from transformers import AutoModelForCausalLM

    extra: dict[str, Any] = {}
    if quantized:
        place = device.index or 0 if device.type == "cuda" else device.type
        extra = {"quantization_config": _bits(quantized, dtype), "device_map": {"": place}}
    if spread:  # what fits nowhere is read from its files whenever it is used
        extra |= {"device_map": AUTO, "offload_folder": str(cache_root() / "offload")}
    try:
        with no_progress_bars(), no_foreign_code(folder, "target"):
            found: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # told below, with both shapes
                **extra,
            )
        model, report = found
        model = model if quantized or spread else model.to(device)
    except torch.OutOfMemoryError:
        raise UserError(
            f"The target does not fit into the memory of {device} as {quantized or dtype}; choose a"
            " smaller pair."
        ) from None
    except UserError:
        raise
    except Exception as error:  # a config and weights that do not fit end in any of them
        if kind := quantized_as(config):
            raise UserError(
                f"The target's weights in {folder} are quantized ({kind}) and cannot be read here"
                f" ({first_line(error)}); name the checkpoint that they were made from, and --dtype"
                " 4bit or 8bit for less memory."
            ) from None
        raise _damaged(folder, first_line(error)) from None
    if report["mismatched_keys"]:
        name, there, asked = min(report["mismatched_keys"])
        raise _damaged(folder, f"{name} is {list(there)} where config.json asks for {list(asked)}")
    if report["missing_keys"]:
        raise _damaged(folder, f"{min(report['missing_keys'])} is missing")
    _refuse_extra(report["unexpected_keys"], folder, config)
    here = ((n, p.detach()) for n, p in model.named_parameters() if p.device.type != "meta")
    bad = next((n for n, p in here if not finite(p)), None)
    if bad:
        raise _damaged(folder, f"{bad} has values that are not finite")
    return model.eval().requires_grad_(False)


def _refuse_extra(names: Iterable[str], folder: Path, config: Any) -> None:
    """Raises UserError: the files hold weights that the model of this config does not have, so it
    is not what they were made for.
    """
    extra = sorted(name for name in names if not BUFFERS.search(name))
    if extra:
        raise UserError(
            f"The target's weights in {folder} hold what a model of type “{config.model_type}” does"
            f" not have ({len(extra)}, for instance {extra[0]}), so they were made for another"
            " computation; choose another target."
        )


def check_bits(quantized: str) -> None:
    """Refuse 4 and 8 bits where bitsandbytes is not installed, before anything is fetched."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(
            f"dtype {quantized} needs bitsandbytes; install it with “pip install bitsandbytes” or"
            " choose bf16."
        )


def _bits(quantized: str, dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    if quantized == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


@torch.no_grad()
def round_weights(model: Any) -> None:
    """Give ``model`` the weights that its numbers of 4 bits stand for (8 in its head): it is then
    what passes with those numbers are checked against. Weights that were expanded from such numbers
    stay as they are, up to rounding.
    """
    head = model.get_output_embeddings().weight
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and ("_proj." in name or weight is head):
            whole = weight.shape[1] % GROUP == 0
            if whole:
                weight.copy_(to_numbers(weight, 8 if weight is head else 4).weights())


def _dtype(value: torch.dtype | str | None) -> tuple[torch.dtype | None, str | None]:
    if value is None or value == "auto":
        return None, None
    if value in ("int4", "4bit", "8bit"):
        return None, str(value)
    name = str(value).removeprefix("torch.")
    if name not in DTYPES:
        raise UserError(
            f"There is no dtype “{value}” here; choose bf16, fp32, fp16, int4, 8bit or 4bit."
        )
    return DTYPES[name], None


def _device(value: torch.device | str | None) -> torch.device:
    if "," in str(value):
        raise UserError(SEVERAL)
    try:
        device = default_device() if value in (None, AUTO) else torch.device(value)
        torch.zeros(1, device=device).item()  # the device "meta" has no values
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(
            f"The device “{value}” is not available here; choose"
            f" cpu{' or cuda' if torch.cuda.is_available() else ''}."
        ) from None
    return device


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
    try:
        text = render(tokenizer, [("user", "?"), ("assistant", "specdemo-answer")], ask=False)
    except UserError:  # a template for questions alone; the other two sources remain
        return None
    tail = tokenizer(text.rpartition("specdemo-answer")[2], add_special_tokens=False)["input_ids"]
    special = set(tokenizer.all_special_ids) | {
        i for i, t in tokenizer.added_tokens_decoder.items() if t.special
    }
    return tail[0] if tail and tail[0] in special else None
