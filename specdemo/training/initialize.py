"""Where a drafter's weights come from before training: random, the target's own layers, or a
drafter folder.
"""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UserError
from ..models.ar_drafter import ArDrafter, ArDrafterConfig
from ..models.block_drafter import BlockDrafter, BlockDrafterConfig
from ..models.dflash_layout import has_dflash_form
from ..models.drafters import drafter_config, read_drafter
from ..models.kinds import is_diffusion_lm
from ..models.layers import DrafterConfig
from ..models.load import Loaded
from ..models.text_drafter import block_network
from . import checkpoint
from .data import Corpus, draft_vocabulary
from .diffusion_net import DiffusionNet
from .diffusion_start import initial_diffusion, mask_of, resumed_diffusion
from .markov import with_head
from .mask_token import choose_mask_token
from .new_drafter import new_drafter, spread
from .options import DRAFT_VOCAB, STARTS, shape_name

LAYERS, BLOCK = 4, 16  # shape of a new drafter where nothing else is asked for


def check_form(target: Any) -> None:
    """Refuse a target after whose layers no drafter can be shaped.

    Raises:
        UserError: its config or its decoder lacks what Llama's have.
    """
    config, needed = target.config.get_text_config(), "intermediate_size rms_norm_eps"
    lacking = [n for n in needed.split() if not getattr(config, n, None)]
    if not hasattr(target.get_decoder(), "layers"):
        lacking.append("layers")
    if lacking:
        raise UserError(
            "Drafters are trained for targets of Llama's form, and models of type"
            f" “{config.model_type}” have no {lacking[0]}; choose another target."
        )


@torch.no_grad()
def copy_target_layers(net: Any, target: Any) -> list[int]:
    """Start every drafter layer from one of the target's, first and last among them; returns which.
    Biases the drafter lacks are left out; norms of queries and keys that the target lacks begin at
    the sizes that its queries and keys have (:func:`norms_of`).
    """
    body = target.get_decoder()
    chosen = spread(len(net.layers), 0, len(body.layers) - 1)
    chosen += [chosen[-1]] * (len(net.layers) - len(chosen))
    for layer, index in zip(net.layers, chosen, strict=True):
        source = norms_of(body.layers[index], layer)
        source |= dict(body.layers[index].named_parameters())
        for name, own in layer.named_parameters():
            value = source.get(
                name.replace("context_k_proj", "k_proj").replace("context_v_proj", "v_proj")
            )
            if value is None or value.shape != own.shape:
                raise UserError(
                    "This target's layers have another form than the drafter's; train with --start"
                    " random."
                )
            own.copy_(value.float())
    net.norm.weight.copy_(body.norm.weight.float())
    if getattr(net, "mask_embedding", None) is not None:
        net.mask_embedding.copy_(target.get_input_embeddings().weight.float().mean(0))
    return chosen


def norms_of(source: Any, layer: Any) -> dict[str, torch.Tensor]:
    """Weights for the norms of queries and keys of ``layer``: for each dimension of a head the size
    that ``source`` gives it, over all heads, where the layer's normed input has unit variance.
    """
    made = {}
    for name in ("q", "k") if layer.self_attn.qk_norm else ():
        weight = getattr(source.self_attn, f"{name}_proj").weight.float()
        rows = (weight * source.input_layernorm.weight.float()).pow(2).sum(-1)
        size = rows.view(-1, layer.self_attn.dim).mean(0).sqrt()
        made[f"self_attn.{name}_norm.weight"] = size
    return made


def init_drafter(
    target: Any,
    kind: str,
    start: str,
    layers: int,
    block_size: int,
    draft_vocab: torch.Tensor | None,
    seed: int = 0,
    mask_id: int | None = None,
    shape: str = "own",
) -> tuple[ArDrafter | BlockDrafter, str]:
    """The network to train and one phrase about its beginning.

    Args:
        layers, block_size: 0 = 4 and 16, or those of the folder, from which fewer layers may be
            kept.
        mask_id: see :func:`choose_mask_token`; a drafter folder keeps its own if it has one.
        start: ``random``, ``target-layers`` or a drafter folder of the same form (``draft_vocab``
            None keeps its own); of ``shape`` text also an autoregressive drafter's.
        shape: of a new block drafter.
    """
    if start not in STARTS:
        net, phrase = _from_folder(
            target, kind, Path(start), layers, block_size, draft_vocab, shape
        )
        if kind != "ar" and net.config.mask_token_id is None:
            net.config.mask_token_id = mask_id
            if mask_id is not None and net.draft_vocab is not None:
                net.draft_vocab = net.draft_vocab[net.draft_vocab != mask_id]
        return net, phrase
    net = new_drafter(
        target, kind, layers or LAYERS, block_size or BLOCK, draft_vocab, seed, mask_id, shape
    )
    if start == "random":
        return net, "random weights"
    return net, f"the target's layers {', '.join(map(str, copy_target_layers(net, target)))}"


def _from_folder(
    target: Any,
    kind: str,
    folder: Path,
    layers: int,
    block_size: int,
    draft_vocab: torch.Tensor | None,
    shape: str,
) -> tuple[Any, str]:
    _check_folder(folder)
    net: Any = read_drafter(folder)
    what = f"the drafter in {folder.name}"
    if net.config.hidden_size != target.config.get_text_config().hidden_size:
        raise UserError(
            f"The drafter in {folder} has another width than this target; start from one trained"
            " for it, or from target-layers."
        )
    if isinstance(net, ArDrafter) and shape == "text":
        net, what = opened(target, net, block_size or BLOCK), f"{what}, its blocks seen both ways"
    if isinstance(net, ArDrafter) != (kind == "ar"):
        holds = "an autoregressive drafter; open its blocks with --shape text, or"
        if kind == "ar":
            holds = "a diffusion drafter;"
        raise UserError(f"{folder} holds {holds} choose another --kind or --start.")
    if isinstance(net, BlockDrafter) and not net.is_plain:
        raise UserError(
            f"The drafter in {folder} is of a published kind that is raced here but not trained"
            " (another attention, shift or head); start from another one, or from target-layers."
        )
    if layers > net.config.num_hidden_layers:
        raise UserError(
            f"The drafter in {folder} has {net.config.num_hidden_layers} layers; give --layers at"
            " most that, or start from target-layers."
        )
    kept = ""
    if 0 < layers < net.config.num_hidden_layers:
        kept = f", of which layers {', '.join(map(str, keep_layers(net, layers)))} are kept"
    if kind != "ar":
        net.config.block_size = block_size or net.config.block_size
        if kind != "markov":
            # it belongs to the states that are about to change
            net.markov, net.config.markov_rank = None, 0
    if draft_vocab is not None:
        net.draft_vocab = draft_vocab.to(torch.int32)
    return net.float().requires_grad_(True), what + kept


def _check_folder(folder: Path) -> None:
    """Raises UserError: there is no drafter to start from in ``folder``."""
    if not (folder / "config.json").is_file():
        if (folder / "drafter" / "config.json").is_file():
            raise UserError(f"{folder} is a run; give --start {folder / 'drafter'}.")
        run = folder.parent if (folder.parent / checkpoint.NAME).is_file() else folder
        unfinished = (
            f" Its run was stopped before its end; go on with --resume {run}."
            if (run / checkpoint.NAME).is_file()
            else ""
        )
        raise UserError(
            f"There is no finished drafter in {folder}; give --start a drafter folder,"
            f" target-layers or random.{unfinished}"
        )
    if is_diffusion_lm(drafter_config(folder)):
        raise UserError(
            f"{folder} holds a stand-alone diffusion language model; choose --kind diffusion-lm, or"
            " another --start."
        )


@torch.no_grad()
def opened(target: Any, net: ArDrafter, block_size: int) -> BlockDrafter:
    """A block drafter that reads the text, with the layers of an autoregressive one."""
    if net.config.own_embedding or net.config.own_head:
        raise UserError(
            "A language model of its own does not become a block drafter; start from an"
            " autoregressive drafter that was trained here, or from target-layers."
        )
    shared = inspect.signature(DrafterConfig).parameters.keys() - {"rope_theta", "more"}
    config = BlockDrafterConfig(
        **{name: getattr(net.config, name) for name in shared},
        block_size=block_size,
        num_target_layers=target.config.get_text_config().num_hidden_layers,
        context="text",
        mask_embedding="learned",
    )
    out: Any = block_network(config)(config, net.draft_vocab).float()
    mask = target.get_input_embeddings().weight.float().mean(0)
    out.load_state_dict(net.state_dict() | {"mask_embedding": mask})
    return out


def keep_layers(net: ArDrafter | BlockDrafter, count: int) -> list[int]:
    """Leave ``count`` layers, evenly spread, first and last among them; returns which."""
    chosen = spread(count, 0, len(net.layers) - 1)
    net.layers = torch.nn.ModuleList(net.layers[i] for i in chosen)
    for index, layer in enumerate(net.layers):
        layer.index = index
    net.config.num_hidden_layers = count
    if isinstance(net, BlockDrafter):
        net.config.layer_types = [net.config.layer_types[i] for i in chosen]
        net.config.causal = [net.config.causal[i] for i in chosen]
    return chosen


def initial_network(
    loaded: Loaded, rows: Corpus, args: argparse.Namespace
) -> tuple[ArDrafter | BlockDrafter | DiffusionNet, str]:
    """The network before the first step, on the CPU, and one phrase about its beginning.

    Args:
        rows: training rows, which choose mask and draft vocabulary. args: of ``train``.
    """
    check_form(loaded.model)
    kind, shape = args.kind or "block", args.shape or "own"
    if kind == "markov" and args.start in STARTS:
        raise UserError(
            "A Markov head is trained on a finished block drafter; give its folder with --start."
        )
    mask = None
    if kind != "ar":
        mask = choose_mask_token(
            loaded.tokenizer,
            loaded.model.get_input_embeddings().weight.shape[0],
            loaded.eos_ids,
            np.bincount(rows.tokens.ravel()),
        )
    if kind == "diffusion-lm":
        return initial_diffusion(loaded, rows, args, mask_of(loaded.tokenizer, mask or 0))
    new = args.start in STARTS or not (Path(args.start) / "config.json").exists()
    size = args.draft_vocab
    if size < 0:
        size = 0 if shape == "dflash" else DRAFT_VOCAB
    reduced = 0 < size < loaded.model.config.get_text_config().vocab_size
    vocab = None
    if reduced and new:
        vocab = draft_vocabulary(rows, size, loaded.eos_ids, mask)
    net, phrase = init_drafter(
        loaded.model, kind, args.start, args.layers, args.block_size, vocab, args.seed, mask, shape
    )
    _check_shape(net, args)
    whole = net.draft_vocab is None and args.draft_vocab <= 0
    stays_dflash = has_dflash_form(net.config) and kind != "markov" and whole
    if reduced and not new and net.draft_vocab is None and not stays_dflash:
        mask = getattr(net.config, "mask_token_id", None)
        net.draft_vocab = draft_vocabulary(rows, size, loaded.eos_ids, mask).to(torch.int32)
    if not stays_dflash:  # an engine that loads DFlash's layout reads all of the context
        row = rows.tokens.shape[1]
        net.config.context_window = max(trained_window(row), net.config.context_window or 0)
    if kind == "markov":
        return with_head(net, args.rank), f"{phrase}, whose layers it keeps"
    return net, phrase


def _check_shape(net: ArDrafter | BlockDrafter, args: argparse.Namespace) -> None:
    """Raises UserError: the drafter that is started from has another shape than is asked for."""
    found = shape_name(net.config.to_dict())
    if args.shape not in (None, found):
        raise UserError(
            f"The drafter in {args.start} has the shape {found}, which it keeps; leave --shape out,"
            " or start from target-layers."
        )
    has, asked = net.draft_vocab, args.draft_vocab
    if has is not None and (asked == 0 or 0 < asked < len(has)):
        raise UserError(
            f"The drafter in {args.start} drafts {len(has)} tokens, which it keeps; leave"
            " --draft-vocab out, or start from target-layers."
        )


def trained_window(row: int) -> int:
    """The context a drafter trained on rows of ``row`` tokens should read at most: three quarters
    of a row, as few of its blocks lie behind more (measured in docs/methods.md, “Long contexts”).
    """
    return max(1, row * 3 // 4)


def resumed_network(state: dict[str, Any], folder: Path) -> ArDrafter | BlockDrafter | DiffusionNet:
    """A network of the checkpoint's shape, whose weights :meth:`.trainer.Trainer.resume` brings.

    Args:
        state: of the checkpoint in ``folder``.
    """
    kind = state["settings"]["kind"]
    if kind == "diffusion-lm":
        return resumed_diffusion(state["config"])
    form: Any = ArDrafterConfig if kind == "ar" else BlockDrafterConfig
    config = {
        name: value
        for name, value in state["config"].items()
        if name not in ("model_type", "dtype", "architectures", "transformers_version")
    }
    vocab = checkpoint.read(folder)[1].get("net.draft_vocab")
    made = form(**config)
    cls: Any = ArDrafter if kind == "ar" else block_network(made)
    net = cls(made, vocab).float()
    return with_head(net) if kind == "markov" else net
