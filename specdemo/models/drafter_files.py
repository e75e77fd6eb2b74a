"""A drafter on disk: a folder with config.json, safetensors shards under 10 MB, and a card.

Matrices are stored as int8 with one scale a row (largest value / 127). A drafter's precision never
touches losslessness: the target checks every token anyway, so all int8 can cost is acceptance.
A drafter of DFlash's form is stored as DFlash publishes it, in bf16, which other engines load.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedConfig, PreTrainedModel

from ..errors import UserError, first_line
from ..files import read_json
from .dflash_layout import dflash_config, dflash_tensors, is_dflash
from .validate import finite

SHARD_BYTES = 9_500_000
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
KINDS = (*FLOATS, torch.int32, torch.int64, torch.bool)  # whole numbers: tables of a vocabulary
SCALE = "_scale"  # "x.weight" is int8 where "x.weight_scale" stands beside it


def to_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``[out, in]`` to int8 ``[out, in]`` and float32 scales ``[out, 1]``."""
    scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return (weight.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def stored_tensors(
    net: torch.nn.Module, draft_vocab: torch.Tensor | None, int8: bool
) -> dict[str, torch.Tensor]:
    """Everything of a drafter that goes to disk, by name; bf16 where it is not int8."""
    out: dict[str, torch.Tensor] = {}
    for name, tensor in net.state_dict().items():
        tensor = tensor.detach().cpu()
        if name == "draft_vocab":
            continue
        if int8 and tensor.dim() == 2:
            out[name], out[name + SCALE] = to_int8(tensor)
        else:
            out[name] = tensor.to(torch.bfloat16, copy=True).contiguous()
    vocab = draft_vocab if draft_vocab is not None else getattr(net, "draft_vocab", None)
    if vocab is not None:
        out["draft_vocab"] = torch.as_tensor(vocab).cpu().to(torch.int32, copy=True).contiguous()
    return out


def own_config(net: PreTrainedModel) -> dict[str, Any]:
    """The ``config.json`` of a drafter in our own layout."""
    generic = PreTrainedConfig().to_dict()
    config = {
        k: v
        for k, v in net.config.to_dict().items()
        if not (k.startswith("_") or (k in generic and generic[k] == v))
    }
    return config | {"architectures": [type(net).__name__], "dtype": "bfloat16"}


def save_drafter(
    net: PreTrainedModel,
    folder: str | Path,
    card: str,
    draft_vocab: torch.Tensor | None = None,
    int8: bool = True,
) -> Path:
    """Write ``net`` to ``folder``, replacing what was there only once everything is written.

    Args:
        card: Markdown for README.md: what it is, how it was trained, its scores.
        draft_vocab: ``[Vd]`` target ids the drafter may propose; default: those the net has, if
            any.
        int8: matrices of our own layout as int8; DFlash's has none.
    """
    if draft_vocab is None and is_dflash(net):
        return write_folder(Path(folder), dflash_tensors(net), dflash_config(net.config), card)
    tensors, config = stored_tensors(net, draft_vocab, int8), own_config(net)
    return write_folder(Path(folder), tensors, config, card, SHARD_BYTES)


def write_folder(
    folder: Path,
    tensors: dict[str, torch.Tensor],
    config: dict[str, Any],
    card: str,
    shard_bytes: int = 5 * 10**9,
    more: Callable[[Path], object] | None = None,
) -> Path:
    """Write a drafter to ``folder``, replacing what was there only once everything is written.

    Args:
        config: of config.json. card: Markdown for README.md. more: writes other files to the
            folder it is given.
    Raises:
        UserError: it cannot be written.
    """
    part = folder.with_name(folder.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_torch_state_dict(dict(sorted(tensors.items())), part, max_shard_size=shard_bytes)
        if more is not None:
            more(part)
        (part / "config.json").write_text(
            json.dumps(config, indent=2, sort_keys=True, default=str) + "\n", encoding="utf-8"
        )
        (part / "README.md").write_text(card.rstrip() + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(
            f"The drafter could not be written to {folder} ({why}); free some space or choose"
            " another folder."
        ) from None
    return folder


def read_weights(folder: str | Path) -> dict[str, torch.Tensor]:
    """All tensors of a drafter folder, int8 rows expanded to float32, a leading ``model.`` dropped;
    ``draft_vocab`` as int64.

    Raises:
        UserError: no safetensors, a damaged or missing shard, values that are not finite.
    """
    folder = Path(folder)
    raw: dict[str, torch.Tensor] = {}
    for file in shard_files(folder):
        try:
            raw |= {name.removeprefix("model."): t for name, t in load_file(file).items()}
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(
                f"The weights file {file} is damaged or cut short ({error}); fetch or train this"
                " drafter again."
            ) from None
    out: dict[str, torch.Tensor] = {}
    for name, tensor in raw.items():
        if name.endswith("weight" + SCALE):
            continue
        scale = raw.get(name + SCALE)
        if tensor.dtype == torch.int8 and scale is None:
            raise UserError(
                f"The drafter in {folder} stores {name} as int8 without its row scales; fetch or"
                " train it again."
            )
        _check_kind(name, tensor, scale, folder)
        if not (finite(tensor) and (scale is None or finite(scale))):
            raise UserError(
                f"The drafter in {folder} has values in {name} that are not finite; fetch or train"
                " it again."
            )
        value = tensor if scale is None else tensor.float() * scale.float()
        out[name] = value.long() if name == "draft_vocab" else value
    return out


def _check_kind(name: str, tensor: torch.Tensor, scale: torch.Tensor | None, folder: Path) -> None:
    """Raises UserError: numbers of a kind that no drafter has, or scales that are not its rows'."""
    if tensor.dtype not in (KINDS if scale is None else (torch.int8,)):
        kind = str(tensor.dtype).removeprefix("torch.")
        raise UserError(
            f"The drafter in {folder} stores {name} as {kind}, which is not read here; convert it"
            " to bfloat16, or fetch or train it again."
        )
    if scale is not None and (scale.shape != (*tensor.shape[:1], 1) or scale.dtype not in FLOATS):
        raise UserError(
            f"The drafter in {folder} has row scales of {name} that do not fit its rows; fetch or"
            " train it again."
        )


def shard_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted({Path(name).name for name in read_json(index)["weight_map"].values()})
        except (ValueError, KeyError, AttributeError, TypeError):
            raise UserError(
                f"The index {index} is damaged; fetch or train this drafter again."
            ) from None
        missing = [n for n in names if not (folder / n).is_file()]
        if missing:
            raise UserError(f"The drafter in {folder} lacks {missing[0]}; fetch or train it again.")
        return [folder / n for n in names]
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        other = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
        why = (
            "has only pickled weights, which SpecDemo never opens"
            if other
            else "has no model*.safetensors"
        )
        raise UserError(
            f"The drafter folder {folder} {why}; convert it to safetensors or choose another."
        )
    return files
