"""One file that holds everything needed to go on as if nothing had happened: weights, optimizer,
step, time used, curve.

The stream of data and random masks is a function of (seed, step), so the step is its whole state.
The file is written beside its name and renamed, so a kill at any moment leaves the last whole
checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import UserError

NAME = "checkpoint.safetensors"


def save(
    folder: Path,
    net: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    average: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write ``folder/checkpoint.safetensors``; ``state`` is JSON, ``average`` the moving average of
    the weights.
    """
    tensors = {f"net.{k}": v for k, v in net.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in (average or {}).items()}
    for name, p in net.named_parameters():
        for part, value in optimizer.state.get(p, {}).items():
            tensors[f"optimizer.{part}.{name}"] = value
    tensors = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
    part = folder / (NAME + ".part")
    save_file(tensors, part, metadata={"state": json.dumps(state)})
    part.replace(folder / NAME)


def load(
    folder: Path,
    net: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, torch.Tensor] | None = None,
) -> dict[str, Any]:
    """Restore net, optimizer and ``average`` in place; returns ``state``."""
    state, tensors = read(folder)
    net.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("net.")})
    for name, p in net.named_parameters():
        parts = {
            k.split(".", 2)[1]: v
            for k, v in tensors.items()
            if k.startswith("optimizer.") and k.split(".", 2)[2] == name
        }
        if parts:
            # the fused optimizer wants its count of steps beside the weights
            optimizer.state[p] = {k: v.to(p.device) for k, v in parts.items()}
    for name, value in (average or {}).items():
        # a checkpoint from before there was one begins it with the weights
        value.copy_(tensors.get(f"average.{name}", tensors[f"net.{name}"]))
    return state


def read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """``(state, tensors)`` of a checkpoint; a missing or damaged one is refused with a sentence."""
    if not (folder / NAME).is_file():
        raise UserError(
            f"There is no checkpoint in {folder}; name the folder of a run, or begin one without"
            " --resume."
        )
    try:
        with safe_open(folder / NAME, framework="pt") as file:
            return json.loads(file.metadata()["state"]), {
                k: file.get_tensor(k) for k in file.keys()
            }
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise UserError(
            f"The checkpoint in {folder} is damaged; begin another run with another --out, from its"
            " drafter folder if it has one (--start)."
        ) from None
