"""Where a stand-alone diffusion language model comes from before training (the target itself, some
of its layers, random weights or such a model's folder), and its folder afterwards.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..models.diffusion_configs import FAMILIES
from ..models.diffusion_lm_files import Tensors, read_diffusion_lm
from ..models.drafter_files import write_folder
from ..models.drafters import drafter_config
from ..models.kinds import is_diffusion_lm
from ..models.load import Loaded
from .data import Corpus
from .diffusion_net import DiffusionNet, merged_tensors
from .new_drafter import spread

BLOCK = 16  # slots of a training block where nothing else is asked for
LAYOUT = "a2d"  # of a new one
# the transformers model a published form is, by the model_type of its config.json
CAUSAL = {"a2d-llama": "llama", "a2d-qwen2": "qwen2", "a2d-qwen3": "qwen3", "Dream": "qwen2"}
ARCHITECTURES = {
    "a2d-llama": "A2DLlamaLMHeadModel",
    "a2d-qwen2": "A2DQwen2LMHeadModel",
    "a2d-qwen3": "A2DQwen3LMHeadModel",
    "Dream": "DreamModel",
}
# settings of the causal model that shape it and that a published config.json has as they are
SHAPE = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps"),
    *("max_position_embeddings", "tie_word_embeddings"),
)


def causal_model(family: str, fields: dict[str, Any]) -> Any:
    """A model of transformers with random weights, float32 on the CPU, for the published ``family``
    (a key of :data:`CAUSAL`) and the fields of its config.
    """
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    fields = fields | dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = CONFIG_MAPPING[CAUSAL[family]](**fields)
    config.family = family
    config.layout = "dream" if FAMILIES[family].shifted else "a2d"
    return AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
    ).eval()


def initial_diffusion(
    loaded: Loaded, rows: Corpus, args: argparse.Namespace, mask_id: int
) -> tuple[DiffusionNet, str]:
    """The network before the first step, on the CPU, and one phrase about its beginning.

    Args:
        rows: training rows. args: of ``train``. mask_id: of a new one.
    Raises:
        UserError: the target or the ``--start`` folder is of a kind that is not trained here.
    """
    torch.manual_seed(args.seed)
    if args.start in ("target-layers", "random"):
        lm, phrase = _from_target(loaded, args)
        lm.config.mask_token_id = mask_id
        if args.start == "target-layers":  # its row in the target means nothing yet
            with torch.no_grad():
                embedding = lm.get_input_embeddings().weight
                embedding[mask_id] = embedding.mean(0)
        _limit_window(lm, rows.tokens.shape[1])
    else:
        lm, phrase = _from_folder(loaded, Path(args.start), args)
    lm.config.block_size = args.block_size or BLOCK
    lm.config.lora_rank = args.lora_rank
    net = DiffusionNet(lm)
    if args.lora_rank:
        phrase += f", with adapters of rank {args.lora_rank}"
    return net, phrase


def _limit_window(lm: Any, row: int) -> None:
    """It reads no more positions than it is trained on, rows of ``row`` tokens. Rotations that
    depend on the original number of positions keep it.
    """
    config = lm.config
    if config.rope_parameters.get("rope_type", "default") == "default":
        config.max_position_embeddings = min(config.max_position_embeddings, max(row, 16))


# -- from the target -------------------------------------------------------------------------------


def _from_target(loaded: Loaded, args: argparse.Namespace) -> tuple[Any, str]:
    config = loaded.model.config.get_text_config()
    family = "Dream" if (args.shape or LAYOUT) == "dream" else f"a2d-{config.model_type}"
    if family not in CAUSAL or config.model_type not in CAUSAL.values():
        raise UserError(
            f"A target of type {config.model_type} has no published form as a diffusion language"
            " model here; choose a Llama, Qwen2 or Qwen3 target, or give --start such a model."
        )
    depth = config.num_hidden_layers
    if args.layers > depth:
        raise UserError(f"The target has {depth} layers; give --layers at most that.")
    fields = {n: getattr(config, n) for n in SHAPE if getattr(config, n, None) is not None}
    fields |= {"rope_parameters": dict(config.rope_parameters)}
    lm = causal_model(family, fields | {"num_hidden_layers": args.layers or depth})
    if args.start == "random":
        return lm, "random weights"
    chosen = _copy_layers(lm, loaded.model)
    which = "all of the target" if len(chosen) == depth else f"the target's layers {_list(chosen)}"
    return lm, f"{which}, its attention both ways"


def _list(chosen: list[int]) -> str:
    return ", ".join(map(str, chosen))


@torch.no_grad()
def _copy_layers(lm: Any, target: Any) -> list[int]:
    """Copy embedding, head, final norm and evenly spread layers of ``target``; returns which.
    Biases that it lacks begin at 0.
    """
    body = target.get_decoder()
    chosen = spread(len(lm.model.layers), 0, len(body.layers) - 1)
    source = body.state_dict() | {"lm_head.weight": target.get_output_embeddings().weight}
    needed = {f"layers.{i}." for i in chosen}
    left = {n for n in source if not n.startswith("layers.") or n[: n.index(".", 7) + 1] in needed}
    for name, own in lm.state_dict().items():
        theirs = name.removeprefix("model.")
        if theirs.startswith("layers."):
            _, index, part = theirs.split(".", 2)
            theirs = f"layers.{chosen[int(index)]}.{part}"
        if theirs not in source and theirs.endswith("_proj.bias"):
            own.zero_()
            continue
        if theirs not in source or source[theirs].shape != own.shape:
            raise _other_form()
        own.copy_(source[theirs].float())
        left.discard(theirs)
    if any(not name.endswith("inv_freq") for name in left):
        raise _other_form()
    return chosen


def _other_form() -> UserError:
    return UserError(
        "This target's layers have another form than the diffusion language model's (norms of"
        " queries and keys, or biases); choose another --shape, or train with --start random."
    )


# -- from a folder ---------------------------------------------------------------------------------


def _from_folder(loaded: Loaded, folder: Path, args: argparse.Namespace) -> tuple[Any, str]:
    net = read_trainable(folder, loaded)
    found, depth = net.config.layout, net.config.num_hidden_layers
    if args.shape not in (None, found):
        raise UserError(
            f"The drafter in {folder} has the shape {found}, which it keeps; leave --shape out, or"
            " start from target-layers."
        )
    if args.layers not in (0, depth):
        raise UserError(
            f"The drafter in {folder} has {depth} layers, which it keeps; leave --layers out, or"
            " start from target-layers."
        )
    return net, f"the diffusion language model in {folder.name}"


def read_trainable(folder: Path, loaded: Loaded) -> Any:
    """The diffusion language model in ``folder`` as a causal model of transformers, float32 on the
    CPU, its tokens compared with the target's.

    Raises:
        UserError: it is none, is damaged, or is of a family that is raced here but not trained.
    """
    raw = drafter_config(folder)
    if not is_diffusion_lm(raw):
        raise UserError(
            f"{folder} does not hold a stand-alone diffusion language model; choose another --kind"
            " or --start."
        )
    kind = raw["model_type"]
    # checks all there is, sizes above all, before anything is made from config.json alone
    config = read_diffusion_lm(folder, raw, loaded).config
    if kind not in CAUSAL or config.block:
        how = f"with blocks of {config.block} positions " if config.block else ""
        raise UserError(
            f"The {config.family} drafter in {folder} is of a kind {how}that is raced here but not"
            " trained; start from an A2D or Dream model that reads both ways, or from"
            " target-layers."
        )
    fields = {n: raw[n] for n in SHAPE if raw.get(n) is not None}
    lm = causal_model(kind, fields | {"rope_parameters": dict(config.rope_parameters)})
    lm.config.mask_token_id = config.mask_token_id
    tied, tensors = (
        lm.config.tie_word_embeddings,
        Tensors(folder, torch.device("cpu"), torch.float32),
    )
    with torch.no_grad():
        for name, own in lm.state_dict().items():
            if tied and name == "lm_head.weight":
                if name in tensors:  # whatever is stored
                    tensors.take(name, *own.shape)
                continue
            own.copy_(tensors.take(name, *own.shape))
    tensors.check_rest()
    return lm


def finished_diffusion(folder: Path, loaded: Loaded) -> DiffusionNet:
    """The model in ``folder`` as it is evaluated."""
    lm = read_trainable(folder, loaded)
    lm.config.block_size, lm.config.lora_rank = BLOCK, 0
    return DiffusionNet(lm)


def resumed_diffusion(stored: dict[str, Any]) -> DiffusionNet:
    """A network of the shape that a checkpoint's config says; the checkpoint brings its weights."""
    fields = {n: stored[n] for n in SHAPE if stored.get(n) is not None}
    lm = causal_model(stored["family"], fields | {"rope_parameters": stored["rope_parameters"]})
    for name in ("mask_token_id", "block_size", "lora_rank"):
        setattr(lm.config, name, stored[name])
    return DiffusionNet(lm)


def mask_of(tokenizer: Any, chosen: int) -> int:
    """The id of the mask: the tokenizer's own mask, where it has one, else ``chosen``."""
    ids = tokenizer.get_vocab()
    return int(ids.get(FAMILIES["Dream"].mask, chosen))


# -- to a folder -----------------------------------------------------------------------------------


def published_config(net: DiffusionNet) -> dict[str, Any]:
    """The ``config.json`` of its family."""
    config = net.config
    out = {n: getattr(config, n) for n in SHAPE if getattr(config, n, None) is not None}
    rope = dict(config.rope_parameters)
    out["rope_theta"] = rope.pop("rope_theta")
    if rope.get("rope_type", "default") != "default":
        out["rope_scaling"] = rope
    return out | {
        "model_type": config.family,
        "architectures": [ARCHITECTURES[config.family]],
        "mask_token_id": config.mask_token_id,
    }


def save_diffusion(
    net: DiffusionNet, folder: Path, card: str, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write the model with its adapters merged, the target's tokenizer beside it.

    Args:
        card: Markdown for README.md. dtype: of the weights on disk.
    Raises:
        UserError: the folder cannot be written.
    """
    tensors = {name: tensor.to(dtype) for name, tensor in merged_tensors(net).items()}
    config = published_config(net) | {"dtype": str(dtype).removeprefix("torch.")}

    def more(part: Path) -> None:
        net.tokenizer.save_pretrained(part)

    return write_folder(folder, tensors, config, card, more=more)
